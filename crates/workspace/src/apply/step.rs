//! Changing one file. New content is written beside the old under a temporary name, made like it, synced, and then takes
//! its name in one step; so the name always leads to the old content or the new. Old and new swap places, and what came
//! out is looked at before it goes: if somebody changed it in the last moment, they swap back.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, renameat_with};
use rustix::io::Errno;
use vambrace_core::change::{FileChange, Kind, pieces};
use vambrace_core::digest::Digest;

use super::attributes;
use super::fault::ApplyFault;
use super::lock::FileLock;
use super::seat::{Old, Seat, temporary_name};
use crate::handle::open_entry;
use crate::loom::read_all;

/// A file that changed less than this before it was read may have changed again without showing it: clocks of file
/// systems tick every few milliseconds.
const RACY_NANOS: i128 = 50_000_000;
/// The same for file systems that count seconds.
const RACY_SECONDS_NANOS: i128 = 2_500_000_000;

/// One file, checked and locked.
#[derive(Debug)]
pub(crate) struct Item {
    // INVARIANT: before the locks, so that a temporary file is gone when its lock is.
    pub(crate) staged: Option<Staged>,
    pub(crate) change: FileChange,
    pub(crate) seat: Seat,
    pub(crate) lock: FileLock,
    /// Where it goes, with its lock; only for a rename.
    pub(crate) to: Option<(Seat, FileLock)>,
    pub(crate) old: Option<Old>,
}

/// New content under a temporary name; removed with the value unless it took its place.
#[derive(Debug)]
pub(crate) struct Staged {
    folder: OwnedFd,
    name: String,
    facts: Stat,
    placed: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.placed {
            let _ = rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// Handles whose names must reach the disk, and how often that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    folders: Vec<((u64, u64), OwnedFd)>,
    pub(crate) count: u32,
}

impl Syncs {
    pub(crate) fn now(&mut self, file: &impl AsFd) -> rustix::io::Result<()> {
        self.count += 1;
        rustix::fs::fsync(file)
    }

    fn later(&mut self, folder: &OwnedFd) -> rustix::io::Result<()> {
        let facts = rustix::fs::fstat(folder)?;
        let id = (facts.st_dev, facts.st_ino);
        if !self.folders.iter().any(|(known, _)| *known == id) {
            self.folders.push((id, folder.try_clone().map_err(|_| Errno::MFILE)?));
        }
        Ok(())
    }

    /// Syncs every folder that was changed, each once.
    pub(crate) fn folders(&mut self) -> rustix::io::Result<()> {
        for (_, folder) in std::mem::take(&mut self.folders) {
            self.now(&folder)?;
        }
        Ok(())
    }
}

impl Item {
    fn io(&self, what: &'static str) -> impl Fn(Errno) -> ApplyFault {
        let path = self.change.path().clone();
        move |errno| ApplyFault::io(&path, what, errno)
    }

    fn stale(&self, now: Option<Digest>) -> ApplyFault {
        ApplyFault::stale(self.change.path(), self.change.before().map(|before| before.hash), now)
    }

    /// Whether more than one name changes, so that a crash in between would show.
    pub(crate) fn takes_two_steps(&self) -> bool {
        self.change.kind() == Kind::Rename && self.writes_content()
    }

    /// Whether a new file is written at all.
    fn writes_content(&self) -> bool {
        match (self.change.kind(), self.change.after()) {
            (Kind::Create | Kind::Modify, _) => true,
            (Kind::Rename, Some(after)) => !after.splices.is_empty() || after.mode.is_some(),
            _ => false,
        }
    }

    /// Writes the new content under a temporary name and syncs it. Nothing anybody knows of has changed yet.
    pub(crate) fn stage(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        if !self.writes_content() {
            return Ok(());
        }
        let seat = self.to.as_mut().map_or(&mut self.seat, |(seat, _)| seat);
        let grown = seat.make_folders()?;
        for folder in &grown {
            syncs.later(folder).map_err(self.io("making a folder"))?;
        }
        let (seat, lock) = self.to.as_ref().map_or((&self.seat, &self.lock), |(seat, lock)| (seat, lock));
        let Some(after) = self.change.after() else { return Ok(()) };
        let name = temporary_name();
        lock.note(&seat.place, &name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A new file gets what the folder and the user's mask give it; a replacement is private until it is like the old.
        let mode = Mode::from_raw_mode(if self.old.is_some() { 0o600 } else { 0o666 });
        let file = rustix::fs::openat(&seat.folder, name.as_str(), flags, mode)
            .map_err(self.io("making a temporary file"))?;
        let facts = rustix::fs::fstat(&file).map_err(self.io("looking at the temporary file"))?;
        let folder =
            seat.folder.try_clone().map_err(|_| Errno::MFILE).map_err(self.io("keeping the folder open"))?;
        let mut staged = Staged { folder, name, facts, placed: false };
        let base = self.old.as_ref().map_or(&[][..], |old| &old.bytes);
        let file = write_pieces(file, base, after).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ApplyFault::io(self.change.path(), "writing the new content", errno)
        })?;
        match &self.old {
            Some(old) => {
                attributes::copy(old.file.as_fd(), &old.facts, file.as_fd(), after.mode, self.change.path())?;
            }
            None => {
                if let Some(mode) = after.mode {
                    let bits = Mode::from_raw_mode(mode & 0o7777);
                    rustix::fs::fchmod(&file, bits).map_err(self.io("setting the permissions"))?;
                }
            }
        }
        syncs.now(&file).map_err(self.io("syncing the new content"))?;
        staged.facts = rustix::fs::fstat(&file).map_err(self.io("looking at the temporary file"))?;
        self.staged = Some(staged);
        Ok(())
    }

    /// Makes the change visible, in one step for each name.
    pub(crate) fn place(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        match (self.change.kind(), self.staged.is_some()) {
            (Kind::Create, _) => self.put_new(syncs),
            (Kind::Modify, _) => self.swap(syncs),
            (Kind::Delete, _) => self.remove(syncs),
            (Kind::Mode, _) => self.set_mode(syncs),
            (Kind::Rename, true) => self.move_changed(syncs),
            (Kind::Rename, false) => self.relocate(syncs),
        }
    }

    /// A new file at the new place, then the old one goes; if that cannot go, the new one does.
    fn move_changed(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        self.put_new(syncs)?;
        self.remove(syncs).inspect_err(|_| {
            if let Some((to, _)) = &self.to {
                let _ = rustix::fs::unlinkat(&to.folder, to.name.as_str(), AtFlags::empty());
            }
        })
    }

    fn put_new(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        let seat = self.to.as_ref().map_or(&self.seat, |(seat, _)| seat);
        let Some(staged) = &mut self.staged else { return Ok(()) };
        let (folder, from, to) = (&seat.folder, staged.name.as_str(), seat.name.as_str());
        let done = match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // A file system without that: a second name refuses to replace as well.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let linked = rustix::fs::linkat(folder, from, folder, to, AtFlags::empty());
                linked.and_then(|()| rustix::fs::unlinkat(folder, from, AtFlags::empty()))
            }
            done => done,
        };
        staged.placed = done.is_ok();
        match done {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(ApplyFault::stale(&seat.path, None, None)),
            Err(errno) => return Err(ApplyFault::io(&seat.path, "giving the new file its name", errno)),
        }
        syncs.later(&seat.folder).map_err(self.io("keeping the folder open"))
    }

    fn swap(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        let (Some(staged), Some(old)) = (&mut self.staged, &self.old) else { return Ok(()) };
        let (folder, temporary, name) = (&self.seat.folder, staged.name.as_str(), self.seat.name.as_str());
        let path = self.change.path();
        let swapped = renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE);
        let before = self.change.before().map(|before| before.hash);
        match swapped {
            Ok(()) => {
                let now = unchanged(&self.seat, temporary, old, &staged.facts);
                // From here the temporary name holds somebody's content, not ours.
                staged.placed = true;
                if let Err(now) = now {
                    renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE)
                        .map_err(|errno| ApplyFault::io(path, "putting the old file back", errno))?;
                    staged.placed = false;
                    return Err(ApplyFault::stale(path, before, now));
                }
                // The change is made; what cannot be removed is only litter.
                let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
            }
            Err(Errno::NOENT) => return Err(ApplyFault::stale(path, before, None)),
            Err(Errno::INVAL | Errno::NOSYS) => {
                unchanged(&self.seat, name, old, &staged.facts)
                    .map_err(|now| ApplyFault::stale(path, before, now))?;
                rustix::fs::renameat(folder, temporary, folder, name)
                    .map_err(|errno| ApplyFault::io(path, "replacing the file", errno))?;
                staged.placed = true;
            }
            Err(errno) => return Err(ApplyFault::io(path, "replacing the file", errno)),
        }
        syncs.later(&self.seat.folder).map_err(self.io("keeping the folder open"))
    }

    fn remove(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        let Some(old) = &self.old else { return Ok(()) };
        let temporary = temporary_name();
        self.lock.note(&self.seat.place, &temporary);
        let (folder, name) = (&self.seat.folder, self.seat.name.as_str());
        match move_aside(folder, name, &temporary) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(self.stale(None)),
            Err(errno) => return Err(self.io("removing the file")(errno)),
        }
        let facts = self.staged.as_ref().map_or(&old.facts, |staged| &staged.facts);
        if let Err(now) = unchanged(&self.seat, &temporary, old, facts) {
            move_aside(folder, &temporary, name).map_err(self.io("putting the old file back"))?;
            return Err(self.stale(now));
        }
        if let Err(errno) = rustix::fs::unlinkat(folder, temporary.as_str(), AtFlags::empty()) {
            move_aside(folder, &temporary, name).map_err(self.io("putting the old file back"))?;
            return Err(self.io("removing the file")(errno));
        }
        syncs.later(folder).map_err(self.io("keeping the folder open"))
    }

    fn relocate(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        let (Some(old), Some((to, _))) = (&self.old, &mut self.to) else { return Ok(()) };
        let grown = to.make_folders()?;
        let (from, to) = (&self.seat, &*to);
        let moved = renameat_with(
            &from.folder,
            from.name.as_str(),
            &to.folder,
            to.name.as_str(),
            RenameFlags::NOREPLACE,
        );
        match moved {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(ApplyFault::stale(&to.path, None, None)),
            Err(Errno::NOENT) => return Err(self.stale(None)),
            Err(errno) => return Err(self.io("moving the file")(errno)),
        }
        if let Err(now) = unchanged(to, &to.name, old, &old.facts) {
            renameat_with(
                &to.folder,
                to.name.as_str(),
                &from.folder,
                from.name.as_str(),
                RenameFlags::NOREPLACE,
            )
            .map_err(self.io("putting the old file back"))?;
            return Err(self.stale(now));
        }
        let noted = grown.iter().chain([&from.folder, &to.folder]).try_for_each(|folder| syncs.later(folder));
        noted.map_err(self.io("keeping the folder open"))
    }

    fn set_mode(&mut self, syncs: &mut Syncs) -> Result<(), ApplyFault> {
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
    after: &vambrace_core::change::Target,
) -> std::io::Result<OwnedFd> {
    let mut writer = std::io::BufWriter::with_capacity(256 * 1024, std::fs::File::from(file));
    for piece in pieces(base, &after.splices) {
        let piece = piece.map_err(|bad| std::io::Error::new(std::io::ErrorKind::InvalidData, bad))?;
        writer.write_all(piece)?;
    }
    Ok(writer.into_inner().map_err(std::io::IntoInnerError::into_error)?.into())
}

fn move_aside(folder: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(folder, from, folder, to),
        done => done,
    }
}

/// Whether a name holds the very file that was read, unchanged since; otherwise the hash of what it holds. `clock` is a
/// file made just now, to tell how old the other is.
fn unchanged(seat: &Seat, name: &str, old: &Old, clock: &Stat) -> Result<(), Option<Digest>> {
    let looked = rustix::fs::statat(&seat.folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| None)?;
    let modified =
        |facts: &Stat| i128::from(facts.st_mtime) * 1_000_000_000 + i128::from(facts.st_mtime_nsec);
    let same = (looked.st_ino, looked.st_dev, looked.st_size)
        == (old.facts.st_ino, old.facts.st_dev, old.facts.st_size)
        && modified(&looked) == modified(&old.facts);
    let age = modified(clock) - modified(&old.facts);
    let racy = if old.facts.st_mtime_nsec == 0 { RACY_SECONDS_NANOS } else { RACY_NANOS };
    if same && age > racy {
        return Ok(());
    }
    let name = std::ffi::CString::new(name).map_err(|_| None)?;
    let file = open_entry(seat.folder.as_fd(), &name).map_err(|_| None)?;
    let size = u64::try_from(looked.st_size).unwrap_or(0);
    let bytes = read_all(file.as_fd(), size, u64::MAX).ok().flatten().ok_or(None)?;
    let now = Digest::of(&bytes);
    if now == old.hash && looked.st_ino == old.facts.st_ino { Ok(()) } else { Err(Some(now)) }
}
