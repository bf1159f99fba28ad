//! SQL of access tokens.

use rusqlite::{Connection, Row};
use vambrace_ledger::{RedactedText, Timestamp};

use super::{id, required_digest, stamp, stamp_or_none, word};
use crate::access_token::{TokenKind, TokenRow};

pub(crate) const BY_ID: &str =
    "SELECT id, kind, name, user, hash, key, created, expires, revoked, tenant FROM tokens WHERE id = ?1";
/// Parameters: the owner. A token is for every project.
pub(crate) const NEWEST: &str =
    "SELECT id, kind, name, user, hash, key, created, expires, revoked, tenant FROM tokens
     WHERE ?1 IS NULL OR (tenant = ?1 AND user = ?2) ORDER BY created DESC, id DESC";

pub(crate) fn insert(connection: &Connection, t: &TokenRow<RedactedText>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO tokens (id, kind, name, user, hash, key, created, expires, tenant)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let row = (
        t.id.as_str(),
        t.kind.as_str(),
        t.name.get(),
        t.user.get(),
        t.hash.as_bytes().as_slice(),
        t.key.as_ref().map(ToString::to_string),
        t.created.millis(),
        t.expires.map(Timestamp::millis),
        t.tenant.get(),
    );
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<TokenRow<String>> {
    Ok(TokenRow {
        id: id(row, 0)?,
        kind: word(row, 1, TokenKind::parse)?,
        name: row.get(2)?,
        user: row.get(3)?,
        hash: required_digest(row, 4)?,
        key: row.get::<_, Option<String>>(5)?.and_then(|key| key.parse().ok()),
        created: stamp(row, 6)?,
        expires: stamp_or_none(row, 7)?,
        revoked: stamp_or_none(row, 8)?,
        tenant: row.get(9)?,
    })
}
