//! Verifies the payloads beside the chain: every payload that a record names exists and matches its commitment,
//! or a later record says that it was forgotten; and no other payload exists.

use std::collections::{BTreeMap, HashSet};

use rusqlite::Connection;
use vambrace_ledger::{
    Digest, FindingKind, FindingLocation, Findings, ForgottenPayload, NamedPayload, may_name_payloads,
};

use crate::payload::matches_commitment;
use crate::sqlite::rows::signed;
use crate::sqlite::schema;

/// What the lines say about payloads. Lines may come in any order.
#[derive(Debug, Default)]
pub(crate) struct PayloadChecker {
    named: BTreeMap<(u64, String), Digest>,
    forgotten: HashSet<(u64, Digest)>,
    /// Records up to this one were not read.
    first: u64,
    last: u64,
}

impl PayloadChecker {
    /// For the records after `first`.
    pub(crate) fn after(first: u64) -> Self {
        Self { first, last: first, ..Self::default() }
    }

    /// Merges what other lines say.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.named.extend(other.named);
        self.forgotten.extend(other.forgotten);
        self.last = self.last.max(other.last);
    }

    /// Reads the line of a record.
    pub(crate) fn feed(&mut self, seq: u64, line: &[u8]) {
        self.last = self.last.max(seq);
        if !may_name_payloads(line) {
            return;
        }
        let Ok(line) = std::str::from_utf8(line) else { return };
        for payload in NamedPayload::of_line(line) {
            self.named.insert((seq, payload.field), payload.commitment);
        }
        if let Some(forgotten) = ForgottenPayload::of_line(line) {
            self.forgotten.insert((forgotten.seq, forgotten.commitment));
        }
    }

    /// Compares what the lines say with the stored payloads.
    pub(crate) fn finish(mut self, connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
        // One transaction for the rest: a running store may add and forget payloads meanwhile.
        let reading = connection.unchecked_transaction()?;
        self.read_newer_lines(&reading)?;
        // A directory of an older program has no such table.
        if schema::has_table(&reading, "payloads")? {
            self.compare(&reading, findings)?;
        }
        for ((seq, field), commitment) in &self.named {
            if !self.forgotten.contains(&(*seq, *commitment)) {
                let detail =
                    format!("its payload `{field}` is missing, and no record says that it was forgotten");
                findings.fault(FindingLocation::Record(*seq), FindingKind::PayloadMissing, detail);
            }
        }
        Ok(())
    }

    /// The lines that were added while the others were read.
    fn read_newer_lines(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare("SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq")?;
        let mut rows = statement.query([signed(self.last)])?;
        while let Some(row) = rows.next()? {
            self.feed(row.get::<_, i64>(0)?.unsigned_abs(), row.get_ref(1)?.as_bytes()?);
        }
        Ok(())
    }

    /// Checks every stored payload, and removes it from the list of named ones.
    fn compare(&mut self, connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
        let mut statement = connection.prepare(
            "SELECT seq, field, salt, content FROM payloads WHERE seq > ?1 OR seq < 1 ORDER BY rowid",
        )?;
        let mut rows = statement.query([signed(self.first)])?;
        while let Some(row) = rows.next()? {
            // No record has a number below one: such a row belongs to none.
            let seq = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            let field: String = row.get(1)?;
            let place = FindingLocation::Record(seq);
            let Some(commitment) = self.named.remove(&(seq, field.clone())) else {
                let detail = format!("a payload `{field}` exists that the record does not name");
                findings.fault(place, FindingKind::PayloadUnknown, detail);
                continue;
            };
            if self.forgotten.contains(&(seq, commitment)) {
                let detail = format!("its payload `{field}` exists, but a record says that it was forgotten");
                findings.fault(place, FindingKind::PayloadUnknown, detail);
            } else if !matches_commitment(
                row.get_ref(2)?.as_bytes()?,
                row.get_ref(3)?.as_bytes()?,
                commitment,
            ) {
                let detail = format!("its payload `{field}` does not match its commitment");
                findings.fault(place, FindingKind::PayloadDiffers, detail);
            }
        }
        Ok(())
    }
}
