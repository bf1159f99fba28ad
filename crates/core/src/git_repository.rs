//! Detects git repositories under any directory name. Git treats a directory as a repository because of its entries
//! (`objects` and `refs`, or a `HEAD` with a `commondir` that points to them), and then runs its hooks and reads its
//! settings. These are protected like those in `.git`, from programs and from tools that write.
//!
//! The state after a change is not known yet, so an entry counts if it exists before the change or comes with it.

use std::collections::HashMap;

/// Entries of a repository that git executes or reads settings from.
const SETTINGS: &[&[u8]] = &[b"hooks", b"config", b"config.worktree", b"modules", b"worktrees"];
/// File that points to another repository with the settings.
const COMMONDIR: &[u8] = b"commondir";
const HEAD: &[u8] = b"HEAD";
/// Entries that make a directory a repository.
const REQUIRED_ENTRIES: [&[u8]; 2] = [b"objects", b"refs"];

/// A directory tree before a change, and the change to it.
pub trait EntryLookup {
    /// Whether a directory has the entry before the change. An entry that cannot be checked counts as present.
    fn existed_before(&self, directory: &[u8], name: &[u8]) -> bool;
    /// Whether a directory has the entry before the change, or gets it by the change.
    fn exists_before_or_after(&self, directory: &[u8], name: &[u8]) -> bool;
}

/// Recognizes repositories; caches the result for each directory.
#[derive(Debug, Default)]
pub struct RepositoryDetector {
    known: HashMap<Vec<u8>, bool>,
}

impl RepositoryDetector {
    /// Whether a path is, or lies in, a hook or setting of a repository.
    pub fn is_repository_setting(&mut self, tree: &impl EntryLookup, path: &[u8]) -> bool {
        let mut start = 0;
        path.split(|byte| *byte == b'/').any(|name| {
            let directory = path.get(..start.max(1) - 1).unwrap_or_default();
            start += name.len() + 1;
            if is_named(name, COMMONDIR) {
                return tree.exists_before_or_after(directory, HEAD) || self.is_repository(tree, directory);
            }
            match directory.strip_suffix(b"info") {
                Some(outer) if is_named(name, b"attributes") => {
                    self.is_repository(tree, outer.strip_suffix(b"/").unwrap_or(outer))
                }
                _ => {
                    SETTINGS.iter().any(|setting| is_named(name, setting))
                        && self.is_repository(tree, directory)
                }
            }
        })
    }

    /// Whether a new entry would turn a directory that already holds settings into a repository.
    pub fn completes_repository(&mut self, tree: &impl EntryLookup, path: &[u8]) -> bool {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = match cut {
            Some(cut) => (path.get(..cut).unwrap_or_default(), path.get(cut + 1..).unwrap_or_default()),
            None => (&b""[..], path),
        };
        if is_named(name, HEAD) {
            return tree.existed_before(directory, COMMONDIR);
        }
        REQUIRED_ENTRIES.iter().any(|entry| is_named(name, entry))
            && self.is_repository(tree, directory)
            && SETTINGS.iter().any(|setting| tree.existed_before(directory, setting))
    }

    fn is_repository(&mut self, tree: &impl EntryLookup, directory: &[u8]) -> bool {
        if let Some(known) = self.known.get(directory) {
            return *known;
        }
        let repository = REQUIRED_ENTRIES.iter().all(|entry| tree.exists_before_or_after(directory, entry));
        self.known.insert(directory.to_vec(), repository);
        repository
    }
}

/// Some file systems ignore case.
fn is_named(name: &[u8], other: &[u8]) -> bool {
    name.eq_ignore_ascii_case(other)
}
