//! Why the host could not do something: a kind that an entry point can branch on, and the error for the person or agent.
//! Exit codes and status codes belong to the entry points.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_store::StoreError;

/// An error of the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .error.message)]
pub struct HostError {
    /// What kind of error it is.
    pub kind: HostErrorKind,
    /// Code, message and suggestion.
    pub error: CallError,
}

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostErrorKind {
    /// The caller asked for something that cannot be: wrong arguments.
    Usage,
    /// A check denied it.
    Denied,
    /// This program or the system failed.
    Failed,
    /// The person who was asked interrupted it.
    Interrupted,
    /// The ledger or what belongs to it was altered.
    Finding,
}

impl HostError {
    /// An error of this program or of the system.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { kind: HostErrorKind::Failed, error: CallError::new(ErrorCode::Internal, message) }
    }

    /// Wrong arguments.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let error = CallError::new(ErrorCode::InvalidArguments, message).suggest(hint);
        Self { kind: HostErrorKind::Usage, error }
    }

    /// A check denied it.
    pub fn denied(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: HostErrorKind::Denied, error: CallError::new(code, message).suggest(hint) }
    }

    /// A person interrupted it.
    pub fn interrupted(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let error = CallError::new(ErrorCode::Cancelled, message).suggest(hint);
        Self { kind: HostErrorKind::Interrupted, error }
    }

    /// An error of a decision or a call; its code says the kind.
    #[must_use]
    pub fn of(error: CallError) -> Self {
        let kind = match error.code {
            ErrorCode::UnknownTool | ErrorCode::InvalidArguments => HostErrorKind::Usage,
            ErrorCode::Internal
            | ErrorCode::ResourceBusy
            | ErrorCode::OutcomeUnknown
            | ErrorCode::Cancelled => HostErrorKind::Failed,
            _ => HostErrorKind::Denied,
        };
        Self { kind, error }
    }

    /// Replaces the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.suggest(hint);
        self
    }
}

impl From<&StoreError> for HostError {
    fn from(error: &StoreError) -> Self {
        Self { kind: HostErrorKind::Denied, error: error.into() }
    }
}

impl From<StoreError> for HostError {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}
