//! What a run came to.

use std::time::Duration;

use crate::changes::Changes;
use crate::denial::Denial;
use crate::tier::Tier;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The walls that it ran in.
    pub tier: Tier,
    /// How the program ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// What was refused, as far as it was observed.
    pub denials: Vec<Denial>,
    /// Whether some of them may be missing: the kernel had more to tell than it, or we, could keep.
    pub denials_missing: bool,
    /// What the program changed in the workspace, where it could.
    pub changes: Option<Changes>,
    /// From start to end.
    pub duration: Duration,
    /// The most memory of the tree, where the kernel counted it.
    pub peak_memory: Option<u64>,
    /// Who bounded the memory.
    pub memory_bound: MemoryBound,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// By its deadline; the whole tree was ended.
    Timeout,
    /// By whoever wanted no more of it ([`crate::Stop`]), because of this signal; the whole tree was ended.
    Stopped(i32),
    /// By its memory limit; the whole tree was ended.
    OutOfMemory,
    /// By its limit for what it writes, where the kernel does not refuse more; the whole tree was ended.
    OutOfDisk,
}

impl Exit {
    /// The code for a shell: 124 after a deadline, 128 and the signal's number after a signal to it or to us, 137 without memory, 153
    /// (as after SIGXFSZ) without disk.
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

/// Who sees to the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBound {
    /// A control group.
    Kernel,
    /// The first process, ten times a second.
    Watched,
    /// Nobody: without a control group and without `/proc` only what each process asks for is bounded.
    EachProcess,
}

/// One of the two output streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// What was kept: the beginning.
    pub bytes: Vec<u8>,
    /// How much there was.
    pub total: u64,
}

impl Captured {
    /// Whether something is missing.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}
