//! Taking changes over into the workspace.
//!
//! The seam is one trait; [`Journaled`] leaves all or none after a crash. It works through
//! handles beneath the workspace: a new file appears whole under its name or not at all, a changed one is replaced
//! whole, and nothing is overwritten that is not what the program saw.

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
use crate::changes::{Change, ChangeKind, Changes, EntryKind, Facts};

pub use journal::Journaled;

/// Takes changes over.
pub trait Promote {
    /// Every change, or none where one of them does not stand on what is there now.
    fn promote(&self, changes: &Changes) -> Result<Promoted, PromoteFault>;
}

/// What was taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Promoted {
    /// How many changes.
    pub changes: usize,
}

/// Why changes were not taken over.
#[derive(Debug, thiserror::Error)]
pub enum PromoteFault {
    /// Somebody else changed the workspace; nothing was written.
    #[error("`{}` was changed meanwhile", shown(.0))]
    StaleBase(PathBuf),
    /// The kernel refused; what came before it in the list was written.
    #[error("cannot write `{}`: {why}", shown(.path))]
    Write {
        /// Which.
        path: PathBuf,
        /// Its word.
        why: Errno,
        /// How many changes were written before it.
        written: usize,
    },
}

impl PromoteFault {
    /// Its name, by which programs know it.
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

/// The workspace that changes are taken over into.
#[derive(Debug)]
struct Target {
    root: Arc<OwnedFd>,
    /// Who owns what is made; only root can give it away.
    owner: Option<(Uid, Gid)>,
}

/// A name that nobody else uses, for the moment between writing and renaming.
pub(crate) const UNFINISHED: &str = ".vambrace-unfinished-";

/// Whom root gives what it makes in a workspace.
fn owner_of(workspace: &OwnedFd) -> Result<Option<(Uid, Gid)>, Errno> {
    let facts = rustix::fs::fstat(workspace)?;
    let owner = || (Uid::from_raw(facts.st_uid), Gid::from_raw(facts.st_gid));
    Ok(rustix::process::geteuid().is_root().then(owner))
}

fn changes_kind(change: &Change) -> bool {
    matches!((&change.before, &change.after), (Some(before), Some(after)) if before.kind != after.kind)
}

impl Target {
    /// Whether what the change was made over is still there, untouched.
    fn stands(&self, changes: &Changes, change: &Change) -> Result<(), PromoteFault> {
        let stale = |path: &Path| PromoteFault::StaleBase(path.to_owned());
        let look = |path: &Path| {
            Facts::look(self.root.as_fd(), path.as_os_str().as_bytes()).map_err(|_| stale(path))
        };
        let now = look(&change.path)?;
        let expected = match &change.kind {
            ChangeKind::Created => None,
            ChangeKind::Renamed { from } => {
                let there = look(from)?;
                if !same(there.as_ref(), change.before.as_ref(), changes.since) {
                    return Err(stale(from));
                }
                None
            }
            ChangeKind::Modified | ChangeKind::Deleted | ChangeKind::Mode => change.before.as_ref(),
        };
        if same(now.as_ref(), expected, changes.since) { Ok(()) } else { Err(stale(&change.path)) }
    }
}

fn same(now: Option<&Facts>, expected: Option<&Facts>, since: i128) -> bool {
    match (now, expected) {
        (None, None) => true,
        (Some(now), Some(expected)) => {
            let folder = now.kind == EntryKind::Folder;
            now.inode == expected.inode
                && now.kind == expected.kind
                // A folder changes with what lies in it, also by our own hand.
                && (folder || now.changed == expected.changed)
                && expected.changed <= since
        }
        _ => false,
    }
}

fn give(file: &OwnedFd, owner: Option<(Uid, Gid)>) -> Result<(), Errno> {
    match owner {
        Some((uid, gid)) => rustix::fs::fchown(file, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// Writes a file without a name and gives it its name when it is whole.
fn write_file(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    content: &OwnedFd,
    size: u64,
    mode: Mode,
    owner: Option<(Uid, Gid)>,
    replaces: bool,
) -> Result<(), Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, c".", flags, Mode::from_raw_mode(0o600))?;
    copy(content, &file, size)?;
    give(&file, owner)?;
    attributes::carry_over(content, &file)?;
    rustix::fs::fchmod(&file, mode)?;
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let link = |name: &OsStr| {
        rustix::fs::linkat(rustix::fs::CWD, itself.as_str(), folder, name, AtFlags::SYMLINK_FOLLOW)
    };
    if !replaces {
        return link(name);
    }
    let unfinished = std::ffi::OsString::from(format!("{UNFINISHED}{}", std::process::id()));
    match link(&unfinished) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(folder, &unfinished, AtFlags::empty())?;
            link(&unfinished)?;
        }
        done => done?,
    }
    rustix::fs::renameat(folder, &unfinished, folder, name).inspect_err(|_| {
        // Nothing of ours stays when the last step fails.
        let _ = rustix::fs::unlinkat(folder, &unfinished, AtFlags::empty());
    })
}

/// Copies what is there and leaves holes where they are, of a file that is not small.
fn copy(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    match usize::try_from(size) {
        Ok(size) if size <= SMALL => copy_small(from, to, size),
        _ => copy_pieces(from, to, size),
    }
}

/// Files up to this size are copied in one piece.
const SMALL: usize = 64 << 10;

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

fn copy_pieces(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    let mut at = 0;
    let mut source = File::from(from.try_clone().map_err(|_| Errno::MFILE)?);
    let mut target = File::from(to.try_clone().map_err(|_| Errno::MFILE)?);
    let io = |error: std::io::Error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    while at < size {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
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
