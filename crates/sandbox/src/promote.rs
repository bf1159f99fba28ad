//! Taking changes over into the workspace.
//!
//! The seam is one trait: whoever applies changes with a journal implements it. [`Direct`] writes at once, through
//! handles beneath the workspace: a new file appears whole under its name or not at all, a changed one is replaced
//! whole, and nothing is overwritten that is not what the program saw.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid};
use rustix::io::Errno;

use crate::changes::{Change, ChangeKind, Changes, EntryKind, Facts};
use crate::sys::mounting::open_beneath;

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
    #[error("`{}` was changed meanwhile", .0.display())]
    StaleBase(PathBuf),
    /// The kernel refused; what came before it in the list was written.
    #[error("cannot write `{}`: {why}", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Its word.
        why: Errno,
        /// How many changes were written before it.
        written: usize,
    },
}

/// Writes at once, without a journal.
#[derive(Debug)]
pub struct Direct {
    root: Arc<OwnedFd>,
    /// Who owns what is made; only root can give it away.
    owner: Option<(Uid, Gid)>,
}

/// A name that nobody else uses, for the moment between writing and renaming.
const UNFINISHED: &str = ".vambrace-unfinished-";

impl Direct {
    /// Into the workspace that the changes were made over.
    pub fn over(changes: &Changes) -> Result<Self, Errno> {
        let facts = rustix::fs::fstat(&*changes.base)?;
        let owner = rustix::process::geteuid()
            .is_root()
            .then(|| (Uid::from_raw(facts.st_uid), Gid::from_raw(facts.st_gid)));
        Ok(Self { root: Arc::clone(&changes.base), owner })
    }
}

impl Promote for Direct {
    fn promote(&self, changes: &Changes) -> Result<Promoted, PromoteFault> {
        for change in &changes.list {
            self.stands(changes, change)?;
        }
        let mut work = Work { direct: self, changes, folders: BTreeMap::new() };
        let mut done = 0;
        // Folders and files first, outer before inner by the order of paths; what goes away last, inner before outer.
        let gone = |change: &&Change| change.kind == ChangeKind::Deleted;
        let made = changes.list.iter().filter(|change| !gone(change));
        let gone = changes.list.iter().rev().filter(gone);
        // A file in the place of a folder, and the other way round, needs the place free.
        let (replaced, made): (Vec<_>, Vec<_>) = made.partition(|change| changes_kind(change));
        for change in gone.clone().filter(|change| replaced.iter().any(|r| change.path.starts_with(&r.path)))
        {
            done += work.delete(change).map_err(|why| fault(change, why, done))?;
        }
        for change in replaced.iter().chain(&made) {
            done += work.make(change).map_err(|why| fault(change, why, done))?;
        }
        for change in gone.filter(|change| !replaced.iter().any(|r| change.path.starts_with(&r.path))) {
            done += work.delete(change).map_err(|why| fault(change, why, done))?;
        }
        Ok(Promoted { changes: done })
    }
}

fn fault(change: &Change, why: Errno, written: usize) -> PromoteFault {
    PromoteFault::Write { path: change.path.clone(), why, written }
}

fn changes_kind(change: &Change) -> bool {
    matches!((&change.before, &change.after), (Some(before), Some(after)) if before.kind != after.kind)
}

impl Direct {
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

struct Work<'a> {
    direct: &'a Direct,
    changes: &'a Changes,
    folders: BTreeMap<Vec<u8>, OwnedFd>,
}

impl Work<'_> {
    /// The folder that an entry lies in, open, and the entry's name.
    fn parent<'p>(&mut self, path: &'p Path) -> Result<(BorrowedFd<'_>, &'p OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().map(|above| above.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        if !self.folders.contains_key(&above) {
            let at: &[u8] = if above.is_empty() { b"." } else { &above };
            let opened = open_beneath(self.direct.root.as_fd(), at, OFlags::RDONLY | OFlags::DIRECTORY)?;
            // Few at once: neighbours follow each other.
            if self.folders.len() > 32 {
                self.folders.clear();
            }
            self.folders.insert(above.clone(), opened);
        }
        let folder = self.folders.get(&above).ok_or(Errno::BADF)?;
        Ok((folder.as_fd(), name))
    }

    fn make(&mut self, change: &Change) -> Result<usize, Errno> {
        let Some(after) = &change.after else { return Ok(0) };
        let (changes, owner) = (self.changes, self.direct.owner);
        if let ChangeKind::Renamed { from } = &change.kind {
            let root = self.direct.root.as_fd();
            let (folder, name) = self.parent(&change.path)?;
            let above = from.parent().map(|above| above.as_os_str().as_bytes()).unwrap_or_default();
            let above: &[u8] = if above.is_empty() { b"." } else { above };
            let old = open_beneath(root, above, OFlags::PATH | OFlags::DIRECTORY)?;
            let old_name = from.file_name().ok_or(Errno::INVAL)?;
            rustix::fs::renameat_with(&old, old_name, folder, name, RenameFlags::NOREPLACE)?;
            return Ok(1);
        }
        if changes_kind(change) {
            self.delete(change)?;
        }
        let replaces = change.before.is_some() && !changes_kind(change);
        let (folder, name) = self.parent(&change.path)?;
        match (after.kind, &change.kind) {
            (_, ChangeKind::Mode) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let file = open_beneath(folder, name.as_bytes(), flags)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(after.mode))?;
            }
            (EntryKind::Folder, _) => {
                rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o700))?;
                let made = open_beneath(folder, name.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY)?;
                give(&made, owner)?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(after.mode))?;
            }
            (EntryKind::Link, _) => {
                let target = after.target.as_ref().ok_or(Errno::INVAL)?;
                if replaces {
                    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
                }
                rustix::fs::symlinkat(target.as_os_str(), folder, name)?;
                if let Some((uid, gid)) = owner {
                    rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
            }
            (EntryKind::File, _) => {
                let content = changes.open_after(&change.path)?;
                let mode = Mode::from_raw_mode(after.mode);
                write_file(folder, name, &content, after.size, mode, owner, replaces)?;
            }
            (EntryKind::Special, _) => return Err(Errno::INVAL),
        }
        Ok(1)
    }

    fn delete(&mut self, change: &Change) -> Result<usize, Errno> {
        let folder_itself = change.before.as_ref().is_some_and(|before| before.kind == EntryKind::Folder);
        let (folder, name) = self.parent(&change.path)?;
        let flags = if folder_itself { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(folder, name, flags) {
            // Already removed to make room for something else of that name.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        self.folders.retain(|path, _| !Path::new(OsStr::from_bytes(path)).starts_with(&change.path));
        Ok(1)
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

/// Copies what is there and leaves holes where they are.
fn copy(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
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
