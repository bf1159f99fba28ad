//! A folder of one of the sides: opening it, listing it, and the letters of its path.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir};
use rustix::io::Errno;

use crate::sys::mounting::open_within;

/// So many bytes of names are read at once.
const LISTED_AT_ONCE: usize = 32 << 10;

/// A folder's path and a name in it.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/').and_then(|cut| path.split_at_checked(cut)) {
        Some((folder, name)) => (folder, name.get(1..).unwrap_or_default()),
        None => (b"", path),
    }
}

/// A path for the kernel.
pub(super) fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// A folder on one of the sides; nothing where none is there.
pub(super) fn folder_of(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    match open_within(root, or_dot(path), OFlags::PATH | OFlags::DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Every entry of a folder that was just opened: name, kind, and whether it is a whiteout.
pub(super) fn each_entry(
    handle: &OwnedFd,
    mut then: impl FnMut(&[u8], FileType, bool) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut room = Vec::with_capacity(LISTED_AT_ONCE);
    let mut list = RawDir::new(handle, room.spare_capacity_mut());
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

/// Whether nothing of the layers below shines through.
pub(super) fn is_opaque(folder: &OwnedFd) -> bool {
    ["user.overlay.opaque", "trusted.overlay.opaque"].into_iter().any(|name| {
        let mut value = [0; 1];
        rustix::fs::fgetxattr(folder, name, &mut value).is_ok() && value == *b"y"
    })
}
