//! Where a link leads: by its letters, and by what lies on the way.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::wire::Bytes;

/// The kernel says EAGAIN when somebody renames beside it.
const RETRIES: usize = 128;

/// The place that a link's letters name, from the workspace; nothing when they lead out of it. Nor when they go up after
/// a name: that leads up from wherever the name leads, now or after a later run.
pub(super) fn landing(path: &[u8], target: &Path) -> Option<Bytes> {
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

/// Whether a link on the way to a place leads out of its tree. A place that is not there is led to by letters alone.
pub(super) fn is_led_out(root: BorrowedFd<'_>, place: &[u8]) -> bool {
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
    fn links_are_judged_by_where_their_letters_lead() {
        let check = |path: &str, target: &str, expected: Option<&str>| {
            let found = landing(path.as_bytes(), Path::new(target));
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
