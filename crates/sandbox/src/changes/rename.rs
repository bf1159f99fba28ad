//! Rename detection: pairs a deleted file with a created one of the same content.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::metadata::{EntryMetadata, FileKind};
use super::{ChangeKind, EntryChange};

/// How much of created files is read beyond the size of the deleted ones, in bytes; past it, files count as created.
const MAX_EXTRA_READ_BYTES: u64 = 1 << 30;

/// Turns a deleted file and a created one with the same content and mode into one rename. Files are read for that only if
/// there are both of the same size and mode. A file with a set-id bit would keep the bit under its new name, so it
/// stays a deletion and a creation, without the bit.
pub(super) fn with_renames(
    mut list: Vec<EntryChange>,
    base: BorrowedFd<'_>,
    view: BorrowedFd<'_>,
) -> Vec<EntryChange> {
    let looks = |facts: &EntryMetadata| {
        (facts.kind == FileKind::File && facts.size > 0).then_some((facts.size, facts.mode))
    };
    let mut unread: HashMap<_, Vec<(PathBuf, EntryMetadata)>> = HashMap::new();
    let mut left = MAX_EXTRA_READ_BYTES;
    // What is below a directory that something else replaces must be deleted before that, so it cannot be a rename source.
    let replaced: HashSet<&Path> =
        list.iter().filter(|one| replaces_directory(one)).map(|one| &*one.path).collect();
    let makes_room = |change: &EntryChange| change.path.ancestors().any(|above| replaced.contains(above));
    let keeps_no_bit = |change: &&EntryChange| change.before.as_ref().is_some_and(|before| !before.set_id);
    let deleted = list.iter().filter(|change| change.kind == ChangeKind::Deleted).filter(keeps_no_bit);
    for change in deleted.filter(|change| replaced.is_empty() || !makes_room(change)) {
        if let Some((before, key)) = change.before.as_ref().and_then(|facts| Some((facts, looks(facts)?))) {
            unread.entry(key).or_default().push((change.path.clone(), before.clone()));
            left = left.saturating_add(before.size);
        }
    }
    let mut gone: HashMap<_, Vec<(PathBuf, EntryMetadata)>> = HashMap::new();
    let mut moved: HashSet<PathBuf> = HashSet::new();
    for change in list.iter_mut().filter(|change| change.kind == ChangeKind::Created) {
        let Some(after) = change.after.clone() else { continue };
        let Some(alike) = looks(&after).and_then(|key| unread.get_mut(&key)) else { continue };
        let Some(rest) = left.checked_sub(after.size) else { continue };
        left = rest;
        // A file that can no longer be read does not count as renamed.
        let read =
            |facts: EntryMetadata, root, path: &Path| facts.with_hash(root, path.as_os_str().as_bytes()).ok();
        for (path, before) in std::mem::take(alike) {
            let Some(before) = read(before, base, &path) else { continue };
            gone.entry((before.hash, before.mode)).or_default().push((path, before));
        }
        let Some(after) = read(after, view, &change.path) else { continue };
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

fn replaces_directory(change: &EntryChange) -> bool {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    before.is_some_and(|before| before.kind == FileKind::Directory)
        && after.is_some_and(|after| after.kind != FileKind::Directory)
}
