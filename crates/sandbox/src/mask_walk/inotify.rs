//! Watches the directories of a workspace, so that not every one has to be checked before each run: inotify on every
//! directory that was walked, and poll on mountinfo for new mounts.
//!
//! **Invariant.** Whatever happens to a name in a watched directory after [`DirectoryWatcher::start`] is seen by the next
//! [`DirectoryWatcher::changes`]: the watch exists before the directory's stamp is compared, the kernel queues an event
//! before the system call that caused it returns, and a queue that overflowed reports it. File systems that change
//! without this kernel (network, FUSE, overlays) are not watched; there the stamps are compared each time.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::mount::open_beneath;
use crate::wire::Bytes;

/// Maximum number of watched directories: the limit of watches is per user, and other programs need some.
const MAX_WATCHED_DIRS: usize = 4096;
/// Maximum number of events read at once; after more, a full walk is cheaper.
const MAX_EVENTS: usize = 2000;
/// Magic numbers of file systems that only this kernel changes: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS.
const LOCAL_FILE_SYSTEMS: &[i64] = &[0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];

/// The watch over one workspace.
#[derive(Debug)]
pub(super) struct DirectoryWatcher {
    events: OwnedFd,
    mounts: OwnedFd,
    root: (u64, u64),
    dirs: HashMap<i32, Bytes>,
}

/// What happened since the last call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchedChanges {
    Nothing,
    /// Names of files were created or deleted in these directories.
    Files(HashSet<Bytes>),
    /// Directories or mounts changed, or it is unknown what did.
    Unknown,
}

impl DirectoryWatcher {
    /// Watches every directory of `paths` (the root's is `.`). The caller must compare their stamps afterwards.
    pub(super) fn start(root: BorrowedFd<'_>, paths: &[&[u8]]) -> Option<Self> {
        let kind = rustix::fs::fstatfs(root).ok()?.f_type as i64;
        if !LOCAL_FILE_SYSTEMS.contains(&kind) || paths.len() > MAX_WATCHED_DIRS {
            return None;
        }
        // Bound to the current mount namespace; poll reports changes from now on.
        let mounts =
            rustix::fs::open("/proc/thread-self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .ok()?;
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let identity = identity(root).ok()?;
        let mut dirs = HashMap::with_capacity(paths.len());
        for path in paths {
            let dir = open_beneath(root, path, OFlags::PATH | OFlags::DIRECTORY).ok()?;
            // Another file system may not be a local one.
            if self::identity(dir.as_fd()).ok()?.0 != identity.0 {
                return None;
            }
            let wanted = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            let name = format!("/proc/self/fd/{}", dir.as_raw_fd());
            dirs.insert(inotify::add_watch(&events, name, wanted).ok()?, path.to_vec());
        }
        Some(Self { events, mounts, root: identity, dirs })
    }

    /// What happened since the last call; `root` is the workspace as it is opened now.
    pub(super) fn changes(&self, root: BorrowedFd<'_>) -> WatchedChanges {
        let mut list = [PollFd::new(&self.mounts, PollFlags::PRI)];
        let mounts = rustix::event::poll(&mut list, Some(&Timespec::default()));
        if mounts != Ok(0) || identity(root) != Ok(self.root) {
            return WatchedChanges::Unknown;
        }
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.events, &mut space);
        let mut files = HashSet::new();
        let telling = ReadFlags::CREATE
            | ReadFlags::DELETE
            | ReadFlags::MOVED_FROM
            | ReadFlags::MOVED_TO
            | ReadFlags::ATTRIB;
        for _ in 0..MAX_EVENTS {
            match events.next() {
                // About a file in a known directory; anything else (a directory, an overflow) is `Unknown`.
                Ok(event) if telling.contains(event.events()) && event.file_name().is_some() => {
                    match self.dirs.get(&event.wd()) {
                        Some(path) => files.insert(path.clone()),
                        None => return WatchedChanges::Unknown,
                    };
                }
                Err(Errno::AGAIN) if files.is_empty() => return WatchedChanges::Nothing,
                Err(Errno::AGAIN) => return WatchedChanges::Files(files),
                _ => return WatchedChanges::Unknown,
            }
        }
        WatchedChanges::Unknown
    }
}

/// Device and inode.
fn identity(dir: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(dir).map(|facts| (facts.st_dev, facts.st_ino))
}
