//! How a run ended: exit, output, denials, changes, usage.

use std::time::Duration;

use crate::changes::RunChanges;
use crate::denial::SandboxDenial;
use crate::tier::Tier;

/// How a run ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// The tier that confined it.
    pub tier: Tier,
    /// How the program ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// What the sandbox denied, as far as it was observed.
    pub denials: Vec<SandboxDenial>,
    /// Whether denials may be missing: there were more than the kernel, or the observer, could keep.
    pub denials_missing: bool,
    /// What the program changed in the workspace, if it could.
    pub changes: Option<RunChanges>,
    /// From start to end.
    pub duration: Duration,
    /// Peak memory of all processes together, in bytes, where the kernel counted it.
    pub peak_memory: Option<u64>,
    /// What enforced the memory limit.
    pub memory_bound: MemoryEnforcement,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// At its deadline; all processes were killed.
    Timeout,
    /// By the caller ([`crate::StopHandle`]), because of this signal; all processes were killed.
    Stopped(i32),
    /// At its memory limit; all processes were killed.
    OutOfMemory,
    /// At its disk limit, where the kernel does not deny further writes; all processes were killed.
    OutOfDisk,
}

impl Exit {
    /// The exit code for a shell: 124 after a timeout, 128 plus the signal's number after a signal to the program or to
    /// us, 137 out of memory, 153 (as after SIGXFSZ) out of disk.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) | Self::Stopped(number) => 128 + number,
            Self::Timeout => 124,
            Self::OutOfMemory => 137,
            Self::OutOfDisk => 128 + libc::SIGXFSZ,
        }
    }
}

/// What enforces the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryEnforcement {
    /// A cgroup.
    Kernel,
    /// The cell's init, which polls ten times a second.
    Watched,
    /// RLIMIT_AS of each process only: there is neither a cgroup nor `/proc`.
    EachProcess,
}

/// One of the two output streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The beginning of the stream, up to the limit.
    pub bytes: Vec<u8>,
    /// Length of the whole stream, in bytes.
    pub total: u64,
}

impl Captured {
    /// Whether the stream was longer than what was kept.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}
