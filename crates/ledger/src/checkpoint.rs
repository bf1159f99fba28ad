//! A checkpoint (C2SP tlog-checkpoint): the size and the root of the ledger at a moment, signed. Whoever keeps one
//! can show later that the ledger was cut, rewritten or rolled back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::digest::Digest;
use crate::key::{SigningKey, VerifyKey};
use crate::note::{BadNote, Note};

/// The size and root of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which ledger: its name, unique among all.
    pub origin: String,
    /// How many records it has.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Digest,
}

/// Text that is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCheckpoint {
    /// Not even a note.
    #[error(transparent)]
    Note(#[from] BadNote),
    /// A note about something else.
    #[error("not a checkpoint: {0}")]
    Body(&'static str),
}

impl Checkpoint {
    /// The checkpoint as a note with our signature.
    pub fn sign(&self, key: &SigningKey) -> Result<Note, BadNote> {
        let root = STANDARD.encode(self.root.as_bytes());
        Ok(Note::new(format!("{}\n{}\n{root}\n", self.origin, self.size))?.sign(key))
    }

    /// What a note says. Signatures are not looked at; further lines are allowed and ignored.
    pub fn of(note: &Note) -> Result<Self, BadCheckpoint> {
        let mut lines = note.text().lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(BadCheckpoint::Body("three lines are needed"));
        };
        if origin.is_empty() {
            return Err(BadCheckpoint::Body("no origin"));
        }
        let number: u64 = size.parse().map_err(|_| BadCheckpoint::Body("the size is no number"))?;
        if number.to_string() != size || number > i64::MAX as u64 {
            return Err(BadCheckpoint::Body("the size is not written plainly"));
        }
        let root = STANDARD.decode(root).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let root = root.ok_or(BadCheckpoint::Body("the root is not 32 bytes in base64"))?;
        if lines.any(str::is_empty) {
            return Err(BadCheckpoint::Body("an empty line"));
        }
        Ok(Self { origin: origin.to_owned(), size: number, root: Digest::from_bytes(root) })
    }

    /// Reads a note and what it says.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Note), BadCheckpoint> {
        let note = Note::parse(bytes)?;
        Ok((Self::of(&note)?, note))
    }
}

/// The text by which an old key hands over to a new one. Both sign it.
pub fn handover(origin: &str, old: &VerifyKey, new: &VerifyKey) -> Result<Note, BadNote> {
    Note::new(format!("{origin}\nthe key of this ledger changes\n{old}\n{new}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;
    use crate::note::Signed;

    #[test]
    fn a_checkpoint_reads_back() {
        let key = SigningKey::new("vambrace/w-1", KeyKind::Log, &[1; 32]).unwrap();
        let said = Checkpoint { origin: "vambrace/w-1".into(), size: 42, root: Digest::of(b"x") };
        let text = said.sign(&key).unwrap().to_string();
        let (read, note) = Checkpoint::parse(text.as_bytes()).unwrap();
        assert_eq!(read, said);
        assert_eq!(note.signed_by(&key.verify_key()), Signed::Yes(None));
    }

    #[test]
    fn what_is_not_plainly_a_checkpoint_is_refused() {
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
            let note = Note::new(bad.clone()).unwrap();
            assert!(Checkpoint::of(&note).is_err(), "{bad:?}");
        }
        let note = Note::new(format!("o\n1\n{root}\nan extension\n")).unwrap();
        assert!(Checkpoint::of(&note).is_ok());
    }
}
