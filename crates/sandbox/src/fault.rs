//! Why a program was not run.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use vambrace_core::quote::quoted;

use crate::tier::Tier;

/// Why a program was not run, or its end is not known.
#[derive(Debug, thiserror::Error)]
pub enum SandboxFault {
    /// The walls that were asked for cannot be built here. Nothing was started.
    #[error("{}", unavailable(.wanted, .reasons))]
    Unavailable {
        /// What was asked for.
        wanted: Tier,
        /// What did not work.
        reasons: Vec<String>,
    },
    /// The walls cannot be built around this call.
    #[error("{0}")]
    Refused(String),
    /// The walls cannot be built around what is mounted there. Nothing was started.
    #[error("`{}` is mounted in a folder that the program needs an overlay of, and the kernel makes none there for an ordinary user", quoted(.0.as_os_str().as_bytes()))]
    Mounted(PathBuf),
    /// The program would see the keys and records of whoever confines it.
    #[error("the program would see the state folder `{}` in `{}`", .state.display(), .path.display())]
    ShowsState {
        /// What was to be shown.
        path: PathBuf,
        /// What lies in it, or around it.
        state: PathBuf,
    },
    /// The program could not be started inside.
    #[error("cannot start `{program}`: {why}")]
    CouldNotStart {
        /// Which.
        program: String,
        /// The kernel's word.
        why: String,
    },
    /// The program's file is another one than was meant.
    #[error("`{program}` was replaced: its digest is not the one that was agreed to")]
    Replaced {
        /// Which.
        program: String,
    },
    /// The launcher is gone.
    #[error("the launcher ended unexpectedly")]
    LauncherGone,
    /// Something of the machine.
    #[error("{what}: {source}")]
    System {
        /// While doing what.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}

fn unavailable(wanted: &Tier, reasons: &[String]) -> String {
    let reasons = if reasons.is_empty() { "not possible here".to_owned() } else { reasons.join("; ") };
    format!("sandbox tier `{wanted}` is not available: {reasons}")
}

impl SandboxFault {
    /// What to do about it.
    #[must_use]
    pub fn suggestion(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "`vambrace doctor` tells what is missing and how to get it back",
            Self::Refused(_) => "change what is asked for",
            Self::Mounted(_) => {
                "unmount it, choose a workspace without it, use `--filesystem write` or `deny`, or run it as root of this machine"
            }
            Self::ShowsState { .. } => {
                "name the folders beside it, or set VAMBRACE_HOME to a folder that no program is shown"
            }
            Self::CouldNotStart { .. } => {
                "name a program that is installed on the system, in the workspace or in a toolchain of the home folder, or show it with `--read`"
            }
            Self::Replaced { .. } => "look at the new file, then ask again",
            Self::LauncherGone => "try again; what it ran has ended with it",
            Self::System { .. } => "see the message",
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { what, source: errno.into() }
    }
}

/// A step inside the sandbox-to-be that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) errno: rustix::io::Errno,
}

/// Names the step that a result belongs to.
pub(crate) trait Named<T> {
    fn step(self, name: &'static str) -> Result<T, Step>;
}

impl<T> Named<T> for Result<T, rustix::io::Errno> {
    fn step(self, name: &'static str) -> Result<T, Step> {
        self.map_err(|errno| Step { name, errno })
    }
}
