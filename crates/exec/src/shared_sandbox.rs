//! The one sandbox of a process. Its launcher is started at the first run, so that a process that runs no program starts
//! none; a server asks for a warm pool in advance.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vambrace_sandbox::{Sandbox, SandboxError, StateDirs};

use crate::error::ExecError;

/// A sandbox that every run of a process shares.
#[derive(Debug)]
pub struct SharedSandbox {
    places: StateDirs,
    warm_cells: AtomicUsize,
    started: Mutex<Option<Arc<Sandbox>>>,
}

impl SharedSandbox {
    /// A sandbox with its files in these directories; nothing is started yet.
    #[must_use]
    pub fn new(places: StateDirs) -> Self {
        Self { places, warm_cells: AtomicUsize::new(0), started: Mutex::new(None) }
    }

    /// Its state directories.
    #[must_use]
    pub fn places(&self) -> &StateDirs {
        &self.places
    }

    /// Keeps this many cells warm from the first run on.
    pub fn keep_warm(&self, cells: usize) {
        self.warm_cells.store(cells, Ordering::Relaxed);
    }

    /// The running sandbox; starts it if it is not running. A launcher that died is replaced.
    pub fn get(&self) -> Result<Arc<Sandbox>, ExecError> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = started.as_ref().filter(|sandbox| sandbox.is_alive()) {
            return Ok(Arc::clone(sandbox));
        }
        let launcher = this_program()?;
        let sandbox = Arc::new(Sandbox::start(&launcher, self.places.clone())?);
        let cells = self.warm_cells.load(Ordering::Relaxed);
        if cells > 0 {
            sandbox.keep_warm(cells)?;
        }
        *started = Some(Arc::clone(&sandbox));
        Ok(sandbox)
    }
}

/// This program is its own launcher.
fn this_program() -> Result<PathBuf, ExecError> {
    std::env::current_exe()
        .map_err(|source| SandboxError::System { what: "path of this program", source }.into())
}
