//! Checks the newest checkpoint, its copy outside the state directory, and the witness. The output contains the checkpoint, so
//! a saved copy of the output can later serve as an anchor.

use vambrace_ledger::Checkpoint;
use vambrace_store::{Store, WitnessReply};

use super::check::DoctorCheck;
use crate::host::Host;

const LOST: &str = "removal of the newest records could go undetected";
const FIX: &str = "`vambrace audit checkpoint` signs the records, or reports why it cannot";

/// Size, root and key of the newest checkpoint.
pub(super) fn checkpoint(store: &dyn Store, head: u64, fresh: bool) -> DoctorCheck {
    let admin = store.admin();
    let found = admin.newest_checkpoint().and_then(|row| Ok((row, admin.ledger_keys()?)));
    let (row, keys) = match found {
        Ok((Some(row), keys)) => (row, keys),
        Ok((None, _)) if fresh => {
            return DoctorCheck::ok("checkpoint", "none yet: a checkpoint is signed every second");
        }
        Ok((None, _)) => return DoctorCheck::degraded("checkpoint", "none", LOST, FIX),
        Err(error) => return DoctorCheck::degraded("checkpoint", error.to_string(), LOST, FIX),
    };
    let Ok((checkpoint, _)) = Checkpoint::parse(row.note.as_bytes()) else {
        return DoctorCheck::degraded("checkpoint", "it is unreadable", LOST, "run `vambrace audit verify`");
    };
    let key = keys.last().map(ToString::to_string).unwrap_or_default();
    let found = format!("{} records, root {}, signed {} by {key}", checkpoint.size, checkpoint.root, row.at);
    if checkpoint.size < head && !fresh {
        DoctorCheck::degraded("checkpoint", format!("{found}; the ledger has {head} records"), LOST, FIX)
    } else {
        DoctorCheck::ok("checkpoint", found)
    }
}

/// Whether a witness signs it too.
pub(super) fn witness(store: &dyn Store) -> DoctorCheck {
    let lost = "an attacker who has the key and can write the anchor can roll the ledger back undetected";
    match store.admin().witness_reply() {
        None => DoctorCheck::ok("witness", "none configured (`audit.witness`)"),
        Some(WitnessReply::Signed(_)) => DoctorCheck::ok("witness", "it signed the newest checkpoint"),
        Some(WitnessReply::Inconclusive(why)) => {
            DoctorCheck::degraded("witness", why, lost, "see docs/witness.md")
        }
        Some(WitnessReply::RolledBack(size)) => DoctorCheck::missing(
            "witness",
            format!("it signed {size} records that this ledger does not have"),
            lost,
            "see docs/witness.md",
        ),
    }
}

/// Whether a copy is stored outside the state directory.
pub(super) fn anchor(host: &Host) -> DoctorCheck {
    let lost = "a rollback of the whole state directory is not detected at startup";
    let fix = "set HOME or XDG_DATA_HOME to a writable directory";
    match (host.paths().anchors(), host.store().admin().segment_error()) {
        (None, _) => DoctorCheck::degraded("anchor", "no directory for it is configured", lost, fix),
        (Some(_), Some(fault)) if fault.contains("anchor") => {
            DoctorCheck::degraded("anchor", fault, lost, fix)
        }
        (Some(dir), _) => DoctorCheck::ok("anchor", format!("copies of checkpoints in {}", dir.display())),
    }
}
