//! The entries of an open folder, straight from the kernel: name, kind and inode without one more system call
//! per entry. Names are bytes; whoever cannot take one that is not UTF-8 decides so itself.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::{Errno, Result};

use crate::handle::file_type;

/// Enough for some three hundred entries at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// Memory that is used again for every folder of a walk.
#[derive(Debug)]
pub(crate) struct EntryBuffer(Vec<u8>);

impl EntryBuffer {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(BUFFER_BYTES))
    }

    /// Calls `visit` for every entry but `.` and `..`, until it breaks.
    pub(crate) fn each(
        &mut self,
        folder: BorrowedFd<'_>,
        mut visit: impl FnMut(&CStr, FileType, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut entries = RawDir::new(folder, self.0.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                // The folder itself was removed meanwhile.
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match kind_of(folder, name) {
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

/// For file systems that do not say what an entry is.
fn kind_of(folder: BorrowedFd<'_>, name: &CStr) -> Result<FileType> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(file_type(&rustix::fs::statat(folder, name, flags)?))
}
