//! Messages between broker, launcher and cell. All three are the same executable, so the format is compact (postcard)
//! and carries no version.

use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::spec::{NetworkMode, Observe, RunLimits};
use crate::tier::{Features, Tier};

/// A path or text as raw bytes.
pub(crate) type Bytes = Vec<u8>;

/// Broker to launcher. Handles: run request, report, standard input, output, error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherRequest {
    /// Probe the kernel's features; the reply comes on the report socket.
    Probe,
    /// Run a program: in the warm cell of this number, or in a new one.
    Run { header: RunHeader, cell: Option<u64> },
    /// The broker has started a run in the cell of this number. Handle: report.
    Begun { header: RunHeader, cell: u64 },
    /// The broker does not need the cell of this number.
    Return(u64),
    /// Keep this many cells ready.
    Warm(usize),
    /// The broker needs this launcher no more, and continues to run.
    Leave,
}

/// What the launcher itself needs to know about a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunHeader {
    pub(crate) tier: Tier,
    pub(crate) limits: RunLimits,
    pub(crate) network: NetworkMode,
    pub(crate) observe: Observe,
    /// Owner of the workspace (uid, gid): a root broker shows its files to the program through an id map.
    pub(crate) owner: (u32, u32),
    /// Mount point of the home directory; unused in tier no-userns, where the run directory contains one.
    pub(crate) home: Bytes,
    /// Directory of this run, removed at its end by whichever process is left.
    pub(crate) run_dirs: Option<Bytes>,
}

/// The filter that a cell installs before it has a request. It cannot be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExpectedFilter {
    pub(crate) network: NetworkMode,
    pub(crate) observe: Observe,
}

impl ExpectedFilter {
    /// The filter of a run; `None` if it can only be installed last: one that observes everything, or that names
    /// processes, as an older Landlock requires.
    pub(crate) fn of(header: &RunHeader, landlock_abi: i32) -> Option<Self> {
        let RunHeader { network, observe, .. } = *header;
        (observe != Observe::All && landlock_abi >= 6).then_some(Self { network, observe })
    }
}

/// Launcher to broker: a warm cell. The broker owns it from then on, and uses or returns it. Handles: its channel,
/// and for a root broker the two id maps. The guesses must match the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WarmCellOffer {
    pub(crate) number: u64,
    pub(crate) tier: Tier,
    pub(crate) identity: RunIdentity,
    /// Guess: the filter of the run.
    pub(crate) expected: Option<ExpectedFilter>,
    /// Guesses, in every tier but no-userns: home directory, and owner of the workspace.
    pub(crate) home: Bytes,
    pub(crate) owner: (u32, u32),
    /// Limits of its cgroup.
    pub(crate) limits: RunLimits,
    pub(crate) go: CellStart,
    /// When the user's processes were counted, in milliseconds since boot.
    pub(crate) counted: u64,
}

/// Broker or launcher to cell: starts the run. Handles: run request, report, standard input, output, error, then for
/// a root broker the two id maps: of the workspace's owner and of root.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CellStart {
    /// Whether the kernel limits the memory of the tree.
    pub(crate) memory_limited: bool,
    /// Number of the user's other processes, if counted a moment ago.
    pub(crate) others: Option<u64>,
}

/// Launcher to cell: the user and group that the program runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunIdentity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether the cell must switch to it: a root launcher does not run programs as root.
    pub(crate) must_switch: bool,
}

impl RunIdentity {
    /// Of the calling process. Must be called outside of a user namespace without maps, where every id reads as
    /// nobody.
    pub(crate) fn of_this_process() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid, gid, must_switch: false }
    }
}

/// What a cell mounts and executes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunRequest {
    pub(crate) tier: Tier,
    /// Looked up in `path` when it has no slash.
    pub(crate) program: Bytes,
    pub(crate) path: Vec<Bytes>,
    pub(crate) digest: Option<[u8; 32]>,
    pub(crate) arguments: Vec<Bytes>,
    pub(crate) environment: Vec<Bytes>,
    pub(crate) cwd: Bytes,
    pub(crate) umask: u32,
    pub(crate) home: Bytes,
    pub(crate) workspace: Bytes,
    pub(crate) view: WorkspaceView,
    pub(crate) masks: Vec<MaskedPath>,
    /// Names in the workspace's top directory that are hidden, whether or not they exist.
    pub(crate) ahead: Vec<Bytes>,
    /// Read-only, in full.
    pub(crate) read: Vec<Bytes>,
    /// The user's own toolchains, read-only.
    pub(crate) toolchains: Vec<Bytes>,
    pub(crate) write: Vec<Bytes>,
    /// Symlinks to visible paths, by the names that the user knows: path and target of each.
    pub(crate) links: Vec<(Bytes, Bytes)>,
    /// Whether writes to those paths are dropped.
    pub(crate) drops_writes: bool,
    /// Files and directories below visible paths that must appear empty.
    pub(crate) blank: Vec<Bytes>,
    pub(crate) scratch: Vec<ScratchDir>,
    pub(crate) limits: RunLimits,
    pub(crate) network: NetworkMode,
    pub(crate) observe: Observe,
    /// Whether the broker reads Landlock's audit records.
    pub(crate) audited: bool,
    /// Landlock ABI of the kernel.
    pub(crate) landlock_abi: i32,
    /// Processes that a confined program must not signal, where Landlock does not scope signals.
    pub(crate) guarded: Vec<u32>,
}

/// How the program sees the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkspaceView {
    Absent,
    /// The masked workspace, read-only.
    Read,
    /// An empty directory in its place.
    Fresh,
    /// The masked workspace under an upper layer that collects the changes.
    Layered,
}

/// A path that does not exist for the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MaskedPath {
    /// Relative to the workspace.
    pub(crate) path: Bytes,
    /// Mode of each parent directory, the workspace itself first.
    pub(crate) modes: Vec<u32>,
}

/// A scratch directory, mounted from outside the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScratchDir {
    /// Relative to the workspace.
    pub(crate) name: Bytes,
    /// Its path on the host.
    pub(crate) dir: Bytes,
}

/// Launcher or cell to broker, on the run's own socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RunReport {
    /// From the launcher: the kernel's features.
    Features(Features),
    /// From the cell, if there is an upper layer. Handles: the upper layer and, with an overlay, the merged view.
    Layers,
    /// From the cell: the network is set up. Handles: its sockets.
    Network,
    /// From the cell or the program's process, before the exec. Handle: the seccomp listener.
    Listener,
    /// From the program's process before the exec, if the broker needs its pid.
    Begins,
    /// From the cell: a step of the confinement failed.
    Failed { step: String, errno: i32 },
    /// From the program's process: the file does not have the expected digest.
    Replaced,
    /// From the program's process: the exec failed.
    NotStarted { errno: i32 },
    /// From the cell: the program's wait status. Every other process of the run has ended too.
    Exited {
        status: i32,
        /// Whether it was asked to end before it exited.
        asked: bool,
        /// Peak memory of any one of its processes, in bytes.
        peak_memory: u64,
        memory_limited: bool,
    },
    /// From the cell: the tree exceeded its memory limit.
    OverMemory,
    /// From the cell or subreaper: the run exceeded its disk limit.
    OverDisk,
    /// From the launcher, last: what the cgroup saw and whether the deadline passed.
    Ended { oom: bool, timed_out: bool, peak_memory: Option<u64>, memory_limited: bool },
}

/// Serialises a message.
pub(crate) fn pack<T: Serialize>(message: &T) -> Result<Vec<u8>, Errno> {
    postcard::to_stdvec(message).map_err(|_| Errno::INVAL)
}

/// Deserialises a message.
pub(crate) fn unpack<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Errno> {
    postcard::from_bytes(bytes).map_err(|_| Errno::BADMSG)
}

/// Writes a message of any size into a pipe and closes it, which marks the end.
pub(crate) fn pack_into<T: Serialize>(message: &T, pipe: OwnedFd) -> Result<(), Errno> {
    let bytes = pack(message)?;
    // The reader reports on another channel why it did not read.
    std::fs::File::from(pipe).write_all(&bytes).map_err(|_| Errno::PIPE)
}

/// Reads a message until the pipe is closed.
pub(crate) fn unpack_from<T: for<'a> Deserialize<'a>>(pipe: OwnedFd) -> Result<T, Errno> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        bytes.reserve(1);
        match rustix::io::read(&pipe, spare_capacity(&mut bytes)) {
            Ok(0) => return unpack(&bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// As a C string.
pub(crate) fn c_text(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}
