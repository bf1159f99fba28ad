//! Which names of a workspace, or of some folders of another, are masked: a walk over folder handles, kept between runs. A folder whose stamps are as
//! they were is not read again; a stamp that is too young to be trusted is. From the second unchanged look on the kernel
//! tells what changes ([`vigil`]), where it can: then nothing is looked at that did not change.

mod vigil;

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use vambrace_core::block::BlockList;

use crate::sys::mounting::open_beneath;
use crate::wire::{Bytes, Mask};
use vigil::{Seen, Vigil};

/// Two changes within so many nanoseconds may leave the same stamp.
const YOUNG_NS: i128 = 50_000_000;

/// Longer paths in the workspace are not followed: the kernel takes 4095 bytes at once, and a name comes behind some.
pub(crate) const DEEPEST: usize = 3800;

/// The folders of a workspace as they were seen.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Where it begins, below the root; the root's own path is empty.
    starts: Vec<Bytes>,
    /// Folders that are not walked.
    closed: Option<BlockList>,
    folders: HashMap<Bytes, Folder>,
    /// What was found last, and every folder with its stamp: as long as all stand, so does that.
    last: Vec<Mask>,
    stamps: Vec<(CString, Stamp)>,
    vigil: Option<Vigil>,
    /// Whether it was tried to watch and could not be.
    unwatchable: bool,
}

#[derive(Debug)]
struct Folder {
    stamp: Stamp,
    /// Whether the stamp was old enough when the folder was read.
    settled: bool,
    mode: u32,
    folders: Vec<Bytes>,
    masked: Vec<Bytes>,
    /// It cannot be looked into, so it is masked itself: who may pass through it, or open it in a layer, needs no list of names.
    barred: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: i128,
    changed: i128,
}

impl Default for Walk {
    fn default() -> Self {
        Self::within(vec![Bytes::new()], None)
    }
}

impl Walk {
    /// Of some folders below the root only.
    pub(crate) fn within(starts: Vec<Bytes>, closed: Option<BlockList>) -> Self {
        Self {
            starts,
            closed,
            folders: HashMap::new(),
            last: Vec::new(),
            stamps: Vec::new(),
            vigil: None,
            unwatchable: false,
        }
    }

    pub(crate) fn starts(&self) -> &[Bytes] {
        &self.starts
    }

    /// The masks as of now.
    pub(crate) fn masks(&mut self, root: BorrowedFd<'_>, names: &BlockList) -> Result<Vec<Mask>, Errno> {
        match self.vigil.as_ref().map(|vigil| vigil.seen(root)) {
            Some(Seen::Nothing) => return Ok(self.last.clone()),
            Some(Seen::Files(folders)) if self.read_again(root, names, &folders).is_some() => {
                return Ok(self.last.clone());
            }
            _ => self.vigil = None,
        }
        if !self.stamps.is_empty() && self.stand(root) {
            self.watch(root);
            return Ok(self.last.clone());
        }
        self.walk(root, names)
    }

    fn stand(&self, root: BorrowedFd<'_>) -> bool {
        let stands = |(path, stamp): &(CString, Stamp)| look(root, path).is_ok_and(|(now, _)| now == *stamp);
        self.stamps.iter().all(stands)
    }

    /// From here on the kernel tells.
    fn watch(&mut self, root: BorrowedFd<'_>) {
        if self.unwatchable {
            return;
        }
        // The folder above tells what becomes of one that is barred, and nobody may watch that itself.
        let barred = |path: &[u8]| self.folders.get(path).is_some_and(|folder| folder.barred);
        let paths = self.stamps.iter().map(|(path, _)| path.to_bytes()).filter(|path| !barred(path));
        let vigil = Vigil::begin(root, &paths.collect::<Vec<_>>());
        self.unwatchable = vigil.is_none();
        // What happened before a folder was watched left its stamp.
        self.vigil = vigil.filter(|_| self.stand(root));
    }

    /// Reads some folders in which only names of files changed; nothing when more did.
    fn read_again(
        &mut self,
        root: BorrowedFd<'_>,
        names: &BlockList,
        folders: &HashSet<Bytes>,
    ) -> Option<()> {
        let now = now();
        // A stamp that is too young must not be trusted once nobody watches any more.
        self.stamps.clear();
        for name in folders {
            let path: &[u8] = if name == b"." { b"" } else { name };
            let known = self.folders.get_mut(path)?;
            let (stamp, mode) = look(root, &CString::new(name.as_slice()).ok()?).ok()?;
            let handle = open_beneath(root, name, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
            let fresh = read(handle, path, stamp, mode, now, names, self.closed.as_ref()).ok()?;
            let same = known.stamp.inode == stamp.inode
                && known.mode == fresh.mode
                && known.folders.iter().collect::<HashSet<_>>() == fresh.folders.iter().collect();
            if !same {
                return None;
            }
            *known = fresh;
        }
        self.last = self.found();
        self.stamp();
        Some(())
    }

    /// The masks of the folders as they are known.
    fn found(&self) -> Vec<Mask> {
        let mut masks = Vec::new();
        let mut ahead: Vec<(Bytes, Vec<u32>)> =
            self.starts.iter().map(|start| (start.clone(), Vec::new())).collect();
        while let Some((path, mut modes)) = ahead.pop() {
            let Some(folder) = self.folders.get(&path) else { continue };
            if folder.barred {
                masks.push(Mask { path, modes });
                continue;
            }
            modes.push(folder.mode);
            masks.extend(
                folder.masked.iter().map(|name| Mask { path: join(&path, name), modes: modes.clone() }),
            );
            ahead.extend(folder.folders.iter().map(|name| (join(&path, name), modes.clone())));
        }
        masks
    }

    /// Notes every stamp, if all can be trusted.
    fn stamp(&mut self) {
        self.stamps.clear();
        if !self.folders.values().all(|folder| folder.settled) {
            return;
        }
        let stamps = self.folders.iter().filter_map(|(path, folder)| {
            let name: &[u8] = if path.is_empty() { b"." } else { path };
            Some((CString::new(name).ok()?, folder.stamp))
        });
        self.stamps.extend(stamps);
        // Neighbours after each other: what the kernel found for one helps with the next.
        self.stamps.sort_by(|(one, _), (other, _)| one.cmp(other));
    }

    fn walk(&mut self, root: BorrowedFd<'_>, names: &BlockList) -> Result<Vec<Mask>, Errno> {
        let now = now();
        let mut seen = HashMap::with_capacity(self.folders.len());
        let mut ahead = self.starts.clone();
        while let Some(path) = ahead.pop() {
            let name: &[u8] = if path.is_empty() { b"." } else { &path };
            let looked = look(root, &CString::new(name).map_err(|_| Errno::INVAL)?);
            let known = self.folders.remove(&path);
            let read = match (looked, known) {
                (Ok((stamp, _)), Some(folder)) if folder.settled && folder.stamp == stamp => Ok(folder),
                (Ok((stamp, mode)), _) => open_beneath(root, name, OFlags::RDONLY | OFlags::DIRECTORY)
                    .and_then(|handle| read(handle, &path, stamp, mode, now, names, self.closed.as_ref()))
                    .map_err(|errno| (errno, Some(stamp))),
                (Err(errno), _) => Err((errno, None)),
            };
            let folder = match read {
                Ok(folder) => folder,
                Err((errno, _)) if self.starts.contains(&path) => return Err(errno),
                // It went away.
                Err((Errno::NOENT | Errno::NOTDIR, _)) => continue,
                Err((errno, stamp)) => Folder::barred(errno, stamp, now),
            };
            ahead.extend(folder.folders.iter().map(|name| join(&path, name)));
            seen.insert(path, folder);
        }
        self.folders = seen;
        self.stamp();
        self.last = self.found();
        Ok(self.last.clone())
    }
}

impl Folder {
    fn unread(stamp: Stamp, mode: u32, now: i128) -> Self {
        let settled = now - stamp.changed.max(stamp.modified) > YOUNG_NS;
        Self { stamp, settled, mode, folders: Vec::new(), masked: Vec::new(), barred: false }
    }

    fn barred(errno: Errno, stamp: Option<Stamp>, now: i128) -> Self {
        let known = stamp.unwrap_or(Stamp { inode: 0, modified: 0, changed: 0 });
        let folder = Self { barred: true, ..Self::unread(known, 0, now) };
        // Any other reason may be gone without a trace.
        Self { settled: folder.settled && stamp.is_some() && errno == Errno::ACCESS, ..folder }
    }
}

/// The time that stamps are compared with.
fn now() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
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
    closed: Option<&BlockList>,
) -> Result<Folder, Errno> {
    let mut folder = Folder::unread(stamp, mode, now);
    let mut list = Dir::read_from(handle.as_fd())?;
    while let Some(entry) = list.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let relative = join(path, name);
        let told = String::from_utf8_lossy(&relative);
        // What is too deep to be looked at by its path is not shown: secrets may lie below.
        if names.blocks_entry(&told).is_some() || relative.len() > DEEPEST {
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
        if kind == FileType::Directory && closed.is_none_or(|closed| closed.blocks_entry(&told).is_none()) {
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

    /// A walk over folders that are watched, and old enough to be trusted.
    fn watched(folder: &std::path::Path) -> Walk {
        let mut walk = Walk::default();
        while walk.vigil.is_none() {
            names(&mut walk, folder);
            assert!(!walk.unwatchable, "the temporary folder cannot be watched");
        }
        walk
    }

    // T12
    #[test]
    fn what_happens_while_it_is_watched_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        let mut walk = watched(folder.path());
        assert_eq!(names(&mut walk, folder.path()), [""; 0]);
        std::fs::write(at("a/b/.env"), "x").unwrap();
        assert_eq!(names(&mut walk, folder.path()), ["a/b/.env"]);
        assert!(walk.vigil.is_some(), "one file is no reason to look at everything");
        std::fs::rename(at("a/b/.env"), at("a/plain")).unwrap();
        assert_eq!(names(&mut walk, folder.path()), [""; 0]);
        std::fs::rename(at("a/plain"), at("key.pem")).unwrap();
        assert_eq!(names(&mut walk, folder.path()), ["key.pem"]);
        assert!(walk.vigil.is_some());
        // Folders: made, moved in with something in them, replaced.
        std::fs::create_dir_all(at("n/m")).unwrap();
        std::fs::write(at("n/m/.env"), "x").unwrap();
        assert_eq!(names(&mut walk, folder.path()), ["key.pem", "n/m/.env"]);
        let mut walk = watched(folder.path());
        let other = tempfile::tempdir_in(folder.path().parent().unwrap()).unwrap();
        std::fs::write(other.path().join("x.pem"), "x").unwrap();
        std::fs::rename(other.path(), at("a/moved")).unwrap();
        assert_eq!(names(&mut walk, folder.path()), ["a/moved/x.pem", "key.pem", "n/m/.env"]);
        let mut walk = watched(folder.path());
        std::fs::rename(at("a"), at("c")).unwrap();
        std::fs::create_dir(at("a")).unwrap();
        std::fs::write(at("a/.env"), "x").unwrap();
        std::fs::remove_file(at("c/moved/x.pem")).unwrap();
        assert_eq!(names(&mut walk, folder.path()), ["a/.env", "key.pem", "n/m/.env"]);
    }

    #[test]
    fn another_folder_in_the_workspaces_place_is_walked() {
        let outer = tempfile::tempdir().unwrap();
        let (one, other) = (outer.path().join("one"), outer.path().join("other"));
        for folder in [&one, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(other.join(".env"), "x").unwrap();
        let mut walk = watched(&one);
        assert_eq!(names(&mut walk, &other), [".env"]);
    }

    #[test]
    fn a_mode_that_changes_is_told() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/.env"), "x").unwrap();
        let mut walk = watched(folder.path());
        std::fs::set_permissions(folder.path().join("a"), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(names(&mut walk, folder.path()), ["a/.env"]);
        assert_eq!(
            walk.last.first().and_then(|mask| mask.modes.last()).map(|mode| mode & 0o777),
            Some(0o700)
        );
    }

    // T12: root looks into every folder
    #[test]
    fn a_folder_that_cannot_be_looked_into_is_masked_itself() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let close =
            |mode| std::fs::set_permissions(at("a/b"), std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::write(at("a/b/c/.env"), "x").unwrap();
        for mode in [0o311, 0o600, 0o400, 0] {
            close(0o755);
            let mut walk = watched(folder.path());
            close(mode);
            let expected = if rustix::process::geteuid().is_root() { "a/b/c/.env" } else { "a/b" };
            assert_eq!(names(&mut walk, folder.path()), [expected], "{mode:o}");
            let mut walk = watched(folder.path());
            assert_eq!(names(&mut walk, folder.path()), [expected], "{mode:o}");
            assert!(walk.vigil.is_some());
            close(0o755);
            assert_eq!(names(&mut walk, folder.path()), ["a/b/c/.env"], "{mode:o}");
        }
    }

    #[test]
    fn many_changes_at_once_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut walk = watched(folder.path());
        for number in 0..30_000 {
            std::fs::write(folder.path().join("x"), "x").unwrap();
            std::fs::remove_file(folder.path().join("x")).unwrap();
            if number == 20_000 {
                std::fs::write(folder.path().join(".env"), "x").unwrap();
            }
        }
        assert_eq!(names(&mut walk, folder.path()), [".env"]);
    }

    #[test]
    fn a_file_system_mounted_below_is_walked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        std::fs::create_dir(path.join("m")).unwrap();
        // A thread may have mounts of its own, where the user may mount at all.
        let found = std::thread::spawn(move || {
            // SAFETY: no memory is involved; only this thread's mounts become its own.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                return None;
            }
            let private =
                rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).unwrap();
            let mut walk = watched(&path);
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("none", path.join("m"), "tmpfs", flags, None).unwrap();
            std::fs::write(path.join("m/.env"), "x").unwrap();
            Some(names(&mut walk, &path))
        });
        match found.join().unwrap() {
            Some(found) => assert_eq!(found, ["m/.env"]),
            None => eprintln!("skipped: this user may not mount"),
        }
    }
}
