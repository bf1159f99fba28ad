//! The body of an `add-checkpoint` request (C2SP tlog-witness): the old size that the log believes the witness has, the
//! consistency proof from there, and the checkpoint. The client writes it and the server parses it strictly: each request has
//! exactly one encoding.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vambrace_ledger::{BadCheckpoint, Checkpoint, Digest, MAX_PROOF_HASHES, SignedNote};

/// Maximum size of a body in bytes: the largest note, the longest proof, and the line before them.
pub const MAX_REQUEST_BYTES: usize = (64 << 10) + (MAX_PROOF_HASHES + 1) * 64;

/// An `add-checkpoint` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddCheckpointRequest {
    /// The size of the checkpoint that the witness signed last, zero for none.
    pub old_size: u64,
    /// The consistency proof from that size to the checkpoint's.
    pub proof: Vec<Digest>,
    /// The parsed checkpoint.
    pub checkpoint: Checkpoint,
    /// The signed note of the checkpoint.
    pub note: SignedNote,
}

/// Why a body is not a valid `add-checkpoint` request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddCheckpoint {
    /// The lines before the checkpoint are invalid.
    #[error("{0}")]
    Lines(&'static str),
    /// The checkpoint is invalid.
    #[error(transparent)]
    Checkpoint(#[from] BadCheckpoint),
}

impl AddCheckpointRequest {
    /// A request for a checkpoint with the proof from an older size.
    pub fn new(old: u64, proof: Vec<Digest>, note: SignedNote) -> Result<Self, BadCheckpoint> {
        Ok(Self { old_size: old, proof, checkpoint: Checkpoint::of(&note)?, note })
    }

    /// Parses a body.
    pub fn parse(body: &[u8]) -> Result<Self, BadAddCheckpoint> {
        let bad = BadAddCheckpoint::Lines;
        let text = std::str::from_utf8(body).map_err(|_| bad("not UTF-8"))?;
        let (head, note) = text.split_once("\n\n").ok_or(bad("no empty line before the checkpoint"))?;
        let mut lines = head.split('\n');
        let size =
            lines.next().and_then(|line| line.strip_prefix("old ")).ok_or(bad("no `old SIZE` line"))?;
        let old = size.parse::<u64>().ok().filter(|number| number.to_string() == size);
        let old = old.ok_or(bad("the old size is not a canonical decimal number"))?;
        let mut proof = Vec::new();
        for line in lines {
            if proof.len() == MAX_PROOF_HASHES {
                return Err(bad("more than 63 hashes"));
            }
            let hash = STANDARD.decode(line).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            proof.push(Digest::from_bytes(hash.ok_or(bad("a hash is not 32 bytes in base64"))?));
        }
        let (checkpoint, note) = Checkpoint::parse(note.as_bytes())?;
        Ok(Self { old_size: old, proof, checkpoint, note })
    }
}

impl fmt::Display for AddCheckpointRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old_size)?;
        for hash in &self.proof {
            writeln!(f, "{}", STANDARD.encode(hash.as_bytes()))?;
        }
        write!(f, "\n{}", self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example in the specification of C2SP tlog-witness.
    const EXAMPLE: &str = "old 20852014\n\
        PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n\
        jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=\n\
        5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=\n\
        /6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=\n\
        \n\
        example.com/behind-the-sofa\n\
        20852163\n\
        CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\
        \n\
        \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n";

    #[test]
    fn example_of_the_specification_is_parsed_and_encoded() {
        let read = AddCheckpointRequest::parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!((read.old_size, read.proof.len(), read.checkpoint.size), (20_852_014, 4, 20_852_163));
        assert_eq!(read.to_string(), EXAMPLE);
    }

    #[test]
    fn malformed_requests_are_rejected() {
        let swap = |from: &str, to: &str| {
            assert!(EXAMPLE.contains(from));
            EXAMPLE.replacen(from, to, 1)
        };
        let hash = "PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n";
        for bad in [
            String::new(),
            swap("old ", "Old "),
            swap("old ", "old  "),
            swap("old 2", "old 02"),
            swap("old 2", "old +2"),
            swap("old 2", "old -2"),
            swap("old 20852014", "old 18446744073709551616"),
            swap("old 20852014\n", ""),
            swap("old 20852014\n", "old 20852014\r\n"),
            swap("PlRN", "Pl N"),
            swap("kaw=\n", "kaw\n"),
            swap("kaw=\n", "kax=\n"),
            swap("PlRN", "AAAAPlRN"),
            swap("j/0=\n\n", "j/0=\n"),
            swap("\n\nexample", "\n\n\nexample"),
            swap("\n20852163", "\n020852163"),
            swap(hash, &hash.repeat(61)),
            EXAMPLE.trim_end().to_owned(),
        ] {
            assert!(AddCheckpointRequest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(
            AddCheckpointRequest::parse(swap(hash, &hash.repeat(60)).as_bytes()).is_ok(),
            "63 hashes are allowed"
        );
        assert!(AddCheckpointRequest::parse(b"old 1\n\n\xff").is_err());
    }
}
