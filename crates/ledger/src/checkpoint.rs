//! A checkpoint (C2SP tlog-checkpoint): the signed size and root of the ledger at one moment. A kept checkpoint proves
//! later that the ledger was truncated, rewritten or rolled back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::digest::Digest;
use crate::key::{SigningKey, VerifyKey};
use crate::note::{BadNote, SignedNote};

/// The size and root of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Unique name of the ledger.
    pub origin: String,
    /// Number of records.
    pub size: u64,
    /// Root of the tree over the records.
    pub root: Digest,
}

/// Text that is not a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCheckpoint {
    /// Not a signed note.
    #[error(transparent)]
    Note(#[from] BadNote),
    /// A note with other content.
    #[error("not a checkpoint: {0}")]
    Body(&'static str),
}

impl Checkpoint {
    /// The checkpoint as a note, signed by `key`.
    pub fn sign(&self, key: &SigningKey) -> Result<SignedNote, BadNote> {
        let root = STANDARD.encode(self.root.as_bytes());
        Ok(SignedNote::new(format!("{}\n{}\n{root}\n", self.origin, self.size))?.sign(key))
    }

    /// Parses the text of a note. Does not check signatures; additional lines are allowed and ignored.
    pub fn of(note: &SignedNote) -> Result<Self, BadCheckpoint> {
        let mut lines = note.text().lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(BadCheckpoint::Body("expected at least three lines"));
        };
        if origin.is_empty() {
            return Err(BadCheckpoint::Body("no origin"));
        }
        let number: u64 = size.parse().map_err(|_| BadCheckpoint::Body("the size is not a number"))?;
        if number.to_string() != size || number > i64::MAX as u64 {
            return Err(BadCheckpoint::Body("the size is not in plain decimal"));
        }
        let root = STANDARD.decode(root).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let root = root.ok_or(BadCheckpoint::Body("the root is not 32 bytes in base64"))?;
        if lines.any(str::is_empty) {
            return Err(BadCheckpoint::Body("an empty line"));
        }
        Ok(Self { origin: origin.to_owned(), size: number, root: Digest::from_bytes(root) })
    }

    /// Parses a note and the checkpoint in it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, SignedNote), BadCheckpoint> {
        let note = SignedNote::parse(bytes)?;
        Ok((Self::of(&note)?, note))
    }
}

/// The text by which an old key hands over to a new one. Both keys sign it.
pub fn handover(origin: &str, old: &VerifyKey, new: &VerifyKey) -> Result<SignedNote, BadNote> {
    SignedNote::new(format!("{origin}\nthe key of this ledger changes\n{old}\n{new}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;
    use crate::note::SignatureStatus;

    #[test]
    fn a_checkpoint_parses_back() {
        let key = SigningKey::new("vambrace/w-1", KeyKind::Log, &[1; 32]).unwrap();
        let checkpoint = Checkpoint { origin: "vambrace/w-1".into(), size: 42, root: Digest::of(b"x") };
        let text = checkpoint.sign(&key).unwrap().to_string();
        let (read, note) = Checkpoint::parse(text.as_bytes()).unwrap();
        assert_eq!(read, checkpoint);
        assert_eq!(note.signed_by(&key.verify_key()), SignatureStatus::Valid(None));
    }

    #[test]
    fn anything_but_a_plain_checkpoint_is_rejected() {
        let root = STANDARD.encode([0; 32]);
        for bad in [
            "o\n1\n".to_owned(),
            format!("\n1\n{root}\n"),
            format!("o\n01\n{root}\n"),
            format!("o\n+1\n{root}\n"),
            format!("o\n18446744073709551615\n{root}\n"),
            "o\n1\nAAAA\n".to_owned(),
            format!("o\n1\n{root}\nmore\n\nmore\n"),
        ] {
            let note = SignedNote::new(bad.clone()).unwrap();
            assert!(Checkpoint::of(&note).is_err(), "{bad:?}");
        }
        let note = SignedNote::new(format!("o\n1\n{root}\nan extension\n")).unwrap();
        assert!(Checkpoint::of(&note).is_ok());
    }
}
