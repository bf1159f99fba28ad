//! Ignore files as `rg` reads them by default: `.rgignore` before `.ignore` before `.gitignore` before
//! `.git/info/exclude`, the deepest directory first, `.gitignore` only inside a repository. They are opened through
//! directory handles like everything else. Deliberately absent: the user's global git configuration and ignore files above
//! the project root, because both are outside what this crate may access.

use std::ffi::CStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;

use crate::handle::{file_type, open_entry, open_entry_path};
use crate::workspace::Workspace;

/// Larger ignore files are not read.
const MAX_IGNORE_BYTES: u64 = 256 * 1024;

/// Which ignore files a directory contains, and whether it is a repository root.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IgnoreFiles {
    rgignore: bool,
    ignore: bool,
    gitignore: bool,
    repository: bool,
}

impl IgnoreFiles {
    /// Records an entry of the directory.
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

/// The ignore rules of one directory and of those above it. Directories without rules share the level above.
#[derive(Debug)]
pub(crate) struct IgnoreLevel {
    above: Option<Arc<IgnoreLevel>>,
    /// Length in bytes of the path prefix of this directory, slash included.
    base: usize,
    rgignore: Gitignore,
    ignore: Gitignore,
    gitignore: Gitignore,
    exclude: Gitignore,
    repository: bool,
    in_repository: bool,
    enabled: bool,
}

impl IgnoreLevel {
    /// The level above the project root.
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

    /// The rules of every directory above a path, from the project root down.
    pub(crate) fn above(ws: &Workspace, rel_path: &str) -> Arc<Self> {
        let mut level = Arc::new(Self::outermost(ws, true));
        if rel_path.is_empty() {
            return level;
        }
        let ends = rel_path.match_indices('/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            let dir = rel_path.get(..end).unwrap_or_default();
            let Ok(handle) = ws.root().open_dir(dir) else { continue };
            let mut marks = IgnoreFiles::default();
            for name in [c".rgignore", c".ignore", c".gitignore", c".git", c".jj"] {
                if open_entry_path(handle.as_fd(), name).is_ok() {
                    marks.note(name.to_bytes());
                }
            }
            level = level.below(handle.as_fd(), dir, marks);
        }
        level
    }

    /// The level of a directory; this level when the directory adds no rules.
    pub(crate) fn below(
        self: &Arc<Self>,
        dir: BorrowedFd<'_>,
        rel_path: &str,
        marks: IgnoreFiles,
    ) -> Arc<Self> {
        if !self.enabled || !marks.any() {
            return Arc::clone(self);
        }
        let rules = |present: bool, name: &CStr| {
            if present { rules_of(dir, name) } else { Gitignore::empty() }
        };
        Arc::new(Self {
            base: if rel_path.is_empty() { 0 } else { rel_path.len() + 1 },
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

    /// Whether an entry is skipped: ignored, or hidden and not whitelisted by a rule.
    pub(crate) fn skips(&self, rel_path: &str, name: &str, is_dir: bool) -> bool {
        match self.verdict(rel_path, is_dir) {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => name.starts_with('.'),
        }
    }

    fn verdict(&self, rel_path: &str, is_dir: bool) -> Match<()> {
        let (mut first, mut second) = (Match::None, Match::None);
        let (mut third, mut fourth) = (Match::None, Match::None);
        let mut passed_repository = false;
        let mut next = Some(self);
        while let Some(level) = next {
            let below = rel_path.get(level.base..).unwrap_or(rel_path);
            let consult = |found: &mut Match<()>, rules: &Gitignore| {
                if found.is_none() && !rules.is_empty() {
                    *found = rules.matched(below, is_dir).map(|_| ());
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

/// The rules in a file; none when it cannot be read. Invalid lines are skipped.
fn rules_of(dir: BorrowedFd<'_>, name: &CStr) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for (number, line) in read_all(dir, name).split(|byte| *byte == b'\n').enumerate() {
        let Ok(line) = std::str::from_utf8(line) else { break };
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = if number == 0 { line.trim_start_matches('\u{feff}') } else { line };
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn read_all(dir: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = open_entry(dir, name)
        && rustix::fs::fstat(&file).is_ok_and(|stat| file_type(&stat) == FileType::RegularFile)
        && std::fs::File::from(file).take(MAX_IGNORE_BYTES + 1).read_to_end(&mut bytes).is_err()
    {
        bytes.clear();
    }
    if bytes.len() as u64 > MAX_IGNORE_BYTES { Vec::new() } else { bytes }
}
