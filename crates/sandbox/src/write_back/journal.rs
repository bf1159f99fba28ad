//! Writes changes back so that a crash leaves all of them or none: new files go to a staging directory first, then the
//! steps are recorded in a journal, then they are applied. After a crash, the next process applies them again.
//!
//! The journal is in the state directory, which no agent and no confined program can write. The workspace holds only the
//! staging directory, and only meanwhile. **Invariant.** Every step is idempotent.
#![expect(clippy::disallowed_methods, reason = "journals in the state directory, which no program sees")]

mod parent_dir;
mod record;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use self::parent_dir::ParentDirCache;
use self::record::{
    OWNER_RWX, WriteBackRecord, WriteBackStep, append_record, before, delete, is_closed_to_owner,
    is_directory, last_complete_record, mode,
};
use super::{
    TEMP_PREFIX, WriteBackError, WriteBackTarget, WrittenBack, changes_type, copy, owner_of, set_owner,
    write_file,
};
use crate::attributes;
use crate::changes::{ChangeKind, EntryChange, EntryMetadata, FileKind, RunChanges};
use crate::sandbox::StateDirs;
use crate::sys::mount::open_within;

/// Writes back with a journal in the state directory.
#[derive(Debug)]
pub struct JournaledWriteBack {
    target: WriteBackTarget,
    journal_dir: PathBuf,
    workspace: PathBuf,
}

/// Maximum number of new files that are synced one by one; with more, syncing would take longer than copying.
const MAX_SYNCED_FILES: usize = 64;

/// The setgid bit: new entries of such a directory get its group.
const SETGID: u32 = 0o2000;

/// Whether a step may have been applied before, by a process that crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepPass {
    First,
    Recovery,
}

impl JournaledWriteBack {
    /// Writes back to the workspace that the changes are based on.
    pub fn new(changes: &RunChanges, places: &StateDirs) -> Result<Self, Errno> {
        let target = WriteBackTarget { root: Arc::clone(&changes.base), owner: owner_of(&changes.base)? };
        let itself = format!("/proc/self/fd/{}", changes.base.as_raw_fd());
        let workspace = rustix::fs::readlink(itself, Vec::new())?.into_bytes();
        Ok(Self {
            target,
            journal_dir: places.write_backs.clone(),
            workspace: OsString::from_vec(workspace).into(),
        })
    }

    /// Recovers from crashes, in any workspace: completes a write-back whose steps were recorded, and removes the staging
    /// directory of any other. `complete` completes the change that was recorded with the steps, before them; if it returns
    /// false, the write-back waits for a process that can. Returns the number of completed write-backs.
    pub fn recover(places: &StateDirs, complete: &mut dyn FnMut(&RecoveredChange<'_>) -> bool) -> usize {
        let Ok(list) = fs::read_dir(&places.write_backs) else { return 0 };
        let list = list.filter_map(Result::ok);
        list.filter(|entry| recover_one(&entry.path(), complete).unwrap_or(false)).count()
    }

    /// Writes every change, or none if the base of one of them is stale.
    pub fn write_back(&self, changes: &RunChanges) -> Result<WrittenBack, WriteBackError> {
        let mut staged = self.stage(changes)?;
        staged.record(&[])?;
        staged.apply()
    }

    /// Stages the new content of every change. Nothing is visible yet.
    pub fn stage(&self, changes: &RunChanges) -> Result<StagedWriteBack, WriteBackError> {
        self.target.check_bases(changes)?;
        let fault = |why| WriteBackError::Write { path: self.workspace.clone(), why, written: 0 };
        let target = WriteBackTarget { root: Arc::clone(&self.target.root), owner: self.target.owner };
        let journal = WriteBackJournal::begin(self).map_err(fault)?;
        let workspace = self.workspace.clone();
        let mut staged =
            StagedWriteBack { journal, target, workspace, changes: changes.clone(), steps: Vec::new() };
        let steps = staged.journal.stage(changes, &staged.target);
        staged.steps = steps.map_err(|(path, why)| WriteBackError::Write { path, why, written: 0 })?;
        staged.journal.sync(&staged.steps).map_err(fault)?;
        Ok(staged)
    }
}

/// A change beside the steps of a write-back, as its caller recorded it.
#[derive(Debug)]
pub struct RecoveredChange<'a> {
    /// The workspace's path.
    pub workspace: &'a Path,
    /// What the caller recorded.
    pub bytes: &'a [u8],
}

/// A write-back whose new content is staged; dropping it removes the staged files.
#[derive(Debug)]
pub struct StagedWriteBack {
    journal: WriteBackJournal,
    target: WriteBackTarget,
    workspace: PathBuf,
    changes: RunChanges,
    steps: Vec<WriteBackStep>,
}

impl StagedWriteBack {
    /// Records the steps: from here on they will be applied, by [`Self::apply`] or by recovery. `companion` describes what
    /// the caller changes together with them: recovery hands it to the caller first. Fails if a base is stale.
    pub fn record(&mut self, companion: &[u8]) -> Result<(), WriteBackError> {
        // Other processes may have changed the base while the files were staged.
        self.target.check_bases(&self.changes)?;
        let committed = self.journal.commit(self.steps.clone(), companion.to_vec());
        committed.map_err(|why| WriteBackError::Write { path: self.workspace.clone(), why, written: 0 })
    }

    /// Applies the recorded steps.
    pub fn apply(self) -> Result<WrittenBack, WriteBackError> {
        let mut parents = ParentDirCache::default();
        for (done, step) in self.steps.iter().enumerate() {
            if let Err(why) = self.journal.apply_step(step, &self.target, StepPass::First, &mut parents) {
                let path = PathBuf::from(OsStr::from_bytes(step.path()));
                return Err(WriteBackError::Write { path, why, written: done });
            }
        }
        Ok(WrittenBack { changes: self.changes.list.len() })
    }
}

impl Drop for StagedWriteBack {
    fn drop(&mut self) {
        self.journal.remove();
    }
}

/// One write-back in progress.
#[derive(Debug)]
struct WriteBackJournal {
    root: OwnedFd,
    staging: OwnedFd,
    record: WriteBackRecord,
    file: PathBuf,
    /// Locked as long as this process lives.
    lock: File,
}

impl WriteBackJournal {
    fn begin(write_back: &JournaledWriteBack) -> Result<Self, Errno> {
        let root = rustix::io::fcntl_dupfd_cloexec(&*write_back.target.root, 0)?;
        let facts = rustix::fs::fstat(&root)?;
        fs::create_dir_all(&write_back.journal_dir).map_err(|error| errno(&error))?;
        let (name, file, lock) = create_journal(&write_back.journal_dir)?;
        let staging = format!("{TEMP_PREFIX}{name}");
        let record = WriteBackRecord {
            workspace: write_back.workspace.as_os_str().as_bytes().to_vec(),
            identity: (facts.st_dev, facts.st_ino),
            staging: staging.clone(),
            steps: None,
            unsynced_since: None,
            companion: Vec::new(),
        };
        // Recorded before the directory exists, so that recovery can always remove it.
        append_record(&lock, &record)?;
        rustix::fs::mkdirat(&root, &staging, Mode::from_raw_mode(0o700))?;
        let staging = open_within(root.as_fd(), staging.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { root, staging, record, file, lock })
    }

    /// Reopens the journal of a process that is gone.
    fn reopen(record: WriteBackRecord, file: &Path, lock: File) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(record.workspace.as_slice(), flags, Mode::empty())?;
        let facts = rustix::fs::fstat(&root)?;
        if (facts.st_dev, facts.st_ino) != record.identity {
            return Err(Errno::STALE);
        }
        let staging = open_within(root.as_fd(), record.staging.as_bytes(), flags)?;
        Ok(Self { root, staging, record, file: file.to_owned(), lock })
    }

    /// Stages all new content; returns the steps to apply.
    fn stage(
        &mut self,
        changes: &RunChanges,
        target: &WriteBackTarget,
    ) -> Result<Vec<WriteBackStep>, (PathBuf, Errno)> {
        let gone = |change: &&EntryChange| change.kind == ChangeKind::Deleted;
        let (replaced, made): (Vec<_>, Vec<_>) =
            changes.list.iter().filter(|change| !gone(change)).partition(|change| changes_type(change));
        let makes_room =
            |change: &&EntryChange| replaced.iter().any(|one| change.path.starts_with(&one.path));
        let mut steps: Vec<WriteBackStep> = Vec::with_capacity(changes.list.len());
        // A directory that the owner cannot use is closed at the end; one that becomes usable is opened at the beginning.
        let dirs = || made.iter().filter(|change| is_directory(change));
        let opened = dirs().filter(|change| change.kind == ChangeKind::Mode);
        steps.extend(opened.filter_map(|change| mode(change, OWNER_RWX)));
        // Deletions: inner before outer, and first those that make room for something else.
        let going = || changes.list.iter().rev().filter(gone);
        steps.extend(going().filter(makes_room).map(delete));
        for (number, change) in replaced.iter().chain(&made).enumerate() {
            let at = |why| (change.path.clone(), why);
            if changes_type(change) {
                steps.push(delete(change));
            }
            if change.kind == ChangeKind::Mode && is_directory(change) {
                continue;
            }
            let number = number as u64;
            steps.extend(self.stage_change(change, number, changes, target).map_err(at)?);
        }
        steps.extend(going().filter(|change| !makes_room(change)).map(delete));
        // Inner before outer.
        let closed = replaced
            .iter()
            .chain(&made)
            .rev()
            .filter(|change| is_directory(change) && is_closed_to_owner(change));
        steps.extend(closed.filter_map(|change| mode(change, 0)));
        self.check_writable(&steps)?;
        Ok(steps)
    }

    /// Checks that every existing directory in which names are created or deleted is writable: nothing is begun that
    /// cannot be completed.
    fn check_writable(&self, steps: &[WriteBackStep]) -> Result<(), (PathBuf, Errno)> {
        let mut known: HashSet<&Path> = HashSet::new();
        for step in steps {
            let touched: [Option<&[u8]>; 2] = match step {
                // A directory is opened before anything else is done.
                WriteBackStep::Mode { path, .. } => {
                    known.insert(Path::new(OsStr::from_bytes(path)));
                    continue;
                }
                WriteBackStep::Rename { from, to } => [Some(from), Some(to)],
                other => [Some(other.path()), None],
            };
            for path in touched.into_iter().flatten().map(|path| Path::new(OsStr::from_bytes(path))) {
                let above = path.parent().unwrap_or(Path::new(""));
                if known.insert(above) {
                    self.is_writable(above).map_err(|why| (path.to_owned(), why))?;
                }
            }
        }
        Ok(())
    }

    fn is_writable(&self, dir: &Path) -> Result<(), Errno> {
        let name = if dir.as_os_str().is_empty() { b"." } else { dir.as_os_str().as_bytes() };
        match open_within(self.root.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(dir) => {
                let wanted = Access::WRITE_OK | Access::EXEC_OK;
                rustix::fs::accessat(&dir, c".", wanted, AtFlags::empty())
            }
            // An earlier step creates it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn stage_change(
        &self,
        change: &EntryChange,
        number: u64,
        changes: &RunChanges,
        target: &WriteBackTarget,
    ) -> Result<Option<WriteBackStep>, Errno> {
        let path = change.path.as_os_str().as_bytes().to_vec();
        let Some(after) = &change.after else { return Ok(None) };
        let before = before(change).filter(|_| !changes_type(change));
        let name = number.to_string();
        Ok(Some(match (&change.kind, after.kind) {
            (ChangeKind::Renamed { from }, _) => {
                WriteBackStep::Rename { from: from.as_os_str().as_bytes().to_vec(), to: path }
            }
            (ChangeKind::Mode, _) => WriteBackStep::Mode { path, mode: after.mode },
            (_, FileKind::Directory) => WriteBackStep::CreateDirectory { path, mode: after.mode | OWNER_RWX },
            (_, FileKind::Symlink) => {
                let leads_to = after.target.as_ref().ok_or(Errno::INVAL)?;
                rustix::fs::symlinkat(leads_to.as_os_str(), &self.staging, &name)?;
                if let Some((uid, gid)) = target.owner {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::chownat(&self.staging, &name, Some(uid), Some(gid), flags)?;
                }
                WriteBackStep::Install { path, number, before }
            }
            (_, FileKind::File) => {
                let content = changes.open_after(&change.path)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(after.mode);
                let file = rustix::fs::openat(&self.staging, &name, flags, mode)?;
                copy(&content, &file, after.size)?;
                // Usually owner and mode are right already, and each change would be another write to disk.
                let made = rustix::fs::fstat(&file)?;
                let owner = (Uid::from_raw(made.st_uid), Gid::from_raw(made.st_gid));
                set_owner(&file, target.owner.filter(|wanted| *wanted != owner))?;
                if before.is_some() {
                    let replaced = open_within(self.root.as_fd(), &path, OFlags::RDONLY | OFlags::NONBLOCK)?;
                    attributes::copy_to(&replaced, &file)?;
                }
                if before.is_some() || Mode::from_raw_mode(made.st_mode) != mode {
                    rustix::fs::fchmod(&file, mode)?;
                }
                WriteBackStep::Install { path, number, before }
            }
            (_, FileKind::Special) => return Err(Errno::INVAL),
        }))
    }

    /// Syncs the staged files, unless there are too many.
    fn sync(&mut self, steps: &[WriteBackStep]) -> Result<(), Errno> {
        let new = steps.iter().filter_map(|step| match step {
            WriteBackStep::Install { number, .. } => Some(number.to_string()),
            _ => None,
        });
        let new: Vec<String> = new.collect();
        if new.len() > MAX_SYNCED_FILES {
            self.record.unsynced_since = Some(boot_id());
        } else {
            for name in new {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                match rustix::fs::openat(&self.staging, name, flags, Mode::empty()) {
                    Ok(file) => rustix::fs::fsync(&file)?,
                    // A symlink, which is synced with its directory; or a file that this process may not read.
                    Err(Errno::LOOP | Errno::ACCESS) => {}
                    Err(errno) => return Err(errno),
                }
            }
            rustix::fs::fsync(&self.staging)?;
        }
        Ok(())
    }

    /// Records the steps: from here on they will be applied, by this process or by recovery.
    fn commit(&mut self, steps: Vec<WriteBackStep>, companion: Vec<u8>) -> Result<(), Errno> {
        self.record.steps = Some(steps);
        self.record.companion = companion;
        append_record(&self.lock, &self.record)
    }

    /// Applies one step, which may have been applied before.
    fn apply_step(
        &self,
        step: &WriteBackStep,
        target: &WriteBackTarget,
        pass: StepPass,
        parents: &mut ParentDirCache,
    ) -> Result<(), Errno> {
        if !matches!(step, WriteBackStep::Install { .. }) {
            *parents = ParentDirCache::default();
        }
        let (dir, name) = parents.parent(self.root.as_fd(), step.path())?;
        if pass == StepPass::Recovery && !self.is_base_unchanged(step)? {
            return Ok(());
        }
        match step {
            WriteBackStep::CreateDirectory { path, mode } => {
                match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let made = open_within(self.root.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY)?;
                // In a setgid directory it inherits the group and the bit.
                let facts = rustix::fs::fstat(&made)?;
                let kept = facts.st_mode & SETGID;
                let group = Gid::from_raw(facts.st_gid);
                set_owner(&made, target.owner.map(|(uid, gid)| (uid, if kept == 0 { gid } else { group })))?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(*mode | kept))
            }
            WriteBackStep::Install { number, before, .. } => {
                let flags = if before.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
                let from = number.to_string();
                if before.is_none() {
                    self.inherit_group(dir, &from)?;
                }
                match rustix::fs::renameat_with(&self.staging, &from, dir, name, flags) {
                    // It is in place already.
                    Err(Errno::NOENT) => Ok(()),
                    Err(Errno::XDEV) => self.copy_into_place(&from, dir, name, before.is_some(), target),
                    done => done,
                }
            }
            WriteBackStep::Mode { path, mode } => {
                // Through an O_PATH handle, which needs no read permission; a symlink has no mode.
                let file = open_within(self.root.as_fd(), path, OFlags::PATH)?;
                let now = rustix::fs::fstat(&file)?.st_mode;
                // The program cannot change the setgid and sticky bits of a directory.
                let kept = if FileType::from_raw_mode(now) == FileType::Directory { now & 0o7000 } else { 0 };
                let mode = Mode::from_raw_mode(*mode | kept);
                rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
            }
            WriteBackStep::Rename { from, .. } => {
                let mut old = ParentDirCache::default();
                let (old, old_name) = old.parent(self.root.as_fd(), from)?;
                match rustix::fs::renameat_with(old, old_name, dir, name, RenameFlags::NOREPLACE) {
                    Err(Errno::NOENT) => Ok(()),
                    done => done,
                }
            }
            WriteBackStep::Delete { dir: whole, .. } => {
                let flags = if *whole { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                match rustix::fs::unlinkat(dir, name, flags) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(errno) => Err(errno),
                }
            }
        }
    }

    /// Gives a new entry the group of its setgid directory.
    fn inherit_group(&self, dir: &OwnedFd, new: &str) -> Result<(), Errno> {
        let facts = rustix::fs::fstat(dir)?;
        if facts.st_mode & SETGID == 0 {
            return Ok(());
        }
        let group = Some(Gid::from_raw(facts.st_gid));
        match rustix::fs::chownat(&self.staging, new, None, group, AtFlags::SYMLINK_NOFOLLOW) {
            // It is in place already.
            Err(Errno::NOENT) => Ok(()),
            done => attributes::ignore_denied(done),
        }
    }

    /// Moves a staged entry into a directory on another file system.
    fn copy_into_place(
        &self,
        from: &str,
        dir: &OwnedFd,
        name: &OsStr,
        replaces: bool,
        target: &WriteBackTarget,
    ) -> Result<(), Errno> {
        let facts = rustix::fs::statat(&self.staging, from, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(facts.st_mode) == FileType::Symlink {
            let target = rustix::fs::readlinkat(&self.staging, from, Vec::new())?;
            if replaces {
                rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            }
            rustix::fs::symlinkat(target, dir, name)?;
        } else {
            let content = open_within(self.staging.as_fd(), from.as_bytes(), OFlags::RDONLY)?;
            let size = u64::try_from(facts.st_size).unwrap_or(0);
            let mode = Mode::from_raw_mode(facts.st_mode & 0o777);
            write_file(dir.as_fd(), name, &content, size, mode, target.owner, replaces)?;
        }
        rustix::fs::unlinkat(&self.staging, from, AtFlags::empty())
    }

    /// Whether what a step replaces or removes is unchanged.
    fn is_base_unchanged(&self, step: &WriteBackStep) -> Result<bool, Errno> {
        let (WriteBackStep::Install { path, before: Some(before), .. }
        | WriteBackStep::Delete { path, before: Some(before), dir: false }) = step
        else {
            return Ok(true);
        };
        let Some(now) = EntryMetadata::stat(self.root.as_fd(), path)? else { return Ok(false) };
        if now.inode != before.0 || now.changed == before.1 {
            return Ok(now.inode == before.0);
        }
        // Deleting one hard link changes the ctime of the others, but not their content.
        let names = self
            .record
            .steps
            .iter()
            .flatten()
            .filter_map(WriteBackStep::before)
            .filter(|one| **one == *before);
        if names.count() < 2 {
            return Ok(false);
        }
        let facts = rustix::fs::fstat(open_within(self.root.as_fd(), path, OFlags::PATH)?)?;
        let modified = i128::from(facts.st_mtime) * 1_000_000_000 + i128::from(facts.st_mtime_nsec);
        Ok(facts.st_ino == before.0 && modified <= before.1)
    }

    /// Removes the staging directory and the journal.
    fn remove(&self) {
        remove_staging(self.root.as_fd(), &self.staging, &self.record.staging);
        let _ = fs::remove_file(&self.file);
    }
}

/// Creates and locks a new journal file.
fn create_journal(dir: &Path) -> Result<(String, PathBuf, File), Errno> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = dir.join(&name);
        let lock = File::create_new(&file).map_err(|error| errno(&error))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        // Before it was locked, a recovering process may have removed it as left behind.
        if rustix::fs::fstat(&lock)?.st_nlink > 0 {
            return Ok((name, file, lock));
        }
    }
}

/// Completes one write-back whose process is gone, or removes what it staged; returns whether it completed one.
fn recover_one(file: &Path, complete: &mut dyn FnMut(&RecoveredChange<'_>) -> bool) -> Result<bool, Errno> {
    let lock = File::open(file).map_err(|error| errno(&error))?;
    // Fails while its process lives.
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let bytes = fs::read(file).map_err(|error| errno(&error))?;
    let found =
        last_complete_record(&bytes).and_then(|record| WriteBackJournal::reopen(record, file, lock).ok());
    let Some(journal) = found else {
        // Nothing was recorded, or the workspace or the staging directory is gone.
        let _ = fs::remove_file(file);
        return Ok(false);
    };
    let owner = owner_of(&journal.root)?;
    let target =
        WriteBackTarget { root: Arc::new(rustix::io::fcntl_dupfd_cloexec(&journal.root, 0)?), owner };
    let finished = journal.record.steps.is_some();
    let workspace = Path::new(OsStr::from_bytes(&journal.record.workspace));
    let companion = RecoveredChange { workspace, bytes: &journal.record.companion };
    if finished && !companion.bytes.is_empty() && !complete(&companion) {
        return Ok(false);
    }
    let trusted = journal.record.unsynced_since.as_ref().is_none_or(|since| *since == boot_id());
    let mut parents = ParentDirCache::default();
    for step in journal.record.steps.iter().flatten().filter(|_| trusted) {
        // What another process has put in the way stays.
        let _ = journal.apply_step(step, &target, StepPass::Recovery, &mut parents);
    }
    journal.remove();
    Ok(finished)
}

/// The kernel's random id of the current boot.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Removes a directory and the files in it, but no subdirectories.
fn remove_staging(root: BorrowedFd<'_>, staging: &OwnedFd, name: &str) {
    if let Ok(mut list) = rustix::fs::Dir::read_from(staging) {
        while let Some(Ok(entry)) = list.read() {
            if entry.file_name() != c"." && entry.file_name() != c".." {
                let _ = rustix::fs::unlinkat(staging, entry.file_name(), AtFlags::empty());
            }
        }
    }
    let _ = rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR);
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}
