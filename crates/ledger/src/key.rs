//! Keys of signed notes (C2SP signed-note): a name, a public or secret ed25519 key, and the four-byte id by which a
//! signature names its key. A log signs the plain text; a witness signs a time and the text.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer as _;

use crate::digest::Digest;

/// What a key is for; encoded as the byte before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Signs the text of a note.
    Log = 1,
    /// Signs a time and the text of a checkpoint (cosignature/v1).
    Witness = 4,
}

/// A public key, written `name+id+base64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyKey {
    name: String,
    kind: KeyKind,
    key: ed25519_dalek::VerifyingKey,
}

/// A secret key. Its only text form is [`SigningKey::secret_text`], for its own file.
#[derive(Clone)]
pub struct SigningKey {
    name: String,
    kind: KeyKind,
    key: ed25519_dalek::SigningKey,
}

/// Text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a key: {0}")]
pub struct BadKey(&'static str);

/// Names are delimited by spaces and plus signs, so they contain neither.
fn check_name(name: &str) -> Result<&str, BadKey> {
    let fits = !name.is_empty()
        && name.len() <= 255
        && name.chars().all(|c| c != '+' && !c.is_whitespace() && !c.is_control());
    if fits { Ok(name) } else { Err(BadKey("its name is empty, too long, or contains a space or a plus")) }
}

impl VerifyKey {
    /// The name of the signer.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the key is for.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The id by which a signature names the key.
    #[must_use]
    pub fn id(&self) -> [u8; 4] {
        let kind = [b'\n', self.kind as u8];
        let text = [self.name.as_bytes(), &kind, self.key.as_bytes()].concat();
        let [a, b, c, d, ..] = *Digest::of(&text).as_bytes();
        [a, b, c, d]
    }

    /// Whether the signature is valid for the text. Strict: for one key and text there is one form of a signature.
    #[must_use]
    pub fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        ed25519_dalek::Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(text, &signature).is_ok())
    }
}

impl fmt::Display for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = u32::from_be_bytes(self.id());
        let key = [&[self.kind as u8], self.key.as_bytes().as_slice()].concat();
        write!(f, "{}+{id:08x}+{}", self.name, STANDARD.encode(key))
    }
}

impl FromStr for VerifyKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let form = BadKey("expected `name+id+base64`");
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(form);
        };
        let bytes = STANDARD.decode(key).map_err(|_| form.clone())?;
        let (kind, bytes) = bytes.split_first().ok_or(form)?;
        let kind = match kind {
            1 => KeyKind::Log,
            4 => KeyKind::Witness,
            _ => return Err(BadKey("neither a log key nor a witness key, or not ed25519")),
        };
        let bytes = bytes.try_into().map_err(|_| BadKey("an ed25519 key has 32 bytes"))?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|_| BadKey("not on the curve"))?;
        let parsed = Self { name: check_name(name)?.to_owned(), kind, key };
        let stated_id = u32::from_str_radix(id, 16).ok().filter(|_| id.len() == 8);
        if stated_id == Some(u32::from_be_bytes(parsed.id())) {
            Ok(parsed)
        } else {
            Err(BadKey("its id does not match the key"))
        }
    }
}

impl SigningKey {
    /// A key from 32 secret random bytes.
    pub fn new(name: &str, kind: KeyKind, secret: &[u8; 32]) -> Result<Self, BadKey> {
        let key = ed25519_dalek::SigningKey::from_bytes(secret);
        Ok(Self { name: check_name(name)?.to_owned(), kind, key })
    }

    /// The public key.
    #[must_use]
    pub fn verify_key(&self) -> VerifyKey {
        VerifyKey { name: self.name.clone(), kind: self.kind, key: self.key.verifying_key() }
    }

    /// Signs a text.
    #[must_use]
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.key.sign(text).to_bytes()
    }

    /// The text form for a file that only its owner can read: the name and the secret.
    #[must_use]
    pub fn secret_text(&self) -> String {
        let kind = [self.kind as u8];
        let secret = [&kind, self.key.as_bytes().as_slice()].concat();
        format!("VAMBRACE+KEY+{}+{}\n", self.name, STANDARD.encode(secret))
    }

    /// Parses [`SigningKey::secret_text`].
    pub fn from_secret_text(text: &str) -> Result<Self, BadKey> {
        let form = BadKey("expected the secret key of a log or witness");
        let rest = text.trim_end().strip_prefix("VAMBRACE+KEY+").ok_or_else(|| form.clone())?;
        let (name, secret) = rest.split_once('+').ok_or_else(|| form.clone())?;
        let secret = STANDARD.decode(secret).map_err(|_| form.clone())?;
        let (kind, secret) = secret.split_first().ok_or_else(|| form.clone())?;
        let kind = match kind {
            1 => KeyKind::Log,
            4 => KeyKind::Witness,
            _ => return Err(form),
        };
        Self::new(name, kind, secret.try_into().map_err(|_| form)?)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_parse_back_and_damaged_keys_are_rejected() {
        for kind in [KeyKind::Log, KeyKind::Witness] {
            let key = SigningKey::new("example/w-1", kind, &[7; 32]).unwrap();
            let text = key.verify_key().to_string();
            assert_eq!(text.parse::<VerifyKey>().unwrap(), key.verify_key());
            let again = SigningKey::from_secret_text(&key.secret_text()).unwrap();
            assert_eq!(again.verify_key(), key.verify_key());
            assert!(key.verify_key().verifies(b"text", &again.sign(b"text")));
            assert!(!key.verify_key().verifies(b"texx", &again.sign(b"text")));
            for at in 0..text.len() {
                let mut bad = text.clone().into_bytes();
                bad[at] ^= 1;
                if let Ok(bad) = String::from_utf8(bad) {
                    assert!(bad.parse::<VerifyKey>().is_err(), "{bad}");
                }
            }
        }
        assert!(SigningKey::new("two words", KeyKind::Log, &[7; 32]).is_err());
        assert!(SigningKey::new("", KeyKind::Log, &[7; 32]).is_err());
    }

    #[test]
    fn a_key_made_by_another_program_parses() {
        // The verifier key of the examples of C2SP signed-note.
        let text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let key: VerifyKey = text.parse().unwrap();
        assert_eq!((key.name(), key.kind()), ("PeterNeumann", KeyKind::Log));
        assert_eq!(key.to_string(), text);
    }
}
