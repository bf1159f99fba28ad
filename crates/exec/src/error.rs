//! Why a program was not run, and why its changes were not written back.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use vambrace_core::change::BadChange;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::quote::quoted;
use vambrace_core::redacted::RedactError;
use vambrace_sandbox::{SandboxError, WriteBackError};
use vambrace_workspace::ApplyError;

/// Why a program was not run, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The request is not valid.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// A check denied it.
    #[error("{message}")]
    Denied {
        /// The code of the check.
        code: ErrorCode,
        /// What is denied.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The sandbox cannot enforce the fence of this run.
    #[error("the sandbox cannot enforce the policy: {0}")]
    Unenforceable(String),
    /// The sandbox did not run it.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The redactor failed, so the output is withheld.
    #[error("output withheld: {0}")]
    Redact(#[from] RedactError),
    /// A system error.
    #[error("{what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Whose matter an [`ExecError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecErrorKind {
    /// The caller's: the request is not valid.
    Invalid,
    /// A check denied it, or the sandbox did not start it.
    NotStarted,
    /// A failure of this program or of the system.
    Failed,
}

impl ExecError {
    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ExecErrorKind {
        match self {
            Self::Invalid { .. } => ExecErrorKind::Invalid,
            Self::Denied { .. } | Self::Unenforceable(_) | Self::Sandbox(_) => ExecErrorKind::NotStarted,
            Self::Redact(_) | Self::System { .. } => ExecErrorKind::Failed,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: hint.into() }
    }

    pub(crate) fn denied(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Denied { code, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::InvalidArguments,
            Self::Denied { code, .. } => *code,
            Self::Unenforceable(_) => ErrorCode::SandboxUnavailable,
            Self::Sandbox(error) => match error {
                SandboxError::Unavailable { .. } | SandboxError::Mounted(_) => ErrorCode::SandboxUnavailable,
                SandboxError::Refused(_) | SandboxError::CouldNotStart { .. } => ErrorCode::InvalidArguments,
                SandboxError::Replaced { .. } => ErrorCode::PermissionDenied,
                SandboxError::ShowsState { .. } => ErrorCode::ScopeViolation,
                SandboxError::LauncherGone | SandboxError::System { .. } => ErrorCode::Internal,
            },
            Self::Redact(_) | Self::System { .. } => ErrorCode::Internal,
        }
    }
}

impl From<ExecError> for CallError {
    fn from(error: ExecError) -> Self {
        let call_error = Self::new(error.code(), error.to_string());
        match error {
            ExecError::Invalid { hint, .. } | ExecError::Denied { hint, .. } => call_error.suggest(hint),
            ExecError::Sandbox(error) => call_error.suggest(error.suggestion()),
            ExecError::Unenforceable(_) => {
                call_error.suggest("name the directories that are needed, or use `--filesystem readwrite`")
            }
            ExecError::Redact(_) | ExecError::System { .. } => call_error,
        }
    }
}

/// Why changes were not written back. Except after [`Self::Write`] with `written` above 0, nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteBackFailure {
    /// Another process changed the workspace.
    #[error("`{}` was changed meanwhile", quoted(.0.as_os_str().as_bytes()))]
    StaleBase(PathBuf),
    /// The applier did not apply the change.
    #[error(transparent)]
    Apply(ApplyError),
    /// A system call failed.
    #[error(transparent)]
    Write(WriteBackError),
}

impl WriteBackFailure {
    /// The stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::StaleBase(_) => "StaleBase",
            Self::Apply(ApplyError::Stale { .. }) => "StaleBase",
            Self::Apply(ApplyError::Busy { .. }) => "ResourceBusy",
            Self::Apply(_) => "Write",
            Self::Write(error) => error.code(),
        }
    }
}

impl From<ApplyError> for WriteBackFailure {
    fn from(error: ApplyError) -> Self {
        Self::Apply(error)
    }
}

impl From<BadChange> for WriteBackFailure {
    fn from(bad: BadChange) -> Self {
        Self::Apply(bad.into())
    }
}

impl From<WriteBackError> for WriteBackFailure {
    fn from(error: WriteBackError) -> Self {
        match error {
            WriteBackError::StaleBase(path) => Self::StaleBase(path),
            error => Self::Write(error),
        }
    }
}

impl From<WriteBackFailure> for CallError {
    fn from(failure: WriteBackFailure) -> Self {
        match failure {
            WriteBackFailure::Apply(error) => error.into(),
            WriteBackFailure::StaleBase(_) => Self::new(ErrorCode::StaleBase, failure.to_string()),
            WriteBackFailure::Write(WriteBackError::Write { written, .. }) if written > 0 => {
                Self::new(ErrorCode::OutcomeUnknown, failure.to_string())
            }
            WriteBackFailure::Write(_) => Self::new(ErrorCode::FileProtected, failure.to_string()),
        }
    }
}
