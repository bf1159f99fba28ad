//! Ignore files as `rg` reads them by default: `.rgignore` before `.ignore` before `.gitignore` before
//! `.git/info/exclude`, the deepest folder first, `.gitignore` only inside a repository. They are opened
//! through folder handles like everything else. Deliberately absent: the user's global git configuration and
//! ignore files above the project root, because both lie outside what this crate may look at.

use std::ffi::CStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;

use crate::handle::{file_type, look_at_entry, open_entry};
use crate::workspace::Workspace;

/// Larger ignore files are not read.
const MAX_IGNORE_BYTES: u64 = 256 * 1024;

/// Which of the files that matter a folder holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    rgignore: bool,
    ignore: bool,
    gitignore: bool,
    repository: bool,
}

impl Marks {
    /// Notes an entry of a folder.
    pub(crate) fn note(&mut self, name: &[u8]) {
        match name {
            b".rgignore" => self.rgignore = true,
            b".ignore" => self.ignore = true,
            b".gitignore" => self.gitignore = true,
            b".git" | b".jj" => self.repository = true,
            _ => {}
        }
    }

    fn any(self) -> bool {
        self.rgignore || self.ignore || self.gitignore || self.repository
    }
}

/// The rules of one folder, and of those above it. Folders without rules share the level above.
#[derive(Debug)]
pub(crate) struct Level {
    above: Option<Arc<Level>>,
    /// Bytes of a place that lead to this folder, slash included.
    base: usize,
    rgignore: Gitignore,
    ignore: Gitignore,
    gitignore: Gitignore,
    exclude: Gitignore,
    repository: bool,
    in_repository: bool,
    enabled: bool,
}

impl Level {
    /// Above all folders of the project.
    pub(crate) fn outermost(ws: &Workspace, enabled: bool) -> Self {
        Self {
            above: None,
            base: 0,
            rgignore: Gitignore::empty(),
            ignore: Gitignore::empty(),
            gitignore: Gitignore::empty(),
            exclude: Gitignore::empty(),
            repository: false,
            in_repository: ws.inside_repository(),
            enabled,
        }
    }

    /// The rules of every folder above a place, from the project root down.
    pub(crate) fn above(ws: &Workspace, place: &str) -> Arc<Self> {
        let mut level = Arc::new(Self::outermost(ws, true));
        if place.is_empty() {
            return level;
        }
        let ends = place.match_indices('/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            let folder = place.get(..end).unwrap_or_default();
            let Ok(handle) = ws.root().open_folder(folder) else { continue };
            let mut marks = Marks::default();
            for name in [c".rgignore", c".ignore", c".gitignore", c".git", c".jj"] {
                if look_at_entry(handle.as_fd(), name).is_ok() {
                    marks.note(name.to_bytes());
                }
            }
            level = level.below(handle.as_fd(), folder, marks);
        }
        level
    }

    /// The level of a folder, this one when it adds nothing.
    pub(crate) fn below(self: &Arc<Self>, folder: BorrowedFd<'_>, place: &str, marks: Marks) -> Arc<Self> {
        if !self.enabled || !marks.any() {
            return Arc::clone(self);
        }
        let rules = |present: bool, name: &CStr| {
            if present { rules_of(folder, name) } else { Gitignore::empty() }
        };
        Arc::new(Self {
            base: if place.is_empty() { 0 } else { place.len() + 1 },
            rgignore: rules(marks.rgignore, c".rgignore"),
            ignore: rules(marks.ignore, c".ignore"),
            gitignore: rules(marks.gitignore, c".gitignore"),
            exclude: rules(marks.repository, c".git/info/exclude"),
            repository: marks.repository,
            in_repository: marks.repository || self.in_repository,
            enabled: true,
            above: Some(Arc::clone(self)),
        })
    }

    /// Whether an entry is passed over: ignored, or hidden and not asked for by a rule.
    pub(crate) fn skips(&self, place: &str, name: &str, is_folder: bool) -> bool {
        match self.verdict(place, is_folder) {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => name.starts_with('.'),
        }
    }

    fn verdict(&self, place: &str, is_folder: bool) -> Match<()> {
        let (mut first, mut second) = (Match::None, Match::None);
        let (mut third, mut fourth) = (Match::None, Match::None);
        let mut passed_repository = false;
        let mut next = Some(self);
        while let Some(level) = next {
            let below = place.get(level.base..).unwrap_or(place);
            let consult = |found: &mut Match<()>, rules: &Gitignore| {
                if found.is_none() && !rules.is_empty() {
                    *found = rules.matched(below, is_folder).map(|_| ());
                }
            };
            consult(&mut first, &level.rgignore);
            consult(&mut second, &level.ignore);
            if self.in_repository && !passed_repository {
                consult(&mut third, &level.gitignore);
                consult(&mut fourth, &level.exclude);
            }
            passed_repository |= level.repository;
            next = level.above.as_deref();
        }
        first.or(second).or(third).or(fourth)
    }
}

/// The rules in a file; none when it cannot be read. A line that is no rule is passed over.
fn rules_of(folder: BorrowedFd<'_>, name: &CStr) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for (number, line) in read_all(folder, name).split(|byte| *byte == b'\n').enumerate() {
        let Ok(line) = std::str::from_utf8(line) else { break };
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = if number == 0 { line.trim_start_matches('\u{feff}') } else { line };
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn read_all(folder: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = open_entry(folder, name)
        && rustix::fs::fstat(&file).is_ok_and(|facts| file_type(&facts) == FileType::RegularFile)
        && std::fs::File::from(file).take(MAX_IGNORE_BYTES + 1).read_to_end(&mut bytes).is_err()
    {
        bytes.clear();
    }
    if bytes.len() as u64 > MAX_IGNORE_BYTES { Vec::new() } else { bytes }
}
