//! The project root as an open directory, and the only functions that open anything below it. Every open goes through
//! `openat2` with symlinks forbidden and mounts not crossed, so the path that the scope admitted as a string is the path
//! that is opened: if a component has become a symlink, the open fails.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, StatxFlags, Uid};
use rustix::io::{Errno, Result};

/// Device and mount of a workspace. Recorded with every call; no call leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The device of the project root.
    pub device: u64,
    /// Mount id; `None` on kernels before 5.8, where only `RESOLVE_NO_XDEV` prevents crossing.
    pub mount: Option<u64>,
}

/// Beneath the handle, no symlinks of any kind, no other mount.
const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Never blocks on the other end of a pipe, never acquires a controlling terminal.
const OPEN_READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const OPEN_DIR: OFlags = OPEN_READ.union(OFlags::DIRECTORY);
/// An `O_PATH` handle: for stat, not for reading; on a symlink it refers to the symlink itself.
const OPEN_PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The kernel returns EAGAIN when a concurrent rename made a lookup impossible to prove safe.
const MAX_RETRIES: usize = 128;
/// Longer paths are opened in pieces: the kernel takes at most 4095 bytes per call.
const MAX_PATH_BYTES: usize = 4000;
/// From `linux/magic.h`. Files of an overlay may report the devices of its layers.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// The handle that every open starts at.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    volume: Volume,
    /// Whether a file's device number identifies its mount; false on overlayfs.
    device_identifies_mount: bool,
}

impl Root {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        let stat =
            rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        let has_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        let kind = rustix::fs::fstatfs(&fd)?.f_type;
        let volume = Volume { device, mount: has_mount.then_some(stat.stx_mnt_id) };
        Ok(Self { fd, volume, device_identifies_mount: u64::try_from(kind) != Ok(OVERLAYFS_MAGIC) })
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether an opened file is on this volume.
    pub(crate) fn is_on_volume(&self, stat: &Stat) -> bool {
        !self.device_identifies_mount || stat.st_dev == self.volume.device
    }

    /// Owner of files that root creates; `None` for any other user, whose files are its own.
    pub(crate) fn owner_of_new_files(&self) -> Option<(Uid, Gid)> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let stat = rustix::fs::fstat(&self.fd).ok()?;
        Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)))
    }

    /// Opens a file or directory for reading. `ELOOP` means that a component is a symlink.
    pub(crate) fn open(&self, rel_path: &str) -> Result<OwnedFd> {
        self.open_with(rel_path, OPEN_READ)
    }

    /// Opens a directory for reading, on this volume.
    pub(crate) fn open_dir(&self, rel_path: &str) -> Result<OwnedFd> {
        let dir = self.open_with(rel_path, OPEN_DIR)?;
        let stat = rustix::fs::fstat(&dir)?;
        if self.is_on_volume(&stat) { Ok(dir) } else { Err(Errno::XDEV) }
    }

    /// Opens with `O_PATH`; a symlink is not followed.
    pub(crate) fn open_path(&self, rel_path: &str) -> Result<OwnedFd> {
        self.open_with(rel_path, OPEN_PATH)
    }

    fn open_with(&self, rel_path: &str, flags: OFlags) -> Result<OwnedFd> {
        if rel_path.len() < MAX_PATH_BYTES {
            return openat2_no_symlinks(
                self.fd.as_fd(),
                if rel_path.is_empty() { "." } else { rel_path },
                flags,
            );
        }
        let mut at: Option<OwnedFd> = None;
        let mut rest = rel_path;
        loop {
            let from = at.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            if rest.len() < MAX_PATH_BYTES {
                return openat2_no_symlinks(from, rest, flags);
            }
            let cut = rest.bytes().take(MAX_PATH_BYTES).rposition(|byte| byte == b'/');
            let (piece, tail) = cut.and_then(|cut| rest.split_at_checked(cut)).ok_or(Errno::NAMETOOLONG)?;
            let dir = openat2_no_symlinks(from, piece, OPEN_PATH | OFlags::DIRECTORY)?;
            at = Some(dir);
            rest = tail.trim_start_matches('/');
        }
    }
}

/// Opens one entry of an open directory for reading.
pub(crate) fn open_entry(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    openat2_no_symlinks(dir, name, OPEN_READ)
}

/// Opens one entry of an open directory with `O_PATH`; a symlink is not followed.
pub(crate) fn open_entry_path(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    openat2_no_symlinks(dir, name, OPEN_PATH)
}

/// The target of a symlink opened with `O_PATH`; `None` when it is not UTF-8.
pub(crate) fn symlink_target(link: &OwnedFd) -> Result<Option<String>> {
    let target = rustix::fs::readlinkat(link, c"", Vec::new())?;
    Ok(target.into_string().ok())
}

/// Number of hard links.
#[allow(clippy::useless_conversion, reason = "the field is narrower on other architectures")]
pub(crate) fn link_count(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn openat2_no_symlinks<P: rustix::path::Arg + Copy>(
    from: BorrowedFd<'_>,
    path: P,
    flags: OFlags,
) -> Result<OwnedFd> {
    for _ in 0..MAX_RETRIES {
        match rustix::fs::openat2(from, path, flags, Mode::empty(), RESOLVE_FLAGS) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}
