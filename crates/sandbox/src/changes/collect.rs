//! Walking the upper layer and comparing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use vambrace_core::block::BlockList;
use vambrace_core::repository::Repositories;

use super::facts::{EntryKind, Facts, alike};
use super::folder::{each_entry, folder_of, is_opaque, or_dot, split};
use super::link::{is_led_out, landing};
use super::rename::with_renames;
use super::repository::{Elsewhere, Sides, longer_names};
use super::{Change, ChangeKind, Changes, Why, Withheld};
use crate::promote::UNFINISHED;
use crate::sys::mounting::{open_beneath, open_within};
use crate::task::Task;
use crate::walk::{DEEPEST, join};
use crate::wire::{Bytes, Scratch};

/// What to compare, and by which names to withhold.
pub(crate) struct Collect<'a> {
    /// The workspace itself.
    pub(crate) base: Arc<OwnedFd>,
    /// The layer that took the changes.
    pub(crate) upper: OwnedFd,
    /// The view that the program had; the upper layer itself when the view began empty.
    pub(crate) view: Option<OwnedFd>,
    pub(crate) masked: &'a BlockList,
    /// What did not exist for the program whatever its name.
    pub(crate) barred: Vec<Bytes>,
    pub(crate) protected: &'a BlockList,
    /// Names of build folders, and those of them that were the run's own.
    pub(crate) scratch: &'a [String],
    pub(crate) own_scratch: &'a [Scratch],
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
        barred: what.barred,
        protected: what.protected,
        scratch: what.scratch,
        own_scratch: what.own_scratch,
        since: what.since,
        fresh,
        changes: BTreeMap::new(),
        withheld: Vec::new(),
        staying: HashSet::new(),
        around: Around::default(),
        stale: HashMap::new(),
        repositories: Repositories::default(),
        elsewhere: Elsewhere::of(what.base.as_fd(), what.protected),
    };
    found.walk(upper.as_fd())?;
    found.keep_what_is_not_empty();
    let (changes, withheld) = (found.changes, found.withheld);
    let list = changes.into_iter().map(|(path, change)| change.at(path)).collect();
    let list = with_renames(list, what.base.as_fd(), view.as_fd());
    Ok(Changes { list, withheld, base: what.base, view, _folder: what.folder, since: what.since })
}

struct Found<'a> {
    base: BorrowedFd<'a>,
    view: BorrowedFd<'a>,
    masked: &'a BlockList,
    barred: Vec<Bytes>,
    protected: &'a BlockList,
    scratch: &'a [String],
    own_scratch: &'a [Scratch],
    since: i128,
    fresh: bool,
    changes: BTreeMap<Bytes, Box<Difference>>,
    withheld: Vec<Withheld>,
    /// Folders with something in them that the program did not see or may not take away.
    staying: HashSet<Bytes>,
    /// What was asked last about a folder: what lies in it comes one after the other.
    around: Around,
    /// Which folders of the workspace, or one above them, were changed meanwhile, as far as it was asked.
    stale: HashMap<Bytes, bool>,
    repositories: Repositories,
    /// Where hooks and settings have other names.
    elsewhere: Elsewhere<'a>,
}

/// A change without its path, by which it is known.
struct Difference {
    kind: ChangeKind,
    before: Option<Facts>,
    after: Option<Facts>,
}

impl Difference {
    fn at(self, path: Bytes) -> Change {
        let Self { kind, before, after } = self;
        Change { path: OsString::from_vec(path).into(), kind, before, after }
    }
}

/// What the names of a folder, and of those above it, say about everything in it.
#[derive(Default)]
struct Around {
    folder: Bytes,
    unfinished: bool,
    masked: bool,
    protected: bool,
}

/// What a folder of the upper layer lies over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Over {
    /// What the workspace has there, which shines through.
    Shown,
    /// That, and nothing of it shines through: the folder, or one above it, was made anew.
    Hidden,
    /// Nothing: it is new.
    Nothing,
}

/// A folder of the upper layer, and the same folder on either side as far as it is there.
struct Here<'h> {
    own: BorrowedFd<'h>,
    base: Option<BorrowedFd<'h>>,
    view: Option<BorrowedFd<'h>>,
}

/// An entry of one of the sides: the folder, and its name in there.
type Place<'p> = (BorrowedFd<'p>, &'p [u8]);

impl<'a> Found<'a> {
    /// Everything in the upper layer.
    fn walk(&mut self, upper: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut ahead = vec![(Bytes::new(), Over::Shown)];
        while let Some((path, over)) = ahead.pop() {
            match self.folder(upper, (&path, over), &mut ahead) {
                Err(Errno::ACCESS) => self.stays_closed(&path, Why::Unreadable),
                looked => looked?,
            }
        }
        Ok(())
    }

    /// What is in one folder of the upper layer.
    fn folder(
        &mut self,
        upper: BorrowedFd<'_>,
        (path, over): (&[u8], Over),
        ahead: &mut Vec<(Bytes, Over)>,
    ) -> Result<(), Errno> {
        let own = open_beneath(upper, or_dot(path), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let new = over == Over::Nothing;
        // The kernel marks the outermost folder only.
        let hidden = !self.fresh && !new && (over == Over::Hidden || is_opaque(&own));
        if hidden {
            self.deleted_below(path)?;
        }
        // What lies in a new folder is new.
        let base = match if new { Ok(None) } else { folder_of(self.base, path) } {
            Err(Errno::XDEV) => {
                self.stays_closed(path, Why::Mounted);
                return Ok(());
            }
            base => base?,
        };
        let view = if new || self.fresh { None } else { folder_of(self.view, path)? };
        let view = if self.fresh { Some(own.as_fd()) } else { view.as_ref().map(OwnedFd::as_fd) };
        let here = Here { own: own.as_fd(), base: base.as_ref().map(OwnedFd::as_fd), view };
        each_entry(&own, |name, kind, whiteout| {
            let path = join(path, name);
            let over = self.one(&here, &path, (name, kind, whiteout))?;
            ahead.extend(over.map(|over| (path, if hidden { over.max(Over::Hidden) } else { over })));
            Ok(())
        })
    }

    /// What is in this folder cannot be compared, and is left as it is.
    fn stays_closed(&mut self, path: &[u8], why: Why) {
        self.withhold(path, why);
        self.stays(&join(path, b"."));
    }

    /// One entry of the upper layer. Of a folder that is to be looked into, whether the workspace has something there.
    fn one(
        &mut self,
        here: &Here<'_>,
        path: &[u8],
        (name, kind, whiteout): (&[u8], FileType, bool),
    ) -> Result<Option<Over>, Errno> {
        if self.scratch.iter().any(|scratch| scratch.as_bytes() == path) {
            // Over what is here the run's own was mounted.
            if !self.own_scratch.iter().any(|own| own.name == path) {
                self.withhold(path, Why::BuildFolder);
            }
            return Ok(None);
        }
        let base = here.base.map(|base| (base, name));
        let Some(before) = self.before(path, base)? else { return Ok(None) };
        if whiteout && !self.fresh {
            if let (Some(before), Some(base)) = (before, base) {
                self.deleted(path, before, base)?;
            }
            return Ok(None);
        }
        let is_new = before.is_none();
        let was_folder = before.as_ref().is_some_and(|before| before.kind == EntryKind::Folder);
        let below = self.entry(path, name, before, here)?;
        if kind == FileType::Directory {
            return Ok(below.then_some(if is_new { Over::Nothing } else { Over::Shown }));
        }
        if was_folder && self.changes.contains_key(path) {
            // Where nothing takes the folder's place, what was in it stays.
            self.deleted_below(path)?;
        }
        Ok(None)
    }

    /// One entry that is there in the view; says whether what lies below is to be looked at.
    fn entry(
        &mut self,
        path: &[u8],
        name: &[u8],
        before: Option<Facts>,
        here: &Here<'_>,
    ) -> Result<bool, Errno> {
        // What the workspace does not have is nowhere else.
        let Some(root) = (if before.is_none() { Some(here.own) } else { here.view }) else {
            return Ok(false);
        };
        let Some(after) = Facts::look(root, name)? else { return Ok(false) };
        if let Some(why) = self.kept_out(path, before.as_ref(), &after) {
            self.withhold(path, why);
            return Ok(false);
        }
        if self.fresh && before.is_some() {
            return Ok(true);
        }
        // A new file is compared with nothing; it is read once somebody wants to know.
        let unread = before.is_none() && after.mode & 0o400 != 0;
        let after = match unread {
            true => Some(after),
            false => self.opened(path, after, (root, name))?,
        };
        let Some(after) = after else { return Ok(false) };
        match (before, here.base) {
            (Some(before), Some(base)) => self.compared(path, (before, (base, name)), (after, (root, name))),
            (Some(_), None) => Ok(false),
            (None, _) if self.stale_above(path)? => {
                self.withhold(path, Why::StaleBase);
                Ok(false)
            }
            (None, _) => {
                let folder = after.kind == EntryKind::Folder;
                self.put(path, ChangeKind::Created, None, Some(after));
                Ok(folder)
            }
        }
    }

    /// Why an entry is not to be there at all, by its name, its kind or where it leads.
    fn kept_out(&mut self, path: &[u8], before: Option<&Facts>, after: &Facts) -> Option<Why> {
        let folder = after.kind == EntryKind::Folder;
        // A folder that only passed through (copied up on the way) is no change.
        let passes = folder && before.is_some_and(|before| before.kind == EntryKind::Folder);
        let forbidden = self.forbidden(path);
        // It would lead to hooks and settings that are not known by their names.
        let leads = (!folder && self.holds_hooks(path))
            || (after.kind == EntryKind::Link && self.holds_settings(path))
            || (before.is_none() && self.repositories.completed_by(&self.sides(), path));
        let forbidden = forbidden.or(leads.then_some(Why::Protected));
        if let Some(why) = forbidden.filter(|why| *why == Why::Masked || !passes) {
            return Some(why);
        }
        if self.fresh && before.is_some() {
            return (!passes).then_some(Why::Exists);
        }
        match after.kind {
            EntryKind::Special => Some(Why::Special),
            EntryKind::Link => self.astray(path, after.target.as_deref().unwrap_or(Path::new(""))),
            EntryKind::File | EntryKind::Folder => None,
        }
    }

    /// What was there before, with what is there now; says whether what lies below is to be looked at.
    fn compared(
        &mut self,
        path: &[u8],
        (before, base): (Facts, Place<'_>),
        (after, view): (Facts, Place<'_>),
    ) -> Result<bool, Errno> {
        let Some(before) = self.opened(path, before, base)? else { return Ok(false) };
        if before.kind == after.kind && before.attributes != after.attributes {
            self.withhold(path, Why::Attributes);
        }
        let folder = after.kind == EntryKind::Folder;
        let looks = |facts: &Facts| (facts.kind, facts.size, facts.target.clone());
        let same = looks(&before) == looks(&after)
            && (before.kind != EntryKind::File || alike(before.size, base, view)?);
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

    /// Ready to be compared; nothing, and told, where it is closed to us.
    fn opened(
        &mut self,
        path: &[u8],
        facts: Facts,
        (folder, name): Place<'_>,
    ) -> Result<Option<Facts>, Errno> {
        match facts.with_attributes(folder, name) {
            Err(Errno::ACCESS) => {
                self.withhold(path, Why::Unreadable);
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// What the workspace has there; nothing at all where the program did not see that, and it stays as it is.
    fn before(&mut self, path: &[u8], base: Option<Place<'_>>) -> Result<Option<Option<Facts>>, Errno> {
        let why = match base.map_or(Ok(None), |(folder, name)| Facts::look(folder, name)) {
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

    fn deleted(&mut self, path: &[u8], before: Facts, base: Place<'_>) -> Result<(), Errno> {
        if before.kind == EntryKind::Folder {
            self.deleted_below(path)?;
        }
        self.gone(path, before, base)
    }

    fn gone(&mut self, path: &[u8], before: Facts, base: Place<'_>) -> Result<(), Errno> {
        self.gone_unless_it_stays(path, before, base)?;
        if !self.changes.contains_key(path) {
            self.stays(path);
        }
        Ok(())
    }

    fn gone_unless_it_stays(&mut self, path: &[u8], before: Facts, base: Place<'_>) -> Result<(), Errno> {
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
        if let Some(before) = self.opened(path, before, base)? {
            self.put(path, ChangeKind::Deleted, Some(before), None);
        }
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
            match self.deleted_in(&path, &mut ahead) {
                Err(Errno::ACCESS) => self.stays_closed(&path, Why::Unreadable),
                looked => looked?,
            }
        }
        Ok(())
    }

    fn deleted_in(&mut self, path: &[u8], ahead: &mut Vec<Bytes>) -> Result<(), Errno> {
        let handle = match open_within(self.base, or_dot(path), OFlags::RDONLY | OFlags::DIRECTORY) {
            // No folder in the workspace: then nothing was in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened?,
        };
        let view = match folder_of(self.view, path) {
            // A build folder of the run's own.
            Err(Errno::XDEV) => return Ok(()),
            view => view?,
        };
        each_entry(&handle, |name, _, _| {
            let path = join(path, name);
            match view.as_ref().map_or(Ok(None), |view| Facts::look(view.as_fd(), name)) {
                Ok(None) => {}
                Ok(Some(_)) | Err(Errno::XDEV) => return Ok(()),
                Err(errno) => return Err(errno),
            }
            let base = (handle.as_fd(), name);
            let Some(before) = self.before(&path, Some(base))?.flatten() else { return Ok(()) };
            let folder = before.kind == EntryKind::Folder;
            self.gone(&path, before, base)?;
            ahead.extend(folder.then_some(path));
            Ok(())
        })
    }

    /// Whether a folder above was changed by somebody else while the program ran: an entry came, went or moved there,
    /// and what the program saw is not what is there now.
    fn stale_above(&mut self, path: &[u8]) -> Result<bool, Errno> {
        let (folder, _) = split(path);
        if let Some(known) = self.stale.get(folder) {
            return Ok(*known);
        }
        let ends = folder.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let whole = Some(folder.len()).filter(|length| *length > 0);
        let mut stale = false;
        for above in std::iter::once(0).chain(ends).chain(whole).filter_map(|end| folder.get(..end)) {
            stale = match self.stale.get(above) {
                Some(known) => *known,
                None => {
                    let facts = Facts::look(self.base, or_dot(above))?;
                    let stale = stale || facts.is_some_and(|facts| facts.changed > self.since);
                    self.stale.insert(above.to_vec(), stale);
                    stale
                }
            };
        }
        Ok(stale)
    }

    fn sides(&self) -> Sides<'a> {
        Sides { base: self.base, view: self.view }
    }

    fn forbidden(&mut self, path: &[u8]) -> Option<Why> {
        let (folder, name) = split(path);
        if self.around.folder != folder {
            self.around = self.around(folder);
        }
        // What lies in such a folder is put into place after a crash.
        if self.around.unfinished || name.starts_with(UNFINISHED.as_bytes()) {
            return Some(Why::Protected);
        }
        let text = String::from_utf8_lossy(path);
        // Letters beyond ASCII may stand for a slash.
        let blocks = |list: &BlockList| match text.is_ascii() {
            true => list.blocks_entry(&text).is_some(),
            false => list.blocks(&text).is_some(),
        };
        if self.around.masked || blocks(self.masked) || self.is_barred(path) {
            return Some(Why::Masked);
        }
        let sides = self.sides();
        let protected = self.around.protected
            || blocks(self.protected)
            || self.elsewhere.holds(path)
            || self.repositories.configured_by(&sides, path);
        protected.then_some(Why::Protected)
    }

    fn around(&self, folder: &[u8]) -> Around {
        let text = String::from_utf8_lossy(folder);
        Around {
            folder: folder.to_vec(),
            unfinished: text.split('/').any(|part| part.starts_with(UNFINISHED)),
            masked: self.masked.blocks(&text).is_some() || self.is_barred(folder),
            protected: self.protected.blocks(&text).is_some(),
        }
    }

    fn is_barred(&self, path: &[u8]) -> bool {
        let ends = |rest: &[u8]| rest.first().is_none_or(|byte| *byte == b'/');
        self.barred.iter().any(|barred| path.strip_prefix(barred.as_slice()).is_some_and(ends))
    }

    /// Whether hooks lie there, were it a folder.
    fn holds_hooks(&self, path: &[u8]) -> bool {
        self.protected.blocks_entry(&String::from_utf8_lossy(&join(path, b"hooks"))).is_some()
    }

    /// Whether something protected lies there or would, were it a folder.
    fn holds_settings(&self, path: &[u8]) -> bool {
        let (_, name) = split(path);
        let blocks = |inner: &str| {
            let whole = join(path, inner.as_bytes());
            let blocks = |name: &str| self.protected.blocks_entry(name).is_some();
            blocks(&String::from_utf8_lossy(&whole)) && !blocks(inner)
        };
        // No such folder has another plain name.
        let known = name.starts_with(b".") || !name.is_ascii();
        self.elsewhere.lies_below(path) || (known && longer_names().any(|(_, inner)| blocks(inner)))
    }

    fn put(&mut self, path: &[u8], kind: ChangeKind, before: Option<Facts>, after: Option<Facts>) {
        self.changes.insert(path.to_vec(), Box::new(Difference { kind, before, after }));
    }

    fn withhold(&mut self, path: &[u8], why: Why) {
        self.withheld.push(Withheld { path: PathBuf::from(OsStr::from_bytes(or_dot(path))), why });
    }
}
