//! The workspace and what the program saw of it, for the question what of it is a repository; and where hooks and settings
//! lie that have other names: where its repositories are told to have them, and where links with protected names lead.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::block::BlockList;

use super::facts::Facts;
use super::folder::each_entry;
use super::setting::settings;
use crate::spec::PROTECTED;
use crate::sys::mounting::open_within;
use crate::walk::join;
use crate::wire::Bytes;

/// Nobody's settings are longer.
const MOST: u64 = 1 << 20;
/// Nor are there more files of them, of one repository.
const MOST_FILES: usize = 32;
/// So many entries of a protected folder are looked at for links, the nearest first.
const MOST_ENTRIES: usize = 2_000;
/// As many links on one way as the kernel follows.
const MOST_LINKS: usize = 40;
/// Of a repository, what may be a link to something else.
const SETTINGS: [&[u8]; 4] = [b"hooks", b"config", b"config.worktree", b"info/attributes"];

/// The workspace, and what the program saw of it.
#[derive(Clone, Copy)]
pub(super) struct Sides<'a> {
    pub(super) base: BorrowedFd<'a>,
    pub(super) view: BorrowedFd<'a>,
}

impl vambrace_core::repository::Sides for Sides<'_> {
    fn before(&self, folder: &[u8], name: &[u8]) -> bool {
        !matches!(Facts::look(self.base, &join(folder, name)), Ok(None))
    }

    fn has(&self, folder: &[u8], name: &[u8]) -> bool {
        self.before(folder, name) || !matches!(Facts::look(self.view, &join(folder, name)), Ok(None))
    }
}

/// What of a workspace its repositories take for hooks (`core.hooksPath`) and settings (`include.path`), and what links with
/// protected names lead to. Which section a setting stands in is not asked: too much is withheld rather than too little.
pub(super) struct Elsewhere<'a> {
    /// Where the workspace lies.
    own: Bytes,
    /// The workspace and the protected names, until it was asked about them.
    names: Option<(BorrowedFd<'a>, &'a BlockList)>,
    /// Folders that were asked whether a repository begins there; with each, all above it.
    asked: HashSet<Bytes>,
    /// Each with everything in it.
    places: HashSet<Bytes>,
    /// The folders above them.
    above: HashSet<Bytes>,
}

impl<'a> Elsewhere<'a> {
    pub(super) fn of(base: BorrowedFd<'a>, protected: &'a BlockList) -> Self {
        let own = rustix::fs::readlink(format!("/proc/self/fd/{}", base.as_raw_fd()), Vec::new());
        let own = own.map(std::ffi::CString::into_bytes).unwrap_or_default();
        let names = Some((base, protected));
        let (asked, places, above) = Default::default();
        let mut found = Self { own, names, asked, places, above };
        // The workspace may lie in one.
        let mut above = found.own.clone();
        while let Some(cut) = above.iter().rposition(|byte| *byte == b'/') {
            above.truncate(cut);
            found.ask(&above);
        }
        found
    }

    /// Whether a path is such a place, or lies in one: of a repository that begins somewhere above it, or of a link.
    pub(super) fn holds(&mut self, path: &[u8]) -> bool {
        if let Some((base, protected)) = self.names.take() {
            self.ask_names(base, protected);
        }
        let mut above = path;
        loop {
            let cut = above.iter().rposition(|byte| *byte == b'/');
            above = cut.and_then(|cut| above.get(..cut)).unwrap_or_default();
            if self.asked.contains(above) {
                break;
            }
            self.asked.insert(above.to_vec());
            self.ask(&[&self.own, &b"/"[..], above].concat());
            if above.is_empty() {
                break;
            }
        }
        self.places.contains(path) || folders_above(path).any(|above| self.places.contains(above))
    }

    /// Whether such a place lies below, so that a link here would lead to another.
    pub(super) fn lies_below(&self, path: &[u8]) -> bool {
        self.above.contains(path)
    }

    /// Protected names in the workspace's own folder, and the longer ones that begin there.
    fn ask_names(&mut self, base: BorrowedFd<'_>, protected: &BlockList) {
        let mut found: Vec<Bytes> = Vec::new();
        let listed = open_within(base, b".", OFlags::RDONLY | OFlags::DIRECTORY).and_then(|folder| {
            each_entry(&folder, |name, kind, _| {
                let leads = matches!(kind, FileType::Symlink | FileType::Directory);
                if leads && protected.blocks_entry(&String::from_utf8_lossy(name)).is_some() {
                    found.push(name.to_vec());
                }
                Ok(())
            })
        });
        if listed.is_err() {
            // Then they are tried one by one.
            found.extend(PROTECTED.iter().map(|name| name.as_bytes().to_vec()));
        }
        found.extend(longer_names().map(|(folder, name)| join(folder.as_bytes(), name.as_bytes())));
        for name in found {
            let path = join(&self.own, &name);
            if rustix::fs::statat(rustix::fs::CWD, &*path, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                self.keep(&path);
            }
        }
    }

    /// Reads the settings of a repository, if one begins in a folder.
    fn ask(&mut self, folder: &[u8]) {
        let git = join(folder, b".git");
        let Ok(handle) = rustix::fs::open(git.as_slice(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        else {
            return;
        };
        let facts = rustix::fs::fstat(&handle);
        let git = match facts.map(|facts| FileType::from_raw_mode(facts.st_mode)) {
            Ok(FileType::Directory) => git,
            // It leads to one.
            _ => match read(&git).as_deref().and_then(|text| text.strip_prefix(b"gitdir:")) {
                Some(target) => place(folder, target.trim_ascii()),
                None => return,
            },
        };
        for name in SETTINGS {
            self.keep(&join(&git, name));
        }
        let mut files = vec![join(&git, b"config"), join(&git, b"config.worktree")];
        if let Some(common) = read(&join(&git, b"commondir")) {
            files.push(join(&place(&git, common.trim_ascii()), b"config"));
        }
        let mut at = 0;
        while let Some(file) = files.get(at).cloned().filter(|_| at < MOST_FILES) {
            at += 1;
            let around = file.iter().rposition(|byte| *byte == b'/').and_then(|cut| file.get(..cut));
            for (key, value) in read(&file).as_deref().map(settings).unwrap_or_default() {
                match key.as_slice() {
                    b"hookspath" => self.keep_named(folder, &value),
                    b"path" => {
                        self.keep_named(around.unwrap_or_default(), &value);
                        files.push(place(around.unwrap_or_default(), &value));
                    }
                    _ => {}
                }
            }
        }
    }

    /// By its letters, and where it leads.
    fn keep_named(&mut self, folder: &[u8], path: &[u8]) {
        self.note(&place(folder, path));
        self.keep(&if path.starts_with(b"/") { path.to_vec() } else { join(folder, path) });
    }

    /// Notes where a path leads, and where the links do that lie there.
    fn keep(&mut self, path: &[u8]) {
        let first = self.follow(path);
        // What lies outside is looked at only where it is meant itself.
        let outer = place(b"/", path) == first;
        let (mut ahead, mut seen) = (VecDeque::from([first]), HashSet::new());
        let mut left = MOST_ENTRIES;
        while let Some(folder) = ahead.pop_front() {
            let looks = (outer && seen.is_empty()) || inside(&self.own, &folder).is_some();
            if !looks || !seen.insert(folder.clone()) {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(handle) = rustix::fs::open(&*folder, flags, Mode::empty()) else { continue };
            // Where it ends early, there are too many, or it cannot be read.
            let _ = each_entry(&handle, |name, kind, _| {
                left = left.checked_sub(1).ok_or(Errno::OVERFLOW)?;
                match kind {
                    FileType::Symlink => ahead.push_back(self.follow(&join(&folder, name))),
                    FileType::Directory => ahead.push_back(join(&folder, name)),
                    _ => {}
                }
                Ok(())
            });
        }
    }

    /// Where a path leads. That is noted, and so are the links on the way: another in their place would lead elsewhere.
    fn follow(&mut self, path: &[u8]) -> Bytes {
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
                Ok(target) if links < MOST_LINKS => {
                    links += 1;
                    self.note(&next);
                    if target.as_bytes().starts_with(b"/") {
                        at.clear();
                    }
                    left.extend(reversed(target.as_bytes()));
                }
                _ => at = next,
            }
        }
        self.note(&at);
        at
    }

    /// Notes a place that lies in the workspace.
    fn note(&mut self, place: &[u8]) {
        if let Some(inside) = inside(&self.own, place) {
            self.places.insert(inside.to_vec());
            self.above.extend(folders_above(inside).map(<[u8]>::to_vec));
        }
    }
}

/// Protected names that are a folder's and one in it.
pub(super) fn longer_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = PROTECTED.iter().filter_map(|name| name.strip_prefix("**/")?.split_once('/'));
    names.map(|(folder, name)| (folder, name.trim_end_matches('/')))
}

/// A place in a workspace, from there.
fn inside<'p>(own: &[u8], place: &'p [u8]) -> Option<&'p [u8]> {
    place.strip_prefix(own)?.strip_prefix(b"/").filter(|inside| !inside.is_empty())
}

/// The folders above a path, below the one that it begins in.
fn folders_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let cuts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    cuts.filter_map(|(cut, _)| path.get(..cut))
}

/// A path from a folder, by its letters.
fn place(folder: &[u8], path: &[u8]) -> Bytes {
    let whole = if path.starts_with(b"/") { path.to_vec() } else { join(folder, path) };
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

/// The beginning of a file, wherever it leads; of nothing else, since opening that may do something.
fn read(path: &[u8]) -> Option<Bytes> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let facts = rustix::fs::fstat(&handle).ok()?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return None;
    }
    let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let file = rustix::fs::open(itself, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(file).take(MOST).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn places_are_found_by_their_letters() {
        let check = |folder: &str, path: &str, expected: &str| {
            assert_eq!(place(folder.as_bytes(), path.as_bytes()), expected.as_bytes(), "{folder} {path}");
        };
        check("/w/s", ".githooks", "/w/s/.githooks");
        check("/w/s", "./tools//hooks/", "/w/s/tools/hooks");
        check("/w/s/.git", "../.gitconfig", "/w/s/.gitconfig");
        check("/w/s", "/w/s/x", "/w/s/x");
        check("/w/s", "../../../../x", "/x");
        check("/w/s", ".", "/w/s");
    }
}
