//! The approver key: its holder decides. An ed25519 key in `keys/approver.key`, sealed with a passphrase
//! (argon2id, XChaCha20-Poly1305). The file contains the public key in clear, so that decisions can be verified
//! without the passphrase.
//!
//! A lost passphrase cannot be recovered: remove the file, and the next decision creates another key, which the
//! ledger records.
#![expect(clippy::disallowed_methods, reason = "this crate owns the state directory")]

use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use vambrace_ledger::{KeyKind, SigningKey, VerifyKey};
use zeroize::Zeroizing;

use crate::disk::{OsDisk, replace};
use crate::error::StoreError;
use crate::state_dir::StateDir;

const FORMAT: &str = "vambrace-approver-1";
/// Memory in KiB, passes, lanes. For an existing file they are read from it, up to the maximum below.
const ARGON2_COST: (u32, u32, u32) = (64 * 1024, 2, 1);
const MAX_ARGON2_COST: (u32, u32, u32) = (1024 * 1024, 64, 16);

/// Unlocks the key. It has no text form.
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// Takes a passphrase; `None` if it is empty.
    #[must_use]
    pub fn new(text: Zeroizing<String>) -> Option<Self> {
        (!text.is_empty()).then_some(Self(text))
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase")
    }
}

/// Why there is no key.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApproverKeyError {
    /// Wrong passphrase.
    #[error("the passphrase does not open the approver key")]
    WrongPassphrase,
    /// Not a valid key file.
    #[error("the approver key `{0}` cannot be read: {1}")]
    Damaged(PathBuf, String),
    /// An error of the state directory.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The approver key file of a state directory.
#[derive(Debug, Clone)]
pub struct ApproverKey {
    path: PathBuf,
}

struct KeyFileContent {
    public: VerifyKey,
    cost: (u32, u32, u32),
    salt: Vec<u8>,
    nonce: [u8; 24],
    sealed: Vec<u8>,
}

impl ApproverKey {
    /// The key file of a state directory.
    #[must_use]
    pub fn of(dir: &StateDir) -> Self {
        Self { path: dir.keys().join("approver.key") }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The public key; `None` if there is no key yet.
    pub fn public(&self) -> Result<Option<VerifyKey>, ApproverKeyError> {
        Ok(self.file()?.map(|file| file.public))
    }

    /// Opens the key with its passphrase; `None` if there is no key yet.
    pub fn unlock(&self, passphrase: &Passphrase) -> Result<Option<SigningKey>, ApproverKeyError> {
        let Some(file) = self.file()? else { return Ok(None) };
        let key = derived(passphrase, &file.salt, file.cost).map_err(|why| self.damaged(why))?;
        let public = file.public.to_string();
        let payload = Payload { msg: &file.sealed, aad: public.as_bytes() };
        let seed = XChaCha20Poly1305::new(&Key::from(*key))
            .decrypt(&XNonce::from(file.nonce), payload)
            .map_err(|_| ApproverKeyError::WrongPassphrase)?;
        let seed = Zeroizing::new(seed);
        let seed: &[u8; 32] =
            seed.as_slice().try_into().map_err(|_| self.damaged("its secret is too short"))?;
        let key = SigningKey::new(file.public.name(), KeyKind::Log, seed)
            .map_err(|error| self.damaged(&error.to_string()))?;
        if key.verify_key() == file.public {
            Ok(Some(key))
        } else {
            Err(self.damaged("its public and secret keys do not match"))
        }
    }

    /// Creates a key for a person. An existing one is not replaced.
    pub fn make(&self, name: &str, passphrase: &Passphrase) -> Result<SigningKey, ApproverKeyError> {
        if self.path.try_exists().unwrap_or(true) {
            return Err(self.damaged("the file already exists"));
        }
        let mut seed = Zeroizing::new([0; 32]);
        random(&mut *seed)?;
        let plain: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(64).collect();
        let key = SigningKey::new(&format!("approver/{plain}"), KeyKind::Log, &seed)
            .map_err(|error| self.damaged(&error.to_string()))?;
        self.write(&key.verify_key(), &seed, passphrase)?;
        Ok(key)
    }

    /// Seals the same key with another passphrase.
    pub fn reseal(&self, key: &SigningKey, passphrase: &Passphrase) -> Result<(), ApproverKeyError> {
        let text = Zeroizing::new(key.secret_text());
        // The name contains no plus sign; the secret may.
        let secret = text.trim_end().splitn(4, '+').nth(3).and_then(|secret| STANDARD.decode(secret).ok());
        let secret = Zeroizing::new(secret.ok_or_else(|| self.damaged("its secret cannot be read"))?);
        let mut seed = Zeroizing::new([0; 32]);
        let bytes = secret.get(1..).filter(|bytes| bytes.len() == 32);
        seed.copy_from_slice(bytes.ok_or_else(|| self.damaged("its secret is too short"))?);
        self.write(&key.verify_key(), &seed, passphrase)
    }

    fn write(
        &self,
        public: &VerifyKey,
        seed: &[u8; 32],
        passphrase: &Passphrase,
    ) -> Result<(), ApproverKeyError> {
        let (mut salt, mut nonce) = ([0; 16], [0; 24]);
        random(&mut salt)?;
        random(&mut nonce)?;
        let key = derived(passphrase, &salt, ARGON2_COST).map_err(|why| self.damaged(why))?;
        let public = public.to_string();
        let payload = Payload { msg: seed.as_slice(), aad: public.as_bytes() };
        let sealed = XChaCha20Poly1305::new(&Key::from(*key))
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| self.damaged("sealing failed"))?;
        let (memory, passes, lanes) = ARGON2_COST;
        let text = format!(
            "{FORMAT}\npublic {public}\nargon2id {memory} {passes} {lanes} {}\nsealed {} {}\n",
            STANDARD.encode(salt),
            STANDARD.encode(nonce),
            STANDARD.encode(sealed)
        );
        replace(&*OsDisk::shared(), &self.path, text.as_bytes())
            .map_err(|error| StoreError::directory(&self.path, error).into())
    }

    fn file(&self) -> Result<Option<KeyFileContent>, ApproverKeyError> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::directory(&self.path, error).into()),
        };
        parse(&text).map(Some).ok_or_else(|| self.damaged("it is not in the format of version 1"))
    }

    fn damaged(&self, why: &str) -> ApproverKeyError {
        ApproverKeyError::Damaged(self.path.clone(), why.to_owned())
    }
}

/// The key that signs decisions that come through a client the user trusts. It is not sealed: anyone who can
/// read the state directory can use it, and the record names the client. Returns whether the key was created
/// now.
pub fn client_key(dir: &StateDir) -> Result<(SigningKey, bool), ApproverKeyError> {
    let path = dir.keys().join("client.key");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let text = Zeroizing::new(text);
            let key = SigningKey::from_secret_text(&text);
            key.map(|key| (key, false)).map_err(|error| ApproverKeyError::Damaged(path, error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut seed = Zeroizing::new([0; 32]);
            random(&mut *seed)?;
            let key = SigningKey::new("client/local", KeyKind::Log, &seed)
                .map_err(|error| ApproverKeyError::Damaged(path.clone(), error.to_string()))?;
            let text = Zeroizing::new(key.secret_text());
            replace(&*OsDisk::shared(), &path, text.as_bytes())
                .map_err(|error| StoreError::directory(&path, error))?;
            Ok((key, true))
        }
        Err(error) => Err(StoreError::directory(&path, error).into()),
    }
}

fn parse(text: &str) -> Option<KeyFileContent> {
    let mut lines = text.lines();
    (lines.next()? == FORMAT).then_some(())?;
    let public = lines.next()?.strip_prefix("public ")?.parse().ok()?;
    let mut words = lines.next()?.strip_prefix("argon2id ")?.split(' ');
    let mut number = || words.next()?.parse::<u32>().ok();
    let cost = (number()?, number()?, number()?);
    let salt = STANDARD.decode(words.next()?).ok()?;
    let (nonce, sealed) = lines.next()?.strip_prefix("sealed ")?.split_once(' ')?;
    let nonce = STANDARD.decode(nonce).ok()?.try_into().ok()?;
    let within = cost.0 <= MAX_ARGON2_COST.0 && cost.1 <= MAX_ARGON2_COST.1 && cost.2 <= MAX_ARGON2_COST.2;
    within.then_some(KeyFileContent { public, cost, salt, nonce, sealed: STANDARD.decode(sealed).ok()? })
}

fn derived(
    passphrase: &Passphrase,
    salt: &[u8],
    (memory, passes, lanes): (u32, u32, u32),
) -> Result<Zeroizing<[u8; 32]>, &'static str> {
    let parameters =
        Params::new(memory, passes, lanes, Some(32)).map_err(|_| "its argon2 costs are invalid")?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
        .hash_password_into(passphrase.0.as_bytes(), salt, &mut *key)
        .map_err(|_| "its key cannot be derived")?;
    Ok(key)
}

fn random(bytes: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(bytes).map_err(|error| StoreError::Io(format!("no randomness: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrase(text: &str) -> Passphrase {
        Passphrase::new(Zeroizing::new(text.to_owned())).unwrap()
    }

    // ARCHITECTURE.md: a decision is a signature
    #[test]
    fn only_the_right_passphrase_opens_the_key_and_it_can_be_changed() {
        let temp = tempfile::tempdir().unwrap();
        let approver = ApproverKey::of(&StateDir::open(temp.path().join("s")).unwrap());
        assert!(approver.public().unwrap().is_none());
        assert!(approver.unlock(&phrase("x")).unwrap().is_none());
        for _ in 0..8 {
            // Several keys, because the text form of the secret varies.
            let key = approver.make("ada", &phrase("x")).unwrap();
            approver.reseal(&key, &phrase("y")).unwrap();
            assert_eq!(approver.unlock(&phrase("y")).unwrap().unwrap().verify_key(), key.verify_key());
            std::fs::remove_file(approver.path()).unwrap();
        }
        let key = approver.make("ada lovelace", &phrase("correct horse")).unwrap();
        assert_eq!(key.verify_key().name(), "approver/adalovelace");
        assert!(approver.make("ada", &phrase("other")).is_err());
        let text = std::fs::read_to_string(approver.path()).unwrap();
        assert!(!text.contains(&STANDARD.encode(key.secret_text())));
        assert!(matches!(approver.unlock(&phrase("wrong")), Err(ApproverKeyError::WrongPassphrase)));
        let again = approver.unlock(&phrase("correct horse")).unwrap().unwrap();
        assert_eq!(again.verify_key(), key.verify_key());
        approver.reseal(&again, &phrase("battery staple")).unwrap();
        assert!(approver.unlock(&phrase("correct horse")).is_err());
        assert_eq!(
            approver.unlock(&phrase("battery staple")).unwrap().unwrap().verify_key(),
            key.verify_key()
        );
        assert!(Passphrase::new(Zeroizing::new(String::new())).is_none());
    }
}
