//! Which names of a workspace are masked: a walk over folder handles, kept between runs. A folder whose stamps are as
//! they were is not read again; a stamp that is too young to be trusted is.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use vambrace_core::block::BlockList;

use crate::sys::mounting::open_beneath;
use crate::wire::{Bytes, Mask};

/// Two changes within so many nanoseconds may leave the same stamp.
const YOUNG_NS: i128 = 50_000_000;

/// The folders of a workspace as they were seen.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    folders: HashMap<Bytes, Folder>,
    /// What was found last, and every folder with its stamp: as long as all stand, so does that.
    last: Vec<Mask>,
    stamps: Vec<(CString, Stamp)>,
}

#[derive(Debug)]
struct Folder {
    stamp: Stamp,
    /// Whether the stamp was old enough when the folder was read.
    settled: bool,
    mode: u32,
    folders: Vec<Bytes>,
    masked: Vec<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: i128,
    changed: i128,
}

impl Walk {
    /// The masks as of now.
    pub(crate) fn masks(&mut self, root: BorrowedFd<'_>, names: &BlockList) -> Result<Vec<Mask>, Errno> {
        let stands = |(path, stamp): &(CString, Stamp)| look(root, path).is_ok_and(|(now, _)| now == *stamp);
        if !self.stamps.is_empty() && self.stamps.iter().all(stands) {
            return Ok(self.last.clone());
        }
        self.walk(root, names)
    }

    fn walk(&mut self, root: BorrowedFd<'_>, names: &BlockList) -> Result<Vec<Mask>, Errno> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let mut seen = HashMap::with_capacity(self.folders.len());
        let mut masks = Vec::new();
        let mut ahead: Vec<(Bytes, Vec<u32>)> = vec![(Bytes::new(), Vec::new())];
        while let Some((path, mut modes)) = ahead.pop() {
            let name: &[u8] = if path.is_empty() { b"." } else { &path };
            let (stamp, mode) = match look(root, &CString::new(name).map_err(|_| Errno::INVAL)?) {
                Ok(found) => found,
                Err(errno) if path.is_empty() => return Err(errno),
                // It went away or is not ours to see; then it is nobody's inside either.
                Err(_) => continue,
            };
            let known = self.folders.remove(&path);
            let folder = match known {
                Some(folder) if folder.settled && folder.stamp == stamp => folder,
                _ => match open_beneath(root, name, OFlags::RDONLY | OFlags::DIRECTORY) {
                    Ok(handle) => read(handle, &path, stamp, mode, now, names)?,
                    Err(errno) if path.is_empty() => return Err(errno),
                    Err(_) => continue,
                },
            };
            modes.push(folder.mode);
            masks.extend(
                folder.masked.iter().map(|name| Mask { path: join(&path, name), modes: modes.clone() }),
            );
            ahead.extend(folder.folders.iter().map(|name| (join(&path, name), modes.clone())));
            seen.insert(path, folder);
        }
        self.folders = seen;
        self.stamps.clear();
        if self.folders.values().all(|folder| folder.settled) {
            let stamps = self.folders.iter().filter_map(|(path, folder)| {
                let name: &[u8] = if path.is_empty() { b"." } else { path };
                Some((CString::new(name).ok()?, folder.stamp))
            });
            self.stamps.extend(stamps);
            // Neighbours after each other: what the kernel found for one helps with the next.
            self.stamps.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        self.last.clone_from(&masks);
        Ok(masks)
    }
}

fn look(root: BorrowedFd<'_>, path: &CStr) -> Result<(Stamp, u32), Errno> {
    let wanted =
        StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::MTIME | StatxFlags::CTIME;
    let facts = rustix::fs::statx(root, path, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    if FileType::from_raw_mode(facts.stx_mode.into()) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let nanos = |time: StatxTimestamp| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    let stamp =
        Stamp { inode: facts.stx_ino, modified: nanos(facts.stx_mtime), changed: nanos(facts.stx_ctime) };
    Ok((stamp, facts.stx_mode.into()))
}

fn read(
    handle: OwnedFd,
    path: &[u8],
    stamp: Stamp,
    mode: u32,
    now: i128,
    names: &BlockList,
) -> Result<Folder, Errno> {
    let settled = now - stamp.changed.max(stamp.modified) > YOUNG_NS;
    let mut folder = Folder { stamp, settled, mode, folders: Vec::new(), masked: Vec::new() };
    let mut list = Dir::read_from(handle.as_fd())?;
    while let Some(entry) = list.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let relative = join(path, name);
        if names.blocks_entry(&String::from_utf8_lossy(&relative)).is_some() {
            folder.masked.push(name.to_vec());
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let facts = rustix::fs::statat(&handle, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(facts.st_mode)
            }
            known => known,
        };
        if kind == FileType::Directory {
            folder.folders.push(name.to_vec());
        }
    }
    Ok(folder)
}

pub(crate) fn join(path: &[u8], name: &[u8]) -> Bytes {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make files")]
    use super::*;

    fn names(walk: &mut Walk, folder: &std::path::Path) -> Vec<String> {
        let list = BlockList::new([".env", "secrets/", "*.pem"]).unwrap();
        let root =
            rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        let masks = walk.masks(root.as_fd(), &list).unwrap();
        let mut found: Vec<String> =
            masks.iter().map(|mask| String::from_utf8_lossy(&mask.path).into_owned()).collect();
        found.sort();
        found
    }

    #[test]
    fn masked_names_are_found_at_any_depth_and_again_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("a/b/secrets")).unwrap();
        std::fs::write(at("a/.env"), "x").unwrap();
        std::fs::write(at("a/b/key.PEM"), "x").unwrap();
        std::fs::write(at("plain"), "x").unwrap();
        std::os::unix::fs::symlink("/", at("link")).unwrap();
        let mut walk = Walk::default();
        assert_eq!(names(&mut walk, folder.path()), ["a/.env", "a/b/key.PEM", "a/b/secrets"]);
        std::fs::write(at(".env"), "x").unwrap();
        std::fs::remove_file(at("a/.env")).unwrap();
        std::fs::create_dir_all(at("new/deep")).unwrap();
        std::fs::write(at("new/deep/x.pem"), "x").unwrap();
        assert_eq!(names(&mut walk, folder.path()), [".env", "a/b/key.PEM", "a/b/secrets", "new/deep/x.pem"]);
    }
}
