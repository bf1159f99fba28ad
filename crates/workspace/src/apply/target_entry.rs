//! The target of a change: an open directory and a name in it. From here on no path is looked up again, so a symlink that
//! is swapped in has no effect.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use super::error::ApplyError;
use super::lock::LockKey;
use crate::edit::read_all;
use crate::error::{FileError, display_path};
use crate::handle::{file_type, link_count, open_entry};
use crate::scope::join;
use crate::workspace::Workspace;

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct TargetEntry {
    pub(crate) path: ScopedPath,
    /// The deepest existing directory.
    pub(crate) dir: OwnedFd,
    /// Its project-relative path.
    pub(crate) rel_path: String,
    /// Directories below it that do not exist yet.
    pub(crate) missing: Vec<String>,
    pub(crate) name: String,
    id: (u64, u64),
    /// Owner of what root creates: the owner of the project.
    pub(crate) owner: Option<(Uid, Gid)>,
}

/// An existing file, open, with its content.
#[derive(Debug)]
pub(crate) struct OldFile {
    pub(crate) file: OwnedFd,
    pub(crate) stat: Stat,
    pub(crate) bytes: Vec<u8>,
    pub(crate) hash: Digest,
}

impl TargetEntry {
    /// Checks 4 and 5 of applying: the name is not denied, and the path is resolved again without following a symlink.
    pub(crate) fn find(ws: &Workspace, path: &ScopedPath) -> Result<Self, ApplyError> {
        let path_text = path.to_string();
        let rel_path = ws.scope().rel_path(path);
        ws.scope().admit(&rel_path).map_err(|denial| denial.into_error(&path_text))?;
        if !ws.scope().is_service(&rel_path) {
            return Err(ApplyError::ReadOnly { path: display_path(&path_text) });
        }
        let (parent, name) = rel_path.rsplit_once('/').unwrap_or(("", &rel_path));
        let mut parent = parent.to_owned();
        let mut missing = Vec::new();
        loop {
            let errno = match ws.root().open_dir(&parent) {
                Ok(dir) => {
                    let stat =
                        rustix::fs::fstat(&dir).map_err(|errno| FileError::from_errno(errno, &path_text))?;
                    missing.reverse();
                    let (path, name) = (path.clone(), name.to_owned());
                    return Ok(Self {
                        path,
                        dir,
                        rel_path: parent,
                        missing,
                        name,
                        id: (stat.st_dev, stat.st_ino),
                        owner: ws.root().owner_of_new_files(),
                    });
                }
                Err(errno) => errno,
            };
            match (errno, parent.rsplit_once('/')) {
                (Errno::NOENT, Some((above, last))) => {
                    missing.push(last.to_owned());
                    parent = above.to_owned();
                }
                (Errno::NOENT, None) if !parent.is_empty() => missing.push(std::mem::take(&mut parent)),
                (Errno::LOOP | Errno::NOTDIR, _) => {
                    return Err(ApplyError::PathChanged { path: display_path(&path_text) });
                }
                (errno, _) => return Err(FileError::from_errno(errno, &path_text).into()),
            }
        }
    }

    pub(crate) fn key(&self) -> LockKey {
        let rest = self.missing.iter().fold(String::new(), |rest, name| join(&rest, name));
        LockKey::new(self.id.0, self.id.1, join(&rest, &self.name).as_bytes())
    }

    /// Check 6: opens the existing file, which must be regular, on this device, with one hard link; `None` when there is none.
    pub(crate) fn open_old(&self, ws: &Workspace, cap: u64) -> Result<Option<OldFile>, ApplyError> {
        let path_text = self.path.to_string();
        let file_error = |errno| ApplyError::from(FileError::from_errno(errno, &path_text));
        if !self.missing.is_empty() {
            return Ok(None);
        }
        let name = CString::new(self.name.as_str()).map_err(|_| file_error(Errno::INVAL))?;
        let file = match open_entry(self.dir.as_fd(), &name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(ApplyError::PathChanged { path: display_path(&path_text) }),
            Err(errno) => return Err(file_error(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(file_error)?;
        if file_type(&stat) != FileType::RegularFile {
            return Err(
                FileError::NotAFile { path: display_path(&path_text), what: "no longer a file" }.into()
            );
        }
        if !ws.root().is_on_volume(&stat) {
            return Err(FileError::CrossDevice { path: display_path(&path_text) }.into());
        }
        if link_count(&stat) > 1 {
            return Err(ApplyError::HardLinked { path: display_path(&path_text), links: link_count(&stat) });
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let bytes = read_all(file.as_fd(), size, cap).map_err(file_error)?;
        let bytes = bytes.ok_or_else(|| FileError::TooLarge { path: display_path(&path_text), size, cap })?;
        let hash = Digest::of(&bytes);
        Ok(Some(OldFile { file, stat, bytes, hash }))
    }

    /// Creates the missing directories; returns the handle of each directory that got a new entry, for syncing.
    pub(crate) fn create_missing_dirs(&mut self) -> Result<Vec<OwnedFd>, ApplyError> {
        let mut changed_dirs = Vec::new();
        for name in std::mem::take(&mut self.missing) {
            let io = |errno| ApplyError::io(&self.path, "creating a directory", errno);
            match rustix::fs::mkdirat(&self.dir, name.as_str(), Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(io(errno)),
            }
            let c_name = CString::new(name.as_str()).map_err(|_| io(Errno::INVAL))?;
            let below = open_entry(self.dir.as_fd(), &c_name).map_err(io)?;
            let stat = rustix::fs::fstat(&below).map_err(io)?;
            if file_type(&stat) != FileType::Directory {
                return Err(ApplyError::PathChanged { path: display_path(&self.path.to_string()) });
            }
            set_new_owner(&below, &stat, self.owner).map_err(io)?;
            self.rel_path = join(&self.rel_path, &name);
            changed_dirs.push(std::mem::replace(&mut self.dir, below));
        }
        Ok(changed_dirs)
    }
}

/// Gives a new entry its owner. In a setgid directory it keeps the group that it inherited.
pub(crate) fn set_new_owner(
    entry: &OwnedFd,
    stat: &Stat,
    owner: Option<(Uid, Gid)>,
) -> rustix::io::Result<()> {
    const SETGID: u32 = 0o2000;
    let Some((user, group)) = owner else { return Ok(()) };
    let inherited = stat.st_gid != rustix::process::getegid().as_raw() || stat.st_mode & SETGID != 0;
    let group = (!inherited && stat.st_gid != group.as_raw()).then_some(group);
    let user = (stat.st_uid != user.as_raw()).then_some(user);
    if user.is_none() && group.is_none() { Ok(()) } else { rustix::fs::fchown(entry, user, group) }
}

/// A unique name: process id, time since boot and a counter.
pub(crate) fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".vambrace-{:x}-{:x}{:08x}-{count:x}.tmp", std::process::id(), time.tv_sec, time.tv_nsec)
}

/// Whether a name is one of our temporary names.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(".vambrace-") && name.ends_with(".tmp") && !name.contains('/')
}
