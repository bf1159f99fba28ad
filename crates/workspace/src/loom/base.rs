//! The file that a change starts from, read once: its bytes, its hash, its facts. Also where a new file would be. Nothing
//! that is not a plain text file of the service, under one name, gets past here.

use std::sync::Arc;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use vambrace_core::change::Facts;
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use super::fault::LoomFault;
use super::{LoomLimits, MAX_PATH_NAMES};
use crate::census::unmoved;
use crate::fault::{FileFault, shown};
use crate::resolve::{Kind, Resolved};
use crate::text::looks_binary;
use crate::workspace::Workspace;

/// How much of the start decides whether a file is text.
const HEAD_BYTES: usize = 8 * 1024;
/// How often a file that changes meanwhile is read again.
const ATTEMPTS: usize = 4;

/// A file as it is.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) path: ScopedPath,
    pub(crate) facts: Facts,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// What a path names now.
#[derive(Debug)]
pub(crate) enum Spot {
    /// A file.
    File(Base),
    /// Nothing yet; this is its one spelling.
    Free(ScopedPath),
}

impl Workspace {
    /// The file at a path, or the free place.
    pub(crate) fn spot(&self, asked: &ScopedPath, limits: &LoomLimits) -> Result<Spot, LoomFault> {
        match self.resolve_plain(asked) {
            Ok(found) => self.base_of(&found, limits).map(Spot::File),
            Err(FileFault::NotFound { .. }) => self.free_place(asked).map(Spot::Free),
            Err(fault) => Err(fault.into()),
        }
    }

    /// The file at a path.
    pub(crate) fn base(&self, asked: &ScopedPath, limits: &LoomLimits) -> Result<Base, LoomFault> {
        self.base_of(&self.resolve(asked)?, limits)
    }

    fn base_of(&self, found: &Resolved, limits: &LoomLimits) -> Result<Base, LoomFault> {
        let path = || shown(&found.path.to_string());
        self.check_writable(&found.path)?;
        if found.kind == Kind::Folder {
            return Err(FileFault::NotAFile { path: path(), what: "a folder" }.into());
        }
        if found.links > 1 {
            return Err(LoomFault::Linked { path: path(), links: found.links });
        }
        let (bytes, facts) = read_whole(found, limits.file_bytes)?;
        let facts =
            Facts { hash: Digest::of(&bytes), size: bytes.len() as u64, mode: facts.st_mode & 0o7777 };
        Ok(Base { path: found.path.clone(), facts, bytes: Arc::new(bytes) })
    }

    /// Only the service itself is written, and no blocked name of it.
    pub(crate) fn check_writable(&self, path: &ScopedPath) -> Result<(), LoomFault> {
        let place = self.scope().place(path);
        self.scope().admit(&place).map_err(|refusal| refusal.about(&path.to_string()))?;
        if !self.scope().is_service(&place) {
            return Err(LoomFault::ReadOnly { path: shown(&path.to_string()) });
        }
        Ok(self.refuse_settings(path)?)
    }

    /// The one spelling of a path where nothing is: its deepest folder that exists, links followed, and the rest.
    fn free_place(&self, asked: &ScopedPath) -> Result<ScopedPath, LoomFault> {
        let words = || shown(&asked.to_string());
        let names: Vec<&str> = asked.names().collect();
        if names.len() > MAX_PATH_NAMES {
            return Err(LoomFault::BadRequest { why: format!("`{}` is nested too deep", words()) });
        }
        for kept in (0..names.len()).rev() {
            let mut folder = ScopedPath::root(asked.zone());
            for name in names.iter().take(kept) {
                folder = folder.join(name).unwrap_or(folder);
            }
            let found = match self.resolve_plain(&folder) {
                Ok(found) => found,
                Err(FileFault::NotFound { .. }) => continue,
                Err(fault) => return Err(fault.into()),
            };
            if found.kind == Kind::File {
                return Err(FileFault::NotAFile {
                    path: shown(&folder.to_string()),
                    what: "a file, not a folder",
                }
                .into());
            }
            if let Some(next) = names.get(kept) {
                let looked = rustix::fs::statat(found.handle(), *next, AtFlags::SYMLINK_NOFOLLOW);
                match looked {
                    Err(Errno::NOENT) => {}
                    Ok(_) => return Err(LoomFault::Dangling { path: words() }),
                    Err(errno) => return Err(FileFault::from_errno(errno, &words()).into()),
                }
            }
            let mut path = found.path;
            for name in names.iter().skip(kept) {
                path = path.join(name).unwrap_or(path);
            }
            self.check_writable(&path)?;
            return Ok(path);
        }
        Err(FileFault::NotAFile { path: words(), what: "a folder" }.into())
    }
}

/// Reads an open file from its start; the bytes and the facts belong together.
pub(crate) fn read_whole(file: &Resolved, cap: u64) -> Result<(Vec<u8>, Stat), FileFault> {
    let words = file.path.to_string();
    let fault = |errno| FileFault::from_errno(errno, &words);
    let mut before = file.facts;
    for _ in 0..ATTEMPTS {
        let size = u64::try_from(before.st_size).unwrap_or(0);
        let bytes = read_all(file.handle(), size, cap).map_err(fault)?;
        let bytes = bytes.ok_or(FileFault::TooLarge { path: shown(&words), size, cap })?;
        let after = rustix::fs::fstat(file.handle()).map_err(fault)?;
        if unmoved(&before, &after) && bytes.len() as u64 == u64::try_from(after.st_size).unwrap_or(0) {
            return Ok((bytes, after));
        }
        before = after;
    }
    Err(FileFault::Moving { path: shown(&words) })
}

/// All bytes of an open file, wherever its offset is; `None` past the cap.
pub(crate) fn read_all(
    file: std::os::fd::BorrowedFd<'_>,
    size: u64,
    cap: u64,
) -> rustix::io::Result<Option<Vec<u8>>> {
    if size > cap {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).saturating_add(64));
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(64 * 1024);
        }
        let offset = bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), offset) {
            Ok(0) => return Ok(Some(bytes)),
            Ok(_) if bytes.len() as u64 > cap => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether a file is edited as text: no NUL byte anywhere, and a head that looks like text.
pub(crate) fn check_text(base: &Base) -> Result<(), FileFault> {
    let head = base.bytes.get(..HEAD_BYTES).unwrap_or(&base.bytes);
    if looks_binary(head) || memchr::memchr(0, &base.bytes).is_some() {
        return Err(FileFault::Binary { path: shown(&base.path.to_string()) });
    }
    Ok(())
}

/// B3, 003: whoever names what was read gets it or nothing.
pub(crate) fn check_base_hash(base: &Base, expected: Option<Digest>) -> Result<(), LoomFault> {
    match expected {
        Some(expected) if expected != base.facts.hash => {
            Err(LoomFault::Stale { path: shown(&base.path.to_string()), expected, now: base.facts.hash })
        }
        _ => Ok(()),
    }
}
