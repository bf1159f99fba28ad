//! Which of many changes a result lists: whoever reads it is not flooded, and hears how many more there are.
//!
//! **Invariant.** Only what is told is bounded. What is not listed stays in [`Changes`], and is taken over like the rest.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{Change, ChangeKind, Changes, Facts, Withheld};

/// So many entries of a list are told ...
const MOST_ENTRIES: usize = 5_000;
/// ... with so many bytes of names.
const MOST_BYTES: usize = 1 << 20;

/// What of the changes of one run is told.
#[derive(Debug)]
pub struct Listing<'a> {
    /// By path. What was there before comes first where not all have room: no crowd of new files hides it.
    pub changes: Vec<&'a Change>,
    /// What is not taken over.
    pub withheld: Vec<&'a Withheld>,
    /// How many changes are not listed, by kind.
    pub more: BTreeMap<&'static str, usize>,
    /// How many that are not taken over are not listed.
    pub withheld_more: usize,
}

impl<'a> Listing<'a> {
    /// Everything.
    #[must_use]
    pub fn whole(changes: &'a Changes) -> Self {
        Self {
            changes: changes.list.iter().collect(),
            withheld: changes.withheld.iter().collect(),
            more: BTreeMap::new(),
            withheld_more: 0,
        }
    }

    pub(super) fn of(list: &'a [Change], withheld: &'a [Withheld]) -> Self {
        let (there, new): (Vec<_>, Vec<_>) = list.iter().partition(|change| change.before.is_some());
        let mut changes: Vec<&Change> = there.into_iter().chain(new).collect();
        let mut more = BTreeMap::new();
        for left_out in changes.split_off(room_for(changes.iter().map(|change| letters(change)))) {
            *more.entry(left_out.kind.as_str()).or_default() += 1;
        }
        changes.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
        let told = room_for(withheld.iter().map(|one| length(&one.path)));
        let withheld_more = withheld.len() - told;
        Self { changes, withheld: withheld.iter().take(told).collect(), more, withheld_more }
    }

    /// Whether nothing is left out.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.more.is_empty() && self.withheld_more == 0
    }
}

/// How many entries with such lengths are told.
fn room_for(lengths: impl Iterator<Item = usize>) -> usize {
    let mut left = MOST_BYTES;
    let fits = |length: &usize| left.checked_sub(*length).map(|rest| left = rest).is_some();
    lengths.take(MOST_ENTRIES).take_while(fits).count()
}

/// How long the names in a change are that a program can choose.
fn letters(change: &Change) -> usize {
    let from = match &change.kind {
        ChangeKind::Renamed { from } => length(from),
        _ => 0,
    };
    let target =
        |facts: &Option<Facts>| facts.as_ref().and_then(|facts| facts.target.as_deref()).map_or(0, length);
    length(&change.path) + from + target(&change.before) + target(&change.after)
}

fn length(path: &Path) -> usize {
    path.as_os_str().as_bytes().len()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::changes::{EntryKind, Why};

    fn facts() -> Facts {
        Facts {
            kind: EntryKind::Link,
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

    fn created(path: String, target: usize) -> Change {
        let after = Facts { target: Some(PathBuf::from("t".repeat(target))), ..facts() };
        Change { path: path.into(), kind: ChangeKind::Created, before: None, after: Some(after) }
    }

    // P9: however many there are, and however long
    #[test]
    fn what_is_told_is_bounded_and_what_is_left_out_is_counted() {
        let withheld = |path: String| Withheld { path: path.into(), why: Why::Protected };
        let check = |list: &[Change], kept: &[Withheld], listed: (usize, usize)| {
            let listing = Listing::of(list, kept);
            assert_eq!((listing.changes.len(), listing.withheld.len()), listed);
            let more = listing.more.values().sum::<usize>();
            assert_eq!((listed.0 + more, listed.1 + listing.withheld_more), (list.len(), kept.len()));
            assert_eq!(listing.is_whole(), listed == (list.len(), kept.len()));
        };
        check(&[], &[], (0, 0));
        let many: Vec<_> = (0..6_000).map(|number| created(format!("f{number}"), 0)).collect();
        let kept: Vec<_> = (0..6_000).map(|number| withheld(format!("f{number}"))).collect();
        check(&many, &kept, (5_000, 5_000));
        let long: Vec<_> = (0..600).map(|number| created(format!("{number:01024}"), 2048)).collect();
        let kept: Vec<_> = (0..600).map(|number| withheld(format!("{number:04096}"))).collect();
        check(&long, &kept, (341, 256));
    }

    // B6: what a person would miss is not pushed out by what nobody misses
    #[test]
    fn new_files_do_not_crowd_out_what_was_there() {
        let mut list: Vec<_> = (0..9_000).map(|number| created(format!("a{number:04}"), 0)).collect();
        let before = Some(facts());
        let kind = ChangeKind::Deleted;
        list.push(Change { path: "z".into(), kind, before: before.clone(), after: None });
        let kind = ChangeKind::Renamed { from: "y".into() };
        list.insert(0, Change { path: "a".into(), kind, before, after: Some(facts()) });
        let listing = Listing::of(&list, &[]);
        let names: Vec<_> = listing.changes.iter().map(|change| change.path.to_str().unwrap()).collect();
        assert_eq!((names.first(), names.last()), (Some(&"a"), Some(&"z")));
        assert!(names.is_sorted());
        assert_eq!(listing.more.into_iter().collect::<Vec<_>>(), [("created", 4_002)]);
    }
}
