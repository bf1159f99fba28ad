//! Caches the handle of the directory that the last step worked in: files of one directory come one after the other. The
//! cache must be cleared before a step that changes directories.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::sys::mount::open_within;
use crate::wire::Bytes;

/// The path and the handle of the last directory.
#[derive(Default)]
pub(super) struct ParentDirCache(Option<(Bytes, OwnedFd)>);

impl ParentDirCache {
    /// Opens the parent directory of a path; returns it with the last name.
    pub(super) fn parent<'p>(
        &mut self,
        root: BorrowedFd<'_>,
        path: &'p [u8],
    ) -> Result<(&OwnedFd, &'p OsStr), Errno> {
        let path = Path::new(OsStr::from_bytes(path));
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().map(|above| above.as_os_str().as_bytes()).unwrap_or_default();
        let known = self.0.take().filter(|(dir, _)| dir == above);
        let known = match known {
            Some(known) => known,
            None => {
                let opened = if above.is_empty() { b"." } else { above };
                (above.to_vec(), open_within(root, opened, OFlags::PATH | OFlags::DIRECTORY)?)
            }
        };
        Ok((&self.0.insert(known).1, name))
    }
}
