//! Run directories: the directories of one run on the host, where it has no private file system (tier no-userns): its
//! home, its temporary files and, in mode `write`, the directory that stands for the workspace.
//!
//! **Invariant.** No run finds anything of another: the directories are removed after the run, unless nothing was
//! ever written to them; then a later run reuses them, because creating and removing directories costs as much as
//! starting a program. Directories that appear untouched are checked once more before that, while another program
//! runs.
#![expect(clippy::disallowed_methods, reason = "directories of the state, visible to one run only")]

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
use crate::wire::RunIdentity;

/// Name prefix of run directories; the broker's pid follows.
pub(crate) const PREFIX: &str = "vambrace-run-";
/// Maximum number of pooled directories.
const MAX_POOLED: usize = 8;
/// Stands for an unknown owner; no user has this id.
const UNKNOWN_UID: u32 = u32::MAX;

/// Pool of unused run directories.
#[derive(Debug, Default)]
pub(crate) struct RunDirPool {
    untouched: Mutex<Vec<RunDirTree>>,
    /// Returned directories that are not checked yet.
    returned: Mutex<Vec<RunDirTree>>,
}

/// The directories of one run.
#[derive(Debug)]
pub(crate) struct RunDirs {
    pub(crate) dir: PathBuf,
    parts: Option<RunDirTree>,
    home: Weak<RunDirPool>,
}

#[derive(Debug)]
struct RunDirTree {
    dir: PathBuf,
    /// Their owner, if known.
    owner: AtomicU32,
    /// Each name with its mtime at creation.
    stamps: Vec<(&'static str, Times)>,
    /// Locked as long as this process lives: a broker in another pid namespace cannot check our pid. `None` where the
    /// file system has no locks.
    _lock: Option<OwnedFd>,
}

type Times = (i64, i64);

impl RunDirPool {
    /// Directories for a run, below `base`.
    pub(crate) fn take(
        self: &Arc<Self>,
        base: &Path,
        filesystem: Filesystem,
        name: impl FnOnce() -> String,
    ) -> io::Result<RunDirs> {
        let waiting = (filesystem != Filesystem::Write).then(|| self.untouched.lock().pop()).flatten();
        // A cleanup job may have removed it, and another user taken its name.
        let waiting = waiting.filter(RunDirTree::is_still_ours);
        let parts = match waiting {
            Some(parts) => parts,
            None => RunDirTree::make(base.canonicalize()?.join(name()), RunDirs::parts(filesystem))?,
        };
        Ok(RunDirs { dir: parts.dir.clone(), parts: Some(parts), home: Arc::downgrade(self) })
    }
}

impl RunDirPool {
    /// Checks the returned directories; called while no run waits for it.
    pub(crate) fn check_returned(&self) {
        let returned = std::mem::take(&mut *self.returned.lock());
        for parts in returned {
            let mut untouched = self.untouched.lock();
            if untouched.len() < MAX_POOLED && parts.is_empty() {
                untouched.push(parts);
            } else {
                parts.remove();
            }
        }
    }
}

impl Drop for RunDirPool {
    fn drop(&mut self) {
        for parts in self.untouched.get_mut().drain(..).chain(self.returned.get_mut().drain(..)) {
            parts.remove();
        }
    }
}

impl RunDirs {
    /// All possible subdirectories.
    pub(crate) const PARTS: &[&str] = &["tmp", "home", "work"];

    fn parts(filesystem: Filesystem) -> &'static [&'static str] {
        if filesystem == Filesystem::Write { Self::PARTS } else { &["tmp", "home"] }
    }

    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Gives the directories to the program's user, unless they are that user's already.
    pub(crate) fn set_owner(&self, identity: RunIdentity) -> Result<(), Errno> {
        let owner = self.parts.as_ref().map(|parts| &parts.owner);
        if owner.is_some_and(|owner| owner.swap(identity.uid, Ordering::Relaxed) == identity.uid) {
            return Ok(());
        }
        set_owner(&self.dir, identity).inspect_err(|_| self.forget_owner())
    }

    /// Forgets the owner, because another process changes it.
    pub(crate) fn forget_owner(&self) {
        if let Some(parts) = &self.parts {
            parts.owner.store(UNKNOWN_UID, Ordering::Relaxed);
        }
    }
}

impl Drop for RunDirs {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        if let Some(home) = self.home.upgrade()
            && parts.appears_untouched()
        {
            let mut returned = home.returned.lock();
            if returned.len() < MAX_POOLED {
                return returned.push(parts);
            }
        }
        parts.remove();
    }
}

impl RunDirTree {
    fn make(dir: PathBuf, names: &[&'static str]) -> io::Result<Self> {
        let mut maker = fs::DirBuilder::new();
        maker.mode(0o700).create(&dir)?;
        let lock = locked(&dir, FlockOperation::LockShared).ok();
        let mut stamps = Vec::new();
        for name in names {
            let path = dir.join(name);
            maker.create(&path)?;
            stamps.push((*name, times(&path)?));
        }
        let owner = AtomicU32::new(rustix::process::geteuid().as_raw());
        Ok(Self { dir, owner, stamps, _lock: lock })
    }

    /// Whether nothing was written, by the directories' mtimes. A name that was created and removed within one clock
    /// tick may leave no trace; it left nothing else either.
    fn appears_untouched(&self) -> bool {
        !self.stamps.iter().any(|(name, _)| *name == "work")
            && self
                .stamps
                .iter()
                .all(|(name, then)| times(&self.dir.join(name)).is_ok_and(|now| now == *then))
    }

    /// Whether it is still the directory that was created, by its owner.
    fn is_still_ours(&self) -> bool {
        let owns = |uid: u32| match self.owner.load(Ordering::Relaxed) {
            UNKNOWN_UID => is_ours(uid),
            owner => owner == uid,
        };
        fs::symlink_metadata(&self.dir).is_ok_and(|facts| facts.is_dir() && owns(facts.uid()))
    }

    /// Whether the directories are empty.
    fn is_empty(&self) -> bool {
        self.stamps.iter().all(|(name, _)| {
            fs::read_dir(self.dir.join(name)).is_ok_and(|mut entries| entries.next().is_none())
        })
    }

    fn remove(&self) {
        // Usually they are empty.
        for (name, _) in &self.stamps {
            let _ = fs::remove_dir(self.dir.join(name));
        }
        if fs::remove_dir(&self.dir).is_err() {
            // If this process dies before, the launcher does it.
            remove_all(&self.dir);
        }
    }
}

/// Gives the directories to the program's user.
pub(crate) fn set_owner(dir: &Path, identity: RunIdentity) -> Result<(), Errno> {
    let (uid, gid) = (Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)));
    let own = |path: &Path| rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    own(dir)?;
    for part in RunDirs::PARTS {
        match own(&dir.join(part)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes the directory of an ended run, also where the program left unreadable directories in it.
pub(crate) fn remove_all(dir: &Path) {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_accessible(dir);
            let _ = fs::remove_dir_all(dir);
        }
        _ => {}
    }
}

/// Makes directories accessible. No process is left that could replace one with a symlink.
fn make_accessible(dir: &Path) {
    let mut ahead = vec![dir.to_owned()];
    while let Some(here) = ahead.pop() {
        let _ = fs::set_permissions(&here, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&here).into_iter().flatten().filter_map(Result::ok);
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        ahead.extend(dirs.map(|entry| entry.path()));
    }
}

/// Removes directories below `base` whose brokers are gone without having removed them.
pub(crate) fn sweep(base: &Path) {
    sweep_of(base, |owner| !Path::new("/proc").join(owner).exists());
}

/// Removes directories below `base` of brokers that are gone. Those of other users with such names stay.
pub(crate) fn sweep_of(base: &Path, gone: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(base).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(&gone)
            && entry.metadata().is_ok_and(|facts| facts.is_dir() && is_ours(facts.uid()))
        {
            match locked(&entry.path(), FlockOperation::NonBlockingLockExclusive) {
                // Its broker lives in another pid namespace.
                Err(Errno::WOULDBLOCK) => {}
                _ => remove_all(&entry.path()),
            }
        }
    }
}

fn locked(dir: &Path, how: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(dir, flags, Mode::empty())?;
    rustix::fs::flock(&handle, how)?;
    Ok(handle)
}

/// Whether directories with this owner belong to a run of this user.
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
    fn directories_of_dead_brokers_are_removed_with_any_content() {
        let base = tempfile::tempdir().unwrap();
        let make = |owner: u32| {
            let dir = base.path().join(format!("{PREFIX}{owner}-0"));
            fs::create_dir_all(dir.join("home/x/y")).unwrap();
            fs::write(dir.join("home/x/y/f"), "x").unwrap();
            fs::set_permissions(dir.join("home/x"), fs::Permissions::from_mode(0o300)).unwrap();
            dir
        };
        // No pid is above 2^22.
        let (gone, ours) = (make(5_000_000), make(std::process::id()));
        fs::create_dir(base.path().join("another")).unwrap();
        sweep(base.path());
        assert_eq!((gone.exists(), ours.exists(), base.path().join("another").exists()), (false, true, true));
        remove_all(&ours);
        assert!(!ours.exists());
    }

    #[test]
    fn directories_of_a_live_broker_in_another_pid_namespace_stay() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join(format!("{PREFIX}5000001-0"));
        let parts = RunDirTree::make(dir.clone(), RunDirs::PARTS).unwrap();
        sweep(base.path());
        assert!(dir.join("work").exists());
        drop(parts);
        sweep(base.path());
        assert!(!dir.exists());
    }
}
