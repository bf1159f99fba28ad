//! What broker, launcher and cell say to each other. All three are the same program at the same version, so the form
//! is compact and carries no version.

use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::spec::{Limits, Network, Observe};
use crate::tier::{Features, Tier};

/// A path or text as the kernel takes it.
pub(crate) type Bytes = Vec<u8>;

/// Broker to launcher. Handles: order, report, standard input, output, error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Try the kernel's features; the answer comes on the report socket.
    Probe,
    /// Run something: in the cell of this number, which was offered, or in one that is made now.
    Run { header: Header, cell: Option<u64> },
    /// The cell of this number has got its order. Handle: report.
    Begun { header: Header, cell: u64 },
    /// The cell of this number is not what is wanted.
    Return(u64),
    /// Keep so many cells ready.
    Warm(usize),
    /// The broker wants nothing more, and lives on.
    Leave,
}

/// What the launcher itself needs to know of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) tier: Tier,
    pub(crate) limits: Limits,
    pub(crate) network: Network,
    pub(crate) observe: Observe,
    /// Who owns the workspace: as whom a root broker shows its files to the program.
    pub(crate) owner: (u32, u32),
    /// Where the home folder is shown; nowhere in tier no-userns, where the task has one.
    pub(crate) home: Bytes,
    /// A folder of this run alone, removed at its end whoever is left to do so.
    pub(crate) task: Option<Bytes>,
}

/// What a filter is made for. It is installed before there is an order, and cannot be taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expected {
    pub(crate) network: Network,
    pub(crate) observe: Observe,
}

impl Expected {
    /// What a run asks for; nothing where its filter can only be installed last: one that asks about everything, or that
    /// names processes, as it must with an older Landlock.
    pub(crate) fn of(header: &Header, landlock_abi: i32) -> Option<Self> {
        let Header { network, observe, .. } = *header;
        (observe != Observe::All && landlock_abi >= 6).then_some(Self { network, observe })
    }
}

/// Launcher to broker: a cell that waits for its order. It is the broker's from then on, to be used or returned.
/// Handles: its channel, and where the broker is root the two id maps. What was guessed must agree with the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) number: u64,
    pub(crate) tier: Tier,
    pub(crate) identity: Identity,
    /// A guess: what the run asks for.
    pub(crate) expected: Option<Expected>,
    /// A guess, in every tier but no-userns: where the home folder is, and whose the workspace is.
    pub(crate) home: Bytes,
    pub(crate) owner: (u32, u32),
    /// What its control group is bound to.
    pub(crate) limits: Limits,
    pub(crate) go: Go,
    /// When the user's processes were counted, in milliseconds since the machine started.
    pub(crate) counted: u64,
}

/// Whoever has the order to the cell. Handles: order, report, standard input, output, error, then the two id maps for
/// a root broker: of the workspace's owner and of root.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Go {
    /// Whether the kernel limits the memory of the tree.
    pub(crate) memory_limited: bool,
    /// How many processes the user has besides the run's, where that was counted a moment ago.
    pub(crate) others: Option<u64>,
}

/// Launcher to cell, as whom to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether it must be taken: a launcher that is root gives its own up.
    pub(crate) taken: bool,
}

impl Identity {
    /// Of who asks. Nobody's in a user namespace that has no maps yet, so it is asked for outside.
    pub(crate) fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid, gid, taken: false }
    }
}

/// What a cell is to show and to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
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
    pub(crate) view: View,
    pub(crate) masks: Vec<Mask>,
    /// Names that do not exist in the workspace's own folder, whether or not they are there.
    pub(crate) ahead: Vec<Bytes>,
    /// Read-only, in full.
    pub(crate) read: Vec<Bytes>,
    /// The user's own toolchains, read-only.
    pub(crate) toolchains: Vec<Bytes>,
    pub(crate) write: Vec<Bytes>,
    /// Links that lead to what is shown, by names that the user knows it by: where each lies, and what it says.
    pub(crate) links: Vec<(Bytes, Bytes)>,
    /// Whether what is written there is dropped.
    pub(crate) drops_writes: bool,
    /// Files and folders below what is shown that must look empty.
    pub(crate) blank: Vec<Bytes>,
    pub(crate) scratch: Vec<Scratch>,
    pub(crate) limits: Limits,
    pub(crate) network: Network,
    pub(crate) observe: Observe,
    /// Whether somebody listens to what Landlock says of its refusals.
    pub(crate) audited: bool,
    /// Whether the kernel limits memory; otherwise the first process watches it.
    pub(crate) landlock_abi: i32,
    /// Processes that a confined program must not signal, where Landlock does not see to it.
    pub(crate) guarded: Vec<u32>,
}

/// How the workspace is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum View {
    Absent,
    /// The masked workspace, read-only.
    Read,
    /// An empty folder at its place.
    Fresh,
    /// The masked workspace under a layer that takes the changes.
    Layered,
}

/// A name that does not exist inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mask {
    /// Relative to the workspace.
    pub(crate) path: Bytes,
    /// The mode of each folder on the way, the workspace itself first.
    pub(crate) modes: Vec<u32>,
}

/// A build folder whose content lies elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scratch {
    /// Relative to the workspace.
    pub(crate) name: Bytes,
    /// Where on the host.
    pub(crate) folder: Bytes,
}

/// Launcher or cell to broker, on the run's own socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// From the launcher: what the kernel can do.
    Features(Features),
    /// From the cell, where there is an upper layer. Handles: that and, with an overlay, the merged view.
    Layers,
    /// From the cell: the network stands. Handles: its sockets.
    Network,
    /// From the cell or the program's process, before that starts. Handle: the listener.
    Listener,
    /// From the program's process before it starts, where it is to be known which one it is.
    Begins,
    /// From the cell: the walls could not be built.
    Failed { step: String, errno: i32 },
    /// From the program's process: the file is not the one that was meant.
    Replaced,
    /// From the program's process: it could not become the program.
    NotStarted { errno: i32 },
    /// From the cell: how the program ended (a wait status). Every other process of the run has ended too.
    Exited {
        status: i32,
        /// Whether it was asked to end before.
        asked: bool,
        /// The most memory that one of its processes had, in bytes.
        peak_memory: u64,
        memory_limited: bool,
    },
    /// From the cell: the tree used more memory than it may.
    OverMemory,
    /// From the cell or keeper: the run wrote more than it may.
    OverDisk,
    /// From the launcher, last: what the control group saw and whether the deadline struck.
    Ended { oom: bool, timed_out: bool, peak_memory: Option<u64>, memory_limited: bool },
}

/// Packs a message.
pub(crate) fn pack<T: Serialize>(message: &T) -> Result<Vec<u8>, Errno> {
    postcard::to_stdvec(message).map_err(|_| Errno::INVAL)
}

/// Unpacks a message.
pub(crate) fn unpack<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Errno> {
    postcard::from_bytes(bytes).map_err(|_| Errno::BADMSG)
}

/// Writes something of any size into a pipe and closes it: the end says that it is whole.
pub(crate) fn pack_into<T: Serialize>(message: &T, pipe: OwnedFd) -> Result<(), Errno> {
    let bytes = pack(message)?;
    // Whoever was to read it tells by another way why it does not.
    std::fs::File::from(pipe).write_all(&bytes).map_err(|_| Errno::PIPE)
}

/// Waits for the whole of it.
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

/// As C takes it.
pub(crate) fn c_text(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}
