//! The project root as an open directory, and the only ways to get from it to anything else. Every open goes
//! through `openat2` with links forbidden and mounts not crossed, so a place that was admitted as a string is
//! the place that is opened: if a name on the way has become a link, the open fails instead of following it.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::{Errno, Result};

/// Where a workspace lives: recorded with every call, and never left by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The device of the project root.
    pub device: u64,
    /// Its mount; `None` on kernels before 5.8, where only the kernel's own refusal to cross protects.
    pub mount: Option<u64>,
}

/// Beneath the handle, no links of any kind, no other mount.
const STRAIGHT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Never waits for the other end of a pipe, never takes a terminal.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const FOLDER: OFlags = READ.union(OFlags::DIRECTORY);
/// A handle for looking, not for reading; of a link it is the link itself.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The kernel says EAGAIN when a rename ran beside a lookup that it could not prove safe.
const RETRIES: usize = 128;
/// Paths from here on are opened in pieces: the kernel takes at most 4095 bytes at once.
const PIECE_BYTES: usize = 4000;
/// From `linux/magic.h`. Files of an overlay may show the devices of its layers.
const OVERLAYFS: u64 = 0x794c_7630;

/// The handle everything starts at.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    volume: Volume,
    /// Whether a file's device says something about its mount.
    device_tells: bool,
}

impl Root {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        let facts =
            rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        let has_mount = facts.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let device = rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor);
        let kind = rustix::fs::fstatfs(&fd)?.f_type;
        let volume = Volume { device, mount: has_mount.then_some(facts.stx_mnt_id) };
        Ok(Self { fd, volume, device_tells: u64::try_from(kind) != Ok(OVERLAYFS) })
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether facts of an opened file are of this volume.
    pub(crate) fn holds(&self, facts: &Stat) -> bool {
        !self.device_tells || facts.st_dev == self.volume.device
    }

    /// Opens a file or folder for reading. `ELOOP` means that a link is on the way.
    pub(crate) fn open(&self, place: &str) -> Result<OwnedFd> {
        self.open_with(place, READ)
    }

    /// Opens a folder for reading, on this volume.
    pub(crate) fn open_folder(&self, place: &str) -> Result<OwnedFd> {
        let folder = self.open_with(place, FOLDER)?;
        let facts = rustix::fs::fstat(&folder)?;
        if self.holds(&facts) { Ok(folder) } else { Err(Errno::XDEV) }
    }

    /// Opens for looking; links are only followed by whoever reads them.
    pub(crate) fn look(&self, place: &str) -> Result<OwnedFd> {
        self.open_with(place, LOOK)
    }

    fn open_with(&self, place: &str, flags: OFlags) -> Result<OwnedFd> {
        if place.len() < PIECE_BYTES {
            return straight(self.fd.as_fd(), if place.is_empty() { "." } else { place }, flags);
        }
        let mut at: Option<OwnedFd> = None;
        let mut rest = place;
        loop {
            let from = at.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            if rest.len() < PIECE_BYTES {
                return straight(from, rest, flags);
            }
            let cut = rest.bytes().take(PIECE_BYTES).rposition(|byte| byte == b'/');
            let (piece, tail) = cut.and_then(|cut| rest.split_at_checked(cut)).ok_or(Errno::NAMETOOLONG)?;
            let folder = straight(from, piece, LOOK | OFlags::DIRECTORY)?;
            at = Some(folder);
            rest = tail.trim_start_matches('/');
        }
    }
}

/// Opens one entry of an open folder for reading.
pub(crate) fn open_entry(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    straight(folder, name, READ)
}

/// Looks at one entry of an open folder; a link is looked at itself.
pub(crate) fn look_at_entry(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    straight(folder, name, LOOK)
}

/// Reads where a link that is open for looking points; `None` when it is not UTF-8.
pub(crate) fn link_target(link: &OwnedFd) -> Result<Option<String>> {
    let target = rustix::fs::readlinkat(link, c"", Vec::new())?;
    Ok(target.into_string().ok())
}

/// How many names a file has.
#[allow(clippy::useless_conversion, reason = "the field is narrower on other processors")]
pub(crate) fn links(facts: &Stat) -> u64 {
    u64::from(facts.st_nlink)
}

pub(crate) fn file_type(facts: &Stat) -> FileType {
    FileType::from_raw_mode(facts.st_mode)
}

fn straight<P: rustix::path::Arg + Copy>(from: BorrowedFd<'_>, path: P, flags: OFlags) -> Result<OwnedFd> {
    for _ in 0..RETRIES {
        match rustix::fs::openat2(from, path, flags, Mode::empty(), STRAIGHT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}
