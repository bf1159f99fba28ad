//! Applies the change of one file. New content is written beside the old file under a temporary name, gets its attributes,
//! is synced, and then renamed into place; so the name always refers to the old content or the new. Old and new are
//! exchanged, and the old file is checked before it is removed: if another program changed it at the last moment, they are
//! exchanged back.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, renameat_with};
use rustix::io::Errno;
use vambrace_core::change::{FileChange, FileChangeKind, pieces};
use vambrace_core::digest::Digest;

use super::attributes;
use super::error::ApplyError;
use super::lock::FileLock;
use super::target_entry::{OldFile, TargetEntry, set_new_owner, temporary_name};
use crate::edit::read_all;
use crate::handle::open_entry;

/// A file modified less than this before it was read may have been modified again with the same mtime: file system clocks
/// tick every few milliseconds.
const RACY_NANOS: i128 = 50_000_000;
/// The same for file systems with timestamps in seconds.
const RACY_SECONDS_NANOS: i128 = 2_500_000_000;

/// One file, checked and locked.
#[derive(Debug)]
pub(crate) struct PreparedFile {
    // INVARIANT: declared before the locks, so that the temporary file is removed before its lock is released.
    pub(crate) staged: Option<StagedFile>,
    pub(crate) change: FileChange,
    pub(crate) target: TargetEntry,
    pub(crate) lock: FileLock,
    /// New path and its lock; only for a rename.
    pub(crate) to: Option<(TargetEntry, FileLock)>,
    pub(crate) old: Option<OldFile>,
}

/// New content under a temporary name; removed on drop unless it was renamed into place.
#[derive(Debug)]
pub(crate) struct StagedFile {
    dir: OwnedFd,
    name: String,
    stat: Stat,
    placed: bool,
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.placed {
            let _ = rustix::fs::unlinkat(&self.dir, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// Directories that still need an fsync, and the number of fsync calls so far.
#[derive(Debug, Default)]
pub(crate) struct PendingSyncs {
    dirs: Vec<((u64, u64), OwnedFd)>,
    pub(crate) count: u32,
}

impl PendingSyncs {
    pub(crate) fn now(&mut self, file: &impl AsFd) -> rustix::io::Result<()> {
        self.count += 1;
        rustix::fs::fsync(file)
    }

    fn later(&mut self, dir: &OwnedFd) -> rustix::io::Result<()> {
        let stat = rustix::fs::fstat(dir)?;
        let id = (stat.st_dev, stat.st_ino);
        if !self.dirs.iter().any(|(known, _)| *known == id) {
            self.dirs.push((id, dir.try_clone().map_err(|_| Errno::MFILE)?));
        }
        Ok(())
    }

    /// Syncs every changed directory, each once.
    pub(crate) fn sync_dirs(&mut self) -> rustix::io::Result<()> {
        for (_, dir) in std::mem::take(&mut self.dirs) {
            self.now(&dir)?;
        }
        Ok(())
    }
}

impl PreparedFile {
    fn io(&self, what: &'static str) -> impl Fn(Errno) -> ApplyError {
        let path = self.change.path().clone();
        move |errno| ApplyError::io(&path, what, errno)
    }

    fn stale(&self, now: Option<Digest>) -> ApplyError {
        ApplyError::stale(self.change.path(), self.change.before().map(|before| before.hash), now)
    }

    /// Whether two names change, so that a crash in between would be visible.
    pub(crate) fn takes_two_steps(&self) -> bool {
        self.change.kind() == FileChangeKind::Rename && self.writes_content()
    }

    /// Whether the change writes a new file.
    fn writes_content(&self) -> bool {
        match (self.change.kind(), self.change.after()) {
            (FileChangeKind::Create | FileChangeKind::Modify, _) => true,
            (FileChangeKind::Rename, Some(after)) => !after.splices.is_empty() || after.mode.is_some(),
            _ => false,
        }
    }

    /// Writes the new content under a temporary name and syncs it. Nothing visible has changed yet.
    pub(crate) fn stage(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        if !self.writes_content() {
            return Ok(());
        }
        let target = self.to.as_mut().map_or(&mut self.target, |(target, _)| target);
        let changed_dirs = target.create_missing_dirs()?;
        for dir in &changed_dirs {
            syncs.later(dir).map_err(self.io("creating a directory"))?;
        }
        let (target, lock) =
            self.to.as_ref().map_or((&self.target, &self.lock), |(target, lock)| (target, lock));
        let Some(after) = self.change.after() else { return Ok(()) };
        let name = temporary_name();
        lock.note(&target.rel_path, &name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A new file gets the permissions of the directory's ACL and the umask; a replacement stays private until it has the
        // old file's attributes.
        let mode = Mode::from_raw_mode(if self.old.is_some() { 0o600 } else { 0o666 });
        let file = rustix::fs::openat(&target.dir, name.as_str(), flags, mode)
            .map_err(self.io("creating a temporary file"))?;
        let stat = rustix::fs::fstat(&file).map_err(self.io("reading the temporary file's metadata"))?;
        let dir = target
            .dir
            .try_clone()
            .map_err(|_| Errno::MFILE)
            .map_err(self.io("keeping the directory open"))?;
        let mut staged = StagedFile { dir, name, stat, placed: false };
        let base = self.old.as_ref().map_or(&[][..], |old| &old.bytes);
        let file = write_pieces(file, base, after).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ApplyError::io(self.change.path(), "writing the new content", errno)
        })?;
        match &self.old {
            Some(old) => {
                attributes::copy(old.file.as_fd(), &old.stat, file.as_fd(), after.mode, self.change.path())?;
            }
            None => {
                set_new_owner(&file, &staged.stat, target.owner).map_err(self.io("setting the owner"))?;
                if let Some(mode) = after.mode {
                    let bits = Mode::from_raw_mode(mode & 0o7777);
                    rustix::fs::fchmod(&file, bits).map_err(self.io("setting the permissions"))?;
                }
            }
        }
        syncs.now(&file).map_err(self.io("syncing the new content"))?;
        staged.stat = rustix::fs::fstat(&file).map_err(self.io("reading the temporary file's metadata"))?;
        self.staged = Some(staged);
        Ok(())
    }

    /// Makes the change visible, atomically for each name.
    pub(crate) fn commit(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        match (self.change.kind(), self.staged.is_some()) {
            (FileChangeKind::Create, _) => self.install_new(syncs),
            (FileChangeKind::Modify, _) => self.swap(syncs),
            (FileChangeKind::Delete, _) => self.remove(syncs),
            (FileChangeKind::Mode, _) => self.set_mode(syncs),
            (FileChangeKind::Rename, true) => self.rename_changed(syncs),
            (FileChangeKind::Rename, false) => self.rename(syncs),
        }
    }

    /// Creates the new file, then removes the old one; if that fails, removes the new one.
    fn rename_changed(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        self.install_new(syncs)?;
        self.remove(syncs).inspect_err(|_| {
            if let Some((to, _)) = &self.to {
                let _ = rustix::fs::unlinkat(&to.dir, to.name.as_str(), AtFlags::empty());
            }
        })
    }

    fn install_new(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        let target = self.to.as_ref().map_or(&self.target, |(target, _)| target);
        let Some(staged) = &mut self.staged else { return Ok(()) };
        let (dir, from, to) = (&target.dir, staged.name.as_str(), target.name.as_str());
        let done = match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
            // A file system without RENAME_NOREPLACE: linkat does not replace either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let linked = rustix::fs::linkat(dir, from, dir, to, AtFlags::empty());
                linked.and_then(|()| rustix::fs::unlinkat(dir, from, AtFlags::empty()))
            }
            done => done,
        };
        staged.placed = done.is_ok();
        match done {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(ApplyError::stale(&target.path, None, None)),
            Err(errno) => {
                return Err(ApplyError::io(&target.path, "renaming the new file into place", errno));
            }
        }
        syncs.later(&target.dir).map_err(self.io("keeping the directory open"))
    }

    fn swap(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        let (Some(staged), Some(old)) = (&mut self.staged, &self.old) else { return Ok(()) };
        let (dir, temporary, name) = (&self.target.dir, staged.name.as_str(), self.target.name.as_str());
        let path = self.change.path();
        let swapped = renameat_with(dir, temporary, dir, name, RenameFlags::EXCHANGE);
        let before = self.change.before().map(|before| before.hash);
        match swapped {
            Ok(()) => {
                let now = unchanged(&self.target, temporary, old, &staged.stat);
                // From here the temporary name holds the old content, so drop must not remove it.
                staged.placed = true;
                if let Err(now) = now {
                    renameat_with(dir, temporary, dir, name, RenameFlags::EXCHANGE)
                        .map_err(|errno| ApplyError::io(path, "putting the old file back", errno))?;
                    staged.placed = false;
                    return Err(ApplyError::stale(path, before, now));
                }
                // The change is applied; if the old file cannot be removed, it only takes up space.
                let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
            }
            Err(Errno::NOENT) => return Err(ApplyError::stale(path, before, None)),
            Err(Errno::INVAL | Errno::NOSYS) => {
                unchanged(&self.target, name, old, &staged.stat)
                    .map_err(|now| ApplyError::stale(path, before, now))?;
                rustix::fs::renameat(dir, temporary, dir, name)
                    .map_err(|errno| ApplyError::io(path, "replacing the file", errno))?;
                staged.placed = true;
            }
            Err(errno) => return Err(ApplyError::io(path, "replacing the file", errno)),
        }
        syncs.later(&self.target.dir).map_err(self.io("keeping the directory open"))
    }

    fn remove(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        let Some(old) = &self.old else { return Ok(()) };
        let temporary = temporary_name();
        self.lock.note(&self.target.rel_path, &temporary);
        let (dir, name) = (&self.target.dir, self.target.name.as_str());
        match move_aside(dir, name, &temporary) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(self.stale(None)),
            Err(errno) => return Err(self.io("removing the file")(errno)),
        }
        let stat = self.staged.as_ref().map_or(&old.stat, |staged| &staged.stat);
        if let Err(now) = unchanged(&self.target, &temporary, old, stat) {
            move_aside(dir, &temporary, name).map_err(self.io("putting the old file back"))?;
            return Err(self.stale(now));
        }
        if let Err(errno) = rustix::fs::unlinkat(dir, temporary.as_str(), AtFlags::empty()) {
            move_aside(dir, &temporary, name).map_err(self.io("putting the old file back"))?;
            return Err(self.io("removing the file")(errno));
        }
        syncs.later(dir).map_err(self.io("keeping the directory open"))
    }

    fn rename(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        let (Some(old), Some((to, _))) = (&self.old, &mut self.to) else { return Ok(()) };
        let changed_dirs = to.create_missing_dirs()?;
        let (from, to) = (&self.target, &*to);
        let moved =
            renameat_with(&from.dir, from.name.as_str(), &to.dir, to.name.as_str(), RenameFlags::NOREPLACE);
        match moved {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(ApplyError::stale(&to.path, None, None)),
            Err(Errno::NOENT) => return Err(self.stale(None)),
            Err(errno) => return Err(self.io("moving the file")(errno)),
        }
        if let Err(now) = unchanged(to, &to.name, old, &old.stat) {
            renameat_with(&to.dir, to.name.as_str(), &from.dir, from.name.as_str(), RenameFlags::NOREPLACE)
                .map_err(self.io("putting the old file back"))?;
            return Err(self.stale(now));
        }
        let noted = changed_dirs.iter().chain([&from.dir, &to.dir]).try_for_each(|dir| syncs.later(dir));
        noted.map_err(self.io("keeping the directory open"))
    }

    fn set_mode(&mut self, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        let (Some(old), Some(mode)) = (&self.old, self.change.after().and_then(|after| after.mode)) else {
            return Ok(());
        };
        let bits = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::fchmod(&old.file, bits).map_err(self.io("setting the permissions"))?;
        syncs.now(&old.file).map_err(self.io("syncing the permissions"))
    }
}

fn write_pieces(
    file: OwnedFd,
    base: &[u8],
    after: &vambrace_core::change::TargetFile,
) -> std::io::Result<OwnedFd> {
    let mut writer = std::io::BufWriter::with_capacity(256 * 1024, std::fs::File::from(file));
    for piece in pieces(base, &after.splices) {
        let piece = piece.map_err(|bad| std::io::Error::new(std::io::ErrorKind::InvalidData, bad))?;
        writer.write_all(piece)?;
    }
    Ok(writer.into_inner().map_err(std::io::IntoInnerError::into_error)?.into())
}

fn move_aside(dir: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(dir, from, dir, to),
        done => done,
    }
}

/// Checks that a name still refers to the file that was read, unchanged; otherwise returns the hash of its content. `clock`
/// is the metadata of a file just created, used as the file system's current time.
fn unchanged(target: &TargetEntry, name: &str, old: &OldFile, clock: &Stat) -> Result<(), Option<Digest>> {
    let looked = rustix::fs::statat(&target.dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| None)?;
    let modified = |stat: &Stat| i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    let same = (looked.st_ino, looked.st_dev, looked.st_size)
        == (old.stat.st_ino, old.stat.st_dev, old.stat.st_size)
        && modified(&looked) == modified(&old.stat);
    let age = modified(clock) - modified(&old.stat);
    let racy = if old.stat.st_mtime_nsec == 0 { RACY_SECONDS_NANOS } else { RACY_NANOS };
    if same && age > racy {
        return Ok(());
    }
    let name = std::ffi::CString::new(name).map_err(|_| None)?;
    let file = open_entry(target.dir.as_fd(), &name).map_err(|_| None)?;
    let size = u64::try_from(looked.st_size).unwrap_or(0);
    let bytes = read_all(file.as_fd(), size, u64::MAX).ok().flatten().ok_or(None)?;
    let now = Digest::of(&bytes);
    if now == old.hash && looked.st_ino == old.stat.st_ino { Ok(()) } else { Err(Some(now)) }
}
