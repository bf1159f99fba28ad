//! Splits what a program changed into a ChangeSet, for regular files that the workspace's tools could change too, and the
//! rest: symlinks, directories, files with several names or special attributes, files outside the service root, and runs
//! that exceed the limits of a ChangeSet.
//!
//! **Invariant.** The base of a change is the content that the program saw: a file that changed since is stale, although its
//! current content could be read.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use vambrace_core::change::{
    BadChange, BaseFile, ChangeSet, FileChange, MAX_FILES, MAX_NEW_BYTES, MAX_ROLLBACK_BYTES, Splice,
    TargetFile,
};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;
use vambrace_sandbox::{ChangeKind, EntryChange, EntryMetadata, FileKind, RunChanges};
use vambrace_workspace::Workspace;

use crate::error::WriteBackFailure;

/// The two parts of what a program changed.
#[derive(Debug)]
pub struct SplitChanges {
    /// For the applier.
    pub set: ChangeSet,
    /// For the sandbox's own write-back.
    pub rest: Vec<EntryChange>,
}

/// Splits the changes. `umask` is the one that the applier creates directories with.
pub fn split_changes(
    changes: &RunChanges,
    workspace: &Workspace,
    umask: u32,
) -> Result<SplitChanges, WriteBackFailure> {
    let special = SpecialDirs::of(&changes.list, umask);
    let mut files = Vec::new();
    let mut rest = Vec::new();
    let mut budget = Budget::default();
    for change in &changes.list {
        let plain = Plain::of(change, workspace).filter(|_| !special.hold(change));
        match plain.filter(|_| may_replace(changes, change)) {
            Some(plain) if budget.takes(change) => files.push((change, plain)),
            // Beyond the limits nothing is split: a run of thousands of files is one write-back.
            Some(_) => return Ok(SplitChanges { set: ChangeSet::default(), rest: changes.list.clone() }),
            None => rest.push(change.clone()),
        }
    }
    let implied: HashSet<&Path> = files
        .iter()
        .filter(|(change, _)| creates(change))
        .flat_map(|(change, _)| ancestors(&change.path))
        .collect();
    // The applier creates them with their files.
    rest.retain(|change| !(is_created_dir(change) && implied.contains(&*change.path)));
    let converted: Result<Vec<FileChange>, WriteBackFailure> =
        files.into_iter().map(|(change, plain)| plain.convert(changes, change)).collect();
    match ChangeSet::new(converted?) {
        Ok(set) => Ok(SplitChanges { set, rest }),
        Err(BadChange::OverLimit(_)) => {
            Ok(SplitChanges { set: ChangeSet::default(), rest: changes.list.clone() })
        }
        Err(bad) => Err(bad.into()),
    }
}

/// Directories whose entries the applier cannot change before, or after, the directory itself: they are replaced, or get a
/// mode that is not the usual one.
struct SpecialDirs<'a>(HashSet<&'a Path>);

impl<'a> SpecialDirs<'a> {
    fn of(list: &'a [EntryChange], umask: u32) -> Self {
        let usual = 0o777 & !umask;
        let is_special = |change: &&EntryChange| match (&change.before, &change.after) {
            (Some(before), Some(after)) if before.kind != after.kind => true,
            (_, Some(after)) if after.kind == FileKind::Directory => {
                change.kind == ChangeKind::Mode || after.mode != usual
            }
            _ => false,
        };
        Self(list.iter().filter(is_special).map(|change| &*change.path).collect())
    }

    /// Whether a change is at or below such a directory.
    fn hold(&self, change: &EntryChange) -> bool {
        let from = match &change.kind {
            ChangeKind::Renamed { from } => Some(from),
            _ => None,
        };
        !self.0.is_empty()
            && std::iter::once(&change.path)
                .chain(from)
                .any(|path| path.ancestors().any(|above| self.0.contains(above)))
    }
}

/// What is left of the limits of a ChangeSet and its reverse.
struct Budget {
    files: usize,
    new_bytes: u64,
    old_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { files: MAX_FILES, new_bytes: MAX_NEW_BYTES, old_bytes: MAX_ROLLBACK_BYTES }
    }
}

impl Budget {
    fn takes(&mut self, change: &EntryChange) -> bool {
        let size = |facts: &Option<EntryMetadata>| facts.as_ref().map_or(0, |facts| facts.size);
        let (new, old) = match change.kind {
            ChangeKind::Renamed { .. } | ChangeKind::Mode => (0, size(&change.before)),
            _ => (size(&change.after), size(&change.before)),
        };
        let left =
            (self.files.checked_sub(1), self.new_bytes.checked_sub(new), self.old_bytes.checked_sub(old));
        match left {
            (Some(files), Some(new_bytes), Some(old_bytes)) => {
                *self = Self { files, new_bytes, old_bytes };
                true
            }
            _ => false,
        }
    }
}

/// The change of a regular file that tools could change too.
struct Plain {
    path: ScopedPath,
    /// The old path of a renamed file.
    from: Option<ScopedPath>,
}

impl Plain {
    fn of(change: &EntryChange, workspace: &Workspace) -> Option<Self> {
        let is_file = |facts: &EntryMetadata| facts.kind == FileKind::File && facts.links <= 1;
        let before = change.before.as_ref().is_none_or(is_file);
        // A new hard link becomes a file of its own.
        let after = change.after.as_ref().is_none_or(|after| after.kind == FileKind::File);
        let scoped = |path: &Path| workspace.project_path(path).filter(|path| workspace.writable(path));
        let from = match &change.kind {
            ChangeKind::Renamed { from } => Some(scoped(from)?),
            _ => None,
        };
        (before && after).then_some(())?;
        Some(Self { path: scoped(&change.path)?, from })
    }

    fn convert(self, changes: &RunChanges, change: &EntryChange) -> Result<FileChange, WriteBackFailure> {
        let Self { path, from } = self;
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        Ok(match (before, after, from) {
            (None, Some(after), _) => {
                FileChange::create(path, new_content(changes, change)?, Some(after.mode))?
            }
            (Some(before), None, _) => {
                let old = old_content(changes, &change.path, before)?;
                FileChange::delete(path, base(&old, before))?
            }
            (Some(before), Some(after), Some(from)) => {
                let ChangeKind::Renamed { from: old_path } = &change.kind else {
                    return Err(WriteBackFailure::StaleBase(change.path.clone()));
                };
                let base = base(&old_content(changes, old_path, before)?, before);
                let mode = (before.mode != after.mode).then_some(after.mode);
                let target = TargetFile { path, hash: base.hash, size: base.size, mode, splices: Vec::new() };
                FileChange::modify(from, base, target)?
            }
            (Some(before), Some(after), None) => {
                let old = old_content(changes, &change.path, before)?;
                let new = match change.kind {
                    ChangeKind::Mode => None,
                    _ => Some(new_content(changes, change)?),
                };
                let new = new.as_deref().unwrap_or(&old);
                // Set-id bits do not outlive a change by a program.
                let mode = (before.mode != after.mode || before.set_id).then_some(after.mode);
                let target = TargetFile {
                    path: path.clone(),
                    hash: Digest::of(new),
                    size: new.len() as u64,
                    mode,
                    splices: Splice::between(&old, new),
                };
                FileChange::modify(path, base(&old, before), target)?
            }
            (None, None, _) => return Err(WriteBackFailure::StaleBase(change.path.clone())),
        })
    }
}

fn base(content: &[u8], facts: &EntryMetadata) -> BaseFile {
    BaseFile { hash: Digest::of(content), size: content.len() as u64, mode: facts.mode }
}

/// Reads the content that the program saw; stale if the file changed since.
fn old_content(
    changes: &RunChanges,
    path: &Path,
    facts: &EntryMetadata,
) -> Result<Vec<u8>, WriteBackFailure> {
    let stale = || WriteBackFailure::StaleBase(path.to_owned());
    let file = changes.open_before(path).map_err(|_| stale())?;
    let is_same = |file: &File| {
        rustix::fs::fstat(file).is_ok_and(|stat| {
            let changed = i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec);
            stat.st_ino == facts.inode && changed == facts.changed
        })
    };
    let (file, content) = read(file).map_err(|_| stale())?;
    if is_same(&file) { Ok(content) } else { Err(stale()) }
}

/// Reads what the program left. It has ended, so nothing else changes it.
fn new_content(changes: &RunChanges, change: &EntryChange) -> Result<Vec<u8>, WriteBackFailure> {
    let unreadable =
        |why| vambrace_sandbox::WriteBackError::Write { path: change.path.clone(), why, written: 0 };
    let file = changes.open_after(&change.path).map_err(unreadable)?;
    let (_, content) = read(file).map_err(|error| {
        unreadable(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
    })?;
    Ok(content)
}

fn read(file: OwnedFd) -> std::io::Result<(File, Vec<u8>)> {
    let mut file = File::from(file);
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok((file, content))
}

/// Whether the applier, which keeps owner and attributes exactly, can replace the file, and should: capabilities of a file
/// do not outlive a change by a program.
fn may_replace(changes: &RunChanges, change: &EntryChange) -> bool {
    if change.before.is_none() || change.kind != ChangeKind::Modified {
        return true;
    }
    let Ok(file) = changes.open_before(&change.path) else { return false };
    let Ok(stat) = rustix::fs::fstat(&file) else { return false };
    let user = rustix::process::geteuid();
    let own = user.is_root() || stat.st_uid == user.as_raw();
    let group = || {
        stat.st_gid == rustix::process::getegid().as_raw()
            || rustix::process::getgroups()
                .is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == stat.st_gid))
    };
    own && (user.is_root() || group()) && !has_security_attributes(&file)
}

/// Attributes that give rights, or that only root can set. A label of SELinux is given to every file.
fn has_security_attributes(file: &OwnedFd) -> bool {
    let mut names = vec![0_u8; 64 << 10];
    let Ok(length) = rustix::fs::flistxattr(file, &mut names) else { return false };
    let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    names.into_iter().any(|name| {
        (name.starts_with(b"security.") && name != b"security.selinux") || name.starts_with(b"trusted.")
    })
}

fn creates(change: &EntryChange) -> bool {
    matches!(change.kind, ChangeKind::Created | ChangeKind::Renamed { .. })
}

fn is_created_dir(change: &EntryChange) -> bool {
    change.kind == ChangeKind::Created
        && change.after.as_ref().is_some_and(|after| after.kind == FileKind::Directory)
}

fn ancestors(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().skip(1)
}

/// The entries that another process could change at the same time, through the file locks: those that exist. A new entry
/// replaces nothing: the kernel denies to rename a file over another one.
pub(crate) fn locked_entries(rest: &[EntryChange]) -> Vec<PathBuf> {
    let existing = |change: &EntryChange| {
        change.before.as_ref().is_some_and(|before| before.kind != FileKind::Directory)
    };
    let path = |change: &'_ EntryChange| match &change.kind {
        ChangeKind::Renamed { from } => from.clone(),
        _ => change.path.clone(),
    };
    rest.iter().filter(|change| existing(change)).map(path).collect()
}
