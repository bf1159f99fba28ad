//! A filter that the caller passes in: a listing or search reports only the paths that it admits. The workspace knows no
//! policy; it only applies the filter.

use std::fmt;
use std::sync::Arc;

use vambrace_core::path::ScopedPath;

/// Which paths a listing or search may report.
#[derive(Clone)]
pub struct PathFilter(Arc<dyn Fn(&ScopedPath) -> bool + Send + Sync>);

impl PathFilter {
    /// Admits the paths for which `admits` returns true.
    pub fn new(admits: impl Fn(&ScopedPath) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    /// Whether a path may be reported.
    #[must_use]
    pub fn admits(&self, path: &ScopedPath) -> bool {
        (self.0)(path)
    }
}

impl fmt::Debug for PathFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathFilter")
    }
}
