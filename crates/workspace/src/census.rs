//! Whether all names of a file are in scope. A file with several names may be a file of somewhere else, or a
//! blocked one, under an innocent name; it is read only when a walk of the scope finds every one of its names
//! where names are allowed. The inode's change time must stay the same during the walk, because a name that
//! is moved along in front of the walk would be counted twice.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Stat};

use crate::entries::EntryBuffer;
use crate::fault::{FileFault, shown};
use crate::handle::links;
use crate::resolve::Resolved;
use crate::scope::{is_at_or_below, join};
use crate::visible::Visible;
use crate::workspace::Workspace;

/// Entries that are looked at before the walk gives up and the file is refused.
const MAX_ENTRIES: u64 = 500_000;

/// How many names were found, by inode.
#[derive(Debug, Default)]
pub(crate) struct Census {
    found: HashMap<u64, Names>,
}

#[derive(Debug)]
struct Names {
    device: u64,
    wanted: u64,
    found: u64,
}

impl Census {
    /// Walks the scope once for all the files whose facts are given, for as long as `go_on` says so.
    pub(crate) fn take<'a>(
        ws: &Workspace,
        files: impl IntoIterator<Item = &'a Stat>,
        kin: Option<&Visible>,
        go_on: impl Fn() -> bool,
    ) -> Self {
        let mut census = Self::default();
        for facts in files {
            let names = Names { device: facts.st_dev, wanted: links(facts), found: 0 };
            census.found.insert(facts.st_ino, names);
        }
        census.walk(ws, kin, go_on);
        census
    }

    /// Names found of a file.
    pub(crate) fn found(&self, facts: &Stat) -> u64 {
        self.found
            .get(&facts.st_ino)
            .filter(|names| names.device == facts.st_dev)
            .map_or(0, |names| names.found)
    }

    fn walk(&mut self, ws: &Workspace, kin: Option<&Visible>, go_on: impl Fn() -> bool) {
        let mut buffer = EntryBuffer::new();
        let mut folders = roots(ws, &mut buffer);
        let mut seen = 0;
        while let Some(place) = folders.pop() {
            let Ok(folder) = ws.root().open_folder(&place) else { continue };
            let visit = |name: &std::ffi::CStr, kind: FileType, inode: u64| {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return ControlFlow::Break(());
                }
                let wanted = kind == FileType::RegularFile && self.found.contains_key(&inode);
                let Ok(text) = name.to_str() else { return ControlFlow::Continue(()) };
                if kind != FileType::Directory && !wanted {
                    return ControlFlow::Continue(());
                }
                let entry = join(&place, text);
                if ws.scope().blocks_entry(&entry) {
                    return ControlFlow::Continue(());
                }
                if kind == FileType::Directory {
                    folders.push(entry);
                } else if kin.is_some_and(|kin| !kin.admits(&ws.scope().spell(&entry))) {
                    // A name that whoever decided does not let be told is as good as one outside.
                } else if let Some(names) = self.found.get_mut(&inode) {
                    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                    let facts = rustix::fs::statat(folder.as_fd(), name, flags);
                    let same = |facts: Stat| facts.st_ino == inode && facts.st_dev == names.device;
                    names.found += u64::from(facts.is_ok_and(same));
                }
                ControlFlow::Continue(())
            };
            // A folder that cannot be read hides names, and hidden names are refused.
            let _ = buffer.each(folder.as_fd(), visit);
            let complete = self.found.values().all(|names| names.found >= names.wanted);
            if seen > MAX_ENTRIES || complete || !go_on() {
                return;
            }
        }
    }
}

impl Workspace {
    /// Refuses a file that has a name outside the scope, a blocked one, or one that `kin` does not admit.
    pub(crate) fn check_names(&self, file: &Resolved, kin: Option<&Visible>) -> Result<(), FileFault> {
        if file.links <= 1 {
            return Ok(());
        }
        let path = || shown(&self.scope().spell_text(&file.place));
        let found = Census::take(self, [&file.facts], kin, || true).found(&file.facts);
        let now = rustix::fs::fstat(file.handle()).map_err(|errno| FileFault::from_errno(errno, &path()))?;
        if !unmoved(&file.facts, &now) {
            return Err(FileFault::Moving { path: path() });
        }
        if found == file.links {
            return Ok(());
        }
        Err(FileFault::HardLinked { path: path(), links: file.links, found })
    }
}

/// Whether no name was added, removed or moved between two looks at a file.
pub(crate) fn unmoved(before: &Stat, after: &Stat) -> bool {
    (before.st_ino, before.st_dev, before.st_nlink, before.st_ctime, before.st_ctime_nsec)
        == (after.st_ino, after.st_dev, after.st_nlink, after.st_ctime, after.st_ctime_nsec)
}

/// The folders that together are the scope, none inside another, so that no name is counted twice.
fn roots(ws: &Workspace, buffer: &mut EntryBuffer) -> Vec<String> {
    let scope = ws.scope();
    let mut all = vec![scope.service().to_owned()];
    all.extend(scope.shared().iter().cloned());
    if let Some(parent) = scope.siblings()
        && let Ok(folder) = ws.root().open_folder(parent)
    {
        let _ = buffer.each(folder.as_fd(), |name, kind, _| {
            if kind == FileType::Directory
                && let Ok(name) = name.to_str()
            {
                all.push(join(parent, name));
            }
            ControlFlow::Continue(())
        });
    }
    all.retain(|root| scope.admit(root).is_ok());
    all.sort();
    all.dedup();
    let outer = all.clone();
    all.retain(|root| !outer.iter().any(|other| other != root && is_at_or_below(root, other)));
    all
}
