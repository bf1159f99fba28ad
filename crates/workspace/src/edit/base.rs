//! The base of a change: a file's bytes, hash and metadata, read once; or the canonical path of a new file. Only regular
//! files of the service root with one hard link are accepted.

use std::sync::Arc;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use vambrace_core::change::BaseFile;
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use super::error::EditError;
use super::{EditLimits, MAX_PATH_NAMES};
use crate::error::{FileError, display_path};
use crate::hard_links::links_unchanged;
use crate::resolve::{Resolved, ResolvedKind};
use crate::text::looks_binary;
use crate::workspace::Workspace;

/// Leading bytes that decide whether a file is text.
const SNIFF_BYTES: usize = 8 * 1024;
/// Attempts to read a file that changes during the read.
const MAX_ATTEMPTS: usize = 4;

/// A file that a change starts from.
#[derive(Debug, Clone)]
pub(crate) struct BaseContent {
    pub(crate) path: ScopedPath,
    pub(crate) metadata: BaseFile,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// What a path names now.
#[derive(Debug)]
pub(crate) enum PathState {
    /// An existing file.
    Existing(BaseContent),
    /// Nothing yet; the canonical path.
    Vacant(ScopedPath),
}

impl Workspace {
    /// The file at a path, or the vacant path.
    pub(crate) fn path_state(&self, asked: &ScopedPath, limits: &EditLimits) -> Result<PathState, EditError> {
        match self.resolve_without_suggestions(asked) {
            Ok(found) => self.base_of(&found, limits).map(PathState::Existing),
            Err(FileError::NotFound { .. }) => self.vacant_path(asked).map(PathState::Vacant),
            Err(error) => Err(error.into()),
        }
    }

    /// The file at a path.
    pub(crate) fn base_content(
        &self,
        asked: &ScopedPath,
        limits: &EditLimits,
    ) -> Result<BaseContent, EditError> {
        self.base_of(&self.resolve(asked)?, limits)
    }

    fn base_of(&self, found: &Resolved, limits: &EditLimits) -> Result<BaseContent, EditError> {
        let path = || display_path(&found.path.to_string());
        self.check_writable(&found.path)?;
        if found.kind == ResolvedKind::Directory {
            return Err(FileError::NotAFile { path: path(), what: "a directory" }.into());
        }
        if found.links > 1 {
            return Err(EditError::HardLinked { path: path(), links: found.links });
        }
        let (bytes, metadata) = read_whole(found, limits.file_bytes)?;
        let metadata =
            BaseFile { hash: Digest::of(&bytes), size: bytes.len() as u64, mode: metadata.st_mode & 0o7777 };
        Ok(BaseContent { path: found.path.clone(), metadata, bytes: Arc::new(bytes) })
    }

    /// Only paths in the service root that are not blocked can be written.
    pub(crate) fn check_writable(&self, path: &ScopedPath) -> Result<(), EditError> {
        let rel_path = self.scope().rel_path(path);
        self.scope().admit(&rel_path).map_err(|denial| denial.into_error(&path.to_string()))?;
        if !self.scope().is_service(&rel_path) {
            return Err(EditError::ReadOnly { path: display_path(&path.to_string()) });
        }
        Ok(self.deny_repository_settings(path)?)
    }

    /// The canonical path of a file that does not exist: its deepest existing directory, symlinks resolved, and the rest.
    fn vacant_path(&self, asked: &ScopedPath) -> Result<ScopedPath, EditError> {
        let path_text = || display_path(&asked.to_string());
        let names: Vec<&str> = asked.names().collect();
        if names.len() > MAX_PATH_NAMES {
            return Err(EditError::BadRequest { why: format!("`{}` is nested too deep", path_text()) });
        }
        for kept in (0..names.len()).rev() {
            let mut dir = ScopedPath::root(asked.zone());
            for name in names.iter().take(kept) {
                dir = dir.join(name).unwrap_or(dir);
            }
            let found = match self.resolve_without_suggestions(&dir) {
                Ok(found) => found,
                Err(FileError::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if found.kind == ResolvedKind::File {
                return Err(FileError::NotAFile {
                    path: display_path(&dir.to_string()),
                    what: "a file, not a directory",
                }
                .into());
            }
            if let Some(next) = names.get(kept) {
                let looked = rustix::fs::statat(found.handle(), *next, AtFlags::SYMLINK_NOFOLLOW);
                match looked {
                    Err(Errno::NOENT) => {}
                    Ok(_) => return Err(EditError::BrokenSymlink { path: path_text() }),
                    Err(errno) => return Err(FileError::from_errno(errno, &path_text()).into()),
                }
            }
            let mut path = found.path;
            for name in names.iter().skip(kept) {
                path = path.join(name).unwrap_or(path);
            }
            self.check_writable(&path)?;
            return Ok(path);
        }
        Err(FileError::NotAFile { path: path_text(), what: "a directory" }.into())
    }
}

/// Reads an open file; the returned bytes and metadata are consistent.
pub(crate) fn read_whole(file: &Resolved, cap: u64) -> Result<(Vec<u8>, Stat), FileError> {
    let path_text = file.path.to_string();
    let file_error = |errno| FileError::from_errno(errno, &path_text);
    let mut before = file.stat;
    for _ in 0..MAX_ATTEMPTS {
        let size = u64::try_from(before.st_size).unwrap_or(0);
        let bytes = read_all(file.handle(), size, cap).map_err(file_error)?;
        let bytes = bytes.ok_or(FileError::TooLarge { path: display_path(&path_text), size, cap })?;
        let after = rustix::fs::fstat(file.handle()).map_err(file_error)?;
        if links_unchanged(&before, &after) && bytes.len() as u64 == u64::try_from(after.st_size).unwrap_or(0)
        {
            return Ok((bytes, after));
        }
        before = after;
    }
    Err(FileError::Unstable { path: display_path(&path_text) })
}

/// All bytes of an open file, independent of its position; `None` when they exceed `cap`.
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

/// Fails unless a file can be edited as text: no NUL byte anywhere, and a head that looks like text.
pub(crate) fn check_text(base: &BaseContent) -> Result<(), FileError> {
    let head = base.bytes.get(..SNIFF_BYTES).unwrap_or(&base.bytes);
    if looks_binary(head) || memchr::memchr(0, &base.bytes).is_some() {
        return Err(FileError::Binary { path: display_path(&base.path.to_string()) });
    }
    Ok(())
}

/// B3: a caller that passes a base hash gets exactly that base or an error.
pub(crate) fn check_base_hash(base: &BaseContent, expected: Option<Digest>) -> Result<(), EditError> {
    match expected {
        Some(expected) if expected != base.metadata.hash => Err(EditError::Stale {
            path: display_path(&base.path.to_string()),
            expected,
            now: base.metadata.hash,
        }),
        _ => Ok(()),
    }
}
