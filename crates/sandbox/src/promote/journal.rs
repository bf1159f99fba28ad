//! Taking changes over so that a crash leaves all of them or none: everything new is written beside its place first, then
//! what is to be done is noted, then it is done; who comes after a crash does it again.
//!
//! The note lies in the state folder, which no agent and no confined program can write; in the workspace lies only what
//! is to be moved into place, in one folder, and only meanwhile. Each step can be done twice.
#![expect(clippy::disallowed_methods, reason = "notes in the state folder, which no program sees")]

mod nearby;
mod note;

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

use self::nearby::Nearby;
use self::note::{Note, OWNERS, Step, before, delete, is_closed, is_folder, last_note, mode, write_note};
use super::{
    Promote, PromoteFault, Promoted, Target, UNFINISHED, changes_kind, copy, give, owner_of, write_file,
};
use crate::attributes;
use crate::changes::{Change, ChangeKind, Changes, EntryKind, Facts};
use crate::sandbox::Places;
use crate::sys::mounting::open_within;

/// With a journal in the state folder.
#[derive(Debug)]
pub struct Journaled {
    target: Target,
    notes: PathBuf,
    workspace: PathBuf,
}

/// So many new files are brought to the disk one by one; with more of them that would take longer than copying.
const MOST_SYNCED: usize = 64;

/// The bit of a folder whose group its entries get.
const HANDS_ON: u32 = 0o2000;

/// Whether a step may have been done by somebody who is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Again,
}

impl Journaled {
    /// Into the workspace that the changes were made over.
    pub fn over(changes: &Changes, places: &Places) -> Result<Self, Errno> {
        let target = Target { root: Arc::clone(&changes.base), owner: owner_of(&changes.base)? };
        let itself = format!("/proc/self/fd/{}", changes.base.as_raw_fd());
        let workspace = rustix::fs::readlink(itself, Vec::new())?.into_bytes();
        Ok(Self { target, notes: places.promotions.clone(), workspace: OsString::from_vec(workspace).into() })
    }

    /// Finishes what a crash has left, in any workspace, or takes it away where it had only begun; says how many it
    /// finished.
    pub fn recover(places: &Places) -> usize {
        let Ok(list) = fs::read_dir(&places.promotions) else { return 0 };
        list.filter_map(Result::ok).filter(|entry| recover_one(&entry.path()).unwrap_or(false)).count()
    }
}

impl Promote for Journaled {
    fn promote(&self, changes: &Changes) -> Result<Promoted, PromoteFault> {
        for change in &changes.list {
            self.target.stands(changes, change)?;
        }
        let fault = |why| PromoteFault::Write { path: self.workspace.clone(), why, written: 0 };
        let mut journal = Journal::begin(self).map_err(fault)?;
        let steps = match journal.write(changes, &self.target) {
            Ok(steps) => steps,
            Err((path, why)) => {
                journal.clear();
                return Err(PromoteFault::Write { path, why, written: 0 });
            }
        };
        if let Err(why) = journal.sync(&steps) {
            journal.clear();
            return Err(fault(why));
        }
        // Writing took its time, in which others may have changed what is to be replaced.
        if let Err(stale) = changes.list.iter().try_for_each(|change| self.target.stands(changes, change)) {
            journal.clear();
            return Err(stale);
        }
        if let Err(why) = journal.commit(steps.clone()) {
            journal.clear();
            return Err(fault(why));
        }
        let mut nearby = Nearby::default();
        for (done, step) in steps.iter().enumerate() {
            if let Err(why) = journal.place(step, &self.target, Turn::First, &mut nearby) {
                journal.clear();
                let path = PathBuf::from(OsStr::from_bytes(step.path()));
                return Err(PromoteFault::Write { path, why, written: done });
            }
        }
        journal.clear();
        Ok(Promoted { changes: changes.list.len() })
    }
}

/// One promotion that is going on.
struct Journal {
    root: OwnedFd,
    beside: OwnedFd,
    note: Note,
    file: PathBuf,
    /// Locked as long as we live.
    lock: File,
}

impl Journal {
    fn begin(whose: &Journaled) -> Result<Self, Errno> {
        let root = rustix::io::fcntl_dupfd_cloexec(&*whose.target.root, 0)?;
        let facts = rustix::fs::fstat(&root)?;
        fs::create_dir_all(&whose.notes).map_err(|error| errno(&error))?;
        let (name, file, lock) = new_note(&whose.notes)?;
        let beside = format!("{UNFINISHED}{name}");
        let note = Note {
            workspace: whose.workspace.as_os_str().as_bytes().to_vec(),
            identity: (facts.st_dev, facts.st_ino),
            beside: beside.clone(),
            steps: None,
            unsynced_since: None,
        };
        // Noted before it is there, so that nothing stays in the workspace.
        write_note(&lock, &note)?;
        rustix::fs::mkdirat(&root, &beside, Mode::from_raw_mode(0o700))?;
        let beside = open_within(root.as_fd(), beside.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { root, beside, note, file, lock })
    }

    /// One that a process left which is gone.
    fn again(note: Note, file: &Path, lock: File) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(note.workspace.as_slice(), flags, Mode::empty())?;
        let facts = rustix::fs::fstat(&root)?;
        if (facts.st_dev, facts.st_ino) != note.identity {
            return Err(Errno::STALE);
        }
        let beside = open_within(root.as_fd(), note.beside.as_bytes(), flags)?;
        Ok(Self { root, beside, note, file: file.to_owned(), lock })
    }

    /// Everything new, beside its place; gives what is to be done.
    fn write(&mut self, changes: &Changes, target: &Target) -> Result<Vec<Step>, (PathBuf, Errno)> {
        let gone = |change: &&Change| change.kind == ChangeKind::Deleted;
        let (replaced, made): (Vec<_>, Vec<_>) =
            changes.list.iter().filter(|change| !gone(change)).partition(|change| changes_kind(change));
        let makes_room = |change: &&Change| replaced.iter().any(|one| change.path.starts_with(&one.path));
        let mut steps: Vec<Step> = Vec::with_capacity(changes.list.len());
        // A folder that is closed to its owner too is so at the end; one that was opened is open from the beginning.
        let folders = || made.iter().filter(|change| is_folder(change));
        let opened = folders().filter(|change| change.kind == ChangeKind::Mode);
        steps.extend(opened.filter_map(|change| mode(change, OWNERS)));
        // What goes away: inner before outer, and first where something else takes its place.
        let going = || changes.list.iter().rev().filter(gone);
        steps.extend(going().filter(makes_room).map(delete));
        for (number, change) in replaced.iter().chain(&made).enumerate() {
            let at = |why| (change.path.clone(), why);
            if changes_kind(change) {
                steps.push(delete(change));
            }
            if change.kind == ChangeKind::Mode && is_folder(change) {
                continue;
            }
            let number = number as u64;
            steps.extend(self.write_one(change, number, changes, target).map_err(at)?);
        }
        steps.extend(going().filter(|change| !makes_room(change)).map(delete));
        // Inner before outer.
        let closed =
            replaced.iter().chain(&made).rev().filter(|change| is_folder(change) && is_closed(change));
        steps.extend(closed.filter_map(|change| mode(change, 0)));
        self.can_be_done(&steps)?;
        Ok(steps)
    }

    /// Nothing is begun that cannot be finished: names come and go in every folder that is there.
    fn can_be_done(&self, steps: &[Step]) -> Result<(), (PathBuf, Errno)> {
        let mut known: HashSet<&Path> = HashSet::new();
        for step in steps {
            let touched: [Option<&[u8]>; 2] = match step {
                // It is opened, before anything else is done.
                Step::Mode { path, .. } => {
                    known.insert(Path::new(OsStr::from_bytes(path)));
                    continue;
                }
                Step::Rename { from, to } => [Some(from), Some(to)],
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

    fn is_writable(&self, folder: &Path) -> Result<(), Errno> {
        let name = if folder.as_os_str().is_empty() { b"." } else { folder.as_os_str().as_bytes() };
        match open_within(self.root.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(folder) => {
                let wanted = Access::WRITE_OK | Access::EXEC_OK;
                rustix::fs::accessat(&folder, c".", wanted, AtFlags::empty())
            }
            // It is made first.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn write_one(
        &self,
        change: &Change,
        number: u64,
        changes: &Changes,
        target: &Target,
    ) -> Result<Option<Step>, Errno> {
        let path = change.path.as_os_str().as_bytes().to_vec();
        let Some(after) = &change.after else { return Ok(None) };
        let before = before(change).filter(|_| !changes_kind(change));
        let name = number.to_string();
        Ok(Some(match (&change.kind, after.kind) {
            (ChangeKind::Renamed { from }, _) => {
                Step::Rename { from: from.as_os_str().as_bytes().to_vec(), to: path }
            }
            (ChangeKind::Mode, _) => Step::Mode { path, mode: after.mode },
            (_, EntryKind::Folder) => Step::Folder { path, mode: after.mode | OWNERS },
            (_, EntryKind::Link) => {
                let leads_to = after.target.as_ref().ok_or(Errno::INVAL)?;
                rustix::fs::symlinkat(leads_to.as_os_str(), &self.beside, &name)?;
                if let Some((uid, gid)) = target.owner {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::chownat(&self.beside, &name, Some(uid), Some(gid), flags)?;
                }
                Step::Place { path, number, before }
            }
            (_, EntryKind::File) => {
                let content = changes.open_after(&change.path)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(after.mode);
                let file = rustix::fs::openat(&self.beside, &name, flags, mode)?;
                copy(&content, &file, after.size)?;
                // Mostly it is so already; each change would be one more for the disk.
                let made = rustix::fs::fstat(&file)?;
                let owner = (Uid::from_raw(made.st_uid), Gid::from_raw(made.st_gid));
                give(&file, target.owner.filter(|wanted| *wanted != owner))?;
                if before.is_some() {
                    let replaced = open_within(self.root.as_fd(), &path, OFlags::RDONLY | OFlags::NONBLOCK)?;
                    attributes::carry_over(&replaced, &file)?;
                }
                if before.is_some() || Mode::from_raw_mode(made.st_mode) != mode {
                    rustix::fs::fchmod(&file, mode)?;
                }
                Step::Place { path, number, before }
            }
            (_, EntryKind::Special) => return Err(Errno::INVAL),
        }))
    }

    /// Brings what is new to the disk, unless that is too much.
    fn sync(&mut self, steps: &[Step]) -> Result<(), Errno> {
        let new = steps.iter().filter_map(|step| match step {
            Step::Place { number, .. } => Some(number.to_string()),
            _ => None,
        });
        let new: Vec<String> = new.collect();
        if new.len() > MOST_SYNCED {
            self.note.unsynced_since = Some(boot());
        } else {
            for name in new {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                match rustix::fs::openat(&self.beside, name, flags, Mode::empty()) {
                    Ok(file) => rustix::fs::fsync(&file)?,
                    // A link, which the folder holds itself; or nobody may read it, not even we.
                    Err(Errno::LOOP | Errno::ACCESS) => {}
                    Err(errno) => return Err(errno),
                }
            }
            rustix::fs::fsync(&self.beside)?;
        }
        Ok(())
    }

    /// From here on it will be done, by whomever.
    fn commit(&mut self, steps: Vec<Step>) -> Result<(), Errno> {
        self.note.steps = Some(steps);
        write_note(&self.lock, &self.note)
    }

    /// One step, which may have been done before.
    fn place(&self, step: &Step, target: &Target, turn: Turn, nearby: &mut Nearby) -> Result<(), Errno> {
        if !matches!(step, Step::Place { .. }) {
            *nearby = Nearby::default();
        }
        let (folder, name) = nearby.parent(self.root.as_fd(), step.path())?;
        if turn == Turn::Again && !self.is_as_it_was(step)? {
            return Ok(());
        }
        match step {
            Step::Folder { path, mode } => {
                match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let made = open_within(self.root.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY)?;
                // In a folder that hands on its group it has that one, and hands it on.
                let facts = rustix::fs::fstat(&made)?;
                let kept = facts.st_mode & HANDS_ON;
                let group = Gid::from_raw(facts.st_gid);
                give(&made, target.owner.map(|(uid, gid)| (uid, if kept == 0 { gid } else { group })))?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(*mode | kept))
            }
            Step::Place { number, before, .. } => {
                let flags = if before.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
                let from = number.to_string();
                if before.is_none() {
                    self.hand_on(folder, &from)?;
                }
                match rustix::fs::renameat_with(&self.beside, &from, folder, name, flags) {
                    // It is in its place already.
                    Err(Errno::NOENT) => Ok(()),
                    Err(Errno::XDEV) => self.place_elsewhere(&from, folder, name, before.is_some(), target),
                    done => done,
                }
            }
            Step::Mode { path, mode } => {
                // By its handle, which needs no right to read it; a link has no mode.
                let file = open_within(self.root.as_fd(), path, OFlags::PATH)?;
                let now = rustix::fs::fstat(&file)?.st_mode;
                // What a folder hands on, and who may remove what is in it, is not the program's to change.
                let kept = if FileType::from_raw_mode(now) == FileType::Directory { now & 0o7000 } else { 0 };
                let mode = Mode::from_raw_mode(*mode | kept);
                rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
            }
            Step::Rename { from, .. } => {
                let mut old = Nearby::default();
                let (old, old_name) = old.parent(self.root.as_fd(), from)?;
                match rustix::fs::renameat_with(old, old_name, folder, name, RenameFlags::NOREPLACE) {
                    Err(Errno::NOENT) => Ok(()),
                    done => done,
                }
            }
            Step::Delete { folder: whole, .. } => {
                let flags = if *whole { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                match rustix::fs::unlinkat(folder, name, flags) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(errno) => Err(errno),
                }
            }
        }
    }

    /// What is new gets the group that its folder hands on.
    fn hand_on(&self, folder: &OwnedFd, new: &str) -> Result<(), Errno> {
        let facts = rustix::fs::fstat(folder)?;
        if facts.st_mode & HANDS_ON == 0 {
            return Ok(());
        }
        let group = Some(Gid::from_raw(facts.st_gid));
        match rustix::fs::chownat(&self.beside, new, None, group, AtFlags::SYMLINK_NOFOLLOW) {
            // It is in its place already.
            Err(Errno::NOENT) => Ok(()),
            done => attributes::permitted(done),
        }
    }

    /// Into a folder on another file system.
    fn place_elsewhere(
        &self,
        from: &str,
        folder: &OwnedFd,
        name: &OsStr,
        replaces: bool,
        target: &Target,
    ) -> Result<(), Errno> {
        let facts = rustix::fs::statat(&self.beside, from, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(facts.st_mode) == FileType::Symlink {
            let target = rustix::fs::readlinkat(&self.beside, from, Vec::new())?;
            if replaces {
                rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
            }
            rustix::fs::symlinkat(target, folder, name)?;
        } else {
            let content = open_within(self.beside.as_fd(), from.as_bytes(), OFlags::RDONLY)?;
            let size = u64::try_from(facts.st_size).unwrap_or(0);
            let mode = Mode::from_raw_mode(facts.st_mode & 0o777);
            write_file(folder.as_fd(), name, &content, size, mode, target.owner, replaces)?;
        }
        rustix::fs::unlinkat(&self.beside, from, AtFlags::empty())
    }

    /// Whether nobody changed since what a step replaces or removes.
    fn is_as_it_was(&self, step: &Step) -> Result<bool, Errno> {
        let (Step::Place { path, before: Some(before), .. }
        | Step::Delete { path, before: Some(before), folder: false }) = step
        else {
            return Ok(true);
        };
        let Some(now) = Facts::look(self.root.as_fd(), path)? else { return Ok(false) };
        if now.inode != before.0 || now.changed == before.1 {
            return Ok(now.inode == before.0);
        }
        // A file of several names changes when we take one of them away; its content does not.
        let names = self.note.steps.iter().flatten().filter_map(Step::before).filter(|one| **one == *before);
        if names.count() < 2 {
            return Ok(false);
        }
        let facts = rustix::fs::fstat(open_within(self.root.as_fd(), path, OFlags::PATH)?)?;
        let modified = i128::from(facts.st_mtime) * 1_000_000_000 + i128::from(facts.st_mtime_nsec);
        Ok(facts.st_ino == before.0 && modified <= before.1)
    }

    /// Nothing is left to do.
    fn clear(&self) {
        remove_beside(self.root.as_fd(), &self.beside, &self.note.beside);
        let _ = fs::remove_file(&self.file);
    }
}

/// A new file for notes, locked.
fn new_note(folder: &Path) -> Result<(String, PathBuf, File), Errno> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = folder.join(&name);
        let lock = File::create_new(&file).map_err(|error| errno(&error))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        // Before it was locked, somebody who recovers may have taken it for one that was left behind.
        if rustix::fs::fstat(&lock)?.st_nlink > 0 {
            return Ok((name, file, lock));
        }
    }
}

/// Finishes one promotion whose process is gone, or takes away what it had only begun; says whether it finished one.
fn recover_one(file: &Path) -> Result<bool, Errno> {
    let lock = File::open(file).map_err(|error| errno(&error))?;
    // Its process lives.
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let bytes = fs::read(file).map_err(|error| errno(&error))?;
    let found = last_note(&bytes).and_then(|note| Journal::again(note, file, lock).ok());
    let Some(journal) = found else {
        // Nothing was begun, or the workspace or what lay in it is gone.
        let _ = fs::remove_file(file);
        return Ok(false);
    };
    let owner = owner_of(&journal.root)?;
    let target = Target { root: Arc::new(rustix::io::fcntl_dupfd_cloexec(&journal.root, 0)?), owner };
    let finished = journal.note.steps.is_some();
    let trusted = journal.note.unsynced_since.as_ref().is_none_or(|since| *since == boot());
    let mut nearby = Nearby::default();
    for step in journal.note.steps.iter().flatten().filter(|_| trusted) {
        // What somebody else has put in its way stays.
        let _ = journal.place(step, &target, Turn::Again, &mut nearby);
    }
    journal.clear();
    Ok(finished)
}

/// What the kernel calls the time since it started.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Takes away a folder with files in it, and no more than that.
fn remove_beside(root: BorrowedFd<'_>, beside: &OwnedFd, name: &str) {
    if let Ok(mut list) = rustix::fs::Dir::read_from(beside) {
        while let Some(Ok(entry)) = list.read() {
            if entry.file_name() != c"." && entry.file_name() != c".." {
                let _ = rustix::fs::unlinkat(beside, entry.file_name(), AtFlags::empty());
            }
        }
    }
    let _ = rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR);
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}
