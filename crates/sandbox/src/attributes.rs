//! Extended attributes of an open file: what they say, and carrying them over to the file that replaces it.
//!
//! The overlay's own (`user.overlay.`) are never among them: on a workspace they would change what a later run sees.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, XattrFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::wire::Bytes;

const USERS: &[u8] = b"user.";
const OVERLAYS: &[u8] = b"user.overlay.";
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The kernel gives no longer list, and no longer value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MOST: usize = 64 << 10;
/// So long is a list mostly.
const FEW: usize = 256;

/// Hash of the users' attributes; nothing when there are none.
pub(crate) fn digest(file: &OwnedFd) -> Result<Option<[u8; 32]>, Errno> {
    let mut names = names(file)?;
    names.retain(|name| name.starts_with(USERS));
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

/// Gives a new file the group, the users' attributes and the access list of another, as far as that is permitted.
pub(crate) fn carry_over(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let group = Gid::from_raw(rustix::fs::fstat(from)?.st_gid);
    permitted(rustix::fs::fchown(to, None, Some(group)))?;
    for name in names(from)? {
        let value = value(from, &name)?;
        permitted(rustix::fs::fsetxattr(to, name.as_slice(), &value, XattrFlags::empty()))?;
    }
    Ok(())
}

/// Not every user may give a file to every group, and not every file system keeps everything.
pub(crate) fn permitted(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
        done => done,
    }
}

fn names(file: impl AsFd) -> Result<Vec<Bytes>, Errno> {
    // Mostly there are none, or few.
    let mut list = Vec::with_capacity(FEW);
    match rustix::fs::flistxattr(&file, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(Errno::RANGE) => {
            list.reserve(MOST);
            rustix::fs::flistxattr(&file, rustix::buffer::spare_capacity(&mut list))?;
        }
        Err(errno) => return Err(errno),
    }
    let wanted =
        |name: &&[u8]| (name.starts_with(USERS) && !name.starts_with(OVERLAYS)) || *name == ACCESS_LIST;
    Ok(list.split(|byte| *byte == 0).filter(wanted).map(<[u8]>::to_vec).collect())
}

fn value(file: impl AsFd, name: &[u8]) -> Result<Bytes, Errno> {
    let mut value = Vec::with_capacity(MOST);
    rustix::fs::fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))?;
    Ok(value)
}
