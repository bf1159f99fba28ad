//! Access tokens: permissions without a terminal. The store keeps the hash of the secret. Tokens that can
//! decide are also keys, so that a decision made with a token is a signature like any other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vambrace_ledger::{Digest, Id, KeyKind, RedactedText, SigningKey, Timestamp, VerifyKey, word_enum};
use zeroize::Zeroizing;

use crate::error::StoreError;

word_enum! {
    /// What a token is for.
    pub enum TokenKind {
        /// An agent: may call tools, and decides nothing.
        Agent = "agent",
        /// A person: may decide.
        Approver = "approver",
        /// A machine that executes.
        Runner = "runner",
        /// An administrator of the installation: reads everything, manages tokens, and decides for its own user.
        Admin = "admin",
    }
}

impl TokenKind {
    /// Whether its holder can decide, for its own user.
    #[must_use]
    pub fn decides(self) -> bool {
        matches!(self, Self::Approver | Self::Admin)
    }
}

/// A token as its holder has it: `vbt_KIND_ID_SECRET`.
pub struct AccessToken {
    /// Its id. The kind in the text is only a hint; the row counts.
    pub id: Id,
    secret: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AccessToken {
    /// Creates a token.
    pub fn make() -> Result<Self, StoreError> {
        let mut bytes = Zeroizing::new([0; 38]);
        getrandom::fill(&mut *bytes).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let (name, rest) = bytes.split_at(6);
        let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(rest);
        let id = Id::new(&format!("tok-{hex}")).map_err(|error| StoreError::Io(error.to_string()))?;
        Ok(Self { id, secret })
    }

    /// Parses what [`AccessToken::text`] returned.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.trim().strip_prefix("vbt_")?.splitn(3, '_');
        let (_kind, id, secret) = (words.next()?, words.next()?, words.next()?);
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(secret).ok()?);
        let mut secret = Zeroizing::new([0; 32]);
        if bytes.len() != secret.len() {
            return None;
        }
        secret.copy_from_slice(&bytes);
        Some(Self { id: Id::new(id).ok()?, secret })
    }

    /// The text for its holder, shown once.
    #[must_use]
    pub fn text(&self, kind: TokenKind) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        Zeroizing::new(format!("vbt_{kind}_{}_{}", self.id, secret.as_str()))
    }

    /// The hash that is stored.
    #[must_use]
    pub fn hash(&self) -> Digest {
        Digest::of_parts([b"vambrace-token-1".as_slice(), self.secret.as_slice()])
    }

    /// The key that signs decisions made with it.
    pub fn key(&self) -> Result<SigningKey, StoreError> {
        let seed = Digest::of_parts([b"vambrace-token-key-1".as_slice(), self.secret.as_slice()]);
        SigningKey::new(&format!("token/{}", self.id), KeyKind::Log, seed.as_bytes())
            .map_err(|error| StoreError::Key(error.to_string()))
    }
}

/// A stored token. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct TokenRow<T = RedactedText> {
    pub id: Id,
    pub kind: TokenKind,
    pub name: T,
    /// Tenant of the user.
    pub tenant: T,
    pub user: T,
    pub hash: Digest,
    /// The public key, of a token that can decide.
    pub key: Option<VerifyKey>,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
}

impl<T> TokenRow<T> {
    /// Whether this is the token's row, and the token is valid at `now`.
    #[must_use]
    pub fn admits(&self, token: &AccessToken, now: Timestamp) -> bool {
        let (own, given) = (self.hash, token.hash());
        // These are hashes of 256-bit secrets, so the time of the comparison reveals nothing useful.
        own == given && self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_parses_back_to_the_same_hash_and_key() {
        let token = AccessToken::make().unwrap();
        let text = token.text(TokenKind::Approver);
        let again = AccessToken::read(&text).unwrap();
        assert_eq!((again.id.as_str(), again.hash()), (token.id.as_str(), token.hash()));
        assert_eq!(again.key().unwrap().verify_key(), token.key().unwrap().verify_key());
        let (_, random) = text.split_once(&format!("{}_", token.id)).unwrap();
        assert!(!format!("{token:?}").contains(random));
        for bad in ["", "vbt_agent", "vbt_agent_tok-1_short", "x"] {
            assert!(AccessToken::read(bad).is_none(), "{bad}");
        }
    }
}
