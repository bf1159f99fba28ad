//! Copies a file's owner, permission bits, access lists and extended attributes to its replacement. If one cannot be
//! copied, the file is not replaced.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use vambrace_core::path::ScopedPath;

use super::error::ApplyError;

/// Hashes and signatures of the content; not valid for new content.
const BOUND_TO_CONTENT: &[&[u8]] = &[b"security.ima", b"security.evm"];

/// Copies everything but the content to the new file. `mode` overrides the permission bits.
pub(crate) fn copy(
    old: BorrowedFd<'_>,
    stat: &Stat,
    new: BorrowedFd<'_>,
    mode: Option<u32>,
    path: &ScopedPath,
) -> Result<(), ApplyError> {
    let io = |what| move |errno| ApplyError::io(path, what, errno);
    let made = rustix::fs::fstat(new).map_err(io("reading the new file's metadata"))?;
    if (made.st_uid, made.st_gid) != (stat.st_uid, stat.st_gid) {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let user = (made.st_uid != stat.st_uid).then_some(user);
        rustix::fs::fchown(new, user, Some(group)).map_err(io("keeping the owner"))?;
    }
    copy_extended(old, new).map_err(io("keeping the extended attributes"))?;
    // After the owner: chown clears setuid and setgid bits.
    let bits = Mode::from_raw_mode(mode.unwrap_or(stat.st_mode) & 0o7777);
    rustix::fs::fchmod(new, bits).map_err(io("keeping the permissions"))
}

fn copy_extended(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let (old_values, new_values) = (values(old)?, values(new)?);
    for (name, value) in &old_values {
        if new_values.get(name) != Some(value) && !bound(name) {
            rustix::fs::fsetxattr(new, name.as_c_str(), value, XattrFlags::empty())?;
        }
    }
    // A directory's default ACL can give the new file access lists that the old file did not have.
    for name in new_values.keys().filter(|name| !old_values.contains_key(*name)) {
        if !name.to_bytes().starts_with(b"security.") {
            rustix::fs::fremovexattr(new, name.as_c_str())?;
        }
    }
    Ok(())
}

fn bound(name: &CStr) -> bool {
    BOUND_TO_CONTENT.contains(&name.to_bytes())
}

fn values(file: BorrowedFd<'_>) -> rustix::io::Result<BTreeMap<CString, Vec<u8>>> {
    let names = match growing(|buffer| rustix::fs::flistxattr(file.as_fd(), buffer)) {
        Err(Errno::NOTSUP) => return Ok(BTreeMap::new()),
        names => names?,
    };
    let mut values = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let Ok(name) = CString::new(name) else { continue };
        match growing(|buffer| rustix::fs::fgetxattr(file.as_fd(), name.as_c_str(), buffer)) {
            Ok(value) => drop(values.insert(name, value)),
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(values)
}

/// Calls with a buffer that grows until the result fits.
fn growing(mut call: impl FnMut(&mut Vec<u8>) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1024 * 1024 => buffer = vec![0; buffer.len() * 4],
            Err(errno) => return Err(errno),
        }
    }
}
