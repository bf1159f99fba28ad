//! The keys of the ledger as its own records name them: the first one by itself, each later one with the
//! signatures of both.

use serde_json::Value;
use vambrace_ledger::{
    Digest, FindingKind, FindingLocation, Findings, SignatureStatus, SignedNote, SigningKey, VerifyKey,
    handover,
};

use crate::error::StoreError;
use crate::ledger_keys::LedgerKeyFiles;

/// How often a key file that does not match is read again, since a running store may rotate keys.
const MAX_REREADS: u32 = 5;

/// A record of the ledger about itself.
#[derive(Debug)]
pub(super) struct SelfRecord {
    event: String,
    key: Option<VerifyKey>,
    pub(super) note: Option<SignedNote>,
    pub(super) tree: Option<(u64, Digest)>,
}

impl SelfRecord {
    pub(super) fn read(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let size = line.get("tree_size").and_then(Value::as_u64);
        Some(Self {
            event: text("event_type")?.to_owned(),
            key: text("key").and_then(|key| key.parse().ok()),
            note: text("note").and_then(|note| SignedNote::parse(note.as_bytes()).ok()),
            tree: size.zip(text("root_hash").and_then(|root| root.parse().ok())),
        })
    }

    pub(super) fn is(&self, event: &str) -> bool {
        self.event == event
    }
}

/// Which key is valid from which record on.
#[derive(Debug)]
pub(super) struct Keyring {
    keys: Vec<(u64, VerifyKey)>,
}

impl Keyring {
    /// Reads the records about keys.
    pub(super) fn of<'l>(
        writer: &str,
        special: impl Iterator<Item = &'l (u64, String)>,
        findings: &mut Findings,
    ) -> Self {
        let mut keys: Vec<(u64, VerifyKey)> = Vec::new();
        for (seq, line) in special {
            let Some(record) = SelfRecord::read(line).filter(|record| record.event.starts_with("key."))
            else {
                continue;
            };
            let Some(new) = record.key else {
                findings.fault(FindingLocation::Record(*seq), FindingKind::BadHandover, "it names no key");
                continue;
            };
            let fault = match keys.last() {
                None if record.event == "key.created" => None,
                None => Some("a key takes over although there was none before"),
                Some((_, old)) => handover_fault(writer, old, &new, record.note.as_ref()),
            };
            if let Some(detail) = fault {
                findings.fault(FindingLocation::Record(*seq), FindingKind::BadHandover, detail);
            }
            keys.push((*seq, new));
        }
        Self { keys }
    }

    /// Whether a note about a ledger of this size is signed by the key that was valid then, or by a successor:
    /// a rebuilt tree is signed again. The first key also signs what came before it.
    pub(super) fn signed(&self, note: &SignedNote, size: u64) -> SignatureStatus {
        let first = self.keys.iter().rposition(|(seq, _)| *seq <= size).unwrap_or(0);
        let mut found = SignatureStatus::Missing;
        for (_, key) in self.keys.iter().skip(first) {
            match (note.signed_by(key), found) {
                (SignatureStatus::Invalid, _) | (_, SignatureStatus::Invalid) => {
                    found = SignatureStatus::Invalid
                }
                (SignatureStatus::Valid(at), _) => found = SignatureStatus::Valid(at),
                (SignatureStatus::Missing, _) => {}
            }
        }
        found
    }

    /// Whether this is the current key.
    pub(super) fn ends_with(&self, key: &VerifyKey) -> bool {
        self.keys.last().is_some_and(|(_, last)| last == key)
    }

    /// Compares the rows that repeat the keys, up to a record, with the records.
    pub(super) fn check_key_rows(&self, rows: &[(u64, String)], upto: u64, findings: &mut Findings) {
        let keys = self.keys.iter().filter(|(seq, _)| *seq <= upto);
        if !rows.iter().cloned().eq(keys.map(|(seq, key)| (*seq, key.to_string()))) {
            let detail = "the table of the keys does not match the records";
            findings.fault(FindingLocation::Key, FindingKind::WrongKey, detail);
        }
    }

    /// Compares the key file, and a key known from elsewhere, with the records. `newer` returns the keys that
    /// took over after the records were read.
    pub(super) fn check_key_file(
        &self,
        files: &LedgerKeyFiles,
        mut newer: impl FnMut() -> rusqlite::Result<Vec<String>>,
        known: Option<&VerifyKey>,
        findings: &mut Findings,
        unchecked: &mut Vec<String>,
    ) -> rusqlite::Result<()> {
        let mut held = self.read_key_file(files, newer()?);
        // The key may be rotated between two reads, but not every time.
        for _ in 0..MAX_REREADS {
            if !matches!(held, Ok(KeyFileState::Other)) {
                break;
            }
            held = self.read_key_file(files, newer()?);
        }
        match held {
            Ok(KeyFileState::Newest) => {}
            Ok(KeyFileState::Other) => {
                let detail = "the key file does not hold the key that the records name";
                findings.fault(FindingLocation::Key, FindingKind::WrongKey, detail);
            }
            Err(StoreError::Key(why)) => findings.fault(FindingLocation::Key, FindingKind::WrongKey, why),
            Ok(KeyFileState::None) => unchecked.push("the key file: it is not in this directory".to_owned()),
            Err(error) => unchecked.push(format!("the key file: {error}")),
        }
        if let Some(known) = known.filter(|known| !self.keys.iter().any(|(_, key)| key == *known)) {
            let detail = format!("this ledger never had the key `{known}`");
            findings.fault(FindingLocation::Key, FindingKind::WrongKey, detail);
        }
        Ok(())
    }

    /// The files are read after the rows, so a record already names whatever key they hold, if it is ours.
    fn read_key_file(&self, files: &LedgerKeyFiles, newer: Vec<String>) -> Result<KeyFileState, StoreError> {
        let newest = newer.last().cloned().or_else(|| self.keys.last().map(|(_, key)| key.to_string()));
        let is_newest = |key: &SigningKey| Some(key.verify_key().to_string()) == newest;
        match files.current()? {
            Some(key) if is_newest(&key) => Ok(KeyFileState::Newest),
            // Recorded and not yet in place, as after a crash: the next start puts it there.
            Some(_) if files.next()?.as_ref().is_some_and(is_newest) => Ok(KeyFileState::Newest),
            Some(_) => Ok(KeyFileState::Other),
            None => Ok(KeyFileState::None),
        }
    }
}

/// What the key file holds.
enum KeyFileState {
    Newest,
    Other,
    None,
}

/// Why a handover is not valid, if it is not.
fn handover_fault(
    writer: &str,
    old: &VerifyKey,
    new: &VerifyKey,
    note: Option<&SignedNote>,
) -> Option<&'static str> {
    let Some(note) = note else { return Some("a key takes over without the signature of its predecessor") };
    let expected = handover(&format!("vambrace/{writer}"), old, new);
    let both = [old, new].iter().all(|key| matches!(note.signed_by(key), SignatureStatus::Valid(_)));
    let fits = expected.is_ok_and(|expected| expected.text() == note.text()) && both;
    (!fits).then_some("a key takes over with a note that is not signed by both keys")
}
