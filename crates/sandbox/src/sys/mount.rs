//! Mounts by descriptor: a tree is cloned, gets its attributes and is then attached to an open directory, so no path
//! is resolved twice and no symlink is followed.

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::check_result;

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Access mode of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountAccess {
    ReadOnly,
    ReadWrite,
}

const IDMAP: u64 = 0x0010_0000;
const RECURSIVE: libc::c_int = 0x8000;

/// Sets the attributes of a detached tree: nosuid and nodev always, read-only, and the id map.
pub(crate) fn restrict(
    tree: BorrowedFd<'_>,
    access: MountAccess,
    ids: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut set = u64::from((MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV).bits());
    if access == MountAccess::ReadOnly {
        set |= u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    }
    set_attributes(tree, set, None)?;
    match ids {
        Some(ids) => set_attributes(tree, IDMAP, Some(ids)),
        None => Ok(()),
    }
}

/// The same for a mount of a device node.
pub(crate) fn restrict_device(tree: BorrowedFd<'_>) -> Result<(), Errno> {
    let set = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    set_attributes(tree, u64::from(set.bits()), None)
}

/// Makes one mount read-only, but no mounts below it.
pub(crate) fn close(tree: BorrowedFd<'_>) -> Result<(), Errno> {
    set_attributes_of(tree, libc::AT_EMPTY_PATH, u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()), None)
}

/// Resizes a tmpfs.
pub(crate) fn resize(tree: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let picked = rustix::mount::fspick(tree, c"", flags)?;
    rustix::mount::fsconfig_set_string(picked.as_fd(), c"size", size.to_string().as_bytes())?;
    rustix::mount::fsconfig_set_string(picked.as_fd(), c"nr_inodes", max_files(size).to_string().as_bytes())?;
    rustix::mount::fsconfig_reconfigure(picked.as_fd())
}

/// Maximum number of files on a tmpfs of this size: each takes about 1 KiB of memory even when it is empty. The masks of
/// a run are files too, so a small one gets some thousands.
pub(crate) fn max_files(size: u64) -> u64 {
    (size >> 10).max(16 << 10)
}

fn set_attributes(tree: BorrowedFd<'_>, set: u64, ids: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    set_attributes_of(tree, libc::AT_EMPTY_PATH | RECURSIVE, set, ids)
}

fn set_attributes_of(
    tree: BorrowedFd<'_>,
    flags: libc::c_int,
    set: u64,
    ids: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let userns_fd = ids.map_or(0, |ids| u64::try_from(ids.as_raw_fd()).unwrap_or(0));
    let attributes = MountAttr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd };
    // SAFETY: the path is a C string, `attributes` outlives the call and its size is passed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    check_result(done).map(drop)
}

/// Opens a host path for mounting. Symlinks on the way are an error: the caller passes canonical paths.
pub(crate) fn open_source(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let relative = trimmed(path);
    rustix::fs::openat2(
        root,
        if relative.is_empty() { b"." } else { relative },
        OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS,
    )
}

/// Clones the mount at an open file or directory, with the mounts below it.
pub(crate) fn clone_tree(source: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::mount::open_tree(
        source,
        c"",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE,
    )
}

/// Attaches a detached tree to an open file or directory.
pub(crate) fn attach(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::mount::move_mount(
        tree,
        c"",
        place,
        c"",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

/// A new file system, detached.
pub(crate) fn make(
    kind: &CStr,
    options: &[(&CStr, &[u8])],
    flags: &[&CStr],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let making = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(making.as_fd(), *key, *value)?;
    }
    for flag in flags {
        rustix::mount::fsconfig_set_flag(making.as_fd(), *flag)?;
    }
    rustix::mount::fsconfig_create(making.as_fd())?;
    rustix::mount::fsmount(making.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The id of the mount that a path is on.
pub(crate) fn number(dir: BorrowedFd<'_>, path: &CStr) -> Result<u64, Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let facts = rustix::fs::statx(dir, path, flags, StatxFlags::MNT_ID)?;
    let reported = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID);
    if reported { Ok(facts.stx_mnt_id) } else { Err(Errno::NOSYS) }
}

/// Whether the root of this process is that mount and nothing is mounted over it: then `/..` is the root itself.
pub(crate) fn is_uncovered_root(root: u64) -> bool {
    [c"/", c"/.."].iter().all(|path| number(CWD, path) == Ok(root))
}

/// The first mount point strictly below a directory.
pub(crate) fn mounted_in(dir: &Path) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let list = rustix::fs::open("/proc/thread-self/mountinfo", flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(list).read_to_end(&mut text).ok()?;
    let places = text.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let places = places.map(|place| PathBuf::from(OsString::from_vec(unescaped(place))));
    places.filter(|place| place.starts_with(dir) && place != dir).min()
}

/// Decodes the octal escapes of mountinfo.
fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                whole.push(byte);
                text = rest.get(3..).unwrap_or_default();
            }
            None => {
                whole.push(*first);
                text = rest;
            }
        }
    }
    whole
}

/// Creates missing directories of a path beneath a root and opens the last; symlinks are an error.
pub(crate) fn make_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut here = open_beneath(root, b".", OFlags::PATH | OFlags::DIRECTORY)?;
    for name in trimmed(path).split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        here = match open_beneath(here.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(0o755))?;
                open_beneath(here.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY)?
            }
            opened => opened?,
        };
    }
    Ok(here)
}

/// The same for a file, which is created empty if it is missing.
pub(crate) fn make_file(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = trimmed(path);
    let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (dir, name) = path.split_at_checked(cut).unwrap_or((b"", path));
    let dir = make_directory(root, dir)?;
    let name = trimmed(name);
    match open_beneath(dir.as_fd(), name, OFlags::PATH) {
        Err(Errno::NOENT) => {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::EXCL | OFlags::NOFOLLOW;
            drop(rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o644))?);
            open_beneath(dir.as_fd(), name, OFlags::PATH)
        }
        opened => opened,
    }
}

/// Opens a path beneath a directory; crosses mounts, symlinks are an error.
pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_by(root, path, flags, ResolveFlags::NO_SYMLINKS)
}

/// Opens a path beneath a directory on the same mount; `XDEV` if it crosses into another.
pub(crate) fn open_within(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_by(root, path, flags, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV)
}

fn open_by(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | how;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty(), resolve)
}

/// Trims leading and trailing slashes.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(start, |last| last + 1);
    path.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn mountinfo_escapes_are_decoded() {
        let check = |text: &str, expected: &str| {
            assert_eq!(String::from_utf8_lossy(&unescaped(text.as_bytes())), expected, "{text}");
        };
        check("/work/a\\040b\\134c\\012", "/work/a b\\c\n");
        check("/plain", "/plain");
        check("/cut\\04", "/cut\\04");
        check("/none\\998\\777", "/none\\998\\777");
    }
}
