//! Walks the upper layer of the overlay and compares the program's view with the workspace.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use vambrace_core::blocked_paths::BlockList;
use vambrace_core::git_repository::RepositoryDetector;

use super::directory::{each_entry, is_opaque, open_directory, or_dot, split};
use super::metadata::{EntryMetadata, FileKind, same_content};
use super::protected_targets::{ProtectedTargets, WorkspaceSides, protected_dir_names};
use super::rename::with_renames;
use super::symlink::{leads_out, lexical_target};
use super::{ChangeKind, EntryChange, RunChanges, WithheldChange, WithheldReason};
use crate::mask_walk::{MAX_PATH_BYTES, join};
use crate::run_dirs::RunDirs;
use crate::sys::mount::{open_beneath, open_within};
use crate::wire::{Bytes, ScratchDir};
use crate::workspace_fence::{ReadAccess, WorkspaceFence};
use crate::write_back::TEMP_PREFIX;

/// What to compare, and which names to withhold.
pub(crate) struct CollectInput<'a> {
    /// The workspace itself.
    pub(crate) base: Arc<OwnedFd>,
    /// The layer that holds the changes.
    pub(crate) upper: OwnedFd,
    /// The view that the program had; `None` if the view began empty, and is the upper layer itself.
    pub(crate) view: Option<OwnedFd>,
    pub(crate) masked: &'a BlockList,
    /// Paths that were masked for the program whatever their names.
    pub(crate) masked_paths: HashSet<Bytes>,
    pub(crate) protected: &'a BlockList,
    pub(crate) fence: &'a WorkspaceFence,
    /// Names of build directories.
    pub(crate) scratch: &'a [String],
    /// Those that were scratch directories of this run.
    pub(crate) own_scratch: &'a [ScratchDir],
    pub(crate) since: i128,
    pub(crate) run_dirs: Option<Arc<RunDirs>>,
}

/// Collects every difference.
pub(crate) fn collect(what: CollectInput<'_>) -> Result<RunChanges, Errno> {
    let began_empty = what.view.is_none();
    let upper = Arc::new(what.upper);
    let view = what.view.map_or_else(|| Arc::clone(&upper), Arc::new);
    let mut found = Collector {
        base: what.base.as_fd(),
        view: view.as_fd(),
        masked: what.masked,
        masked_paths: what.masked_paths,
        protected: what.protected,
        fence: what.fence,
        scratch: what.scratch,
        own_scratch: what.own_scratch,
        since: what.since,
        began_empty,
        changes: BTreeMap::new(),
        unlisted_dirs: BTreeMap::new(),
        withheld: Vec::new(),
        kept_dirs: HashSet::new(),
        around: InheritedBlocks::default(),
        stale: HashMap::new(),
        repositories: RepositoryDetector::default(),
        protected_targets: ProtectedTargets::of(what.base.as_fd(), what.protected),
    };
    found.walk(upper.as_fd())?;
    found.withhold_unlisted_dirs();
    found.withhold_nonempty_dirs();
    let (changes, withheld) = (found.changes, found.withheld);
    let list = changes.into_iter().map(|(path, change)| change.at(path)).collect();
    let list = with_renames(list, what.base.as_fd(), view.as_fd());
    Ok(RunChanges { list, withheld, base: what.base, view, _run_dirs: what.run_dirs, since: what.since })
}

struct Collector<'a> {
    base: BorrowedFd<'a>,
    view: BorrowedFd<'a>,
    masked: &'a BlockList,
    masked_paths: HashSet<Bytes>,
    protected: &'a BlockList,
    fence: &'a WorkspaceFence,
    scratch: &'a [String],
    own_scratch: &'a [ScratchDir],
    since: i128,
    began_empty: bool,
    changes: BTreeMap<Bytes, Box<Difference>>,
    /// New directories that the fence does not list: created only for a listed entry below.
    unlisted_dirs: BTreeMap<Bytes, Box<Difference>>,
    withheld: Vec<WithheldChange>,
    /// Directories with an entry that the program did not see or may not delete.
    kept_dirs: HashSet<Bytes>,
    /// The last answer about a directory: its entries arrive one after the other.
    around: InheritedBlocks,
    /// Whether a workspace directory, or one above it, was changed by another process meanwhile; filled on demand.
    stale: HashMap<Bytes, bool>,
    repositories: RepositoryDetector,
    /// Hooks and config files under other names.
    protected_targets: ProtectedTargets<'a>,
}

/// A change without its path, which is the key of the map.
struct Difference {
    kind: ChangeKind,
    before: Option<EntryMetadata>,
    after: Option<EntryMetadata>,
}

impl Difference {
    fn at(self, path: Bytes) -> EntryChange {
        let Self { kind, before, after } = self;
        EntryChange { path: OsString::from_vec(path).into(), kind, before, after }
    }
}

/// What the names of a directory and its ancestors imply for every entry in it.
#[derive(Default)]
struct InheritedBlocks {
    dir: Bytes,
    unfinished: bool,
    masked: bool,
    protected: bool,
}

/// What the workspace has beneath a directory of the upper layer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LowerDir {
    /// A directory whose entries are visible through the overlay.
    Visible,
    /// A directory whose entries are hidden: it, or one above it, was recreated.
    Hidden,
    /// Nothing: the directory is new.
    Absent,
}

/// A directory of the upper layer, and the same directory in the workspace and in the view, if it exists there.
struct OpenDirs<'h> {
    own: BorrowedFd<'h>,
    base: Option<BorrowedFd<'h>>,
    view: Option<BorrowedFd<'h>>,
}

/// An entry: an open directory, and the name in it.
type EntryAt<'p> = (BorrowedFd<'p>, &'p [u8]);

impl<'a> Collector<'a> {
    /// Visits everything in the upper layer.
    fn walk(&mut self, upper: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut ahead = vec![(Bytes::new(), LowerDir::Visible)];
        while let Some((path, over)) = ahead.pop() {
            match self.visit_directory(upper, (&path, over), &mut ahead) {
                Err(Errno::ACCESS) => self.withhold_directory(&path, WithheldReason::Unreadable),
                looked => looked?,
            }
        }
        Ok(())
    }

    /// Visits the entries of one directory of the upper layer.
    fn visit_directory(
        &mut self,
        upper: BorrowedFd<'_>,
        (path, over): (&[u8], LowerDir),
        ahead: &mut Vec<(Bytes, LowerDir)>,
    ) -> Result<(), Errno> {
        let own = open_beneath(upper, or_dot(path), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let new = over == LowerDir::Absent;
        // The kernel marks only the outermost directory as opaque.
        let hidden = !self.began_empty && !new && (over == LowerDir::Hidden || is_opaque(&own));
        if hidden {
            self.deleted_below(path)?;
        }
        // What is in a new directory is new.
        let base = match if new { Ok(None) } else { open_directory(self.base, path) } {
            Err(Errno::XDEV) => {
                self.withhold_directory(path, WithheldReason::Mounted);
                return Ok(());
            }
            base => base?,
        };
        let view = if new || self.began_empty { None } else { open_directory(self.view, path)? };
        let view = if self.began_empty { Some(own.as_fd()) } else { view.as_ref().map(OwnedFd::as_fd) };
        let here = OpenDirs { own: own.as_fd(), base: base.as_ref().map(OwnedFd::as_fd), view };
        each_entry(&own, |name, kind, whiteout| {
            let path = join(path, name);
            let over = self.visit_upper_entry(&here, &path, (name, kind, whiteout))?;
            ahead.extend(over.map(|over| (path, if hidden { over.max(LowerDir::Hidden) } else { over })));
            Ok(())
        })
    }

    /// Withholds a directory whose entries cannot be compared; it stays as it is.
    fn withhold_directory(&mut self, path: &[u8], why: WithheldReason) {
        self.withhold(path, why);
        self.keep_ancestors(&join(path, b"."));
    }

    /// Visits one entry of the upper layer. For a directory to descend into, returns what the workspace has there.
    fn visit_upper_entry(
        &mut self,
        here: &OpenDirs<'_>,
        path: &[u8],
        (name, kind, whiteout): (&[u8], FileType, bool),
    ) -> Result<Option<LowerDir>, Errno> {
        if self.scratch.iter().any(|scratch| scratch.as_bytes() == path) {
            // A scratch directory of this run was mounted over it.
            if !self.own_scratch.iter().any(|own| own.name == path) {
                self.withhold(path, WithheldReason::BuildDirectory);
            }
            return Ok(None);
        }
        let base = here.base.map(|base| (base, name));
        let Some(before) = self.before(path, base)? else { return Ok(None) };
        if whiteout && !self.began_empty {
            if let (Some(before), Some(base)) = (before, base) {
                self.deleted(path, before, base)?;
            }
            return Ok(None);
        }
        let is_new = before.is_none();
        let was_directory = before.as_ref().is_some_and(|before| before.kind == FileKind::Directory);
        let below = self.visit_view_entry(path, name, before, here)?;
        if kind == FileType::Directory {
            return Ok(below.then_some(if is_new { LowerDir::Absent } else { LowerDir::Visible }));
        }
        if was_directory && self.changes.contains_key(path) {
            // If nothing replaces the directory, its entries stay.
            self.deleted_below(path)?;
        }
        Ok(None)
    }

    /// Visits one entry that exists in the view; returns whether to descend into it.
    fn visit_view_entry(
        &mut self,
        path: &[u8],
        name: &[u8],
        before: Option<EntryMetadata>,
        here: &OpenDirs<'_>,
    ) -> Result<bool, Errno> {
        // What the workspace does not have exists in the upper layer only.
        let Some(root) = (if before.is_none() { Some(here.own) } else { here.view }) else {
            return Ok(false);
        };
        let Some(after) = EntryMetadata::stat(root, name)? else { return Ok(false) };
        if let Some(why) = self.deny_reason(path, before.as_ref(), &after) {
            self.withhold(path, why);
            return Ok(false);
        }
        if self.began_empty && before.is_some() {
            return Ok(true);
        }
        // A new file is compared with nothing, so it is not read here.
        let unread = before.is_none() && after.mode & 0o400 != 0;
        let after = match unread {
            true => Some(after),
            false => self.opened(path, after, (root, name))?,
        };
        let Some(after) = after else { return Ok(false) };
        match (before, here.base) {
            (Some(before), Some(base)) => self.compare(path, (before, (base, name)), (after, (root, name))),
            (Some(_), None) => Ok(false),
            (None, _) if self.stale_above(path)? => {
                self.withhold(path, WithheldReason::StaleBase);
                Ok(false)
            }
            (None, _) => {
                let dir = after.kind == FileKind::Directory;
                if dir && !self.fence.admits_change(path) {
                    let made = Difference { kind: ChangeKind::Created, before: None, after: Some(after) };
                    self.unlisted_dirs.insert(path.to_vec(), Box::new(made));
                    return Ok(true);
                }
                self.put(path, ChangeKind::Created, None, Some(after));
                Ok(dir)
            }
        }
    }

    /// Why an entry must not be created or changed at all: its name, its type or its target.
    fn deny_reason(
        &mut self,
        path: &[u8],
        before: Option<&EntryMetadata>,
        after: &EntryMetadata,
    ) -> Option<WithheldReason> {
        let dir = after.kind == FileKind::Directory;
        // A directory that was only copied up on the way to an entry below is no change.
        let passes = dir && before.is_some_and(|before| before.kind == FileKind::Directory);
        // Something below a directory may be listed, unless the directory is excluded.
        let unlisted = dir && (passes || before.is_none()) && !self.fence.excludes_changes(path);
        let blocked_reason =
            self.blocked_reason(path).filter(|why| *why != WithheldReason::Denied || !unlisted);
        // It would lead to hooks or config files that the protected names do not cover.
        let leads = (!dir && self.holds_hooks(path))
            || (after.kind == FileKind::Symlink && self.holds_settings(path))
            || (before.is_none() && self.repositories.completes_repository(&self.sides(), path));
        let blocked_reason = blocked_reason.or(leads.then_some(WithheldReason::Protected));
        if let Some(why) = blocked_reason.filter(|why| *why == WithheldReason::Masked || !passes) {
            return Some(why);
        }
        if self.began_empty && before.is_some() {
            return (!passes).then_some(WithheldReason::Exists);
        }
        match after.kind {
            FileKind::Special => Some(WithheldReason::Special),
            FileKind::Symlink => {
                self.symlink_deny_reason(path, after.target.as_deref().unwrap_or(Path::new("")))
            }
            FileKind::File | FileKind::Directory => None,
        }
    }

    /// Compares an entry before and after; returns whether to descend into it.
    fn compare(
        &mut self,
        path: &[u8],
        (before, base): (EntryMetadata, EntryAt<'_>),
        (after, view): (EntryMetadata, EntryAt<'_>),
    ) -> Result<bool, Errno> {
        let Some(before) = self.opened(path, before, base)? else { return Ok(false) };
        if before.kind == after.kind && before.attributes != after.attributes {
            self.withhold(path, WithheldReason::Attributes);
        }
        let dir = after.kind == FileKind::Directory;
        let looks = |facts: &EntryMetadata| (facts.kind, facts.size, facts.target.clone());
        let same = looks(&before) == looks(&after)
            && (before.kind != FileKind::File || same_content(before.size, base, view)?);
        let kind = match (same, before.mode == after.mode || after.kind == FileKind::Symlink) {
            (true, true) => return Ok(dir),
            (true, false) => ChangeKind::Mode,
            (false, _) => ChangeKind::Modified,
        };
        if before.changed > self.since || self.stale_above(path)? {
            self.withhold(path, WithheldReason::StaleBase);
            return Ok(dir);
        }
        // The mode of a directory that the fence does not list, or excludes for writing.
        if !self.fence.admits_change(path) {
            self.withhold(path, WithheldReason::Denied);
            return Ok(dir);
        }
        if before.kind == FileKind::File && before.links > 1 {
            self.withhold(path, WithheldReason::OtherNames);
            if kind == ChangeKind::Mode {
                return Ok(false);
            }
        }
        self.put(path, kind, Some(before), Some(after));
        Ok(dir)
    }

    /// Reads the extended attributes; withholds the entry and returns `None` if it cannot be opened.
    fn opened(
        &mut self,
        path: &[u8],
        facts: EntryMetadata,
        (dir, name): EntryAt<'_>,
    ) -> Result<Option<EntryMetadata>, Errno> {
        match facts.with_attributes(dir, name) {
            Err(Errno::ACCESS) => {
                self.withhold(path, WithheldReason::Unreadable);
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// The metadata in the workspace. The outer `None` means that the program could not see the entry, which stays as it is.
    fn before(
        &mut self,
        path: &[u8],
        base: Option<EntryAt<'_>>,
    ) -> Result<Option<Option<EntryMetadata>>, Errno> {
        let why = match base.map_or(Ok(None), |(dir, name)| EntryMetadata::stat(dir, name)) {
            _ if path.len() > MAX_PATH_BYTES => WithheldReason::TooDeep,
            Err(Errno::XDEV) => WithheldReason::Mounted,
            found => return found.map(Some),
        };
        if self.blocked_reason(path) != Some(WithheldReason::Masked) {
            self.withhold(path, why);
        }
        self.keep_ancestors(path);
        Ok(None)
    }

    /// Why a symlink is withheld: on the host it would lead out of the workspace, or to a secret.
    fn symlink_deny_reason(&self, path: &[u8], target: &Path) -> Option<WithheldReason> {
        let Some(place) = lexical_target(path, target) else { return Some(WithheldReason::LeadsOutside) };
        // The user's own symlinks in the workspace may lead out, even where the program saw nothing.
        if leads_out(self.view, &place) || leads_out(self.base, &place) {
            return Some(WithheldReason::LeadsOutside);
        }
        let masked = self.masked.blocks(&String::from_utf8_lossy(&place)).is_some()
            || self.fence.read_access(&place) == ReadAccess::Excluded;
        masked.then_some(WithheldReason::Masked)
    }

    fn deleted(&mut self, path: &[u8], before: EntryMetadata, base: EntryAt<'_>) -> Result<(), Errno> {
        if before.kind == FileKind::Directory {
            self.deleted_below(path)?;
        }
        self.record_deletion(path, before, base)
    }

    fn record_deletion(
        &mut self,
        path: &[u8],
        before: EntryMetadata,
        base: EntryAt<'_>,
    ) -> Result<(), Errno> {
        self.delete_unless_withheld(path, before, base)?;
        if !self.changes.contains_key(path) {
            self.keep_ancestors(path);
        }
        Ok(())
    }

    fn delete_unless_withheld(
        &mut self,
        path: &[u8],
        before: EntryMetadata,
        base: EntryAt<'_>,
    ) -> Result<(), Errno> {
        if let Some(why) = self.blocked_reason(path) {
            // The program never saw what was masked, so it did not delete it.
            if why != WithheldReason::Masked {
                self.withhold(path, why);
            }
            return Ok(());
        }
        if before.changed > self.since || self.stale_above(path)? {
            self.withhold(path, WithheldReason::StaleBase);
            return Ok(());
        }
        if let Some(before) = self.opened(path, before, base)? {
            self.put(path, ChangeKind::Deleted, Some(before), None);
        }
        Ok(())
    }

    /// Marks an entry as staying: every directory above it stays too.
    fn keep_ancestors(&mut self, path: &[u8]) {
        let mut above = path;
        while let Some(cut) = above.iter().rposition(|byte| *byte == b'/') {
            above = above.get(..cut).unwrap_or_default();
            // If it is marked, all its ancestors are.
            if !self.kept_dirs.insert(above.to_vec()) {
                return;
            }
        }
    }

    /// Withholds the deletion or replacement of directories that keep an entry.
    fn withhold_nonempty_dirs(&mut self) {
        for path in std::mem::take(&mut self.kept_dirs) {
            let goes = self.changes.get(&path).is_some_and(|change| {
                change.after.as_ref().is_none_or(|after| after.kind != FileKind::Directory)
            });
            if goes {
                self.changes.remove(&path);
                self.withhold(&path, WithheldReason::NotEmpty);
            }
        }
    }

    /// Records the deletion of everything below a workspace directory that the view does not have.
    fn deleted_below(&mut self, path: &[u8]) -> Result<(), Errno> {
        let mut ahead = vec![path.to_vec()];
        while let Some(path) = ahead.pop() {
            match self.deleted_in(&path, &mut ahead) {
                Err(Errno::ACCESS) => self.withhold_directory(&path, WithheldReason::Unreadable),
                looked => looked?,
            }
        }
        Ok(())
    }

    fn deleted_in(&mut self, path: &[u8], ahead: &mut Vec<Bytes>) -> Result<(), Errno> {
        let handle = match open_within(self.base, or_dot(path), OFlags::RDONLY | OFlags::DIRECTORY) {
            // Not a directory in the workspace: nothing was in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened?,
        };
        let view = match open_directory(self.view, path) {
            // A scratch directory of this run.
            Err(Errno::XDEV) => return Ok(()),
            view => view?,
        };
        each_entry(&handle, |name, _, _| {
            let path = join(path, name);
            match view.as_ref().map_or(Ok(None), |view| EntryMetadata::stat(view.as_fd(), name)) {
                Ok(None) => {}
                Ok(Some(_)) | Err(Errno::XDEV) => return Ok(()),
                Err(errno) => return Err(errno),
            }
            let base = (handle.as_fd(), name);
            let Some(before) = self.before(&path, Some(base))?.flatten() else { return Ok(()) };
            let dir = before.kind == FileKind::Directory;
            self.record_deletion(&path, before, base)?;
            ahead.extend(dir.then_some(path));
            Ok(())
        })
    }

    /// Whether another process changed a directory above while the program ran: an entry was created, deleted or moved
    /// there, so what the program saw is not what is there now.
    fn stale_above(&mut self, path: &[u8]) -> Result<bool, Errno> {
        let (dir, _) = split(path);
        if let Some(known) = self.stale.get(dir) {
            return Ok(*known);
        }
        let ends = dir.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let whole = Some(dir.len()).filter(|length| *length > 0);
        let mut stale = false;
        for above in std::iter::once(0).chain(ends).chain(whole).filter_map(|end| dir.get(..end)) {
            stale = match self.stale.get(above) {
                Some(known) => *known,
                None => {
                    let facts = EntryMetadata::stat(self.base, or_dot(above))?;
                    let stale = stale || facts.is_some_and(|facts| facts.changed > self.since);
                    self.stale.insert(above.to_vec(), stale);
                    stale
                }
            };
        }
        Ok(stale)
    }

    fn sides(&self) -> WorkspaceSides<'a> {
        WorkspaceSides { base: self.base, view: self.view }
    }

    fn blocked_reason(&mut self, path: &[u8]) -> Option<WithheldReason> {
        let (dir, name) = split(path);
        if self.around.dir != dir {
            self.around = self.around(dir);
        }
        // Recovery after a crash moves what is in such a directory into place.
        if self.around.unfinished || name.starts_with(TEMP_PREFIX.as_bytes()) {
            return Some(WithheldReason::Protected);
        }
        let text = String::from_utf8_lossy(path);
        // Some characters beyond ASCII are normalized to a slash, so the whole path is checked.
        let blocks = |list: &BlockList| match text.is_ascii() {
            true => list.blocks_entry(&text).is_some(),
            false => list.blocks(&text).is_some(),
        };
        if self.around.masked || blocks(self.masked) || self.is_masked_path(path) {
            return Some(WithheldReason::Masked);
        }
        let sides = self.sides();
        let protected = self.around.protected
            || blocks(self.protected)
            || self.protected_targets.protects(path)
            || self.repositories.is_repository_setting(&sides, path);
        if protected {
            return Some(WithheldReason::Protected);
        }
        (!self.fence.admits_change(path)).then_some(WithheldReason::Denied)
    }

    fn around(&self, dir: &[u8]) -> InheritedBlocks {
        let text = String::from_utf8_lossy(dir);
        InheritedBlocks {
            dir: dir.to_vec(),
            unfinished: text.split('/').any(|part| part.starts_with(TEMP_PREFIX)),
            masked: self.masked.blocks(&text).is_some() || self.is_masked_path(dir),
            protected: self.protected.blocks(&text).is_some(),
        }
    }

    fn is_masked_path(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        !self.masked_paths.is_empty()
            && ends
                .chain([path.len()])
                .any(|end| path.get(..end).is_some_and(|above| self.masked_paths.contains(above)))
    }

    /// Whether a `hooks` directory below this path would be protected.
    fn holds_hooks(&self, path: &[u8]) -> bool {
        self.protected.blocks_entry(&String::from_utf8_lossy(&join(path, b"hooks"))).is_some()
    }

    /// Whether something protected is below this path, or would be if it were a directory.
    fn holds_settings(&self, path: &[u8]) -> bool {
        let (_, name) = split(path);
        let blocks = |inner: &str| {
            let whole = join(path, inner.as_bytes());
            let blocks = |name: &str| self.protected.blocks_entry(name).is_some();
            blocks(&String::from_utf8_lossy(&whole)) && !blocks(inner)
        };
        // The directories of protected paths all begin with a dot; other characters than ASCII may stand for one.
        let known = name.starts_with(b".") || !name.is_ascii();
        self.protected_targets.has_target_below(path)
            || (known && protected_dir_names().any(|(_, inner)| blocks(inner)))
    }

    fn put(
        &mut self,
        path: &[u8],
        kind: ChangeKind,
        before: Option<EntryMetadata>,
        after: Option<EntryMetadata>,
    ) {
        if !self.unlisted_dirs.is_empty() {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            for above in ends.filter_map(|end| path.get(..end)) {
                self.changes.extend(self.unlisted_dirs.remove_entry(above));
            }
        }
        self.changes.insert(path.to_vec(), Box::new(Difference { kind, before, after }));
    }

    /// Withholds new directories that the fence does not list and that no listed entry needs.
    fn withhold_unlisted_dirs(&mut self) {
        for path in std::mem::take(&mut self.unlisted_dirs).into_keys() {
            self.withhold(&path, WithheldReason::Denied);
        }
    }

    fn withhold(&mut self, path: &[u8], why: WithheldReason) {
        self.withheld.push(WithheldChange { path: PathBuf::from(OsStr::from_bytes(or_dot(path))), why });
    }
}
