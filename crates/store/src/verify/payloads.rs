//! The check of what lies beside the chain: every payload that a record names is there and is the one that was
//! recorded, or a later record says that it was forgotten; and nothing else is there.

use std::collections::{BTreeMap, HashSet};

use rusqlite::Connection;
use vambrace_ledger::{Digest, Findings, Forgotten, Kind, NamedPayload, Place, may_name_payloads};

use crate::payload::fits;
use crate::schema;

/// What the lines say about payloads. Lines may come in any order.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    named: BTreeMap<(u64, String), Digest>,
    forgotten: HashSet<(u64, Digest)>,
    /// Records up to this one were not looked at.
    first: u64,
    last: u64,
}

impl Payloads {
    /// For the records behind one.
    pub(crate) fn behind(first: u64) -> Self {
        Self { first, last: first, ..Self::default() }
    }

    /// Adds what other lines say.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.named.extend(other.named);
        self.forgotten.extend(other.forgotten);
        self.last = self.last.max(other.last);
    }

    /// Takes the line of a record.
    pub(crate) fn feed(&mut self, seq: u64, line: &[u8]) {
        self.last = self.last.max(seq);
        if !may_name_payloads(line) {
            return;
        }
        let Ok(line) = std::str::from_utf8(line) else { return };
        for payload in NamedPayload::of_line(line) {
            self.named.insert((seq, payload.field), payload.commitment);
        }
        if let Some(forgotten) = Forgotten::of_line(line) {
            self.forgotten.insert((forgotten.seq, forgotten.commitment));
        }
    }

    /// Compares what was said with what is there.
    pub(crate) fn finish(mut self, connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
        // One state for the rest of it: a running store may add and forget meanwhile.
        let reading = connection.unchecked_transaction()?;
        self.rest(&reading)?;
        // A folder of an older program has none.
        if schema::has_table(&reading, "payloads")? {
            self.compare(&reading, findings)?;
        }
        for ((seq, field), commitment) in &self.named {
            if !self.forgotten.contains(&(*seq, *commitment)) {
                let detail =
                    format!("its payload `{field}` is missing, and no record says that it was forgotten");
                findings.fault(Place::Record(*seq), Kind::PayloadMissing, detail);
            }
        }
        Ok(())
    }

    /// The lines that came while the others were read.
    fn rest(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare("SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq")?;
        let mut rows = statement.query([crate::statements::signed(self.last)])?;
        while let Some(row) = rows.next()? {
            self.feed(row.get::<_, i64>(0)?.unsigned_abs(), row.get_ref(1)?.as_bytes()?);
        }
        Ok(())
    }

    /// Every payload that is there; what is found leaves the list of what was named.
    fn compare(&mut self, connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
        let mut statement = connection.prepare(
            "SELECT seq, field, salt, content FROM payloads WHERE seq > ?1 OR seq < 1 ORDER BY rowid",
        )?;
        let mut rows = statement.query([crate::statements::signed(self.first)])?;
        while let Some(row) = rows.next()? {
            // No record has a number below one: such a row belongs to none.
            let seq = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            let field: String = row.get(1)?;
            let place = Place::Record(seq);
            let Some(said) = self.named.remove(&(seq, field.clone())) else {
                let detail = format!("there is a payload `{field}` that the record does not name");
                findings.fault(place, Kind::PayloadUnknown, detail);
                continue;
            };
            if self.forgotten.contains(&(seq, said)) {
                let detail =
                    format!("its payload `{field}` is there, but a record says that it was forgotten");
                findings.fault(place, Kind::PayloadUnknown, detail);
            } else if !fits(row.get_ref(2)?.as_bytes()?, row.get_ref(3)?.as_bytes()?, said) {
                let detail = format!("its payload `{field}` is not the one that was recorded");
                findings.fault(place, Kind::PayloadDiffers, detail);
            }
        }
        Ok(())
    }
}
