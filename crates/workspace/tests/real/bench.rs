//! A project that can be changed: a tree, its workspace, and an applier with its folders outside of it.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use vambrace_workspace::{Applier, Isolation, Workspace, state_folder};

use crate::tree::Tree;

pub(crate) struct Bench {
    pub(crate) tree: Tree,
    pub(crate) ws: Workspace,
    pub(crate) applier: Applier,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::of_service("")
    }

    pub(crate) fn of_service(service: &str) -> Self {
        let tree = Tree::new();
        std::fs::create_dir_all(tree.at(service)).unwrap();
        let ws = tree.open_as(service, Isolation::Strict).0;
        let applier = applier(&ws, tree.home.path());
        Self { tree, ws, applier }
    }

    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.tree.at(name)).ok()
    }

    /// Everything in the project that an applier could have left lying about.
    pub(crate) fn litter(&self) -> Vec<String> {
        let mut litter = litter(&self.tree.project);
        for folder in ["locks", "journal"] {
            let entries = std::fs::read_dir(self.tree.home.path().join(folder)).unwrap();
            litter.extend(entries.map(|entry| entry.unwrap().path().display().to_string()));
        }
        litter
    }
}

/// An applier whose state lies in a folder beside the project.
pub(crate) fn applier(ws: &Workspace, home: &Path) -> Applier {
    let home = rustix::fs::openat(CWD, home, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let folder = |name| state_folder(&home, name).unwrap();
    Applier::new(ws.clone(), folder("locks"), folder("journal"))
}

fn litter(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(litter(&entry.path()));
        } else if entry.file_name().to_string_lossy().starts_with(".vambrace-") {
            found.push(entry.path().display().to_string());
        }
    }
    found
}
