//! Tokens: who may do what without a terminal. Stored is the hash of the secret; those that decide are keys as well, so that
//! a decision made with a token is a signature like any other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rusqlite::{Connection, Row};
use vambrace_ledger::{Digest, Id, KeyKind, SigningKey, Text, Timestamp, VerifyKey, words};
use zeroize::Zeroizing;

use crate::error::StoreError;
use crate::read::{id, must_digest, stamp, stamp_or_none, word};

words! {
    /// What a token is for.
    pub enum TokenKind {
        /// An agent: it may call, and decide nothing.
        Agent = "agent",
        /// A person: it decides.
        Approver = "approver",
        /// A machine that executes.
        Runner = "runner",
        /// Whoever looks after the installation: it decides too.
        Admin = "admin",
    }
}

impl TokenKind {
    /// Whether its holder decides.
    #[must_use]
    pub fn decides(self) -> bool {
        matches!(self, Self::Approver | Self::Admin)
    }
}

/// A token as its holder has it: `vbt_KIND_ID_SECRET`.
pub struct Token {
    /// What it says it is for; only the row counts.
    pub id: Id,
    secret: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Token {
    /// A new one.
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

    /// Reads what [`Token::text`] wrote.
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

    /// For its holder, once.
    #[must_use]
    pub fn text(&self, kind: TokenKind) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        Zeroizing::new(format!("vbt_{kind}_{}_{}", self.id, secret.as_str()))
    }

    /// What is stored of it.
    #[must_use]
    pub fn hash(&self) -> Digest {
        Digest::of_parts([b"vambrace-token-1".as_slice(), self.secret.as_slice()])
    }

    /// The key that it is, to sign decisions.
    pub fn key(&self) -> Result<SigningKey, StoreError> {
        let seed = Digest::of_parts([b"vambrace-token-key-1".as_slice(), self.secret.as_slice()]);
        SigningKey::new(&format!("token/{}", self.id), KeyKind::Log, seed.as_bytes())
            .map_err(|error| StoreError::Key(error.to_string()))
    }
}

/// What is known of a token. `T` is [`Text`] on the way in and `String` on the way out.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct TokenRow<T = Text> {
    pub id: Id,
    pub kind: TokenKind,
    pub name: T,
    pub user: T,
    pub hash: Digest,
    /// The public half, of those that decide.
    pub key: Option<VerifyKey>,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
}

impl<T> TokenRow<T> {
    /// Whether the token is this one, and counts at a moment.
    #[must_use]
    pub fn admits(&self, token: &Token, now: Timestamp) -> bool {
        let (own, given) = (self.hash, token.hash());
        // Of hashes of secrets with 256 bits: how long comparing takes tells nothing of use.
        own == given && self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

pub(crate) const TOKENS: &str =
    "SELECT id, kind, name, user, hash, key, created, expires, revoked FROM tokens";

pub(crate) fn insert(connection: &Connection, t: &TokenRow<Text>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO tokens (id, kind, name, user, hash, key, created, expires)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let row = (
        t.id.as_str(),
        t.kind.as_str(),
        t.name.get(),
        t.user.get(),
        t.hash.as_bytes().as_slice(),
        t.key.as_ref().map(ToString::to_string),
        t.created.millis(),
        t.expires.map(Timestamp::millis),
    );
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

impl TokenRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: id(row, 0)?,
            kind: word(row, 1, TokenKind::parse)?,
            name: row.get(2)?,
            user: row.get(3)?,
            hash: must_digest(row, 4)?,
            key: row.get::<_, Option<String>>(5)?.and_then(|key| key.parse().ok()),
            created: stamp(row, 6)?,
            expires: stamp_or_none(row, 7)?,
            revoked: stamp_or_none(row, 8)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_is_its_own_key() {
        let token = Token::make().unwrap();
        let text = token.text(TokenKind::Approver);
        let again = Token::read(&text).unwrap();
        assert_eq!((again.id.as_str(), again.hash()), (token.id.as_str(), token.hash()));
        assert_eq!(again.key().unwrap().verify_key(), token.key().unwrap().verify_key());
        let (_, random) = text.split_once(&format!("{}_", token.id)).unwrap();
        assert!(!format!("{token:?}").contains(random));
        for bad in ["", "vbt_agent", "vbt_agent_tok-1_short", "x"] {
            assert!(Token::read(bad).is_none(), "{bad}");
        }
    }
}
