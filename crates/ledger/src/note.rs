//! Signed notes (C2SP signed-note): a text of whole lines, an empty line, and one line per signature. Parsed strictly,
//! so that two readers never see different notes in the same bytes.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::key::{KeyKind, SigningKey, VerifyKey};
use crate::timestamp::Timestamp;

/// Maximum size of a note in bytes, and maximum number of signatures.
const MAX_BYTES: usize = 64 << 10;
const MAX_SIGNATURES: usize = 16;
/// Precedes every signature.
const DASH: &str = "\u{2014} ";

/// A text and its signatures, which may be invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    // INVARIANT: whole lines without control characters.
    text: String,
    signatures: Vec<NoteSignature>,
}

/// One signature: the name and id of the key that it claims, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    id: [u8; 4],
    bytes: Vec<u8>,
}

/// Bytes that are not a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a signed note: {0}")]
pub struct BadNote(&'static str);

/// Whether a key signed a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureStatus {
    /// A valid signature; that of a witness has a time, in seconds since 1970.
    Valid(Option<u64>),
    /// No signature claims this key.
    Missing,
    /// A signature claims this key and is invalid.
    Invalid,
}

impl SignedNote {
    /// A text to be signed: whole lines.
    pub fn new(text: impl Into<String>) -> Result<Self, BadNote> {
        let text = text.into();
        if !text.ends_with('\n') || text.chars().any(|c| c.is_control() && c != '\n') {
            return Err(BadNote("expected whole lines without control characters"));
        }
        Ok(Self { text, signatures: Vec::new() })
    }

    /// Parses a note.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadNote> {
        if bytes.len() > MAX_BYTES {
            return Err(BadNote("too long"));
        }
        let whole = std::str::from_utf8(bytes).map_err(|_| BadNote("not UTF-8"))?;
        let (text, lines) = whole.rsplit_once("\n\n").ok_or(BadNote("no signatures"))?;
        let lines = lines.strip_suffix('\n').ok_or(BadNote("the last line is incomplete"))?;
        let mut note = Self::new(format!("{text}\n"))?;
        for line in lines.split('\n') {
            note.signatures.push(NoteSignature::parse(line)?);
        }
        if note.signatures.len() > MAX_SIGNATURES {
            return Err(BadNote("too many signatures"));
        }
        Ok(note)
    }

    /// The text that is signed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds the signature of a log.
    #[must_use]
    pub fn sign(mut self, key: &SigningKey) -> Self {
        let bytes = key.sign(self.text.as_bytes()).to_vec();
        self.signatures.push(NoteSignature::of(&key.verify_key(), bytes));
        self
    }

    /// Adds the signature of a witness, with the time at which the witness saw the text.
    #[must_use]
    pub fn cosign(mut self, key: &SigningKey, at: Timestamp) -> Self {
        let seconds = at.millis().max(0).unsigned_abs() / 1000;
        let signature = key.sign(cosigned(seconds, &self.text).as_bytes());
        let bytes = [seconds.to_be_bytes().as_slice(), &signature].concat();
        self.signatures.push(NoteSignature::of(&key.verify_key(), bytes));
        self
    }

    /// Adds signature lines of the same text that another party sent.
    pub fn add_lines(mut self, lines: &str) -> Result<Self, BadNote> {
        for line in lines.lines() {
            let signature = NoteSignature::parse(line)?;
            if !self.signatures.contains(&signature) {
                self.signatures.push(signature);
            }
        }
        if self.signatures.len() > MAX_SIGNATURES {
            return Err(BadNote("too many signatures"));
        }
        Ok(self)
    }

    /// The note with only the first signature that claims this key.
    #[must_use]
    pub fn only(mut self, key: &VerifyKey) -> Self {
        let id = key.id();
        self.signatures.retain(|signature| signature.name == key.name() && signature.id == id);
        self.signatures.truncate(1);
        self
    }

    /// The last signature as a line, as a witness responds.
    #[must_use]
    pub fn last_line(&self) -> String {
        self.signatures.last().map(|signature| format!("{signature}\n")).unwrap_or_default()
    }

    /// Whether a key signed the note. Signatures of other keys are ignored.
    #[must_use]
    pub fn signed_by(&self, key: &VerifyKey) -> SignatureStatus {
        let id = key.id();
        let mut found = SignatureStatus::Missing;
        for signature in self.signatures.iter().filter(|s| s.name == key.name() && s.id == id) {
            match signature.check(&self.text, key) {
                Some(at) if found != SignatureStatus::Invalid => found = SignatureStatus::Valid(at),
                _ => found = SignatureStatus::Invalid,
            }
        }
        found
    }
}

/// The text that a witness signs.
fn cosigned(seconds: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {seconds}\n{text}")
}

impl NoteSignature {
    fn of(key: &VerifyKey, bytes: Vec<u8>) -> Self {
        Self { name: key.name().to_owned(), id: key.id(), bytes }
    }

    fn parse(line: &str) -> Result<Self, BadNote> {
        let form = BadNote("malformed signature line");
        let (name, code) =
            line.strip_prefix(DASH).and_then(|rest| rest.split_once(' ')).ok_or(form.clone())?;
        if name.is_empty() || name.contains('+') || name.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            return Err(form);
        }
        let bytes = STANDARD.decode(code).map_err(|_| form.clone())?;
        let (id, bytes) = bytes.split_first_chunk::<4>().ok_or(form)?;
        Ok(Self { name: name.to_owned(), id: *id, bytes: bytes.to_vec() })
    }

    /// `Some` if the signature is valid; inside, the time if a witness signed.
    fn check(&self, text: &str, key: &VerifyKey) -> Option<Option<u64>> {
        match key.kind() {
            KeyKind::Log => key.verifies(text.as_bytes(), &self.bytes).then_some(None),
            KeyKind::Witness => {
                let (seconds, bytes) = self.bytes.split_first_chunk::<8>()?;
                let seconds = u64::from_be_bytes(*seconds);
                key.verifies(cosigned(seconds, text).as_bytes(), bytes).then_some(Some(seconds))
            }
        }
    }
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = STANDARD.encode([self.id.as_slice(), &self.bytes].concat());
        write!(f, "{DASH}{} {code}", self.name)
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, kind: KeyKind, secret: u8) -> SigningKey {
        SigningKey::new(name, kind, &[secret; 32]).unwrap()
    }

    fn note() -> SignedNote {
        SignedNote::new("log/a\n7\nroot\n").unwrap().sign(&key("log/a", KeyKind::Log, 1))
    }

    #[test]
    fn a_note_of_another_program_verifies() {
        // The example of C2SP signed-note.
        let text = "If you think cryptography is the answer to your problem,\n\
                    then you don't know what your problem is.\n\n\
                    \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        let key: VerifyKey =
            "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".parse().unwrap();
        let note = SignedNote::parse(text.as_bytes()).unwrap();
        assert_eq!(note.signed_by(&key), SignatureStatus::Valid(None));
        assert_eq!(note.to_string(), text);
    }

    #[test]
    fn log_and_witness_signatures_are_distinguished() {
        let (log, witness) = (key("log/a", KeyKind::Log, 1), key("eye", KeyKind::Witness, 2));
        let seen = note().cosign(&witness, Timestamp::from_millis(1_700_000_000_999));
        let read = SignedNote::parse(seen.to_string().as_bytes()).unwrap();
        assert_eq!(read, seen);
        assert_eq!(read.signed_by(&log.verify_key()), SignatureStatus::Valid(None));
        assert_eq!(read.signed_by(&witness.verify_key()), SignatureStatus::Valid(Some(1_700_000_000)));
        assert_eq!(read.signed_by(&key("eye", KeyKind::Witness, 3).verify_key()), SignatureStatus::Missing);
        assert_eq!(note().add_lines(&seen.last_line()).unwrap(), seen);
        assert_eq!(seen.clone().sign(&log).only(&log.verify_key()), note());
        let other = SignedNote::new("log/a\n8\nroot\n").unwrap().add_lines(&seen.last_line()).unwrap();
        assert_eq!(other.signed_by(&witness.verify_key()), SignatureStatus::Invalid);
    }

    #[test]
    fn every_flipped_bit_of_a_note_is_found() {
        let good = note().to_string().into_bytes();
        let key = key("log/a", KeyKind::Log, 1).verify_key();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let signed = SignedNote::parse(&bad).map(|note| note.signed_by(&key));
                assert!(!matches!(signed, Ok(SignatureStatus::Valid(_))), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn anything_but_a_strict_note_is_rejected() {
        for bad in
            ["", "a\n", "a\n\n", "a\n\n\u{2014} x\n", "a\n\n- x AAAAAA==\n", "a\r\n\n\u{2014} x AAAAAA==\n"]
        {
            assert!(SignedNote::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(SignedNote::new("no end of line").is_err());
    }
}
