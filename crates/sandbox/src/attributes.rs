//! Extended attributes of an open file: their hash, and copying them to the file that replaces it.
//!
//! The overlay's own attributes (`user.overlay.`) are always skipped: in a workspace they would change what a later run
//! sees.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, XattrFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::wire::Bytes;

const USER_PREFIX: &[u8] = b"user.";
const OVERLAY_PREFIX: &[u8] = b"user.overlay.";
const POSIX_ACL: &[u8] = b"system.posix_acl_access";
/// Maximum size of an xattr list and of a value, in bytes (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX_XATTR_BYTES: usize = 64 << 10;
/// Typical size of an xattr list, in bytes.
const TYPICAL_LIST_BYTES: usize = 256;

/// Hash of the `user.*` attributes; `None` when there are none.
pub(crate) fn digest(file: &OwnedFd) -> Result<Option<[u8; 32]>, Errno> {
    let mut names = names(file)?;
    names.retain(|name| name.starts_with(USER_PREFIX));
    if names.is_empty() {
        return Ok(None);
    }
    names.sort_unstable();
    let mut digest = Sha256::new();
    for name in names {
        let value = value(file, &name)?;
        for part in [&name, &value] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    Ok(Some(digest.finalize().into()))
}

/// Copies the group, the `user.*` attributes and the ACL of a file to a new one, as far as this process may set them.
pub(crate) fn copy_to(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let group = Gid::from_raw(rustix::fs::fstat(from)?.st_gid);
    ignore_denied(rustix::fs::fchown(to, None, Some(group)))?;
    for name in names(from)? {
        let value = value(from, &name)?;
        ignore_denied(rustix::fs::fsetxattr(to, name.as_slice(), &value, XattrFlags::empty()))?;
    }
    Ok(())
}

/// Ignores errors for lack of permission or support: not every user may set every group, and not every file system
/// stores every attribute.
pub(crate) fn ignore_denied(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
        done => done,
    }
}

fn names(file: impl AsFd) -> Result<Vec<Bytes>, Errno> {
    // Most files have no attributes, or few.
    let mut list = Vec::with_capacity(TYPICAL_LIST_BYTES);
    match rustix::fs::flistxattr(&file, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(Errno::RANGE) => {
            list.reserve(MAX_XATTR_BYTES);
            rustix::fs::flistxattr(&file, rustix::buffer::spare_capacity(&mut list))?;
        }
        Err(errno) => return Err(errno),
    }
    let wanted = |name: &&[u8]| {
        (name.starts_with(USER_PREFIX) && !name.starts_with(OVERLAY_PREFIX)) || *name == POSIX_ACL
    };
    Ok(list.split(|byte| *byte == 0).filter(wanted).map(<[u8]>::to_vec).collect())
}

fn value(file: impl AsFd, name: &[u8]) -> Result<Bytes, Errno> {
    let mut value = Vec::with_capacity(MAX_XATTR_BYTES);
    rustix::fs::fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))?;
    Ok(value)
}
