//! Walking the upper layer and comparing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use vambrace_core::block::BlockList;
use vambrace_core::repository::Repositories;

use super::facts::{EntryKind, Facts};
use super::link::{is_led_out, landing};
use super::repository::{Elsewhere, Sides};
use super::{Change, ChangeKind, Changes, Why, Withheld};
use crate::promote::UNFINISHED;
use crate::sys::mounting::{open_beneath, open_within};
use crate::task::Task;
use crate::walk::{DEEPEST, join};
use crate::wire::Bytes;

/// What to compare, and by which names to withhold.
pub(crate) struct Collect<'a> {
    /// The workspace itself.
    pub(crate) base: Arc<OwnedFd>,
    /// The layer that took the changes.
    pub(crate) upper: OwnedFd,
    /// The view that the program had; the upper layer itself when the view began empty.
    pub(crate) view: Option<OwnedFd>,
    pub(crate) masked: &'a BlockList,
    pub(crate) protected: &'a BlockList,
    pub(crate) scratch: &'a [String],
    pub(crate) since: i128,
    pub(crate) folder: Option<Arc<Task>>,
}

/// Every difference.
pub(crate) fn collect(what: Collect<'_>) -> Result<Changes, Errno> {
    let fresh = what.view.is_none();
    let upper = Arc::new(what.upper);
    let view = what.view.map_or_else(|| Arc::clone(&upper), Arc::new);
    let mut found = Found {
        base: what.base.as_fd(),
        view: view.as_fd(),
        masked: what.masked,
        protected: what.protected,
        scratch: what.scratch,
        since: what.since,
        fresh,
        changes: BTreeMap::new(),
        withheld: Vec::new(),
        staying: HashSet::new(),
        folders: HashMap::new(),
        repositories: Repositories::default(),
        elsewhere: Elsewhere::of(what.base.as_fd()),
    };
    found.folder(upper.as_fd(), Bytes::new())?;
    found.keep_what_is_not_empty();
    let (changes, withheld) = (found.changes, found.withheld);
    let list = with_renames(changes.into_values().collect(), view.as_fd());
    Ok(Changes { list, withheld, base: what.base, view, _folder: what.folder, since: what.since })
}

struct Found<'a> {
    base: BorrowedFd<'a>,
    view: BorrowedFd<'a>,
    masked: &'a BlockList,
    protected: &'a BlockList,
    scratch: &'a [String],
    since: i128,
    fresh: bool,
    changes: BTreeMap<Bytes, Change>,
    withheld: Vec<Withheld>,
    /// Folders with something in them that the program did not see or may not take away.
    staying: HashSet<Bytes>,
    /// Which folders of the workspace were changed meanwhile, as far as it was asked.
    folders: HashMap<Bytes, bool>,
    repositories: Repositories,
    /// Where repositories have hooks and settings under other names.
    elsewhere: Elsewhere,
}

impl<'a> Found<'a> {
    /// Everything in one folder of the upper layer.
    fn folder(&mut self, upper: BorrowedFd<'_>, path: Bytes) -> Result<(), Errno> {
        let mut ahead = vec![(path, false)];
        while let Some((path, new)) = ahead.pop() {
            let name: &[u8] = if path.is_empty() { b"." } else { &path };
            let handle = match open_beneath(upper, name, OFlags::RDONLY | OFlags::DIRECTORY) {
                Err(Errno::ACCESS) => {
                    self.withhold(&path, Why::Unreadable);
                    continue;
                }
                opened => opened?,
            };
            if !self.fresh && is_opaque(&handle) {
                self.deleted_below(&path)?;
            }
            for (name, kind, whiteout) in entries(&handle)? {
                let path = join(&path, &name);
                if self.scratch.iter().any(|scratch| scratch.as_bytes() == path) {
                    continue;
                }
                // What lies in a new folder is new.
                let unseen = new && path.len() <= DEEPEST;
                let Some(before) = (if unseen { Some(None) } else { self.before(&path)? }) else { continue };
                if whiteout && !self.fresh {
                    self.deleted(&path, before)?;
                } else {
                    let is_new = before.is_none();
                    let was_folder = before.as_ref().is_some_and(|before| before.kind == EntryKind::Folder);
                    let below = self.entry(&path, before, (handle.as_fd(), &name))?;
                    if kind == FileType::Directory {
                        ahead.extend(below.then_some((path, is_new)));
                    } else if was_folder && self.changes.contains_key(&path) {
                        // Where nothing takes the folder's place, what was in it stays.
                        self.deleted_below(&path)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One entry that is there in the view; says whether what lies below is to be looked at.
    /// `own` is where it lies in the upper layer: what the workspace does not have is nowhere else.
    fn entry(
        &mut self,
        path: &[u8],
        before: Option<Facts>,
        own: (BorrowedFd<'_>, &[u8]),
    ) -> Result<bool, Errno> {
        let (root, name) = if before.is_none() { own } else { (self.view, path) };
        let Some(after) = Facts::look(root, name)? else { return Ok(false) };
        let folder = after.kind == EntryKind::Folder;
        let was_folder = before.as_ref().is_some_and(|before| before.kind == EntryKind::Folder);
        // It would lead to hooks and settings that are not known by their names.
        let leads = (!folder && self.holds_hooks(path))
            || (before.is_none() && self.repositories.completed_by(&self.sides(), path));
        if let Some(why) = self.forbidden(path).or(leads.then_some(Why::Protected)) {
            // A folder that only passed through (copied up on the way) is no change.
            if why == Why::Masked || !(folder && was_folder) {
                self.withhold(path, why);
                return Ok(false);
            }
        }
        if self.fresh && before.is_some() {
            if folder && was_folder {
                return Ok(true);
            }
            self.withhold(path, Why::Exists);
            return Ok(false);
        }
        let why = match (after.kind, &after.target) {
            (EntryKind::Special, _) => Some(Why::Special),
            (EntryKind::Link, target) => self.astray(path, target.as_deref().unwrap_or(Path::new(""))),
            _ => None,
        };
        if let Some(why) = why {
            self.withhold(path, why);
            return Ok(false);
        }
        // A new file is compared with nothing; it is read once somebody wants to know.
        let unread = before.is_none() && after.mode & 0o400 != 0;
        let after = match if unread { Ok(after) } else { after.with_hash(root, name) } {
            Err(Errno::ACCESS) => {
                self.withhold(path, Why::Unreadable);
                return Ok(false);
            }
            hashed => hashed?,
        };
        let Some(before) = before else {
            if self.stale_above(path)? {
                self.withhold(path, Why::StaleBase);
                return Ok(false);
            }
            self.put(path, ChangeKind::Created, None, Some(after));
            return Ok(folder);
        };
        let before = match before.with_hash(self.base, path) {
            Err(Errno::ACCESS) => {
                self.withhold(path, Why::Unreadable);
                return Ok(false);
            }
            hashed => hashed?,
        };
        if before.kind == after.kind && before.attributes != after.attributes {
            self.withhold(path, Why::Attributes);
        }
        let same = before.kind == after.kind && before.hash == after.hash && before.target == after.target;
        let kind = match (same, before.mode == after.mode || after.kind == EntryKind::Link) {
            (true, true) => return Ok(folder),
            (true, false) => ChangeKind::Mode,
            (false, _) => ChangeKind::Modified,
        };
        if before.changed > self.since || self.stale_above(path)? {
            self.withhold(path, Why::StaleBase);
            return Ok(folder);
        }
        if before.kind == EntryKind::File && before.links > 1 {
            self.withhold(path, Why::OtherNames);
            if kind == ChangeKind::Mode {
                return Ok(false);
            }
        }
        self.put(path, kind, Some(before), Some(after));
        Ok(folder)
    }

    /// What the workspace has there; nothing at all where the program did not see that, and it stays as it is.
    fn before(&mut self, path: &[u8]) -> Result<Option<Option<Facts>>, Errno> {
        let why = match Facts::look(self.base, path) {
            _ if path.len() > DEEPEST => Why::TooDeep,
            Err(Errno::XDEV) => Why::Mounted,
            found => return found.map(Some),
        };
        if self.forbidden(path) != Some(Why::Masked) {
            self.withhold(path, why);
        }
        self.stays(path);
        Ok(None)
    }

    /// Why a link is not to be there: on the host it would lead out, or to a secret.
    fn astray(&self, path: &[u8], target: &Path) -> Option<Why> {
        let Some(place) = landing(path, target) else { return Some(Why::LeadsOutside) };
        // The workspace may have links of its user's that lead out, also where the program saw nothing.
        if is_led_out(self.view, &place) || is_led_out(self.base, &place) {
            return Some(Why::LeadsOutside);
        }
        self.masked.blocks(&String::from_utf8_lossy(&place)).map(|_| Why::Masked)
    }

    fn deleted(&mut self, path: &[u8], before: Option<Facts>) -> Result<(), Errno> {
        let Some(before) = before else { return Ok(()) };
        if before.kind == EntryKind::Folder {
            self.deleted_below(path)?;
        }
        self.gone(path, before)
    }

    fn gone(&mut self, path: &[u8], before: Facts) -> Result<(), Errno> {
        self.gone_unless_it_stays(path, before)?;
        if !self.changes.contains_key(path) {
            self.stays(path);
        }
        Ok(())
    }

    fn gone_unless_it_stays(&mut self, path: &[u8], before: Facts) -> Result<(), Errno> {
        if let Some(why) = self.forbidden(path) {
            // What was masked was never there for the program, so it did not delete it.
            if why != Why::Masked {
                self.withhold(path, why);
            }
            return Ok(());
        }
        if before.changed > self.since || self.stale_above(path)? {
            self.withhold(path, Why::StaleBase);
            return Ok(());
        }
        let before = match before.with_hash(self.base, path) {
            Err(Errno::ACCESS) => {
                self.withhold(path, Why::Unreadable);
                return Ok(());
            }
            hashed => hashed?,
        };
        self.put(path, ChangeKind::Deleted, Some(before), None);
        Ok(())
    }

    /// Then so does every folder above it.
    fn stays(&mut self, path: &[u8]) {
        let mut above = path;
        while let Some(cut) = above.iter().rposition(|byte| *byte == b'/') {
            above = above.get(..cut).unwrap_or_default();
            // With it, everything above it is known.
            if !self.staying.insert(above.to_vec()) {
                return;
            }
        }
    }

    /// A folder cannot go, nor anything take its place, while something is in it.
    fn keep_what_is_not_empty(&mut self) {
        for path in std::mem::take(&mut self.staying) {
            let goes = self.changes.get(&path).is_some_and(|change| {
                change.after.as_ref().is_none_or(|after| after.kind != EntryKind::Folder)
            });
            if goes {
                self.changes.remove(&path);
                self.withhold(&path, Why::NotEmpty);
            }
        }
    }

    /// Everything of the workspace below a folder that the view does not have.
    fn deleted_below(&mut self, path: &[u8]) -> Result<(), Errno> {
        let mut ahead = vec![path.to_vec()];
        while let Some(path) = ahead.pop() {
            let name: &[u8] = if path.is_empty() { b"." } else { &path };
            let handle = match open_within(self.base, name, OFlags::RDONLY | OFlags::DIRECTORY) {
                Err(Errno::ACCESS) => {
                    self.withhold(&path, Why::Unreadable);
                    self.stays(&join(&path, b"."));
                    continue;
                }
                // No folder in the workspace: then nothing was in it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened?,
            };
            for (name, ..) in entries(&handle)? {
                let path = join(&path, &name);
                match Facts::look(self.view, &path) {
                    Ok(None) => {}
                    // A build folder of the run's own.
                    Ok(Some(_)) | Err(Errno::XDEV) => continue,
                    Err(errno) => return Err(errno),
                }
                let Some(before) = self.before(&path)?.flatten() else { continue };
                if before.kind == EntryKind::Folder {
                    ahead.push(path.clone());
                }
                self.gone(&path, before)?;
            }
        }
        Ok(())
    }

    /// Whether a folder above was changed by somebody else while the program ran: an entry came, went or moved there,
    /// and what the program saw is not what is there now.
    fn stale_above(&mut self, path: &[u8]) -> Result<bool, Errno> {
        let mut end = path.len();
        loop {
            let cut = path.get(..end).and_then(|head| head.iter().rposition(|byte| *byte == b'/'));
            let above = cut.and_then(|cut| path.get(..cut)).unwrap_or_default().to_vec();
            let stale = match self.folders.get(&above) {
                Some(stale) => *stale,
                None => {
                    let name: &[u8] = if above.is_empty() { b"." } else { &above };
                    let facts = Facts::look(self.base, name)?;
                    let stale = facts.is_some_and(|facts| facts.changed > self.since);
                    self.folders.insert(above, stale);
                    stale
                }
            };
            match cut {
                _ if stale => return Ok(true),
                None => return Ok(false),
                Some(cut) => end = cut,
            }
        }
    }

    fn sides(&self) -> Sides<'a> {
        Sides { base: self.base, view: self.view }
    }

    fn forbidden(&mut self, path: &[u8]) -> Option<Why> {
        let text = String::from_utf8_lossy(path);
        // What lies in such a folder is put into place after a crash.
        if text.split('/').any(|part| part.starts_with(UNFINISHED)) {
            return Some(Why::Protected);
        }
        if self.masked.blocks(&text).is_some() {
            return Some(Why::Masked);
        }
        let sides = self.sides();
        let protected = self.protected.blocks(&text).is_some()
            || self.elsewhere.holds(path)
            || self.repositories.configured_by(&sides, path);
        protected.then_some(Why::Protected)
    }

    /// Whether hooks lie there, were it a folder.
    fn holds_hooks(&self, path: &[u8]) -> bool {
        self.protected.blocks_entry(&String::from_utf8_lossy(&join(path, b"hooks"))).is_some()
    }

    fn put(&mut self, path: &[u8], kind: ChangeKind, before: Option<Facts>, after: Option<Facts>) {
        let change = Change { path: PathBuf::from(OsStr::from_bytes(path)), kind, before, after };
        self.changes.insert(path.to_vec(), change);
    }

    fn withhold(&mut self, path: &[u8], why: Why) {
        self.withheld.push(Withheld { path: PathBuf::from(OsStr::from_bytes(path)), why });
    }
}

/// The names of a folder with their kinds, and whether each is a whiteout.
fn entries(handle: &OwnedFd) -> Result<Vec<(Bytes, FileType, bool)>, Errno> {
    let mut list = Vec::new();
    let mut folder = Dir::read_from(handle.as_fd())?;
    while let Some(entry) = folder.read() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let mut kind = entry.file_type();
        let mut whiteout = false;
        if matches!(kind, FileType::Unknown | FileType::CharacterDevice) {
            let facts = rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(facts.st_mode);
            whiteout = kind == FileType::CharacterDevice && facts.st_rdev == 0;
        }
        list.push((name.to_bytes().to_vec(), kind, whiteout));
    }
    Ok(list)
}

/// Whether nothing of the layers below shines through.
fn is_opaque(folder: &OwnedFd) -> bool {
    ["user.overlay.opaque", "trusted.overlay.opaque"].into_iter().any(|name| {
        let mut value = [0; 1];
        rustix::fs::fgetxattr(folder, name, &mut value).is_ok() && value == *b"y"
    })
}

fn replaces_folder(change: &Change) -> bool {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    before.is_some_and(|before| before.kind == EntryKind::Folder)
        && after.is_some_and(|after| after.kind != EntryKind::Folder)
}

/// A deleted file and a created one with the same content and mode are one file that moved. A new file is read for that
/// only where a file of its size and mode is gone.
fn with_renames(mut list: Vec<Change>, view: BorrowedFd<'_>) -> Vec<Change> {
    let looks =
        |facts: &Facts| (facts.kind == EntryKind::File && facts.size > 0).then_some((facts.size, facts.mode));
    let mut sizes = HashSet::new();
    let mut gone: HashMap<_, Vec<(PathBuf, Facts)>> = HashMap::new();
    // What lies where something else comes must be gone before that, so it is not there any more to be moved.
    let replaced: HashSet<&Path> =
        list.iter().filter(|one| replaces_folder(one)).map(|one| &*one.path).collect();
    let makes_room = |change: &Change| change.path.ancestors().any(|above| replaced.contains(above));
    let deleted = list.iter().filter(|change| change.kind == ChangeKind::Deleted);
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
