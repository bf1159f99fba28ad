//! Finding what a program named: where its path begins, what is there for it, and where links lead.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// So many links are followed one after the other.
const MOST_LINKS: usize = 8;
/// So much of a script's first line the kernel reads.
const LONGEST_LINE: usize = 256;

/// What a path of another process begins at, from its own root on.
pub(super) fn base_of(pid: u32, folder: i32, absolute: bool) -> Result<PathBuf, Errno> {
    let link = match folder {
        _ if absolute => return Ok(PathBuf::from("/")),
        libc::AT_FDCWD => format!("/proc/{pid}/cwd"),
        number => format!("/proc/{pid}/fd/{number}"),
    };
    let base = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(base.into_bytes())))
}

/// Opens a path as the process with this root would find it, for looking.
pub(super) fn look(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
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

/// Whether something is what was mounted at its name.
pub(super) fn is_mounted(root: &OwnedFd, path: &Path) -> bool {
    let facts = open_in(root, path, OFlags::NOFOLLOW, ResolveFlags::empty())
        .and_then(|found| rustix::fs::statx(found, "", AtFlags::EMPTY_PATH, StatxFlags::empty()));
    facts.is_ok_and(|facts| facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// What a script names as the program that it is for.
pub(super) fn interpreter(script: &Path) -> Option<PathBuf> {
    // The program chose the name: nothing but a file is opened, a device does something when it is.
    let found = rustix::fs::open(script, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let facts = rustix::fs::fstat(&found).ok()?;
    if !FileType::from_raw_mode(facts.st_mode).is_file() {
        return None;
    }
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    let file = rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut head = [0_u8; LONGEST_LINE];
    let read = rustix::io::pread(&file, &mut head, 0).ok()?;
    let line = head.get(..read)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.split(|byte| b" \t\r\0".contains(byte)).find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name))).filter(|path| path.is_absolute())
}

/// What a path leads to by links: its last name, and where that is not there any name before.
pub(super) fn where_it_leads(root: &OwnedFd, mut path: PathBuf) -> PathBuf {
    let target = |link: &Path| {
        let opened = open_in(root, link, OFlags::NOFOLLOW, ResolveFlags::empty()).ok()?;
        let target = rustix::fs::readlinkat(opened, "", Vec::new()).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    };
    for _ in 0..MOST_LINKS {
        let above = path.parent().unwrap_or_else(|| Path::new("/"));
        if let Some(target) = target(&path) {
            path = above.join(target);
            continue;
        }
        if look(root, above).is_ok() {
            break;
        }
        let mut ways: Vec<&Path> = above.ancestors().collect();
        ways.reverse();
        let link = ways.into_iter().find_map(|way| Some((way, target(way)?)));
        let Some((way, target)) = link else { break };
        let (folder, rest) = (way.parent().unwrap_or_else(|| Path::new("/")), path.strip_prefix(way));
        let Ok(rest) = rest else { break };
        path = folder.join(target).join(rest);
    }
    path
}

/// By its letters: where a link leads up, what is told is not quite what was met.
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

/// The one name of something that is open.
pub(super) fn name_of(handle: &OwnedFd) -> Option<PathBuf> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new()).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(name.into_bytes())))
}
