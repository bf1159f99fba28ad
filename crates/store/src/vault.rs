//! What waits for a person holds an agent's words and pieces of files: it is sealed before it is stored, with a key that
//! only the owner of the state folder reads. A row that was moved to another id, or changed, does not open.
#![expect(clippy::disallowed_methods, reason = "the state folder is owned by this crate")]

use std::path::Path;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::error::StoreError;
use crate::files::{OsDisk, replace};

const NONCE: usize = 24;

/// Sealed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept(Vec<u8>);

impl Kept {
    /// Bytes as they were stored; whether they open, the vault says.
    #[must_use]
    pub fn stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Seals and opens.
pub struct Vault {
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").finish_non_exhaustive()
    }
}

impl Vault {
    /// The key of a state folder, made when it is missing. The caller holds the writer lock.
    pub(crate) fn open(keys: &Path) -> Result<Self, StoreError> {
        let path = keys.join("vault.key");
        let fault = |error: std::io::Error| StoreError::folder(&path, error);
        let key = match std::fs::read(&path) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut key = Zeroizing::new(vec![0; 32]);
                getrandom::fill(&mut key)
                    .map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
                replace(&*OsDisk::shared(), &path, &key).map_err(fault)?;
                key
            }
            Err(error) => return Err(fault(error)),
        };
        let key: &[u8; 32] = key
            .as_slice()
            .try_into()
            .map_err(|_| StoreError::Key("the file `keys/vault.key` has not 32 bytes".to_owned()))?;
        Ok(Self { cipher: XChaCha20Poly1305::new(&Key::from(*key)) })
    }

    /// Seals bytes for one place.
    pub fn seal(&self, place: &str, bytes: &[u8]) -> Result<Kept, StoreError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let payload = Payload { msg: bytes, aad: place.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| StoreError::Io("sealing failed".to_owned()))?;
        Ok(Kept([nonce.as_slice(), &sealed].concat()))
    }

    /// Opens what was sealed for the same place; `None` for anything else.
    #[must_use]
    pub fn open_kept(&self, place: &str, kept: &Kept) -> Option<Vec<u8>> {
        let (nonce, sealed) = kept.0.split_at_checked(NONCE)?;
        let nonce: [u8; NONCE] = nonce.try_into().ok()?;
        self.cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: place.as_bytes() }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_in_its_place_only_and_unchanged_only() {
        let temp = tempfile::tempdir().unwrap();
        let vault = Vault::open(temp.path()).unwrap();
        let kept = vault.seal("hitl-1", b"the raw call").unwrap();
        assert!(!kept.as_bytes().windows(3).any(|window| window == b"raw"));
        let again = Vault::open(temp.path()).unwrap();
        assert_eq!(again.open_kept("hitl-1", &kept).as_deref(), Some(b"the raw call".as_slice()));
        assert_eq!(again.open_kept("hitl-2", &kept), None);
        let mut bad = kept.clone();
        bad.0[30] ^= 1;
        assert_eq!(again.open_kept("hitl-1", &bad), None);
        assert_eq!(again.open_kept("hitl-1", &Kept(vec![1; 5])), None);
    }
}
