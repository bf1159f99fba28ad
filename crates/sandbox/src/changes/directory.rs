//! Opening and listing directories of the base, the upper layer and the view; splitting paths.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir};
use rustix::io::Errno;

use crate::sys::mount::open_within;

/// Buffer size for one getdents call, in bytes.
const GETDENTS_BUFFER_BYTES: usize = 32 << 10;

/// Splits a path into its directory and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/').and_then(|cut| path.split_at_checked(cut)) {
        Some((dir, name)) => (dir, name.get(1..).unwrap_or_default()),
        None => (b"", path),
    }
}

/// `.` for the empty path, which the kernel does not accept.
pub(super) fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Opens a directory beneath a root; `None` if there is no directory at that path.
pub(super) fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    match open_within(root, or_dot(path), OFlags::PATH | OFlags::DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Calls `then` for every entry of a newly opened directory: name, kind, and whether it is a whiteout.
pub(super) fn each_entry(
    handle: &OwnedFd,
    mut then: impl FnMut(&[u8], FileType, bool) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(GETDENTS_BUFFER_BYTES);
    let mut list = RawDir::new(handle, buffer.spare_capacity_mut());
    while let Some(entry) = list.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let mut kind = entry.file_type();
        let mut whiteout = false;
        if matches!(kind, FileType::Unknown | FileType::CharacterDevice) {
            let facts = rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(facts.st_mode);
            whiteout = kind == FileType::CharacterDevice && facts.st_rdev == 0;
        }
        then(name.to_bytes(), kind, whiteout)?;
    }
    Ok(())
}

/// Whether the overlay hides the lower layers' content of this directory.
pub(super) fn is_opaque(dir: &OwnedFd) -> bool {
    ["user.overlay.opaque", "trusted.overlay.opaque"].into_iter().any(|name| {
        let mut value = [0; 1];
        rustix::fs::fgetxattr(dir, name, &mut value).is_ok() && value == *b"y"
    })
}
