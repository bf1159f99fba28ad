//! The witness named in the configuration, as the store's `CheckpointWitness`.

use std::sync::Arc;

use vambrace_core::config;
use vambrace_core::digest::Digest;
use vambrace_ledger::{SignedNote, VerifyKey};
use vambrace_store::{CheckpointWitness, LedgerView, StoreError, WitnessReply};
use vambrace_witness::{LogError, LogSource, SubmitOutcome, WitnessClient};

use crate::config_files::ConfigFiles;
use crate::error::HostError;
use crate::paths::Paths;
use crate::system::SystemClock;

/// The witness in the organisation's or user's configuration, if any. An unreadable configuration yields none here; calls
/// are denied for it elsewhere.
pub fn configured_witness(paths: &Paths) -> Result<Option<Arc<dyn CheckpointWitness>>, HostError> {
    let Ok(files) = ConfigFiles::without_project(paths) else { return Ok(None) };
    let Ok(settings) = files.combine() else { return Ok(None) };
    let Some(config::AuditWitnessSettings { url, key }) = settings.audit_witness else { return Ok(None) };
    let hint =
        "correct `audit.witness` in the configuration; `vambrace witness key` prints the key of a witness";
    let bad = |error: String| HostError::failed(format!("audit.witness: {error}")).hint(hint);
    let key: VerifyKey = key.parse().map_err(|error: vambrace_ledger::BadKey| bad(error.to_string()))?;
    let client =
        WitnessClient::new(&url, key, Arc::new(SystemClock)).map_err(|error| bad(error.to_string()))?;
    Ok(Some(Arc::new(ConfiguredWitness(client))))
}

struct ConfiguredWitness(WitnessClient);

impl CheckpointWitness for ConfiguredWitness {
    fn submit(&self, ledger: &dyn LedgerView) -> WitnessReply {
        match self.0.submit(&LedgerLog(ledger)) {
            Ok(SubmitOutcome::Cosigned { line, .. }) => WitnessReply::Signed(line),
            Ok(SubmitOutcome::Rollback { witness_size, .. }) => WitnessReply::RolledBack(witness_size),
            Ok(SubmitOutcome::NoCheckpoint) => {
                WitnessReply::Inconclusive("there is no checkpoint to sign yet".to_owned())
            }
            Ok(SubmitOutcome::Rejected(why)) => {
                WitnessReply::Inconclusive(format!("it rejected the checkpoint: {why}"))
            }
            Ok(SubmitOutcome::Unreachable(why)) => WitnessReply::Inconclusive(format!("unreachable: {why}")),
            Err(LogError(why)) => WitnessReply::Inconclusive(why),
        }
    }
}

struct LedgerLog<'a>(&'a dyn LedgerView);

impl LogSource for LedgerLog<'_> {
    fn checkpoint(&self) -> Result<Option<SignedNote>, LogError> {
        self.0.checkpoint().map_err(fault)
    }

    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, LogError> {
        self.0.consistency(old, new).map_err(fault)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn fault(error: StoreError) -> LogError {
    LogError(error.to_string())
}
