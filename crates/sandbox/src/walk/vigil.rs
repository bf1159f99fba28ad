//! Being told of changes below a workspace, so that nobody has to look at every folder before each run: inotify on
//! every folder that was walked, and the kernel's word on mounts.
//!
//! **Invariant.** Whatever happens to a name in a watched folder after [`Vigil::begin`] is seen by the next
//! [`Vigil::seen`]: a watch stands before the folder's stamp is compared, the kernel queues what happens before the call
//! that did it returns, and a queue that ran over says so. File systems that others change behind the kernel's back
//! (network, FUSE, overlays) are not watched; there the stamps are compared each time.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::mounting::open_beneath;
use crate::wire::Bytes;

/// More folders are not watched: watches are the user's, who has other programs that want some.
const MOST_FOLDERS: usize = 4096;
/// More events than these tell no more than that a lot happened.
const MOST_EVENTS: usize = 2000;
/// ext2 to ext4, XFS, Btrfs, tmpfs, F2FS: changed by this kernel only.
const LOCAL: &[i64] = &[0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];

/// The watch over one workspace.
#[derive(Debug)]
pub(super) struct Vigil {
    events: OwnedFd,
    mounts: OwnedFd,
    root: (u64, u64),
    folders: HashMap<i32, Bytes>,
}

/// What happened since it was last asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    /// Names of files came or went in these folders.
    Files(HashSet<Bytes>),
    /// Folders or mounts, or nobody knows.
    More,
}

impl Vigil {
    /// Watches every folder of `paths` (the root's is `.`). Whoever calls compares their stamps afterwards.
    pub(super) fn begin(root: BorrowedFd<'_>, paths: &[&[u8]]) -> Option<Self> {
        let kind = rustix::fs::fstatfs(root).ok()?.f_type as i64;
        if !LOCAL.contains(&kind) || paths.len() > MOST_FOLDERS {
            return None;
        }
        // Bound to the present mount namespace; the first question is about what happens from now on.
        let mounts =
            rustix::fs::open("/proc/thread-self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .ok()?;
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let identity = identity(root).ok()?;
        let mut folders = HashMap::with_capacity(paths.len());
        for path in paths {
            let folder = open_beneath(root, path, OFlags::PATH | OFlags::DIRECTORY).ok()?;
            // Another file system may be one that cannot be watched.
            if self::identity(folder.as_fd()).ok()?.0 != identity.0 {
                return None;
            }
            let wanted = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            let name = format!("/proc/self/fd/{}", folder.as_raw_fd());
            folders.insert(inotify::add_watch(&events, name, wanted).ok()?, path.to_vec());
        }
        Some(Self { events, mounts, root: identity, folders })
    }

    /// What happened in the meantime; `root` is the workspace as it is found now.
    pub(super) fn seen(&self, root: BorrowedFd<'_>) -> Seen {
        let mut list = [PollFd::new(&self.mounts, PollFlags::PRI)];
        let mounts = rustix::event::poll(&mut list, Some(&Timespec::default()));
        if mounts != Ok(0) || identity(root) != Ok(self.root) {
            return Seen::More;
        }
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.events, &mut space);
        let mut files = HashSet::new();
        let telling = ReadFlags::CREATE
            | ReadFlags::DELETE
            | ReadFlags::MOVED_FROM
            | ReadFlags::MOVED_TO
            | ReadFlags::ATTRIB;
        for _ in 0..MOST_EVENTS {
            match events.next() {
                // Of a file in a folder that is known; anything else (folders, the folder itself, an end) is more.
                Ok(event) if telling.contains(event.events()) && event.file_name().is_some() => {
                    match self.folders.get(&event.wd()) {
                        Some(path) => files.insert(path.clone()),
                        None => return Seen::More,
                    };
                }
                Err(Errno::AGAIN) if files.is_empty() => return Seen::Nothing,
                Err(Errno::AGAIN) => return Seen::Files(files),
                _ => return Seen::More,
            }
        }
        Seen::More
    }
}

/// Device and number.
fn identity(folder: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(folder).map(|facts| (facts.st_dev, facts.st_ino))
}
