//! The failure of a command: error code, message, hint, exit code.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_host::{HostError, HostErrorKind};
use vambrace_store::StoreError;

/// Exit codes (docs/contract.md, Command line).
pub(crate) mod exit {
    pub(crate) const SECRETS: u8 = 1;
    pub(crate) const BAD_USAGE: u8 = 2;
    pub(crate) const ASK: u8 = 3;
    pub(crate) const DENIED: u8 = 4;
    pub(crate) const FAILED: u8 = 5;
    pub(crate) const FOUND: u8 = 6;
    /// As a shell reports a program killed by SIGINT: 128 + 2.
    pub(super) const INTERRUPTED: u8 = 130;
    /// As a shell reports a program killed by SIGPIPE: 128 + 13.
    pub(crate) const READER_GONE: u8 = 141;
    /// `sandbox run` could not start the program, as in env(1) and timeout(1).
    pub(crate) const NOT_STARTED: u8 = 125;
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: CallError,
    pub(crate) exit: u8,
}

impl Failure {
    /// An error of this program or of the system.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { error: CallError::new(ErrorCode::Internal, message), exit: exit::FAILED }
    }

    /// Wrong arguments on the command line.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let error = CallError::new(ErrorCode::InvalidArguments, message).suggest(hint);
        Self { error, exit: exit::BAD_USAGE }
    }

    /// A check denied it.
    pub(crate) fn denied(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { error: CallError::new(code, message).suggest(hint), exit: exit::DENIED }
    }

    /// An error of a decision or a call, with its exit code.
    pub(crate) fn of(error: CallError) -> Self {
        HostError::of(error).into()
    }

    /// Replaces the hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.suggest(hint);
        self
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let exit = match error.kind {
            HostErrorKind::Usage => exit::BAD_USAGE,
            HostErrorKind::Denied => exit::DENIED,
            HostErrorKind::Failed => exit::FAILED,
            HostErrorKind::Interrupted => exit::INTERRUPTED,
            HostErrorKind::Finding => exit::FOUND,
        };
        Self { error: error.error, exit }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        HostError::from(error).into()
    }
}
