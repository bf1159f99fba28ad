//! The witness of the configuration, as the store asks it.

use std::sync::Arc;

use vambrace_core::config;
use vambrace_core::digest::Digest;
use vambrace_ledger::{Note, VerifyKey};
use vambrace_store::{Heard, Shown, StoreError, Witness};
use vambrace_witness::{Client, Log, LogFault, Outcome};

use crate::failure::Failure;
use crate::found;
use crate::machine::SystemClock;

/// Who is named above the project, if anybody. A configuration that cannot be read names nobody here; calls are
/// denied for it elsewhere.
pub(crate) fn configured() -> Result<Option<Arc<dyn Witness>>, Failure> {
    let Ok(files) = found::find_above() else { return Ok(None) };
    let Ok(settings) = found::combine(&files) else { return Ok(None) };
    let Some(config::AuditWitness { url, key }) = settings.audit_witness else { return Ok(None) };
    let hint = "correct `audit.witness` in the configuration; `vambrace witness key` prints a witness's key";
    let bad = |error: String| Failure::failed(format!("audit.witness: {error}")).hint(hint);
    let key: VerifyKey = key.parse().map_err(|error: vambrace_ledger::BadKey| bad(error.to_string()))?;
    let client = Client::new(&url, key, Arc::new(SystemClock)).map_err(|error| bad(error.to_string()))?;
    Ok(Some(Arc::new(Asked(client))))
}

struct Asked(Client);

impl Witness for Asked {
    fn show(&self, ledger: &dyn Shown) -> Heard {
        match self.0.submit(&Ours(ledger)) {
            Ok(Outcome::Cosigned { line, .. }) => Heard::Signed(line),
            Ok(Outcome::Rollback { witness_size, .. }) => Heard::RolledBack(witness_size),
            Ok(Outcome::Nothing) => Heard::Nothing("there is no checkpoint to show yet".to_owned()),
            Ok(Outcome::Refused(why)) => Heard::Nothing(format!("it refused: {why}")),
            Ok(Outcome::Unreachable(why)) => Heard::Nothing(format!("it could not be reached: {why}")),
            Err(LogFault(why)) => Heard::Nothing(why),
        }
    }
}

struct Ours<'a>(&'a dyn Shown);

impl Log for Ours<'_> {
    fn checkpoint(&self) -> Result<Option<Note>, LogFault> {
        self.0.checkpoint().map_err(fault)
    }

    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, LogFault> {
        self.0.consistency(old, new).map_err(fault)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "errors are handed over")]
fn fault(error: StoreError) -> LogFault {
    LogFault(error.to_string())
}
