//! The entries of an open directory from `getdents64`: name, kind and inode without a further system call per entry.
//! Names are bytes; callers decide what to do with names that are not UTF-8.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::{Errno, Result};

use crate::handle::file_type;

/// Holds about 300 entries per system call.
const BUFFER_BYTES: usize = 32 * 1024;

/// A buffer that is reused for every directory of a walk.
#[derive(Debug)]
pub(crate) struct EntryBuffer(Vec<u8>);

impl EntryBuffer {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(BUFFER_BYTES))
    }

    /// Calls `visit` for every entry except `.` and `..`, until it breaks.
    pub(crate) fn for_each(
        &mut self,
        dir: BorrowedFd<'_>,
        mut visit: impl FnMut(&CStr, FileType, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut entries = RawDir::new(dir, self.0.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                // The directory itself was removed meanwhile.
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match kind_of(dir, name) {
                    Ok(kind) => kind,
                    Err(_) => continue,
                },
                kind => kind,
            };
            if visit(name, kind, entry.ino()).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// For file systems that do not report `d_type`.
fn kind_of(dir: BorrowedFd<'_>, name: &CStr) -> Result<FileType> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(file_type(&rustix::fs::statat(dir, name, flags)?))
}
