//! Denies writes to files that run in or configure a git repository (hooks, config), whatever the repository's directory is
//! called: git recognises a repository by its contents. `.git` itself is a blocked name.

use rustix::io::Errno;
use vambrace_core::change::{ChangeSet, FileChange};
use vambrace_core::git_repository::{EntryLookup, RepositoryDetector};
use vambrace_core::path::ScopedPath;

use crate::error::{FileError, display_path};
use crate::scope::is_at_or_below;
use crate::workspace::Workspace;

impl Workspace {
    /// Denies a path that configures an existing repository.
    pub(crate) fn deny_repository_settings(&self, path: &ScopedPath) -> Result<(), FileError> {
        self.deny_repository_settings_among(&[path], &[path])
    }

    /// Denies a change set that configures a repository, or creates the files that make a directory one.
    pub(crate) fn deny_repository_settings_in(&self, changes: &ChangeSet) -> Result<(), FileError> {
        let made: Vec<&ScopedPath> =
            changes.files().iter().filter_map(|change| Some(&change.after()?.path)).collect();
        let gone = changes.files().iter().map(FileChange::path);
        let all: Vec<&ScopedPath> = gone.chain(made.iter().copied()).collect();
        self.deny_repository_settings_among(&all, &made)
    }

    fn deny_repository_settings_among(
        &self,
        all: &[&ScopedPath],
        made: &[&ScopedPath],
    ) -> Result<(), FileError> {
        let rel_path = |path: &&ScopedPath| self.scope().rel_path(path);
        let tree = RepositoryTree { ws: self, made: made.iter().map(rel_path).collect() };
        let mut repositories = RepositoryDetector::default();
        for path in all {
            let rel_path = rel_path(path);
            let mut comes = |at: usize| {
                let entry = rel_path.get(..at).unwrap_or(&rel_path);
                repositories.completes_repository(&tree, entry.as_bytes()) && !tree.exists(entry)
            };
            let ends = rel_path.match_indices('/').map(|(at, _)| at).chain([rel_path.len()]);
            let completes = made.contains(path) && ends.into_iter().any(&mut comes);
            if completes || repositories.is_repository_setting(&tree, rel_path.as_bytes()) {
                return Err(FileError::Repository { path: display_path(&path.to_string()) });
            }
        }
        Ok(())
    }
}

/// The project, and the paths that the change set is about to create.
struct RepositoryTree<'a> {
    ws: &'a Workspace,
    made: Vec<String>,
}

impl RepositoryTree<'_> {
    fn exists(&self, rel_path: &str) -> bool {
        !matches!(self.ws.root().open_path(rel_path), Err(Errno::NOENT))
    }
}

impl EntryLookup for RepositoryTree<'_> {
    fn existed_before(&self, dir: &[u8], name: &[u8]) -> bool {
        self.exists(&entry(dir, name))
    }

    fn exists_before_or_after(&self, dir: &[u8], name: &[u8]) -> bool {
        let entry = entry(dir, name);
        self.made.iter().any(|rel_path| is_at_or_below(rel_path, &entry)) || self.exists(&entry)
    }
}

fn entry(dir: &[u8], name: &[u8]) -> String {
    crate::scope::join(&String::from_utf8_lossy(dir), &String::from_utf8_lossy(name))
}
