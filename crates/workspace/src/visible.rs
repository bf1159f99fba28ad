//! A filter handed in by whoever decides: on a walk only what it admits is told. The workspace knows no policy; it
//! only keeps to what it is given.

use std::fmt;
use std::sync::Arc;

use vambrace_core::path::ScopedPath;

/// Which paths a walk may tell.
#[derive(Clone)]
pub struct Visible(Arc<dyn Fn(&ScopedPath) -> bool + Send + Sync>);

impl Visible {
    /// Those for which this answers yes.
    pub fn new(admits: impl Fn(&ScopedPath) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    /// Whether a path may be told.
    #[must_use]
    pub fn admits(&self, path: &ScopedPath) -> bool {
        (self.0)(path)
    }
}

impl fmt::Debug for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Visible")
    }
}
