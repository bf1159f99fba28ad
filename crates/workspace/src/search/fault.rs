//! What can go wrong with a search: the place, the pattern, or the time they take together.

use std::time::Duration;

use vambrace_core::{CallError, ErrorCode};

use crate::fault::FileFault;

/// Why a search ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchFault {
    /// The path.
    #[error(transparent)]
    File(#[from] FileFault),
    /// Backreferences and look-around.
    #[error("the pattern uses {construct} at character {at}, which is not supported")]
    Unsupported {
        /// Its name.
        construct: &'static str,
        /// From 1.
        at: usize,
    },
    /// Not a regular expression.
    #[error("the pattern is not valid at character {at}: {why}")]
    BadPattern {
        /// From 1.
        at: usize,
        /// The parser's words.
        why: String,
    },
    /// Too long, too deep, too big when compiled.
    #[error("the pattern is over its limit: {what}")]
    OverLimit {
        /// Which limit.
        what: String,
    },
    /// Compiling or matching took too long.
    #[error("the pattern is over its budget: {what} took longer than {} ms", .budget.as_millis())]
    OverBudget {
        /// Compiling or matching.
        what: &'static str,
        /// What was allowed.
        budget: Duration,
    },
    /// Too many earlier searches still run.
    #[error("earlier patterns are still being matched in the background")]
    Busy,
    /// Only when counting; otherwise what was found is returned.
    #[error("the search did not end within {} ms", .after.as_millis())]
    Deadline {
        /// What was allowed.
        after: Duration,
    },
    /// A fault of ours.
    #[error("the search broke down: {why}")]
    Broken {
        /// What we know.
        why: String,
    },
}

impl SearchFault {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(fault) => fault.code(),
            Self::Unsupported { .. } | Self::BadPattern { .. } => ErrorCode::InvalidArguments,
            Self::OverLimit { .. } | Self::OverBudget { .. } => ErrorCode::SecurityError,
            Self::Busy => ErrorCode::ResourceBusy,
            Self::Deadline { .. } => ErrorCode::Timeout,
            Self::Broken { .. } => ErrorCode::Internal,
        }
    }
}

impl From<SearchFault> for CallError {
    fn from(fault: SearchFault) -> Self {
        let error = Self::new(fault.code(), fault.to_string());
        match fault {
            SearchFault::File(FileFault::Binary { .. }) => {
                error.suggest("only text is searched; read_file returns PDF and common image files")
            }
            SearchFault::File(fault) => fault.into(),
            SearchFault::Unsupported { .. } => {
                error.suggest("search for the plain part of the pattern and filter the lines yourself")
            }
            SearchFault::BadPattern { .. } => {
                error.suggest("escape characters that are meant literally with `\\`, such as `\\(` or `\\{`")
            }
            SearchFault::Busy => error.suggest("wait a few seconds, then use a simpler pattern"),
            SearchFault::Deadline { .. } => error.suggest("search in a smaller folder"),
            _ => error,
        }
    }
}
