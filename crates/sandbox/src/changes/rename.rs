//! Which of the files that are new and of those that are gone are one file that moved.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::facts::{EntryKind, Facts};
use super::{Change, ChangeKind};

/// A deleted file and a created one with the same content and mode are one file that moved. A new file is read for that
/// only where a file of its size and mode is gone. One with a set-id bit would keep it under its new name, so it does not
/// move: it goes, and another comes without the bit.
pub(super) fn with_renames(mut list: Vec<Change>, view: BorrowedFd<'_>) -> Vec<Change> {
    let looks =
        |facts: &Facts| (facts.kind == EntryKind::File && facts.size > 0).then_some((facts.size, facts.mode));
    let mut sizes = HashSet::new();
    let mut gone: HashMap<_, Vec<(PathBuf, Facts)>> = HashMap::new();
    // What lies where something else comes must be gone before that, so it is not there any more to be moved.
    let replaced: HashSet<&Path> =
        list.iter().filter(|one| replaces_folder(one)).map(|one| &*one.path).collect();
    let makes_room = |change: &Change| change.path.ancestors().any(|above| replaced.contains(above));
    let keeps_no_bit = |change: &&Change| change.before.as_ref().is_some_and(|before| !before.set_id);
    let deleted = list.iter().filter(|change| change.kind == ChangeKind::Deleted).filter(keeps_no_bit);
    for change in deleted.filter(|change| replaced.is_empty() || !makes_room(change)) {
        if let Some((before, key)) = change.before.as_ref().and_then(|facts| Some((facts, looks(facts)?))) {
            sizes.insert(key);
            let same = gone.entry((before.hash, before.mode)).or_default();
            same.push((change.path.clone(), before.clone()));
        }
    }
    let mut moved: HashSet<PathBuf> = HashSet::new();
    for change in list.iter_mut().filter(|change| change.kind == ChangeKind::Created) {
        let maybe = change.after.as_ref().and_then(looks).is_some_and(|key| sizes.contains(&key));
        let Some(after) = change.after.clone().filter(|_| maybe) else { continue };
        // One that cannot be read any more is not known to have moved.
        let Ok(after) = after.with_hash(view, change.path.as_os_str().as_bytes()) else { continue };
        if let Some((from, before)) = gone.get_mut(&(after.hash, after.mode)).and_then(Vec::pop) {
            moved.insert(from.clone());
            change.before = Some(before);
            change.kind = ChangeKind::Renamed { from };
        }
        change.after = Some(after);
    }
    list.retain(|change| !(change.kind == ChangeKind::Deleted && moved.contains(&change.path)));
    list
}

fn replaces_folder(change: &Change) -> bool {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    before.is_some_and(|before| before.kind == EntryKind::Folder)
        && after.is_some_and(|after| after.kind != EntryKind::Folder)
}
