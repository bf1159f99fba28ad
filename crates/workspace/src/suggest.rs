//! What a caller may have meant by a path that is not there: names near it in the same folder, or the same
//! name elsewhere. Only names that the caller could open anyway; a blocked one is never hinted at.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::FileType;

use crate::entries::EntryBuffer;
use crate::scope::join;
use crate::workspace::Workspace;

/// Suggestions given.
const MAX_NEAR: usize = 3;
/// Longer names are not suggested.
const MAX_SHOWN: usize = 120;
/// Entries looked at: a hint is not worth more.
const MAX_ENTRIES: usize = 4000;
/// How alike two names must be, from 0 to 1.
const ALIKE: f64 = 0.6;

impl Workspace {
    /// Spellings of what may be meant by a place that is not there.
    pub(crate) fn near_names(&self, place: &str) -> Vec<String> {
        let (folder, name) = place.rsplit_once('/').unwrap_or(("", place));
        let near = self.alike_in(folder, name);
        let mut near = if near.is_empty() { self.same_name_elsewhere(name) } else { near };
        // A name is content too: one that could pass for more than a name is not put into our words.
        near.retain(|name| {
            name.len() <= MAX_SHOWN && !name.contains(|c: char| c.is_control() || "`[]".contains(c))
        });
        near
    }

    fn alike_in(&self, folder: &str, name: &str) -> Vec<String> {
        let wanted = name.to_lowercase();
        let mut alike: Vec<(f64, String)> = Vec::new();
        self.visit_names(folder, |entry, place, _| {
            let likeness = strsim::normalized_damerau_levenshtein(&wanted, &entry.to_lowercase());
            if likeness >= ALIKE {
                alike.push((likeness, place));
            }
        });
        alike.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        alike.truncate(MAX_NEAR);
        alike.iter().map(|(_, place)| self.scope().spell_text(place)).collect()
    }

    fn same_name_elsewhere(&self, name: &str) -> Vec<String> {
        let mut folders = std::collections::VecDeque::from([self.scope().service().to_owned()]);
        let mut found = Vec::new();
        let mut left = MAX_ENTRIES;
        while let Some(folder) = folders.pop_front() {
            self.visit_names(&folder, |entry, place, kind| {
                left = left.saturating_sub(1);
                if entry == name {
                    found.push(self.scope().spell_text(&place));
                }
                if kind == FileType::Directory && !entry.starts_with('.') {
                    folders.push_back(place);
                }
            });
            if left == 0 || found.len() >= MAX_NEAR {
                break;
            }
        }
        found.sort();
        found.truncate(MAX_NEAR);
        found
    }

    /// Files and folders of an admitted folder that are not blocked; links say too little to be hinted at.
    fn visit_names(&self, folder: &str, mut visit: impl FnMut(&str, String, FileType)) {
        if self.scope().admit(folder).is_err() {
            return;
        }
        let Ok(handle) = self.root().open_folder(folder) else { return };
        let mut left = MAX_ENTRIES;
        let _ = EntryBuffer::new().each(handle.as_fd(), |name, kind, _| {
            left -= 1;
            if let Ok(name) = name.to_str()
                && matches!(kind, FileType::RegularFile | FileType::Directory)
            {
                let place = join(folder, name);
                if !self.scope().blocks_entry(&place) && !self.scope().is_sibling_root(&place) {
                    visit(name, place, kind);
                }
            }
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}
