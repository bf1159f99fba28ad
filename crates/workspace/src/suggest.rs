//! Suggestions for a path that does not exist: similar names in the same directory, or the same name elsewhere. Only names
//! that the caller can open anyway; a blocked name is never suggested.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::FileType;

use crate::entries::EntryBuffer;
use crate::scope::join;
use crate::workspace::Workspace;

/// Suggestions per error.
const MAX_SUGGESTIONS: usize = 3;
/// Longer paths are not suggested, in bytes.
const MAX_SUGGESTION_BYTES: usize = 120;
/// Directory entries examined; bounds the cost of a suggestion.
const MAX_ENTRIES: usize = 4000;
/// Minimum similarity of two names, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

impl Workspace {
    /// Paths that the caller may have meant.
    pub(crate) fn suggest_names(&self, rel_path: &str) -> Vec<String> {
        let (dir, name) = rel_path.rsplit_once('/').unwrap_or(("", rel_path));
        let near = self.similar_names(dir, name);
        let mut near = if near.is_empty() { self.same_name_elsewhere(name) } else { near };
        // A file name is untrusted text: one that could break out of its quotes in a message is not shown.
        near.retain(|name| {
            name.len() <= MAX_SUGGESTION_BYTES
                && !name.contains(|c: char| c.is_control() || "`[]".contains(c))
        });
        near
    }

    fn similar_names(&self, dir: &str, name: &str) -> Vec<String> {
        let wanted = name.to_lowercase();
        let mut alike: Vec<(f64, String)> = Vec::new();
        self.visit_names(dir, |entry, rel_path, _| {
            let likeness = strsim::normalized_damerau_levenshtein(&wanted, &entry.to_lowercase());
            if likeness >= MIN_SIMILARITY {
                alike.push((likeness, rel_path));
            }
        });
        alike.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        alike.truncate(MAX_SUGGESTIONS);
        alike.iter().map(|(_, rel_path)| self.scope().path_text(rel_path)).collect()
    }

    fn same_name_elsewhere(&self, name: &str) -> Vec<String> {
        let mut dirs = std::collections::VecDeque::from([self.scope().service().to_owned()]);
        let mut found = Vec::new();
        let mut left = MAX_ENTRIES;
        while let Some(dir) = dirs.pop_front() {
            self.visit_names(&dir, |entry, rel_path, kind| {
                left = left.saturating_sub(1);
                if entry == name {
                    found.push(self.scope().path_text(&rel_path));
                }
                if kind == FileType::Directory && !entry.starts_with('.') {
                    dirs.push_back(rel_path);
                }
            });
            if left == 0 || found.len() >= MAX_SUGGESTIONS {
                break;
            }
        }
        found.sort();
        found.truncate(MAX_SUGGESTIONS);
        found
    }

    /// Visits the files and directories of an admitted directory that are not blocked; symlinks are not suggested.
    fn visit_names(&self, dir: &str, mut visit: impl FnMut(&str, String, FileType)) {
        if self.scope().admit(dir).is_err() {
            return;
        }
        let Ok(handle) = self.root().open_dir(dir) else { return };
        let mut left = MAX_ENTRIES;
        let _ = EntryBuffer::new().for_each(handle.as_fd(), |name, kind, _| {
            left -= 1;
            if let Ok(name) = name.to_str()
                && matches!(kind, FileType::RegularFile | FileType::Directory)
            {
                let rel_path = join(dir, name);
                if !self.scope().blocks_entry(&rel_path) && !self.scope().is_sibling_root(&rel_path) {
                    visit(name, rel_path, kind);
                }
            }
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}
