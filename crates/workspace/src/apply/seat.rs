//! Where a change happens: an open folder and a name in it. From here on nothing is looked up by its path again, so a
//! link that is put in somebody's way leads nowhere.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use super::fault::ApplyFault;
use super::lock::LockKey;
use crate::fault::{FileFault, shown};
use crate::handle::{file_type, links, open_entry};
use crate::loom::read_all;
use crate::scope::join;
use crate::workspace::Workspace;

/// A name in an open folder.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) path: ScopedPath,
    /// The deepest folder that exists.
    pub(crate) folder: OwnedFd,
    /// Its place in the project.
    pub(crate) place: String,
    /// Folders below it that do not exist yet.
    pub(crate) missing: Vec<String>,
    pub(crate) name: String,
    id: (u64, u64),
}

/// A file that is there, open, with its content.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) file: OwnedFd,
    pub(crate) facts: Stat,
    pub(crate) bytes: Vec<u8>,
    pub(crate) hash: Digest,
}

impl Seat {
    /// Checks 4 and 5 of applying: the name is not denied, and the path is resolved again without following a link.
    pub(crate) fn find(ws: &Workspace, path: &ScopedPath) -> Result<Self, ApplyFault> {
        let words = path.to_string();
        let place = ws.scope().place(path);
        ws.scope().admit(&place).map_err(|refusal| refusal.about(&words))?;
        if !ws.scope().is_service(&place) {
            return Err(ApplyFault::ReadOnly { path: shown(&words) });
        }
        let (parent, name) = place.rsplit_once('/').unwrap_or(("", &place));
        let mut parent = parent.to_owned();
        let mut missing = Vec::new();
        loop {
            let errno = match ws.root().open_folder(&parent) {
                Ok(folder) => {
                    let facts =
                        rustix::fs::fstat(&folder).map_err(|errno| FileFault::from_errno(errno, &words))?;
                    missing.reverse();
                    let (path, name) = (path.clone(), name.to_owned());
                    return Ok(Self {
                        path,
                        folder,
                        place: parent,
                        missing,
                        name,
                        id: (facts.st_dev, facts.st_ino),
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
                (Errno::LOOP | Errno::NOTDIR, _) => return Err(ApplyFault::Moved { path: shown(&words) }),
                (errno, _) => return Err(FileFault::from_errno(errno, &words).into()),
            }
        }
    }

    pub(crate) fn key(&self) -> LockKey {
        let rest = self.missing.iter().fold(String::new(), |rest, name| join(&rest, name));
        LockKey::new(self.id.0, self.id.1, &join(&rest, &self.name))
    }

    /// Check 6: opens what is there, as a file of one name on this device; `None` when nothing is.
    pub(crate) fn old(&self, ws: &Workspace, cap: u64) -> Result<Option<Old>, ApplyFault> {
        let words = self.path.to_string();
        let fault = |errno| ApplyFault::from(FileFault::from_errno(errno, &words));
        if !self.missing.is_empty() {
            return Ok(None);
        }
        let name = CString::new(self.name.as_str()).map_err(|_| fault(Errno::INVAL))?;
        let file = match open_entry(self.folder.as_fd(), &name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(ApplyFault::Moved { path: shown(&words) }),
            Err(errno) => return Err(fault(errno)),
        };
        let facts = rustix::fs::fstat(&file).map_err(fault)?;
        if file_type(&facts) != FileType::RegularFile {
            return Err(FileFault::NotAFile { path: shown(&words), what: "not a file any more" }.into());
        }
        if !ws.root().holds(&facts) {
            return Err(FileFault::CrossDevice { path: shown(&words) }.into());
        }
        if links(&facts) > 1 {
            return Err(ApplyFault::Linked { path: shown(&words), links: links(&facts) });
        }
        let size = u64::try_from(facts.st_size).unwrap_or(0);
        let bytes = read_all(file.as_fd(), size, cap).map_err(fault)?;
        let bytes = bytes.ok_or_else(|| FileFault::TooLarge { path: shown(&words), size, cap })?;
        let hash = Digest::of(&bytes);
        Ok(Some(Old { file, facts, bytes, hash }))
    }

    /// Makes the missing folders; returns the handle of each folder that got a new name in it, for syncing.
    pub(crate) fn make_folders(&mut self) -> Result<Vec<OwnedFd>, ApplyFault> {
        let mut grown = Vec::new();
        for name in std::mem::take(&mut self.missing) {
            let io = |errno| ApplyFault::io(&self.path, "making a folder", errno);
            match rustix::fs::mkdirat(&self.folder, name.as_str(), Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(io(errno)),
            }
            let c_name = CString::new(name.as_str()).map_err(|_| io(Errno::INVAL))?;
            let below = open_entry(self.folder.as_fd(), &c_name).map_err(io)?;
            let facts = rustix::fs::fstat(&below).map_err(io)?;
            if file_type(&facts) != FileType::Directory {
                return Err(ApplyFault::Moved { path: shown(&self.path.to_string()) });
            }
            self.place = join(&self.place, &name);
            grown.push(std::mem::replace(&mut self.folder, below));
        }
        Ok(grown)
    }
}

/// A name that nobody else uses: by process, moment and count.
pub(crate) fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".vambrace-{:x}-{:x}{:08x}-{count:x}.tmp", std::process::id(), time.tv_sec, time.tv_nsec)
}

/// Whether a name is one of ours.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(".vambrace-") && name.ends_with(".tmp") && !name.contains('/')
}
