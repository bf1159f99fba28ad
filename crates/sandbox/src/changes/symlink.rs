//! Where a symlink leads: lexically, and through other symlinks on the way.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::wire::Bytes;

/// openat2 returns EAGAIN when another process renames something at the same time; maximum number of tries.
const RETRIES: usize = 128;

/// The lexical target of a symlink, relative to the workspace. `None` if it is outside, and also if `..` follows a name:
/// that leads up from wherever the name leads, now or after a later run.
pub(super) fn lexical_target(path: &[u8], target: &Path) -> Option<Bytes> {
    let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    names.pop();
    let mut down = false;
    for part in target.components() {
        match part {
            Component::Prefix(_) | Component::RootDir => return None,
            Component::CurDir => {}
            Component::ParentDir if down => return None,
            Component::ParentDir => {
                names.pop()?;
            }
            Component::Normal(name) => {
                down = true;
                names.push(name.as_bytes());
            }
        }
    }
    Some(names.join(&b'/'))
}

/// Whether a symlink on the way to a path leads out of the root. A path that does not exist is inside, as its lexical form
/// is.
pub(super) fn leads_out(root: BorrowedFd<'_>, place: &[u8]) -> bool {
    let place = if place.is_empty() { b"." } else { place };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RETRIES {
        match rustix::fs::openat2(root, place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => return false,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlink_targets_are_resolved_lexically() {
        let check = |path: &str, target: &str, expected: Option<&str>| {
            let found = lexical_target(path.as_bytes(), Path::new(target));
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{path} -> {target}");
        };
        check("a", "b", Some("b"));
        check("a", ".", Some(""));
        check("a", "..", None);
        check("d/a", "../b", Some("b"));
        check("d/a", "..", Some(""));
        check("d/a", "../../b", None);
        check("d/a", "x/../../..", None);
        check("d/a", "x/../b", None);
        check("d/a", "./../b/", Some("b"));
        check("a", "/etc/passwd", None);
        check("d/e/a", "../../f/./g", Some("f/g"));
    }
}
