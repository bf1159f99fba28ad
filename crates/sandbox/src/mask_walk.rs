//! Finds the masked paths of a workspace, or of some directories of a home directory: a walk whose result is kept between
//! runs. A directory whose timestamps are unchanged is not read again, unless they are too recent to be trusted. From the
//! second walk without changes on, inotify reports what changes ([`inotify`]), where it works: then only changed
//! directories are read.
//!
//! A path is masked because of its name, or because the fence does not show it. A directory outside of a list of paths is
//! read all the same, since something below it may be listed; if nothing is, it is masked as a whole.

mod inotify;

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use vambrace_core::blocked_paths::BlockList;

use crate::sys::mount::open_beneath;
use crate::wire::{Bytes, MaskedPath};
use crate::workspace_fence::{ReadAccess, WorkspaceFence};
use inotify::{DirectoryWatcher, WatchedChanges};

/// Two changes within this time, in ns, may leave the same timestamp.
const MIN_STAMP_AGE_NS: i128 = 50_000_000;

/// Maximum length of a path in the workspace, in bytes; longer ones are not followed. The kernel accepts 4095 bytes, and
/// some paths get a name appended.
pub(crate) const MAX_PATH_BYTES: usize = 3800;

/// What is masked.
#[derive(Clone, Copy)]
pub(crate) struct MaskRules<'a> {
    pub(crate) names: &'a BlockList,
    /// `None` where every other path is visible.
    pub(crate) fence: Option<&'a WorkspaceFence>,
}

impl<'a> From<&'a BlockList> for MaskRules<'a> {
    fn from(names: &'a BlockList) -> Self {
        Self { names, fence: None }
    }
}

impl MaskRules<'_> {
    fn access(&self, relative: &[u8]) -> ReadAccess {
        match self.names.blocks_entry(&String::from_utf8_lossy(relative)) {
            Some(_) => ReadAccess::Excluded,
            None => self.fence.map_or(ReadAccess::Visible, |fence| fence.read_access(relative)),
        }
    }
}

/// The directories of a workspace as they were last read.
#[derive(Debug)]
pub(crate) struct MaskWalk {
    /// Where the walk begins, relative to the root; the root's own path is empty.
    starts: Vec<Bytes>,
    /// Directories that are not walked.
    skipped_dirs: Option<BlockList>,
    dirs: HashMap<Bytes, WalkedDir>,
    /// The last result; valid as long as no stamp changes.
    last_masks: Vec<MaskedPath>,
    stamps: Vec<(CString, DirStamp)>,
    watcher: Option<DirectoryWatcher>,
    /// Whether watching was tried and failed.
    unwatchable: bool,
}

#[derive(Debug)]
struct WalkedDir {
    stamp: DirStamp,
    /// Whether the stamp was old enough when the directory was read.
    stamp_is_old: bool,
    mode: u32,
    dirs: Vec<Bytes>,
    masked: Vec<Bytes>,
    /// Whether the directory itself is outside of the fence's lists.
    unlisted: bool,
    /// Whether it has a visible entry that is not a directory.
    has_visible_file: bool,
    /// It cannot be read, so it is masked as a whole: a program that may traverse it, or open it through an overlay, could
    /// reach secrets in it without listing it.
    unreadable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirStamp {
    inode: u64,
    modified: i128,
    changed: i128,
}

impl Default for MaskWalk {
    fn default() -> Self {
        Self::within(vec![Bytes::new()], None)
    }
}

impl MaskWalk {
    /// A walk of some directories below the root only.
    pub(crate) fn within(starts: Vec<Bytes>, skipped_dirs: Option<BlockList>) -> Self {
        Self {
            starts,
            skipped_dirs,
            dirs: HashMap::new(),
            last_masks: Vec::new(),
            stamps: Vec::new(),
            watcher: None,
            unwatchable: false,
        }
    }

    pub(crate) fn starts(&self) -> &[Bytes] {
        &self.starts
    }

    /// The current masks.
    pub(crate) fn masks<'r>(
        &mut self,
        root: BorrowedFd<'_>,
        rules: impl Into<MaskRules<'r>>,
    ) -> Result<Vec<MaskedPath>, Errno> {
        let rules = rules.into();
        match self.watcher.as_ref().map(|watcher| watcher.changes(root)) {
            Some(WatchedChanges::Nothing) => return Ok(self.last_masks.clone()),
            Some(WatchedChanges::Files(dirs)) if self.read_again(root, rules, &dirs).is_some() => {
                return Ok(self.last_masks.clone());
            }
            _ => self.watcher = None,
        }
        if !self.stamps.is_empty() && self.is_unchanged(root) {
            self.watch(root);
            return Ok(self.last_masks.clone());
        }
        self.walk(root, rules)
    }

    fn is_unchanged(&self, root: BorrowedFd<'_>) -> bool {
        let stands = |(path, stamp): &(CString, DirStamp)| {
            stat_directory(root, path).is_ok_and(|(now, _)| now == *stamp)
        };
        self.stamps.iter().all(stands)
    }

    /// Starts to watch every directory.
    fn watch(&mut self, root: BorrowedFd<'_>) {
        if self.unwatchable {
            return;
        }
        // An unreadable directory cannot be watched; its parent's watch reports what happens to it.
        let unreadable = |path: &[u8]| self.dirs.get(path).is_some_and(|dir| dir.unreadable);
        let paths = self.stamps.iter().map(|(path, _)| path.to_bytes()).filter(|path| !unreadable(path));
        let watcher = DirectoryWatcher::start(root, &paths.collect::<Vec<_>>());
        self.unwatchable = watcher.is_none();
        // What happened before a directory was watched changed its stamp.
        self.watcher = watcher.filter(|_| self.is_unchanged(root));
    }

    /// Reads some directories again in which only names of files changed; `None` if more changed.
    fn read_again(
        &mut self,
        root: BorrowedFd<'_>,
        rules: MaskRules<'_>,
        dirs: &HashSet<Bytes>,
    ) -> Option<()> {
        let now = now();
        // A stamp that is too recent must not be trusted once the watch ends.
        self.stamps.clear();
        for name in dirs {
            let path: &[u8] = if name == b"." { b"" } else { name };
            let known = self.dirs.get_mut(path)?;
            let (stamp, mode) = stat_directory(root, &CString::new(name.as_slice()).ok()?).ok()?;
            let handle = open_beneath(root, name, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
            let fresh =
                read_directory(handle, path, stamp, mode, now, rules, self.skipped_dirs.as_ref()).ok()?;
            let same = known.stamp.inode == stamp.inode
                && known.mode == fresh.mode
                && known.dirs.iter().collect::<HashSet<_>>() == fresh.dirs.iter().collect();
            if !same {
                return None;
            }
            *known = fresh;
        }
        self.last_masks = self.known_masks();
        self.store_stamps();
        Some(())
    }

    /// The masks of the known directories.
    fn known_masks(&self) -> Vec<MaskedPath> {
        let mut masks = Vec::new();
        let mut ahead: Vec<(Bytes, Vec<u32>)> =
            self.starts.iter().map(|start| (start.clone(), Vec::new())).collect();
        let empty = self.dirs_without_visible_entries();
        while let Some((path, mut modes)) = ahead.pop() {
            let Some(dir) = self.dirs.get(&path) else { continue };
            if dir.unreadable || (empty.contains(&path) && !self.starts.contains(&path)) {
                masks.push(MaskedPath { path, modes });
                continue;
            }
            modes.push(dir.mode);
            masks.extend(
                dir.masked.iter().map(|name| MaskedPath { path: join(&path, name), modes: modes.clone() }),
            );
            ahead.extend(dir.dirs.iter().map(|name| (join(&path, name), modes.clone())));
        }
        masks
    }

    /// The unlisted directories with nothing visible in them, at any depth.
    fn dirs_without_visible_entries(&self) -> HashSet<Bytes> {
        let mut empty = HashSet::new();
        let mut unlisted: Vec<&Bytes> =
            self.dirs.iter().filter(|(_, dir)| dir.unlisted).map(|(path, _)| path).collect();
        // Inner directories before outer ones.
        unlisted.sort_by_key(|path| std::cmp::Reverse(path.iter().filter(|byte| **byte == b'/').count()));
        for path in unlisted {
            let Some(dir) = self.dirs.get(path) else { continue };
            if !dir.has_visible_file && dir.dirs.iter().all(|name| empty.contains(&join(path, name))) {
                empty.insert(path.clone());
            }
        }
        empty
    }

    /// Stores every stamp, if all can be trusted.
    fn store_stamps(&mut self) {
        self.stamps.clear();
        if !self.dirs.values().all(|dir| dir.stamp_is_old) {
            return;
        }
        let stamps = self.dirs.iter().filter_map(|(path, dir)| {
            let name: &[u8] = if path.is_empty() { b"." } else { path };
            Some((CString::new(name).ok()?, dir.stamp))
        });
        self.stamps.extend(stamps);
        // Sorted, so that lookups of neighbours hit the kernel's dentry cache.
        self.stamps.sort_by(|(one, _), (other, _)| one.cmp(other));
    }

    fn walk(&mut self, root: BorrowedFd<'_>, rules: MaskRules<'_>) -> Result<Vec<MaskedPath>, Errno> {
        let now = now();
        let mut seen = HashMap::with_capacity(self.dirs.len());
        let mut ahead = self.starts.clone();
        while let Some(path) = ahead.pop() {
            let name: &[u8] = if path.is_empty() { b"." } else { &path };
            let looked = stat_directory(root, &CString::new(name).map_err(|_| Errno::INVAL)?);
            let known = self.dirs.remove(&path);
            let read = match (looked, known) {
                (Ok((stamp, _)), Some(dir)) if dir.stamp_is_old && dir.stamp == stamp => Ok(dir),
                (Ok((stamp, mode)), _) => open_beneath(root, name, OFlags::RDONLY | OFlags::DIRECTORY)
                    .and_then(|handle| {
                        read_directory(handle, &path, stamp, mode, now, rules, self.skipped_dirs.as_ref())
                    })
                    .map_err(|errno| (errno, Some(stamp))),
                (Err(errno), _) => Err((errno, None)),
            };
            let dir = match read {
                Ok(dir) => dir,
                Err((errno, _)) if self.starts.contains(&path) => return Err(errno),
                // It was deleted meanwhile.
                Err((Errno::NOENT | Errno::NOTDIR, _)) => continue,
                Err((errno, stamp)) => WalkedDir::unreadable(errno, stamp, now),
            };
            ahead.extend(dir.dirs.iter().map(|name| join(&path, name)));
            seen.insert(path, dir);
        }
        self.dirs = seen;
        self.store_stamps();
        self.last_masks = self.known_masks();
        Ok(self.last_masks.clone())
    }
}

impl WalkedDir {
    fn unread(stamp: DirStamp, mode: u32, now: i128) -> Self {
        let stamp_is_old = now - stamp.changed.max(stamp.modified) > MIN_STAMP_AGE_NS;
        Self {
            stamp,
            stamp_is_old,
            mode,
            dirs: Vec::new(),
            masked: Vec::new(),
            unlisted: false,
            has_visible_file: false,
            unreadable: false,
        }
    }

    fn unreadable(errno: Errno, stamp: Option<DirStamp>, now: i128) -> Self {
        let known = stamp.unwrap_or(DirStamp { inode: 0, modified: 0, changed: 0 });
        let dir = Self { unreadable: true, ..Self::unread(known, 0, now) };
        // Any other error may disappear without changing the stamp.
        Self { stamp_is_old: dir.stamp_is_old && stamp.is_some() && errno == Errno::ACCESS, ..dir }
    }
}

/// The current time, to compare stamps with, in ns.
fn now() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

fn stat_directory(root: BorrowedFd<'_>, path: &CStr) -> Result<(DirStamp, u32), Errno> {
    let wanted =
        StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::MTIME | StatxFlags::CTIME;
    let facts = rustix::fs::statx(root, path, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    if FileType::from_raw_mode(facts.stx_mode.into()) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let nanos = |time: StatxTimestamp| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    let stamp =
        DirStamp { inode: facts.stx_ino, modified: nanos(facts.stx_mtime), changed: nanos(facts.stx_ctime) };
    Ok((stamp, facts.stx_mode.into()))
}

fn read_directory(
    handle: OwnedFd,
    path: &[u8],
    stamp: DirStamp,
    mode: u32,
    now: i128,
    rules: MaskRules<'_>,
    skipped_dirs: Option<&BlockList>,
) -> Result<WalkedDir, Errno> {
    let mut dir = WalkedDir::unread(stamp, mode, now);
    dir.unlisted = rules.fence.is_some_and(|fence| fence.read_access(path) == ReadAccess::Unlisted);
    let mut list = Dir::read_from(handle.as_fd())?;
    while let Some(entry) = list.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let relative = join(path, name);
        let access = rules.access(&relative);
        // What is too deep to be reached by its path is masked: there may be secrets below.
        if access == ReadAccess::Excluded || relative.len() > MAX_PATH_BYTES {
            dir.masked.push(name.to_vec());
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let facts = rustix::fs::statat(&handle, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(facts.st_mode)
            }
            known => known,
        };
        let is_skipped = || {
            let text = String::from_utf8_lossy(&relative);
            skipped_dirs.is_some_and(|skipped_dirs| skipped_dirs.blocks_entry(&text).is_some())
        };
        match (kind, access) {
            (FileType::Directory, _) if !is_skipped() => dir.dirs.push(name.to_vec()),
            (FileType::Directory, _) => {}
            (_, ReadAccess::Visible) => dir.has_visible_file = true,
            (_, ReadAccess::Unlisted | ReadAccess::Excluded) => dir.masked.push(name.to_vec()),
        }
    }
    Ok(dir)
}

pub(crate) fn join(path: &[u8], name: &[u8]) -> Bytes {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make files")]
    use super::*;

    fn names(walk: &mut MaskWalk, dir: &std::path::Path) -> Vec<String> {
        let list = BlockList::new([".env", "secrets/", "*.pem"]).unwrap();
        let root =
            rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        let masks = walk.masks(root.as_fd(), &list).unwrap();
        let mut found: Vec<String> =
            masks.iter().map(|mask| String::from_utf8_lossy(&mask.path).into_owned()).collect();
        found.sort();
        found
    }

    #[test]
    fn masked_names_are_found_at_any_depth_and_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        std::fs::create_dir_all(at("a/b/secrets")).unwrap();
        std::fs::write(at("a/.env"), "x").unwrap();
        std::fs::write(at("a/b/key.PEM"), "x").unwrap();
        std::fs::write(at("plain"), "x").unwrap();
        std::os::unix::fs::symlink("/", at("link")).unwrap();
        let mut walk = MaskWalk::default();
        assert_eq!(names(&mut walk, dir.path()), ["a/.env", "a/b/key.PEM", "a/b/secrets"]);
        std::fs::write(at(".env"), "x").unwrap();
        std::fs::remove_file(at("a/.env")).unwrap();
        std::fs::create_dir_all(at("new/deep")).unwrap();
        std::fs::write(at("new/deep/x.pem"), "x").unwrap();
        assert_eq!(names(&mut walk, dir.path()), [".env", "a/b/key.PEM", "a/b/secrets", "new/deep/x.pem"]);
    }

    fn fenced_names(dir: &std::path::Path, list: &[&str], exclude: &[&str]) -> Vec<String> {
        use vambrace_core::fence::PathFence;
        use vambrace_core::glob::{GlobPurpose, GlobRoots, PathGlobs};
        let globs = |globs: &[&str], purpose| {
            std::sync::Arc::new(PathGlobs::new(globs, purpose, &GlobRoots::plain()).unwrap())
        };
        let only = (!list.is_empty()).then(|| globs(list, GlobPurpose::Permit));
        let mut read = only.map(PathFence::only).unwrap_or_default();
        read.exclude(&globs(exclude, GlobPurpose::Narrow));
        let fence = WorkspaceFence { read, ..WorkspaceFence::default() };
        let names = BlockList::new([".env"]).unwrap();
        let root =
            rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        let rules = MaskRules { names: &names, fence: Some(&fence) };
        let masks = MaskWalk::default().masks(root.as_fd(), rules).unwrap();
        let mut found: Vec<String> =
            masks.iter().map(|mask| String::from_utf8_lossy(&mask.path).into_owned()).collect();
        found.sort();
        found
    }

    // T12
    #[test]
    fn paths_outside_the_fence_are_masked() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["docs/private/a", "docs/public", "src/deep/x.rs", "src/deep/y.txt", ".env", "other/o/o"]
        {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let check = |globs: &[&str], exclude: &[&str], expected: &[&str]| {
            assert_eq!(fenced_names(dir.path(), globs, exclude), expected, "{globs:?} {exclude:?}");
        };
        check(&[], &["docs/private/**"], &[".env", "docs/private"]);
        check(&[], &["private"], &[".env", "docs/private"]);
        check(&["docs/"], &[], &[".env", "other", "src"]);
        check(&["docs/"], &["docs/private/"], &[".env", "docs/private", "other", "src"]);
        check(&["src/**/*.rs"], &[], &[".env", "docs", "other", "src/deep/y.txt"]);
        check(&["nothing"], &[], &[".env", "docs", "other", "src"]);
    }

    /// A walk whose directories are watched, with stamps old enough to be trusted.
    fn watched(dir: &std::path::Path) -> MaskWalk {
        let mut walk = MaskWalk::default();
        while walk.watcher.is_none() {
            names(&mut walk, dir);
            assert!(!walk.unwatchable, "the temporary directory cannot be watched");
        }
        walk
    }

    // T12
    #[test]
    fn changes_in_watched_directories_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        let mut walk = watched(dir.path());
        assert_eq!(names(&mut walk, dir.path()), [""; 0]);
        std::fs::write(at("a/b/.env"), "x").unwrap();
        assert_eq!(names(&mut walk, dir.path()), ["a/b/.env"]);
        assert!(walk.watcher.is_some(), "one new file must not cause a full walk");
        std::fs::rename(at("a/b/.env"), at("a/plain")).unwrap();
        assert_eq!(names(&mut walk, dir.path()), [""; 0]);
        std::fs::rename(at("a/plain"), at("key.pem")).unwrap();
        assert_eq!(names(&mut walk, dir.path()), ["key.pem"]);
        assert!(walk.watcher.is_some());
        // Directories: created, moved in with content, replaced.
        std::fs::create_dir_all(at("n/m")).unwrap();
        std::fs::write(at("n/m/.env"), "x").unwrap();
        assert_eq!(names(&mut walk, dir.path()), ["key.pem", "n/m/.env"]);
        let mut walk = watched(dir.path());
        let other = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        std::fs::write(other.path().join("x.pem"), "x").unwrap();
        std::fs::rename(other.path(), at("a/moved")).unwrap();
        assert_eq!(names(&mut walk, dir.path()), ["a/moved/x.pem", "key.pem", "n/m/.env"]);
        let mut walk = watched(dir.path());
        std::fs::rename(at("a"), at("c")).unwrap();
        std::fs::create_dir(at("a")).unwrap();
        std::fs::write(at("a/.env"), "x").unwrap();
        std::fs::remove_file(at("c/moved/x.pem")).unwrap();
        assert_eq!(names(&mut walk, dir.path()), ["a/.env", "key.pem", "n/m/.env"]);
    }

    #[test]
    fn replaced_workspace_directory_is_walked_again() {
        let outer = tempfile::tempdir().unwrap();
        let (one, other) = (outer.path().join("one"), outer.path().join("other"));
        for dir in [&one, &other] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(other.join(".env"), "x").unwrap();
        let mut walk = watched(&one);
        assert_eq!(names(&mut walk, &other), [".env"]);
    }

    #[test]
    fn changed_directory_mode_is_in_the_mask() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/.env"), "x").unwrap();
        let mut walk = watched(dir.path());
        std::fs::set_permissions(dir.path().join("a"), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(names(&mut walk, dir.path()), ["a/.env"]);
        assert_eq!(
            walk.last_masks.first().and_then(|mask| mask.modes.last()).map(|mode| mode & 0o777),
            Some(0o700)
        );
    }

    // T12: root can read every directory
    #[test]
    fn unreadable_directory_is_masked_as_a_whole() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let close =
            |mode| std::fs::set_permissions(at("a/b"), std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::write(at("a/b/c/.env"), "x").unwrap();
        for mode in [0o311, 0o600, 0o400, 0] {
            close(0o755);
            let mut walk = watched(dir.path());
            close(mode);
            let expected = if rustix::process::geteuid().is_root() { "a/b/c/.env" } else { "a/b" };
            assert_eq!(names(&mut walk, dir.path()), [expected], "{mode:o}");
            let mut walk = watched(dir.path());
            assert_eq!(names(&mut walk, dir.path()), [expected], "{mode:o}");
            assert!(walk.watcher.is_some());
            close(0o755);
            assert_eq!(names(&mut walk, dir.path()), ["a/b/c/.env"], "{mode:o}");
        }
    }

    #[test]
    fn thousands_of_events_hide_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut walk = watched(dir.path());
        for number in 0..30_000 {
            std::fs::write(dir.path().join("x"), "x").unwrap();
            std::fs::remove_file(dir.path().join("x")).unwrap();
            if number == 20_000 {
                std::fs::write(dir.path().join(".env"), "x").unwrap();
            }
        }
        assert_eq!(names(&mut walk, dir.path()), [".env"]);
    }

    #[test]
    fn file_system_mounted_below_is_walked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        std::fs::create_dir(path.join("m")).unwrap();
        // A thread can have its own mount namespace, if the user may mount at all.
        let found = std::thread::spawn(move || {
            // SAFETY: no memory is involved; only this thread gets its own mount namespace.
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
            None => vambrace_skip::skip("this user may not mount"),
        }
    }
}
