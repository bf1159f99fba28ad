//! Checks that all hard links of a file are in scope. A file with several hard links may be a file from outside the scope,
//! or a blocked one, under a harmless name; it is read only when a walk of the scope finds every link in an allowed place.
//! The inode's change time must stay the same during the walk, because a link that is moved ahead of the walk would be
//! counted twice.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Stat};

use crate::entries::EntryBuffer;
use crate::error::{FileError, display_path};
use crate::handle::link_count;
use crate::path_filter::PathFilter;
use crate::resolve::Resolved;
use crate::scope::{is_at_or_below, join};
use crate::workspace::Workspace;

/// Entries visited before the walk gives up and the file is denied.
const MAX_ENTRIES: u64 = 500_000;

/// Number of hard links found, by inode.
#[derive(Debug, Default)]
pub(crate) struct HardLinkCounts {
    found: HashMap<u64, LinkCount>,
}

#[derive(Debug)]
struct LinkCount {
    device: u64,
    wanted: u64,
    found: u64,
}

impl HardLinkCounts {
    /// Walks the scope once for all given files, for as long as `go_on` returns true.
    pub(crate) fn count<'a>(
        ws: &Workspace,
        files: impl IntoIterator<Item = &'a Stat>,
        hard_link_filter: Option<&PathFilter>,
        go_on: impl Fn() -> bool,
    ) -> Self {
        let mut counts = Self::default();
        for stat in files {
            let names = LinkCount { device: stat.st_dev, wanted: link_count(stat), found: 0 };
            counts.found.insert(stat.st_ino, names);
        }
        counts.walk(ws, hard_link_filter, go_on);
        counts
    }

    /// Hard links of a file found in scope.
    pub(crate) fn found(&self, stat: &Stat) -> u64 {
        self.found
            .get(&stat.st_ino)
            .filter(|names| names.device == stat.st_dev)
            .map_or(0, |names| names.found)
    }

    fn walk(&mut self, ws: &Workspace, hard_link_filter: Option<&PathFilter>, go_on: impl Fn() -> bool) {
        let mut buffer = EntryBuffer::new();
        let mut dirs = roots(ws, &mut buffer);
        let mut seen = 0;
        while let Some(rel_path) = dirs.pop() {
            let Ok(dir) = ws.root().open_dir(&rel_path) else { continue };
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
                let entry = join(&rel_path, text);
                if ws.scope().blocks_entry(&entry) {
                    return ControlFlow::Continue(());
                }
                if kind == FileType::Directory {
                    dirs.push(entry);
                } else if hard_link_filter
                    .is_some_and(|hard_link_filter| !hard_link_filter.admits(&ws.scope().scoped_path(&entry)))
                {
                    // A link that the filter does not admit counts as outside the scope.
                } else if let Some(names) = self.found.get_mut(&inode) {
                    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                    let stat = rustix::fs::statat(dir.as_fd(), name, flags);
                    let same = |stat: Stat| stat.st_ino == inode && stat.st_dev == names.device;
                    names.found += u64::from(stat.is_ok_and(same));
                }
                ControlFlow::Continue(())
            };
            // An unreadable directory may hide links; those stay uncounted, so the file is denied.
            let _ = buffer.for_each(dir.as_fd(), visit);
            let complete = self.found.values().all(|names| names.found >= names.wanted);
            if seen > MAX_ENTRIES || complete || !go_on() {
                return;
            }
        }
    }
}

impl Workspace {
    /// Denies a file that has a hard link outside the scope, a blocked one, or one that the filter does not admit.
    pub(crate) fn check_hard_links(
        &self,
        file: &Resolved,
        hard_link_filter: Option<&PathFilter>,
    ) -> Result<(), FileError> {
        if file.links <= 1 {
            return Ok(());
        }
        let path = || display_path(&self.scope().path_text(&file.rel_path));
        let found = HardLinkCounts::count(self, [&file.stat], hard_link_filter, || true).found(&file.stat);
        let now = rustix::fs::fstat(file.handle()).map_err(|errno| FileError::from_errno(errno, &path()))?;
        if !links_unchanged(&file.stat, &now) {
            return Err(FileError::Unstable { path: path() });
        }
        if found == file.links {
            return Ok(());
        }
        Err(FileError::HardLinked { path: path(), links: file.links, found })
    }
}

/// Whether no hard link was added, removed or moved between two stats of a file.
pub(crate) fn links_unchanged(before: &Stat, after: &Stat) -> bool {
    (before.st_ino, before.st_dev, before.st_nlink, before.st_ctime, before.st_ctime_nsec)
        == (after.st_ino, after.st_dev, after.st_nlink, after.st_ctime, after.st_ctime_nsec)
}

/// The directories that make up the scope, none inside another, so that no link is counted twice.
fn roots(ws: &Workspace, buffer: &mut EntryBuffer) -> Vec<String> {
    let scope = ws.scope();
    let mut all = vec![scope.service().to_owned()];
    all.extend(scope.shared().iter().cloned());
    if let Some(parent) = scope.siblings()
        && let Ok(dir) = ws.root().open_dir(parent)
    {
        let _ = buffer.for_each(dir.as_fd(), |name, kind, _| {
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
