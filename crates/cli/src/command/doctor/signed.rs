//! The newest checkpoint, shown so that whoever keeps this page keeps a witness, and its copy outside the folder.

use vambrace_ledger::Checkpoint;
use vambrace_store::{Heard, SqliteStore};

use super::check::Check;
use crate::places;

const LOST: &str = "the newest records could be cut off and nobody would see it";
const FIX: &str = "`vambrace audit checkpoint` signs what is there or says why it cannot";

/// Size, root and key of the newest checkpoint.
pub(super) fn checkpoint(store: &SqliteStore, head: u64, fresh: bool) -> Check {
    let found = store.newest_checkpoint().and_then(|row| Ok((row, store.ledger_keys()?)));
    let (row, keys) = match found {
        Ok((Some(row), keys)) => (row, keys),
        Ok((None, _)) if fresh => return Check::ok("checkpoint", "none yet: one is signed every second"),
        Ok((None, _)) => return Check::degraded("checkpoint", "none", LOST, FIX),
        Err(error) => return Check::degraded("checkpoint", error.to_string(), LOST, FIX),
    };
    let Ok((checkpoint, _)) = Checkpoint::parse(row.note.as_bytes()) else {
        return Check::degraded("checkpoint", "it cannot be read", LOST, "run `vambrace audit verify`");
    };
    let key = keys.last().map(ToString::to_string).unwrap_or_default();
    let found = format!("{} records, root {}, signed {} by {key}", checkpoint.size, checkpoint.root, row.at);
    if checkpoint.size < head && !fresh {
        Check::degraded("checkpoint", format!("{found}; there are {head}"), LOST, FIX)
    } else {
        Check::ok("checkpoint", found)
    }
}

/// Whether somebody elsewhere signs it too.
pub(super) fn witness(store: &SqliteStore) -> Check {
    let lost = "who has the key and can write the anchor can set the ledger back unseen";
    match store.witness_said() {
        None => Check::ok("witness", "none configured (`audit.witness`)"),
        Some(Heard::Signed(_)) => {
            Check::ok("witness", "it has signed the newest checkpoint that it was shown")
        }
        Some(Heard::Nothing(why)) => Check::degraded("witness", why, lost, "see docs/witness.md"),
        Some(Heard::RolledBack(size)) => {
            Check::missing("witness", format!("it has signed {size} records"), lost, "see docs/witness.md")
        }
    }
}

/// Whether a copy of it is kept outside the state folder.
pub(super) fn anchor(store: &SqliteStore) -> Check {
    let lost = "a state folder that is set back as a whole is not noticed at the start";
    let fix = "set HOME or XDG_DATA_HOME to a folder that can be written";
    match (places::anchors(), store.segments_fault()) {
        (None, _) => Check::degraded("anchor", "no place for it is known", lost, fix),
        (Some(_), Some(fault)) if fault.contains("anchor") => Check::degraded("anchor", fault, lost, fix),
        (Some(folder), _) => Check::ok("anchor", format!("copies of checkpoints in {}", folder.display())),
    }
}
