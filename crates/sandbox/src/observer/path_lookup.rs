//! Looks paths up as the program would: the directory that a path starts from, what exists there, where symlinks lead.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// Maximum number of symlinks that are followed.
const MAX_SYMLINKS: usize = 8;
/// How much of a script's first line the kernel reads, in bytes (BINPRM_BUF_SIZE).
const MAX_SHEBANG_BYTES: usize = 256;

/// The directory that a path of another process starts from, relative to that process's root.
pub(super) fn base_of(pid: u32, dir: i32, absolute: bool) -> Result<PathBuf, Errno> {
    let link = match dir {
        _ if absolute => return Ok(PathBuf::from("/")),
        libc::AT_FDCWD => format!("/proc/{pid}/cwd"),
        number => format!("/proc/{pid}/fd/{number}"),
    };
    let base = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(base.into_bytes())))
}

/// Opens a path (O_PATH) as the process with this root would find it.
pub(super) fn open_path(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    open_in(root, path, OFlags::empty(), ResolveFlags::empty())
}

pub(super) fn open_in(
    root: &OwnedFd,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = resolve | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// Whether a path is a mount point.
pub(super) fn is_mounted(root: &OwnedFd, path: &Path) -> bool {
    let facts = open_in(root, path, OFlags::NOFOLLOW, ResolveFlags::empty())
        .and_then(|found| rustix::fs::statx(found, "", AtFlags::EMPTY_PATH, StatxFlags::empty()));
    facts.is_ok_and(|facts| facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The interpreter in the first line of a script.
pub(super) fn interpreter(script: &Path) -> Option<PathBuf> {
    // The program chose the name: only a regular file is opened, since opening a device can have effects.
    let found = rustix::fs::open(script, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let facts = rustix::fs::fstat(&found).ok()?;
    if !FileType::from_raw_mode(facts.st_mode).is_file() {
        return None;
    }
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    let file = rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut head = [0_u8; MAX_SHEBANG_BYTES];
    let read = rustix::io::pread(&file, &mut head, 0).ok()?;
    let line = head.get(..read)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.split(|byte| b" \t\r\0".contains(byte)).find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name))).filter(|path| path.is_absolute())
}

/// Follows the symlinks of a path: its last component, and if its directory does not exist, any component before.
pub(super) fn follow_symlinks(root: &OwnedFd, mut path: PathBuf) -> PathBuf {
    let target = |link: &Path| {
        let opened = open_in(root, link, OFlags::NOFOLLOW, ResolveFlags::empty()).ok()?;
        let target = rustix::fs::readlinkat(opened, "", Vec::new()).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    };
    for _ in 0..MAX_SYMLINKS {
        let above = path.parent().unwrap_or_else(|| Path::new("/"));
        if let Some(target) = target(&path) {
            path = above.join(target);
            continue;
        }
        if open_path(root, above).is_ok() {
            break;
        }
        let mut ways: Vec<&Path> = above.ancestors().collect();
        ways.reverse();
        let link = ways.into_iter().find_map(|way| Some((way, target(way)?)));
        let Some((way, target)) = link else { break };
        let (dir, rest) = (way.parent().unwrap_or_else(|| Path::new("/")), path.strip_prefix(way));
        let Ok(rest) = rest else { break };
        path = dir.join(target).join(rest);
    }
    path
}

/// Removes `..` lexically; after a symlink that leads up, the reported path can differ from the one that was denied.
pub(super) fn without_parents(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = clean.pop(),
            part => clean.push(part),
        }
    }
    clean
}

/// The real path of an open handle.
pub(super) fn real_path(handle: &OwnedFd) -> Option<PathBuf> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new()).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(name.into_bytes())))
}
