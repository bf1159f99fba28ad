//! A test project with its workspace and an applier whose state directories are outside the project.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use vambrace_workspace::{Applier, Isolation, Workspace, open_state_dir};

use crate::fixtures::TestProject;

pub(crate) struct Harness {
    pub(crate) tree: TestProject,
    pub(crate) ws: Workspace,
    pub(crate) applier: Applier,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::of_service("")
    }

    pub(crate) fn of_service(service: &str) -> Self {
        let tree = TestProject::new();
        std::fs::create_dir_all(tree.at(service)).unwrap();
        let ws = tree.open_as(service, Isolation::Strict).0;
        let applier = applier(&ws, tree.home.path());
        Self { tree, ws, applier }
    }

    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.tree.at(name)).ok()
    }

    /// Temporary files, lock files and journals that an applier left behind.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut leftovers = leftovers(&self.tree.project);
        for dir in ["locks", "journal"] {
            let entries = std::fs::read_dir(self.tree.home.path().join(dir)).unwrap();
            leftovers.extend(entries.map(|entry| entry.unwrap().path().display().to_string()));
        }
        leftovers
    }
}

/// An applier whose state directories are beside the project.
pub(crate) fn applier(ws: &Workspace, home: &Path) -> Applier {
    let home = rustix::fs::openat(CWD, home, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let dir = |name| open_state_dir(&home, name).unwrap();
    Applier::new(ws.clone(), dir("locks"), dir("journal"))
}

fn leftovers(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(leftovers(&entry.path()));
        } else if entry.file_name().to_string_lossy().starts_with(".vambrace-") {
            found.push(entry.path().display().to_string());
        }
    }
    found
}
