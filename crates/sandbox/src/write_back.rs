//! Writes a run's changes back to the workspace: the path for many entries, and for those that are not regular files. The
//! `exec` crate hands everything else to the applier of `workspace`, and holds that applier's file locks meanwhile.
//!
//! [`JournaledWriteBack`] leaves all changes or none after a crash. It works through directory handles beneath the
//! workspace: a new file appears whole under its name or not at all, a changed one is replaced whole, and nothing is
//! overwritten that is not what the program saw.

mod journal;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, SeekFrom, Uid};
use rustix::io::Errno;
use vambrace_core::quote::quoted;

use crate::attributes;
use crate::changes::{EntryChange, RunChanges, check_base};

pub use journal::{JournaledWriteBack, RecoveredChange, StagedWriteBack};

/// What was written back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenBack {
    /// Number of changes.
    pub changes: usize,
}

/// Why changes were not written back.
#[derive(Debug, thiserror::Error)]
pub enum WriteBackError {
    /// Another process changed the workspace; nothing was written.
    #[error("`{}` was changed meanwhile", shown(.0))]
    StaleBase(PathBuf),
    /// A system call failed; the changes before it in the list were written.
    #[error("cannot write `{}`: {why}", shown(.path))]
    Write {
        /// The path that could not be written.
        path: PathBuf,
        /// The error.
        why: Errno,
        /// Number of changes that were written before it.
        written: usize,
    },
}

impl WriteBackError {
    /// The stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::StaleBase(_) => "StaleBase",
            Self::Write { .. } => "Write",
        }
    }
}

fn shown(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes())
}

/// The workspace that changes are written back to.
#[derive(Debug)]
struct WriteBackTarget {
    root: Arc<OwnedFd>,
    /// Owner of new files; only root can set it.
    owner: Option<(Uid, Gid)>,
}

/// Prefix of temporary names in the workspace, used between writing and renaming into place.
pub(crate) const TEMP_PREFIX: &str = ".vambrace-unfinished-";

/// Owner of files created as root: the workspace's owner. `None` for any other user.
fn owner_of(workspace: &OwnedFd) -> Result<Option<(Uid, Gid)>, Errno> {
    let facts = rustix::fs::fstat(workspace)?;
    let owner = || (Uid::from_raw(facts.st_uid), Gid::from_raw(facts.st_gid));
    Ok(rustix::process::geteuid().is_root().then(owner))
}

fn changes_type(change: &EntryChange) -> bool {
    matches!((&change.before, &change.after), (Some(before), Some(after)) if before.kind != after.kind)
}

impl WriteBackTarget {
    /// Checks that every base is still in place, unchanged.
    fn check_bases(&self, changes: &RunChanges) -> Result<(), WriteBackError> {
        let check = |change| check_base(self.root.as_fd(), change, changes.since);
        changes.list.iter().try_for_each(check).map_err(WriteBackError::StaleBase)
    }
}

fn set_owner(file: &OwnedFd, owner: Option<(Uid, Gid)>) -> Result<(), Errno> {
    match owner {
        Some((uid, gid)) => rustix::fs::fchown(file, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// Writes an unnamed file (O_TMPFILE) and links it under its name when it is complete.
fn write_file(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    content: &OwnedFd,
    size: u64,
    mode: Mode,
    owner: Option<(Uid, Gid)>,
    replaces: bool,
) -> Result<(), Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, c".", flags, Mode::from_raw_mode(0o600))?;
    copy(content, &file, size)?;
    set_owner(&file, owner)?;
    attributes::copy_to(content, &file)?;
    rustix::fs::fchmod(&file, mode)?;
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let link = |name: &OsStr| {
        rustix::fs::linkat(rustix::fs::CWD, itself.as_str(), dir, name, AtFlags::SYMLINK_FOLLOW)
    };
    if !replaces {
        return link(name);
    }
    let temp_name = std::ffi::OsString::from(format!("{TEMP_PREFIX}{}", std::process::id()));
    match link(&temp_name) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, &temp_name, AtFlags::empty())?;
            link(&temp_name)?;
        }
        done => done?,
    }
    rustix::fs::renameat(dir, &temp_name, dir, name).inspect_err(|_| {
        // No temporary file stays behind when the rename fails.
        let _ = rustix::fs::unlinkat(dir, &temp_name, AtFlags::empty());
    })
}

/// Copies a file's content; keeps the holes of files that are not small.
fn copy(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    match usize::try_from(size) {
        Ok(size) if size <= MAX_SMALL_FILE_BYTES => copy_small(from, to, size),
        _ => copy_sparse(from, to, size),
    }
}

/// Files up to this size in bytes are copied in one piece.
const MAX_SMALL_FILE_BYTES: usize = 64 << 10;

fn copy_small(from: &OwnedFd, to: &OwnedFd, size: usize) -> Result<(), Errno> {
    let mut content = Vec::with_capacity(size);
    while content.len() < size {
        let at = content.len() as u64;
        match rustix::io::pread(from, rustix::buffer::spare_capacity(&mut content), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut rest = content.get(..size).unwrap_or(&content);
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    if content.len() < size { rustix::fs::ftruncate(to, size as u64) } else { Ok(()) }
}

fn copy_sparse(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    let mut at = 0;
    let mut source = File::from(from.try_clone().map_err(|_| Errno::MFILE)?);
    let mut target = File::from(to.try_clone().map_err(|_| Errno::MFILE)?);
    let io = |error: std::io::Error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    while at < size {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            // The file system does not support SEEK_DATA.
            Err(Errno::INVAL) => at,
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(size).min(size);
        rustix::fs::seek(from, SeekFrom::Start(data))?;
        rustix::fs::seek(to, SeekFrom::Start(data))?;
        let mut piece = std::io::Read::take(&mut source, end.saturating_sub(data));
        std::io::copy(&mut piece, &mut target).map_err(io)?;
        at = end.max(data + 1);
    }
    rustix::fs::ftruncate(to, size)
}
