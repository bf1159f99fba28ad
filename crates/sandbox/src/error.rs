//! Errors of the sandbox: why a program was not run.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use vambrace_core::quote::quoted;

use crate::tier::Tier;

/// Why a program was not run, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The requested tier is not available here. Nothing was started.
    #[error("{}", unavailable(.wanted, .reasons))]
    Unavailable {
        /// The requested tier.
        wanted: Tier,
        /// The features that did not work.
        reasons: Vec<String>,
    },
    /// The spec cannot be run safely.
    #[error("{0}")]
    Refused(String),
    /// A mount in the workspace prevents the overlay. Nothing was started.
    #[error("`{}` is mounted in a directory that the program needs an overlay of, and the kernel allows none there for an ordinary user", quoted(.0.as_os_str().as_bytes()))]
    Mounted(PathBuf),
    /// The program would see the keys and records of the broker.
    #[error("the program would see the state directory `{}` in `{}`", .state.display(), .path.display())]
    ShowsState {
        /// The path to be shown.
        path: PathBuf,
        /// The state directory in it, or around it.
        state: PathBuf,
    },
    /// The program could not be started inside.
    #[error("cannot start `{program}`: {why}")]
    CouldNotStart {
        /// Its name.
        program: String,
        /// The kernel's error.
        why: String,
    },
    /// The program's file does not have the expected digest.
    #[error("`{program}` was replaced: its digest is not the approved one")]
    Replaced {
        /// Its name.
        program: String,
    },
    /// The launcher is gone.
    #[error("the launcher ended unexpectedly")]
    LauncherGone,
    /// A system error.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

fn unavailable(wanted: &Tier, reasons: &[String]) -> String {
    let reasons = if reasons.is_empty() { "not possible here".to_owned() } else { reasons.join("; ") };
    format!("sandbox tier `{wanted}` is not available: {reasons}")
}

impl SandboxError {
    /// What to do about it.
    #[must_use]
    pub fn suggestion(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "`vambrace doctor` reports what is missing and how to enable it",
            Self::Refused(_) => "change the request",
            Self::Mounted(_) => {
                "unmount it, choose a workspace without it, use `--filesystem write` or `deny`, or run it as root of this machine"
            }
            Self::ShowsState { .. } => {
                "name the directories beside it, or set VAMBRACE_HOME to a directory that no program can see"
            }
            Self::CouldNotStart { .. } => {
                "name a program that is installed on the system, in the workspace or in a toolchain of the home directory, or make it visible with `--read`"
            }
            Self::Replaced { .. } => "check the new file, then request it again",
            Self::LauncherGone => "try again; its runs have ended with it",
            Self::System { .. } => "see the message",
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { what, source: errno.into() }
    }
}

/// A step of the confinement that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedStep {
    pub(crate) name: &'static str,
    pub(crate) errno: rustix::io::Errno,
}

/// Adds the step's name to an error.
pub(crate) trait StepContext<T> {
    fn step(self, name: &'static str) -> Result<T, FailedStep>;
}

impl<T> StepContext<T> for Result<T, rustix::io::Errno> {
    fn step(self, name: &'static str) -> Result<T, FailedStep> {
        self.map_err(|errno| FailedStep { name, errno })
    }
}
