//! Which of many changes a report lists: a bounded number, and how many more there are.
//!
//! **Invariant.** Only the report is bounded. What is not listed stays in [`RunChanges`] and is written back like the rest.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{ChangeKind, EntryChange, EntryMetadata, RunChanges, WithheldChange};

/// Maximum number of entries in each list.
const MAX_LISTED: usize = 5_000;
/// Maximum size of the names in each list, in bytes.
const MAX_NAME_BYTES: usize = 1 << 20;

/// The changes of one run that a report lists.
#[derive(Debug)]
pub struct ChangeListing<'a> {
    /// Ordered by path. If not all fit, changes of existing files take precedence: many new files cannot hide them.
    pub changes: Vec<&'a EntryChange>,
    /// What is not written back.
    pub withheld: Vec<&'a WithheldChange>,
    /// How many changes are omitted, by kind.
    pub omitted: BTreeMap<&'static str, usize>,
    /// How many withheld changes are omitted.
    pub withheld_omitted: usize,
}

impl<'a> ChangeListing<'a> {
    /// Lists everything.
    #[must_use]
    pub fn all(changes: &'a RunChanges) -> Self {
        Self {
            changes: changes.list.iter().collect(),
            withheld: changes.withheld.iter().collect(),
            omitted: BTreeMap::new(),
            withheld_omitted: 0,
        }
    }

    pub(super) fn of(list: &'a [EntryChange], withheld: &'a [WithheldChange]) -> Self {
        let (there, new): (Vec<_>, Vec<_>) = list.iter().partition(|change| change.before.is_some());
        let mut changes: Vec<&EntryChange> = there.into_iter().chain(new).collect();
        let mut omitted = BTreeMap::new();
        for left_out in changes.split_off(count_fitting(changes.iter().map(|change| name_bytes(change)))) {
            *omitted.entry(left_out.kind.as_str()).or_default() += 1;
        }
        changes.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
        let listed_withheld = count_fitting(withheld.iter().map(|one| length(&one.path)));
        let withheld_omitted = withheld.len() - listed_withheld;
        Self { changes, withheld: withheld.iter().take(listed_withheld).collect(), omitted, withheld_omitted }
    }

    /// Whether nothing is omitted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.omitted.is_empty() && self.withheld_omitted == 0
    }
}

/// How many entries with these lengths fit.
fn count_fitting(lengths: impl Iterator<Item = usize>) -> usize {
    let mut left = MAX_NAME_BYTES;
    let fits = |length: &usize| left.checked_sub(*length).map(|rest| left = rest).is_some();
    lengths.take(MAX_LISTED).take_while(fits).count()
}

/// Total length of the names in a change that the program can choose, in bytes.
fn name_bytes(change: &EntryChange) -> usize {
    let from = match &change.kind {
        ChangeKind::Renamed { from } => length(from),
        _ => 0,
    };
    let target = |facts: &Option<EntryMetadata>| {
        facts.as_ref().and_then(|facts| facts.target.as_deref()).map_or(0, length)
    };
    length(&change.path) + from + target(&change.before) + target(&change.after)
}

fn length(path: &Path) -> usize {
    path.as_os_str().as_bytes().len()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::changes::{FileKind, WithheldReason};

    fn facts() -> EntryMetadata {
        EntryMetadata {
            kind: FileKind::Symlink,
            mode: 0o777,
            set_id: false,
            size: 0,
            hash: None,
            attributes: None,
            target: None,
            changed: 0,
            inode: 1,
            links: 1,
        }
    }

    fn created(path: String, target: usize) -> EntryChange {
        let after = EntryMetadata { target: Some(PathBuf::from("t".repeat(target))), ..facts() };
        EntryChange { path: path.into(), kind: ChangeKind::Created, before: None, after: Some(after) }
    }

    // P9: however many there are, and however long
    #[test]
    fn listing_is_bounded_and_counts_what_it_omits() {
        let withheld = |path: String| WithheldChange { path: path.into(), why: WithheldReason::Protected };
        let check = |list: &[EntryChange], kept: &[WithheldChange], listed: (usize, usize)| {
            let listing = ChangeListing::of(list, kept);
            assert_eq!((listing.changes.len(), listing.withheld.len()), listed);
            let omitted = listing.omitted.values().sum::<usize>();
            assert_eq!((listed.0 + omitted, listed.1 + listing.withheld_omitted), (list.len(), kept.len()));
            assert_eq!(listing.is_complete(), listed == (list.len(), kept.len()));
        };
        check(&[], &[], (0, 0));
        let many: Vec<_> = (0..6_000).map(|number| created(format!("f{number}"), 0)).collect();
        let kept: Vec<_> = (0..6_000).map(|number| withheld(format!("f{number}"))).collect();
        check(&many, &kept, (5_000, 5_000));
        let long: Vec<_> = (0..600).map(|number| created(format!("{number:01024}"), 2048)).collect();
        let kept: Vec<_> = (0..600).map(|number| withheld(format!("{number:04096}"))).collect();
        check(&long, &kept, (341, 256));
    }

    // B6: a user must see the loss of existing files before any new file
    #[test]
    fn new_files_do_not_hide_changes_of_existing_files() {
        let mut list: Vec<_> = (0..9_000).map(|number| created(format!("a{number:04}"), 0)).collect();
        let before = Some(facts());
        let kind = ChangeKind::Deleted;
        list.push(EntryChange { path: "z".into(), kind, before: before.clone(), after: None });
        let kind = ChangeKind::Renamed { from: "y".into() };
        list.insert(0, EntryChange { path: "a".into(), kind, before, after: Some(facts()) });
        let listing = ChangeListing::of(&list, &[]);
        let names: Vec<_> = listing.changes.iter().map(|change| change.path.to_str().unwrap()).collect();
        assert_eq!((names.first(), names.last()), (Some(&"a"), Some(&"z")));
        assert!(names.is_sorted());
        assert_eq!(listing.omitted.into_iter().collect::<Vec<_>>(), [("created", 4_002)]);
    }
}
