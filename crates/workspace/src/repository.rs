//! What runs or configures a git repository is written by nobody, whatever the repository's folder is called: git takes a
//! folder for one by what lies in it. A `.git` is a blocked name anyway.

use rustix::io::Errno;
use vambrace_core::change::{ChangeSet, FileChange};
use vambrace_core::path::ScopedPath;
use vambrace_core::repository::{Repositories, Sides};

use crate::fault::{FileFault, shown};
use crate::scope::is_at_or_below;
use crate::workspace::Workspace;

impl Workspace {
    /// Refuses a path by what is there.
    pub(crate) fn refuse_settings(&self, path: &ScopedPath) -> Result<(), FileFault> {
        self.refuse_settings_among(&[path], &[path])
    }

    /// Refuses a batch by what is there and what it makes.
    pub(crate) fn refuse_settings_in(&self, changes: &ChangeSet) -> Result<(), FileFault> {
        let made: Vec<&ScopedPath> =
            changes.files().iter().filter_map(|change| Some(&change.after()?.path)).collect();
        let gone = changes.files().iter().map(FileChange::path);
        let all: Vec<&ScopedPath> = gone.chain(made.iter().copied()).collect();
        self.refuse_settings_among(&all, &made)
    }

    fn refuse_settings_among(&self, all: &[&ScopedPath], made: &[&ScopedPath]) -> Result<(), FileFault> {
        let place = |path: &&ScopedPath| self.scope().place(path);
        let tree = Tree { ws: self, made: made.iter().map(place).collect() };
        let mut repositories = Repositories::default();
        for path in all {
            let place = place(path);
            let mut comes = |at: usize| {
                let entry = place.get(..at).unwrap_or(&place);
                repositories.completed_by(&tree, entry.as_bytes()) && !tree.is_there(entry)
            };
            let ends = place.match_indices('/').map(|(at, _)| at).chain([place.len()]);
            let completes = made.contains(path) && ends.into_iter().any(&mut comes);
            if completes || repositories.configured_by(&tree, place.as_bytes()) {
                return Err(FileFault::Repository { path: shown(&path.to_string()) });
            }
        }
        Ok(())
    }
}

/// The project, and the places that are about to be made.
struct Tree<'a> {
    ws: &'a Workspace,
    made: Vec<String>,
}

impl Tree<'_> {
    fn is_there(&self, place: &str) -> bool {
        !matches!(self.ws.root().look(place), Err(Errno::NOENT))
    }
}

impl Sides for Tree<'_> {
    fn before(&self, folder: &[u8], name: &[u8]) -> bool {
        self.is_there(&entry(folder, name))
    }

    fn has(&self, folder: &[u8], name: &[u8]) -> bool {
        let entry = entry(folder, name);
        self.made.iter().any(|place| is_at_or_below(place, &entry)) || self.is_there(&entry)
    }
}

fn entry(folder: &[u8], name: &[u8]) -> String {
    crate::scope::join(&String::from_utf8_lossy(folder), &String::from_utf8_lossy(name))
}
