//! Content that waits for a person contains an agent's words and parts of files: it is sealed before it is
//! stored, with a key that only the owner of the state directory can read. A blob that was moved to another
//! row, or changed, cannot be unsealed.
#![expect(clippy::disallowed_methods, reason = "this crate owns the state directory")]

use std::path::Path;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::disk::{OsDisk, replace};
use crate::error::StoreError;

const NONCE: usize = 24;

/// Encrypted bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBlob(Vec<u8>);

impl SealedBlob {
    /// Bytes as they were stored; only [`BlobSealer::unseal`] tells whether they are valid.
    #[must_use]
    pub fn stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Seals and unseals blobs.
pub trait BlobSealer: Send + Sync {
    /// Seals bytes for one context, usually the id of a row.
    fn seal(&self, context: &str, bytes: &[u8]) -> Result<SealedBlob, StoreError>;

    /// Unseals what was sealed for the same context; `None` for anything else.
    #[must_use]
    fn unseal(&self, context: &str, blob: &SealedBlob) -> Option<Vec<u8>>;
}

/// Seals with the key of a state directory.
pub(crate) struct BlobCipher {
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for BlobCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobCipher").finish_non_exhaustive()
    }
}

impl BlobCipher {
    /// Loads the key of a state directory; created if it is missing. The caller holds the writer lock.
    pub(crate) fn load_or_create(keys: &Path) -> Result<Self, StoreError> {
        let path = keys.join("vault.key");
        let fault = |error: std::io::Error| StoreError::directory(&path, error);
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
            .map_err(|_| StoreError::Key("the file `keys/vault.key` does not have 32 bytes".to_owned()))?;
        Ok(Self { cipher: XChaCha20Poly1305::new(&Key::from(*key)) })
    }
}

impl BlobSealer for BlobCipher {
    fn seal(&self, context: &str, bytes: &[u8]) -> Result<SealedBlob, StoreError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let payload = Payload { msg: bytes, aad: context.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| StoreError::Io("sealing failed".to_owned()))?;
        Ok(SealedBlob([nonce.as_slice(), &sealed].concat()))
    }

    fn unseal(&self, context: &str, blob: &SealedBlob) -> Option<Vec<u8>> {
        let (nonce, sealed) = blob.0.split_at_checked(NONCE)?;
        let nonce: [u8; NONCE] = nonce.try_into().ok()?;
        self.cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: context.as_bytes() }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_unseals_only_unchanged_and_in_its_own_context() {
        let temp = tempfile::tempdir().unwrap();
        let cipher = BlobCipher::load_or_create(temp.path()).unwrap();
        let blob = cipher.seal("hitl-1", b"the raw call").unwrap();
        assert!(!blob.as_bytes().windows(3).any(|window| window == b"raw"));
        let again = BlobCipher::load_or_create(temp.path()).unwrap();
        assert_eq!(again.unseal("hitl-1", &blob).as_deref(), Some(b"the raw call".as_slice()));
        assert_eq!(again.unseal("hitl-2", &blob), None);
        let mut bad = blob.clone();
        bad.0[30] ^= 1;
        assert_eq!(again.unseal("hitl-1", &bad), None);
        assert_eq!(again.unseal("hitl-1", &SealedBlob(vec![1; 5])), None);
    }
}
