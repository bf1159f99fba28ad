//! What all projects of one process share: the paths, the state directory and the store in it.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use vambrace_core::config;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_exec::SharedSandbox;
use vambrace_redact::Redactor;
use vambrace_sandbox::StateDirs;
use vambrace_store::{LedgerReader, RedactedText, SqliteStore, StateDir, Store, StoreOptions};
use vambrace_workspace::Applier;

use crate::error::{HostError, HostErrorKind};
use crate::paths::Paths;
use crate::secret_store::SecretStore;
use crate::system::SystemClock;
use crate::witness_client::configured_witness;

/// The opened state of this machine.
pub struct Host {
    paths: Paths,
    state_dir: StateDir,
    store: Arc<dyn Store>,
    redactor: OnceLock<Redactor>,
    sandbox: Arc<SharedSandbox>,
}

/// Cells that a server keeps warm: one for a call, one for the call after it.
const WARM_CELLS: usize = 2;

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Host {
    /// Opens the state directory and its store; creates them if they are missing.
    pub fn open(paths: Paths) -> Result<Arc<Self>, HostError> {
        let (state_dir, store) = open_store(&paths, StoreOptions::new(Arc::new(SystemClock)))?;
        let sandbox = Arc::new(SharedSandbox::new(StateDirs::below(paths.state())));
        Ok(Arc::new(Self { paths, state_dir, store, redactor: OnceLock::new(), sandbox }))
    }

    /// The sandbox of this process; its launcher starts with the first run.
    #[must_use]
    pub fn sandbox(&self) -> &Arc<SharedSandbox> {
        &self.sandbox
    }

    /// Keeps sandbox cells warm from the first run on; for servers.
    pub fn keep_sandbox_warm(&self) {
        self.sandbox.keep_warm(WARM_CELLS);
    }

    /// Opens an existing store; an error if there is none.
    pub fn open_existing(paths: Paths) -> Result<Arc<Self>, HostError> {
        existing_state(&paths)?;
        Self::open(paths)
    }

    /// The paths.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The state directory.
    #[must_use]
    pub fn state_dir(&self) -> &StateDir {
        &self.state_dir
    }

    /// State and ledger.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Redacts text for a record: nothing is written that the redactor has not seen.
    pub fn redact(&self, text: &str) -> Result<RedactedText, HostError> {
        Redacted::text(text, self.redactor()?).map_err(|error| HostError::failed(error.to_string()))
    }

    /// The redactor without a configuration: the built-in rules and the secrets of this environment.
    pub fn redactor(&self) -> Result<&Redactor, HostError> {
        if let Some(redactor) = self.redactor.get() {
            return Ok(redactor);
        }
        let secrets = SecretStore::open(&self.paths, &config::combine(None, None, None).secrets)?;
        Ok(self.redactor.get_or_init(|| secrets.redactor().clone()))
    }
}

/// Opens a ledger that was rolled back or rewritten; the store records this.
pub fn acknowledge_rollback(paths: &Paths) -> Result<(), HostError> {
    let options = StoreOptions { acknowledge_rollback: true, ..StoreOptions::new(Arc::new(SystemClock)) };
    open_store(paths, options).map(drop)
}

/// Opens the ledger read-only. This works even if it contradicts its checkpoints and cannot be opened otherwise.
pub fn ledger_reader(paths: &Paths) -> Result<LedgerReader, HostError> {
    Ok(LedgerReader::open(existing_state(paths)?)?)
}

fn open_store(paths: &Paths, options: StoreOptions) -> Result<(StateDir, Arc<dyn Store>), HostError> {
    let anchors = paths.anchors().map(Path::to_owned);
    let options = StoreOptions { anchors, witness: configured_witness(paths)?, ..options };
    let dir = StateDir::open(paths.state())?;
    let store = SqliteStore::open(dir.clone(), &options)?;
    Ok((dir, Arc::new(store)))
}

/// Completes or undoes the write-backs of runs that were killed.
pub(crate) fn recover_write_backs(paths: &Paths, applier: Option<&Applier>) {
    vambrace_exec::recover(&StateDirs::below(paths.state()), applier);
}

fn existing_state(paths: &Paths) -> Result<StateDir, HostError> {
    let dir =
        StateDir::existing(paths.state()).ok().filter(|dir| dir.database().try_exists().unwrap_or(true));
    dir.ok_or_else(|| no_ledger(paths.state()))
}

/// The error for a state directory without a ledger.
#[must_use]
pub fn no_ledger(place: &Path) -> HostError {
    let hint = "the first call creates it; VAMBRACE_HOME selects another state directory; `vambrace demo` shows an example";
    let error =
        CallError::new(ErrorCode::FileNotFound, format!("there is no ledger in `{}`", place.display()));
    HostError { kind: HostErrorKind::Failed, error: error.suggest(hint) }
}
