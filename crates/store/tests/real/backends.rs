//! The kinds of stores, as a table: a test that is about every store takes its store from here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use vambrace_store::Store;

use crate::fixtures::{clean, home, open, runtime};

/// A kind of store.
pub(crate) struct Backend {
    /// For the message of a failed test.
    pub(crate) name: &'static str,
    /// Opens the store of a directory. Several may be open at the same time.
    pub(crate) open: fn(&Path) -> Arc<dyn Store>,
    /// Verifies the ledger of a closed store.
    pub(crate) verify: fn(&Path),
}

/// Every kind; a further one is one more line.
pub(crate) const BACKENDS: &[Backend] =
    &[Backend { name: "sqlite", open: |home| Arc::new(open(home)), verify: |home| drop(clean(home)) }];

/// Runs a case against a fresh store of every kind, and verifies what it leaves.
pub(crate) fn check(case: impl AsyncFn(&dyn Store)) {
    check_dir(async |backend, home| case(&*(backend.open)(home)).await);
}

/// Runs a case with a fresh directory for every kind of store, and verifies what it leaves.
pub(crate) fn check_dir(case: impl AsyncFn(&Backend, &Path)) {
    for backend in BACKENDS {
        let (_temp, home) = home();
        let run = || {
            runtime().block_on(case(backend, &home));
            (backend.verify)(&home);
        };
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            panic!("the case failed for the store `{}`", backend.name);
        }
    }
}
