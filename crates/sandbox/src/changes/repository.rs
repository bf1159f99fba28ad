//! The workspace and what the program saw of it, for the question what of it is a repository; and where its repositories
//! have hooks and settings, when they are told to have them elsewhere.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::{FileType, Mode, OFlags};

use super::facts::Facts;
use super::setting::settings;
use crate::walk::join;
use crate::wire::Bytes;

/// Nobody's settings are longer.
const MOST: u64 = 1 << 20;
/// Nor are there more files of them, of one repository.
const MOST_FILES: usize = 32;

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

/// What of a workspace its repositories take for hooks (`core.hooksPath`) and settings (`include.path`). Which section that
/// stands in is not asked: too much is withheld rather than too little.
pub(super) struct Elsewhere {
    /// Where the workspace lies.
    own: Bytes,
    /// Folders that were asked whether a repository begins there; with each, all above it.
    asked: HashSet<Bytes>,
    places: Vec<Bytes>,
}

impl Elsewhere {
    pub(super) fn of(base: BorrowedFd<'_>) -> Self {
        let own = rustix::fs::readlink(format!("/proc/self/fd/{}", base.as_raw_fd()), Vec::new());
        let own = own.map(std::ffi::CString::into_bytes).unwrap_or_default();
        let mut found = Self { own, asked: HashSet::new(), places: Vec::new() };
        // The workspace may lie in one.
        let mut above = found.own.clone();
        while let Some(cut) = above.iter().rposition(|byte| *byte == b'/') {
            above.truncate(cut);
            found.ask(&above);
        }
        found
    }

    /// Whether a path is such a place, or lies in one, of a repository that begins somewhere above it.
    pub(super) fn holds(&mut self, path: &[u8]) -> bool {
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
        let within = |place: &Bytes| {
            path.strip_prefix(place.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.places.iter().any(within)
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
                    b"hookspath" => self.keep(&place(folder, &value)),
                    b"path" => {
                        let included = place(around.unwrap_or_default(), &value);
                        self.keep(&included);
                        files.push(included);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Notes a place that lies in the workspace.
    fn keep(&mut self, place: &[u8]) {
        let inside = place.strip_prefix(self.own.as_slice()).and_then(|rest| rest.strip_prefix(b"/"));
        if let Some(inside) = inside.filter(|inside| !inside.is_empty()) {
            self.places.push(inside.to_vec());
        }
    }
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
