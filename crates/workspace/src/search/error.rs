//! Errors of a search: the path, the pattern, or the time limit.

use std::time::Duration;

use vambrace_core::{CallError, ErrorCode};

use crate::error::FileError;

/// Why a search ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The path cannot be accessed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Backreferences and look-around.
    #[error("the pattern uses {construct} at character {at}, which is not supported")]
    Unsupported {
        /// Name of the construct.
        construct: &'static str,
        /// From 1.
        at: usize,
    },
    /// Not a regular expression.
    #[error("the pattern is not valid at character {at}: {why}")]
    BadPattern {
        /// From 1.
        at: usize,
        /// The parser's error message.
        why: String,
    },
    /// Too long, too deep, too big when compiled.
    #[error("the pattern exceeds a limit: {what}")]
    OverLimit {
        /// Which limit.
        what: String,
    },
    /// Compiling or matching took too long.
    #[error("the pattern exceeds its time budget: {what} took longer than {} ms", .budget.as_millis())]
    OverBudget {
        /// Compiling or matching.
        what: &'static str,
        /// Time limit.
        budget: Duration,
    },
    /// Too many earlier searches still run.
    #[error("earlier patterns are still being matched in the background")]
    Busy,
    /// Only when counting; otherwise the matches found so far are returned.
    #[error("the search did not finish within {} ms", .after.as_millis())]
    Deadline {
        /// Time limit.
        after: Duration,
    },
    /// An internal error.
    #[error("the search failed: {why}")]
    Internal {
        /// Cause, if known.
        why: String,
    },
}

impl SearchError {
    /// The stable error code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::Unsupported { .. } | Self::BadPattern { .. } => ErrorCode::InvalidArguments,
            Self::OverLimit { .. } | Self::OverBudget { .. } => ErrorCode::SecurityError,
            Self::Busy => ErrorCode::ResourceBusy,
            Self::Deadline { .. } => ErrorCode::Timeout,
            Self::Internal { .. } => ErrorCode::Internal,
        }
    }
}

impl From<SearchError> for CallError {
    fn from(error: SearchError) -> Self {
        let call_error = Self::new(error.code(), error.to_string());
        match error {
            SearchError::File(FileError::Binary { .. }) => {
                call_error.suggest("only text is searched; read_file returns PDF and common image files")
            }
            SearchError::File(error) => error.into(),
            SearchError::Unsupported { .. } => {
                call_error.suggest("search for the plain part of the pattern and filter the lines yourself")
            }
            SearchError::BadPattern { .. } => call_error
                .suggest("escape characters that are meant literally with `\\`, such as `\\(` or `\\{`"),
            SearchError::Busy => call_error.suggest("wait a few seconds, then use a simpler pattern"),
            SearchError::Deadline { .. } => call_error.suggest("search in a smaller directory"),
            _ => call_error,
        }
    }
}
