//! The keys of the ledger as its own records name them: the first by itself, each other with the signatures of both.

use serde_json::Value;
use vambrace_ledger::{Digest, Findings, Kind, Note, Place, Signed, SigningKey, VerifyKey, handover};

use crate::error::StoreError;
use crate::keys::KeyFiles;

/// Looks at a key file that does not fit, while a running store may change keys.
const LOOKS: u32 = 5;

/// What a record of the ledger about itself says.
#[derive(Debug)]
pub(super) struct Said {
    event: String,
    key: Option<VerifyKey>,
    pub(super) note: Option<Note>,
    pub(super) tree: Option<(u64, Digest)>,
}

impl Said {
    pub(super) fn read(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let size = line.get("tree_size").and_then(Value::as_u64);
        Some(Self {
            event: text("event_type")?.to_owned(),
            key: text("key").and_then(|key| key.parse().ok()),
            note: text("note").and_then(|note| Note::parse(note.as_bytes()).ok()),
            tree: size.zip(text("root_hash").and_then(|root| root.parse().ok())),
        })
    }

    pub(super) fn is(&self, event: &str) -> bool {
        self.event == event
    }
}

/// Which key counts from which record on.
#[derive(Debug)]
pub(super) struct Keyring {
    keys: Vec<(u64, VerifyKey)>,
}

impl Keyring {
    /// Walks the records.
    pub(super) fn of<'l>(
        writer: &str,
        special: impl Iterator<Item = &'l (u64, String)>,
        findings: &mut Findings,
    ) -> Self {
        let mut keys: Vec<(u64, VerifyKey)> = Vec::new();
        for (seq, line) in special {
            let Some(said) = Said::read(line).filter(|said| said.event.starts_with("key.")) else { continue };
            let Some(new) = said.key else {
                findings.fault(Place::Record(*seq), Kind::BadHandover, "it names no key");
                continue;
            };
            let fault = match keys.last() {
                None if said.event == "key.created" => None,
                None => Some("a key takes over from none"),
                Some((_, old)) => handed_over(writer, old, &new, said.note.as_ref()),
            };
            if let Some(detail) = fault {
                findings.fault(Place::Record(*seq), Kind::BadHandover, detail);
            }
            keys.push((*seq, new));
        }
        Self { keys }
    }

    /// Whether a note about a ledger of this size is signed by the key that counted then, or by one that it handed
    /// over to: a tree that is grown anew is signed anew. The first key also signs what was there before it.
    pub(super) fn signed(&self, note: &Note, size: u64) -> Signed {
        let first = self.keys.iter().rposition(|(seq, _)| *seq <= size).unwrap_or(0);
        let mut found = Signed::Missing;
        for (_, key) in self.keys.iter().skip(first) {
            match (note.signed_by(key), found) {
                (Signed::Wrong, _) | (_, Signed::Wrong) => found = Signed::Wrong,
                (Signed::Yes(at), _) => found = Signed::Yes(at),
                (Signed::Missing, _) => {}
            }
        }
        found
    }

    /// Whether this is the key that counts now.
    pub(super) fn ends_with(&self, key: &VerifyKey) -> bool {
        self.keys.last().is_some_and(|(_, last)| last == key)
    }

    /// The rows that repeat the keys, up to a record, against the records.
    pub(super) fn repeated(&self, rows: &[(u64, String)], upto: u64, findings: &mut Findings) {
        let keys = self.keys.iter().filter(|(seq, _)| *seq <= upto);
        if !rows.iter().cloned().eq(keys.map(|(seq, key)| (*seq, key.to_string()))) {
            let detail = "the table of the keys does not say what the records say";
            findings.fault(Place::Key, Kind::WrongKey, detail);
        }
    }

    /// The file of the key, and one that is known from elsewhere, against the records. `newer` are the keys that took
    /// over after the records were read, up to now.
    pub(super) fn held(
        &self,
        files: &KeyFiles,
        mut newer: impl FnMut() -> rusqlite::Result<Vec<String>>,
        known: Option<&VerifyKey>,
        findings: &mut Findings,
        unchecked: &mut Vec<String>,
    ) -> rusqlite::Result<()> {
        let mut held = self.look(files, newer()?);
        // A key may take over between two looks, but not always.
        for _ in 0..LOOKS {
            if !matches!(held, Ok(Held::Other)) {
                break;
            }
            held = self.look(files, newer()?);
        }
        match held {
            Ok(Held::Newest) => {}
            Ok(Held::Other) => {
                let detail = "the key file does not hold the key that the records name";
                findings.fault(Place::Key, Kind::WrongKey, detail);
            }
            Err(StoreError::Key(why)) => findings.fault(Place::Key, Kind::WrongKey, why),
            Ok(Held::None) => unchecked.push("the key file: it is not in this folder".to_owned()),
            Err(error) => unchecked.push(format!("the key file: {error}")),
        }
        if let Some(known) = known.filter(|known| !self.keys.iter().any(|(_, key)| key == *known)) {
            let detail = format!("this ledger never had the key `{known}`");
            findings.fault(Place::Key, Kind::WrongKey, detail);
        }
        Ok(())
    }

    /// The files are read after the rows: whatever is in them by then was named by a record before, if it is ours.
    fn look(&self, files: &KeyFiles, newer: Vec<String>) -> Result<Held, StoreError> {
        let newest = newer.last().cloned().or_else(|| self.keys.last().map(|(_, key)| key.to_string()));
        let is_newest = |key: &SigningKey| Some(key.verify_key().to_string()) == newest;
        match files.current()? {
            Some(key) if is_newest(&key) => Ok(Held::Newest),
            // Named and not yet in its place, as after a crash: the next start puts it there.
            Some(_) if files.next()?.as_ref().is_some_and(is_newest) => Ok(Held::Newest),
            Some(_) => Ok(Held::Other),
            None => Ok(Held::None),
        }
    }
}

/// What the file of the key holds.
enum Held {
    Newest,
    Other,
    None,
}

/// Why a key did not take over rightly.
fn handed_over(writer: &str, old: &VerifyKey, new: &VerifyKey, note: Option<&Note>) -> Option<&'static str> {
    let Some(note) = note else { return Some("a key takes over without the signature of the one before") };
    let expected = handover(&format!("vambrace/{writer}"), old, new);
    let both = [old, new].iter().all(|key| matches!(note.signed_by(key), Signed::Yes(_)));
    let fits = expected.is_ok_and(|expected| expected.text() == note.text()) && both;
    (!fits).then_some("a key takes over, and its note is not signed by both")
}
