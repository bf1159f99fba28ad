//! Paths that must be protected although their names are not: where git repositories are configured to find hooks and
//! included config files, and where symlinks with protected names lead. Also the two sides (workspace and view) for
//! detecting repositories.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::blocked_paths::BlockList;
use vambrace_core::risk::SELF_RUNNING;

use super::directory::each_entry;
use super::git_config::parse_git_config;
use super::metadata::EntryMetadata;
use crate::mask_walk::join;

use crate::sys::mount::open_within;
use crate::wire::Bytes;

/// How much of a git config file is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Maximum number of config files that are read for one repository.
const MAX_CONFIG_FILES: usize = 32;
/// Maximum number of entries of a protected directory that are searched for symlinks, breadth first.
const MAX_SEARCHED_ENTRIES: usize = 2_000;
/// Maximum number of symlinks on one path, as in the kernel.
const MAX_SYMLINKS: usize = 40;
/// Names in a git directory that may be symlinks to something else.
const GIT_CONFIG_NAMES: [&[u8]; 4] = [b"hooks", b"config", b"config.worktree", b"info/attributes"];

/// The workspace, and the program's view of it.
#[derive(Clone, Copy)]
pub(super) struct WorkspaceSides<'a> {
    pub(super) base: BorrowedFd<'a>,
    pub(super) view: BorrowedFd<'a>,
}

impl vambrace_core::git_repository::EntryLookup for WorkspaceSides<'_> {
    fn existed_before(&self, dir: &[u8], name: &[u8]) -> bool {
        !matches!(EntryMetadata::stat(self.base, &join(dir, name)), Ok(None))
    }

    fn exists_before_or_after(&self, dir: &[u8], name: &[u8]) -> bool {
        self.existed_before(dir, name)
            || !matches!(EntryMetadata::stat(self.view, &join(dir, name)), Ok(None))
    }
}

/// The paths of a workspace that its repositories use for hooks (`core.hooksPath`) and config (`include.path`), and those
/// that symlinks with protected names lead to. The section of a setting is ignored: better withhold too much than too
/// little.
pub(super) struct ProtectedTargets<'a> {
    /// The absolute path of the workspace.
    own: Bytes,
    /// The workspace and the protected names, until they have been resolved.
    names: Option<(BorrowedFd<'a>, &'a BlockList)>,
    /// Directories that were checked for a repository; all their ancestors were checked too.
    checked_dirs: HashSet<Bytes>,
    /// Protected paths; each includes everything below it.
    protected_paths: HashSet<Bytes>,
    /// The ancestor directories of these paths.
    ancestor_dirs: HashSet<Bytes>,
}

impl<'a> ProtectedTargets<'a> {
    pub(super) fn of(base: BorrowedFd<'a>, protected: &'a BlockList) -> Self {
        let own = rustix::fs::readlink(format!("/proc/self/fd/{}", base.as_raw_fd()), Vec::new());
        let own = own.map(std::ffi::CString::into_bytes).unwrap_or_default();
        let names = Some((base, protected));
        let (checked_dirs, protected_paths, ancestor_dirs) = Default::default();
        let mut found = Self { own, names, checked_dirs, protected_paths, ancestor_dirs };
        // The workspace may be inside a repository.
        let mut above = found.own.clone();
        while let Some(cut) = above.iter().rposition(|byte| *byte == b'/') {
            above.truncate(cut);
            found.read_repository(&above);
        }
        found
    }

    /// Whether a path is protected, or below a protected path. Reads the config of the repositories above it first.
    pub(super) fn protects(&mut self, path: &[u8]) -> bool {
        if let Some((base, protected)) = self.names.take() {
            self.resolve_protected_names(base, protected);
        }
        let mut above = path;
        loop {
            let cut = above.iter().rposition(|byte| *byte == b'/');
            above = cut.and_then(|cut| above.get(..cut)).unwrap_or_default();
            if self.checked_dirs.contains(above) {
                break;
            }
            self.checked_dirs.insert(above.to_vec());
            self.read_repository(&[&self.own, &b"/"[..], above].concat());
            if above.is_empty() {
                break;
            }
        }
        self.protected_paths.contains(path)
            || ancestors_of(path).any(|above| self.protected_paths.contains(above))
    }

    /// Whether a protected path is below, so that a symlink here would redirect it.
    pub(super) fn has_target_below(&self, path: &[u8]) -> bool {
        self.ancestor_dirs.contains(path)
    }

    /// Resolves the protected names in the workspace's top directory, and the protected paths that begin there.
    fn resolve_protected_names(&mut self, base: BorrowedFd<'_>, protected: &BlockList) {
        let mut found: Vec<Bytes> = Vec::new();
        let listed = open_within(base, b".", OFlags::RDONLY | OFlags::DIRECTORY).and_then(|dir| {
            each_entry(&dir, |name, kind, _| {
                let leads = matches!(kind, FileType::Symlink | FileType::Directory);
                if leads && protected.blocks_entry(&String::from_utf8_lossy(name)).is_some() {
                    found.push(name.to_vec());
                }
                Ok(())
            })
        });
        if listed.is_err() {
            // The directory cannot be listed: try every name.
            found.extend(SELF_RUNNING.protected().map(|name| name.as_bytes().to_vec()));
        }
        found.extend(protected_dir_names().map(|(dir, name)| join(dir.as_bytes(), name.as_bytes())));
        for name in found {
            let path = join(&self.own, &name);
            if rustix::fs::statat(rustix::fs::CWD, &*path, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                self.protect_tree(&path);
            }
        }
    }

    /// Reads the config of the repository whose top directory this is, if it is one.
    fn read_repository(&mut self, dir: &[u8]) {
        let git = join(dir, b".git");
        let Ok(handle) = rustix::fs::open(git.as_slice(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        else {
            return;
        };
        let facts = rustix::fs::fstat(&handle);
        let git = match facts.map(|facts| FileType::from_raw_mode(facts.st_mode)) {
            Ok(FileType::Directory) => git,
            // A `.git` file that points to a git directory.
            _ => match read_regular_file(&git).as_deref().and_then(|text| text.strip_prefix(b"gitdir:")) {
                Some(target) => normalize(dir, target.trim_ascii()),
                None => return,
            },
        };
        for name in GIT_CONFIG_NAMES {
            self.protect_tree(&join(&git, name));
        }
        let mut files = vec![join(&git, b"config"), join(&git, b"config.worktree")];
        if let Some(common) = read_regular_file(&join(&git, b"commondir")) {
            files.push(join(&normalize(&git, common.trim_ascii()), b"config"));
        }
        let mut at = 0;
        while let Some(file) = files.get(at).cloned().filter(|_| at < MAX_CONFIG_FILES) {
            at += 1;
            let around = file.iter().rposition(|byte| *byte == b'/').and_then(|cut| file.get(..cut));
            for (key, value) in read_regular_file(&file).as_deref().map(parse_git_config).unwrap_or_default()
            {
                match key.as_slice() {
                    b"hookspath" => self.protect_configured(dir, &value),
                    b"path" => {
                        self.protect_configured(around.unwrap_or_default(), &value);
                        files.push(normalize(around.unwrap_or_default(), &value));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Protects a configured path: its lexical form, and where it leads.
    fn protect_configured(&mut self, dir: &[u8], path: &[u8]) {
        self.protect(&normalize(dir, path));
        self.protect_tree(&if path.starts_with(b"/") { path.to_vec() } else { join(dir, path) });
    }

    /// Protects where a path leads, and where the symlinks below it lead.
    fn protect_tree(&mut self, path: &[u8]) {
        let first = self.resolve_and_protect(path);
        // A directory outside the workspace is searched only if the path names it directly.
        let outer = normalize(b"/", path) == first;
        let (mut ahead, mut seen) = (VecDeque::from([first]), HashSet::new());
        let mut left = MAX_SEARCHED_ENTRIES;
        while let Some(dir) = ahead.pop_front() {
            let looks = (outer && seen.is_empty()) || inside(&self.own, &dir).is_some();
            if !looks || !seen.insert(dir.clone()) {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(handle) = rustix::fs::open(&*dir, flags, Mode::empty()) else { continue };
            // An error means too many entries, or an unreadable directory.
            let _ = each_entry(&handle, |name, kind, _| {
                left = left.checked_sub(1).ok_or(Errno::OVERFLOW)?;
                match kind {
                    FileType::Symlink => ahead.push_back(self.resolve_and_protect(&join(&dir, name))),
                    FileType::Directory => ahead.push_back(join(&dir, name)),
                    _ => {}
                }
                Ok(())
            });
        }
    }

    /// Resolves a path. Protects the result and the symlinks on the way: replacing one of them would redirect the path.
    fn resolve_and_protect(&mut self, path: &[u8]) -> Bytes {
        let reversed = |path: &[u8]| -> Vec<Bytes> {
            path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
        };
        let (mut left, mut at, mut links) = (reversed(path), Bytes::new(), 0);
        while let Some(name) = left.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or_default());
                    continue;
                }
                _ => {}
            }
            let next = [&at, &b"/"[..], &name].concat();
            match rustix::fs::readlink(&*next, Vec::new()) {
                Ok(target) if links < MAX_SYMLINKS => {
                    links += 1;
                    self.protect(&next);
                    if target.as_bytes().starts_with(b"/") {
                        at.clear();
                    }
                    left.extend(reversed(target.as_bytes()));
                }
                _ => at = next,
            }
        }
        self.protect(&at);
        at
    }

    /// Protects an absolute path, if it is in the workspace.
    fn protect(&mut self, place: &[u8]) {
        if let Some(inside) = inside(&self.own, place) {
            self.protected_paths.insert(inside.to_vec());
            self.ancestor_dirs.extend(ancestors_of(inside).map(<[u8]>::to_vec));
        }
    }
}

/// Protected names of the form directory/name, split.
pub(super) fn protected_dir_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = SELF_RUNNING.protected().filter_map(|name| name.strip_prefix("**/")?.split_once('/'));
    names.map(|(dir, name)| (dir, name.trim_end_matches('/')))
}

/// An absolute path relative to the workspace; `None` if it is not inside.
fn inside<'p>(own: &[u8], place: &'p [u8]) -> Option<&'p [u8]> {
    place.strip_prefix(own)?.strip_prefix(b"/").filter(|inside| !inside.is_empty())
}

/// The ancestor directories of a relative path, without the root.
fn ancestors_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let cuts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    cuts.filter_map(|(cut, _)| path.get(..cut))
}

/// Joins a path to a directory and normalizes the result lexically.
fn normalize(dir: &[u8], path: &[u8]) -> Bytes {
    let whole = if path.starts_with(b"/") { path.to_vec() } else { join(dir, path) };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in whole.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [&b"/"[..], &names.join(&b'/')].concat()
}

/// The beginning of a regular file, following symlinks. Nothing else is opened: opening a device or pipe can have effects.
fn read_regular_file(path: &[u8]) -> Option<Bytes> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let facts = rustix::fs::fstat(&handle).ok()?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return None;
    }
    let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let file = rustix::fs::open(itself, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(file).take(MAX_CONFIG_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn paths_are_normalized_lexically() {
        let check = |dir: &str, path: &str, expected: &str| {
            assert_eq!(normalize(dir.as_bytes(), path.as_bytes()), expected.as_bytes(), "{dir} {path}");
        };
        check("/w/s", ".githooks", "/w/s/.githooks");
        check("/w/s", "./tools//hooks/", "/w/s/tools/hooks");
        check("/w/s/.git", "../.gitconfig", "/w/s/.gitconfig");
        check("/w/s", "/w/s/x", "/w/s/x");
        check("/w/s", "../../../../x", "/x");
        check("/w/s", ".", "/w/s");
    }
}
