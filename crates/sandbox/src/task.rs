//! Folders of one run on the host, where there is no file system of the run's own (tier no-userns): its home, its
//! temporary files and, in mode `write`, the folder that it takes for the workspace.
//!
//! **Invariant.** No run finds anything of another: a folder is removed with the run, unless nothing was ever written
//! into it; then a later run gets it, because making and removing folders costs as much as starting a program. What looks
//! untouched is looked into once more before, while another program runs.
#![expect(clippy::disallowed_methods, reason = "folders of the state, which only one run's program sees")]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::launcher::unowned;
use crate::spec::Filesystem;
use crate::wire::Identity;

/// How the folders of a process begin.
pub(crate) const PREFIX: &str = "vambrace-task-";
/// So many wait at most.
const MOST: usize = 8;
/// No user's number.
const UNKNOWN: u32 = u32::MAX;

/// Folders that nobody has written to.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    untouched: Mutex<Vec<Parts>>,
    /// Nobody has looked into these yet.
    returned: Mutex<Vec<Parts>>,
}

/// Folders of one run.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) folder: PathBuf,
    parts: Option<Parts>,
    home: Weak<Tasks>,
}

#[derive(Debug)]
struct Parts {
    folder: PathBuf,
    /// Whose they are, where that is known.
    owner: AtomicU32,
    /// Each with its times when it was made.
    stamps: Vec<(&'static str, Times)>,
    /// Locked as long as we live: our number says nothing to a broker in another pid namespace. None where the file
    /// system has no locks.
    _lock: Option<OwnedFd>,
}

type Times = (i64, i64);

impl Tasks {
    /// Folders for a run, below `base`.
    pub(crate) fn give(
        self: &Arc<Self>,
        base: &Path,
        filesystem: Filesystem,
        name: impl FnOnce() -> String,
    ) -> io::Result<Task> {
        let waiting = (filesystem != Filesystem::Write).then(|| self.untouched.lock().pop()).flatten();
        // Somebody who cleans up may have taken it, and somebody else its name.
        let waiting = waiting.filter(Parts::are_ours);
        let parts = match waiting {
            Some(parts) => parts,
            None => Parts::make(base.canonicalize()?.join(name()), Task::parts(filesystem))?,
        };
        Ok(Task { folder: parts.folder.clone(), parts: Some(parts), home: Arc::downgrade(self) })
    }
}

impl Tasks {
    /// Looks into what came back; nobody waits for that.
    pub(crate) fn look_into(&self) {
        let returned = std::mem::take(&mut *self.returned.lock());
        for parts in returned {
            let mut untouched = self.untouched.lock();
            if untouched.len() < MOST && parts.are_empty() {
                untouched.push(parts);
            } else {
                parts.remove();
            }
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for parts in self.untouched.get_mut().drain(..).chain(self.returned.get_mut().drain(..)) {
            parts.remove();
        }
    }
}

impl Task {
    /// Every part that there may be.
    pub(crate) const PARTS: &[&str] = &["tmp", "home", "work"];

    fn parts(filesystem: Filesystem) -> &'static [&'static str] {
        if filesystem == Filesystem::Write { Self::PARTS } else { &["tmp", "home"] }
    }

    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes whom the program runs as the owner of the folders, unless it was that before.
    pub(crate) fn hand_over(&self, identity: Identity) -> Result<(), Errno> {
        let owner = self.parts.as_ref().map(|parts| &parts.owner);
        if owner.is_some_and(|owner| owner.swap(identity.uid, Ordering::Relaxed) == identity.uid) {
            return Ok(());
        }
        hand_over(&self.folder, identity).inspect_err(|_| self.is_handed_over())
    }

    /// Somebody else does so.
    pub(crate) fn is_handed_over(&self) {
        if let Some(parts) = &self.parts {
            parts.owner.store(UNKNOWN, Ordering::Relaxed);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        if let Some(home) = self.home.upgrade()
            && parts.look_untouched()
        {
            let mut returned = home.returned.lock();
            if returned.len() < MOST {
                return returned.push(parts);
            }
        }
        parts.remove();
    }
}

impl Parts {
    fn make(folder: PathBuf, names: &[&'static str]) -> io::Result<Self> {
        let mut maker = fs::DirBuilder::new();
        maker.mode(0o700).create(&folder)?;
        let lock = locked(&folder, FlockOperation::LockShared).ok();
        let mut stamps = Vec::new();
        for name in names {
            let path = folder.join(name);
            maker.create(&path)?;
            stamps.push((*name, times(&path)?));
        }
        let owner = AtomicU32::new(rustix::process::geteuid().as_raw());
        Ok(Self { folder, owner, stamps, _lock: lock })
    }

    /// Nothing was there, by the folders' times. A name that came and went within one tick of the clock may leave no
    /// trace; it left nothing else either.
    fn look_untouched(&self) -> bool {
        !self.stamps.iter().any(|(name, _)| *name == "work")
            && self
                .stamps
                .iter()
                .all(|(name, then)| times(&self.folder.join(name)).is_ok_and(|now| now == *then))
    }

    /// Still the folder that was made, by its owner.
    fn are_ours(&self) -> bool {
        let owns = |uid: u32| match self.owner.load(Ordering::Relaxed) {
            UNKNOWN => is_ours(uid),
            owner => owner == uid,
        };
        fs::symlink_metadata(&self.folder).is_ok_and(|facts| facts.is_dir() && owns(facts.uid()))
    }

    /// Nothing is there.
    fn are_empty(&self) -> bool {
        self.stamps.iter().all(|(name, _)| {
            fs::read_dir(self.folder.join(name)).is_ok_and(|mut entries| entries.next().is_none())
        })
    }

    fn remove(&self) {
        // Mostly nothing was written there.
        for (name, _) in &self.stamps {
            let _ = fs::remove_dir(self.folder.join(name));
        }
        if fs::remove_dir(&self.folder).is_err() {
            // When we go before this, the launcher does it.
            remove_all(&self.folder);
        }
    }
}

/// Makes whom the program runs as the owner of the folders.
pub(crate) fn hand_over(folder: &Path, identity: Identity) -> Result<(), Errno> {
    let (uid, gid) = (Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)));
    let own = |path: &Path| rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    own(folder)?;
    for part in Task::PARTS {
        match own(&folder.join(part)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes a folder of a run that has ended, also where the program left folders in it that nobody may look into.
pub(crate) fn remove_all(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder);
            let _ = fs::remove_dir_all(folder);
        }
        _ => {}
    }
}

/// Nobody is left who could put a link in the place of a folder.
fn open_up(folder: &Path) {
    let mut ahead = vec![folder.to_owned()];
    while let Some(here) = ahead.pop() {
        let _ = fs::set_permissions(&here, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&here).into_iter().flatten().filter_map(Result::ok);
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        ahead.extend(folders.map(|entry| entry.path()));
    }
}

/// Removes folders below `base` whose brokers are gone and had nobody left to do it.
pub(crate) fn sweep(base: &Path) {
    sweep_of(base, |owner| !Path::new("/proc").join(owner).exists());
}

/// Removes the folders below `base` of brokers that are gone. Others may have made some there with such names: those stay.
pub(crate) fn sweep_of(base: &Path, gone: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(base).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(&gone)
            && entry.metadata().is_ok_and(|facts| facts.is_dir() && is_ours(facts.uid()))
        {
            match locked(&entry.path(), FlockOperation::NonBlockingLockExclusive) {
                // Its broker lives, where we cannot see it.
                Err(Errno::WOULDBLOCK) => {}
                _ => remove_all(&entry.path()),
            }
        }
    }
}

fn locked(folder: &Path, how: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(folder, flags, Mode::empty())?;
    rustix::fs::flock(&handle, how)?;
    Ok(handle)
}

/// Whether somebody's folders are a run's of this user.
fn is_ours(uid: u32) -> bool {
    let me = rustix::process::geteuid().as_raw();
    uid == me || (me == 0 && unowned().contains(&uid))
}

fn times(path: &Path) -> io::Result<Times> {
    let facts = fs::symlink_metadata(path)?;
    Ok((facts.mtime(), facts.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_brokers_that_are_gone_are_removed_whatever_is_in_them() {
        let base = tempfile::tempdir().unwrap();
        let make = |owner: u32| {
            let folder = base.path().join(format!("{PREFIX}{owner}-0"));
            fs::create_dir_all(folder.join("home/x/y")).unwrap();
            fs::write(folder.join("home/x/y/f"), "x").unwrap();
            fs::set_permissions(folder.join("home/x"), fs::Permissions::from_mode(0o300)).unwrap();
            folder
        };
        // No process has a number past 2^22.
        let (gone, ours) = (make(5_000_000), make(std::process::id()));
        fs::create_dir(base.path().join("another")).unwrap();
        sweep(base.path());
        assert_eq!((gone.exists(), ours.exists(), base.path().join("another").exists()), (false, true, true));
        remove_all(&ours);
        assert!(!ours.exists());
    }

    #[test]
    fn folders_of_a_broker_in_another_pid_namespace_stay_while_it_lives() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join(format!("{PREFIX}5000001-0"));
        let parts = Parts::make(folder.clone(), Task::PARTS).unwrap();
        sweep(base.path());
        assert!(folder.join("work").exists());
        drop(parts);
        sweep(base.path());
        assert!(!folder.exists());
    }
}
