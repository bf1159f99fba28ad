//! A ChangeSet: the state before and after a change, for one or several files, as a value. A tool that proposes a change
//! creates one, a person sees it as a diff, an approval is bound to its digest, and applying needs nothing else.
//!
//! **Invariants.** Files are sorted by path and no path is changed twice. New content is a list of splices against the
//! content whose hash is in `before`, so only the spliced bytes can change. Deliberately absent: reading and writing
//! files; the `workspace` crate does that.

use std::fmt;

use crate::digest::Digest;
use crate::effect::{Effect, Extent, PathAccess};
use crate::error::{CallError, ErrorCode};
use crate::path::ScopedPath;

mod encoding;
mod proposal_check;
mod splice;

pub use encoding::BadChangeRecord;
pub use proposal_check::{StoredProposal, check_proposal};
pub use splice::{BadSplice, Splice, check_splices, pieces, spliced};

/// Maximum number of files in one ChangeSet.
pub const MAX_FILES: usize = 1000;
/// Maximum bytes of new content in one ChangeSet.
pub const MAX_NEW_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum bytes of old content in a rollback: enough for every file that may be changed, and less than the journal's
/// limit.
pub const MAX_ROLLBACK_BYTES: u64 = 192 * 1024 * 1024;
/// Maximum number of splices in one file.
pub(crate) const MAX_SPLICES: usize = 1_000_000;

/// The existing file that a change is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseFile {
    /// Hash of the whole content; applying compares it with the file on disk.
    pub hash: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, for display; never compared.
    pub mode: u32,
}

/// The file as it shall be after the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetFile {
    /// The path; equal to the path of the change unless it is a rename.
    pub path: ScopedPath,
    /// Hash of the whole new content.
    pub hash: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits to set; `None` keeps those of the old file, or uses the default for a new one.
    pub mode: Option<u32>,
    /// The splices from the old content to the new one; a new file starts empty.
    pub splices: Vec<Splice>,
}

/// Kind of change to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileChangeKind {
    /// A new file.
    Create,
    /// New content, perhaps new permission bits.
    Modify,
    /// The file is deleted.
    Delete,
    /// A new path, perhaps with new content.
    Rename,
    /// New permission bits only.
    Mode,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    // INVARIANT: `before` or `after` is set; splices are sorted, do not overlap, fit `before.size` and add up to
    // `after.size`; `after.path` differs from `path` only if `before` is set.
    path: ScopedPath,
    before: Option<BaseFile>,
    after: Option<TargetFile>,
    empty_dirs: u32,
}

/// Why a change is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadChange {
    /// Two changes use the same path.
    #[error("`{0}` is changed twice")]
    DuplicatePath(String),
    /// A limit is exceeded.
    #[error("the change exceeds a limit: {0}")]
    OverLimit(String),
    /// The splices do not fit the file.
    #[error(transparent)]
    Splice(#[from] BadSplice),
    /// The path is a root.
    #[error("`{0}` is not the path of a file")]
    NotAFile(String),
}

impl From<BadChange> for CallError {
    fn from(bad: BadChange) -> Self {
        let code = match &bad {
            BadChange::OverLimit(_) => ErrorCode::TooLarge,
            BadChange::DuplicatePath(_) | BadChange::NotAFile(_) => ErrorCode::InvalidArguments,
            BadChange::Splice(_) => ErrorCode::Internal,
        };
        Self::new(code, bad.to_string()).suggest("propose the change in smaller parts, each file once")
    }
}

impl FileChange {
    /// A new file.
    pub fn create(path: ScopedPath, content: Vec<u8>, mode: Option<u32>) -> Result<Self, BadChange> {
        let after = TargetFile {
            path: path.clone(),
            hash: Digest::of(&content),
            size: content.len() as u64,
            mode,
            splices: Splice::whole(content),
        };
        Self::checked(path, None, Some(after), 0)
    }

    /// New content, permission bits or path for a file.
    pub fn modify(path: ScopedPath, before: BaseFile, after: TargetFile) -> Result<Self, BadChange> {
        Self::checked(path, Some(before), Some(after), 0)
    }

    /// Deletes a file.
    pub fn delete(path: ScopedPath, before: BaseFile) -> Result<Self, BadChange> {
        Self::checked(path, Some(before), None, 0)
    }

    pub(crate) fn checked(
        path: ScopedPath,
        before: Option<BaseFile>,
        after: Option<TargetFile>,
        empty_dirs: u32,
    ) -> Result<Self, BadChange> {
        let change = Self { path, before, after, empty_dirs };
        for path in [Some(&change.path), change.after.as_ref().map(|after| &after.path)].into_iter().flatten()
        {
            if path.file_name().is_none() {
                return Err(BadChange::NotAFile(path.to_string()));
            }
        }
        if let Some(after) = &change.after {
            check_splices(&after.splices, change.before.map_or(0, |before| before.size), after.size)?;
            if change.before.is_none() && after.path != change.path {
                return Err(BadChange::NotAFile(after.path.to_string()));
            }
        }
        Ok(change)
    }

    /// Path of the existing file, or of the new one.
    #[must_use]
    pub fn path(&self) -> &ScopedPath {
        &self.path
    }

    /// The file before the change; `None` for a new file.
    #[must_use]
    pub fn before(&self) -> Option<&BaseFile> {
        self.before.as_ref()
    }

    /// The file after the change; `None` if it is deleted.
    #[must_use]
    pub fn after(&self) -> Option<&TargetFile> {
        self.after.as_ref()
    }

    /// How many parent directories of a deleted or moved file are removed if they are empty; 0 except in a rollback.
    #[must_use]
    pub fn empty_dirs(&self) -> u32 {
        self.empty_dirs
    }

    /// The kind of change.
    #[must_use]
    pub fn kind(&self) -> FileChangeKind {
        match (&self.before, &self.after) {
            (None, _) => FileChangeKind::Create,
            (Some(_), None) => FileChangeKind::Delete,
            (Some(_), Some(after)) if after.path != self.path => FileChangeKind::Rename,
            (Some(_), Some(after)) if after.splices.is_empty() && after.mode.is_some() => {
                FileChangeKind::Mode
            }
            (Some(_), Some(_)) => FileChangeKind::Modify,
        }
    }

    /// The change that undoes this one, given the old content. `created_dirs` is the number of directories that are
    /// created for it, `mode` the permission bits that the file has or gets.
    pub fn reverse(&self, base: &[u8], created_dirs: u32, mode: u32) -> Result<Self, BadChange> {
        let Some(after) = &self.after else {
            let mode = self.before.map(|before| before.mode);
            return Self::create(self.path.clone(), base.to_vec(), mode);
        };
        let now = BaseFile { hash: after.hash, size: after.size, mode: after.mode.unwrap_or(mode) };
        let Some(before) = self.before else {
            return Self::checked(self.path.clone(), Some(now), None, created_dirs);
        };
        let target = TargetFile {
            path: self.path.clone(),
            hash: before.hash,
            size: before.size,
            mode: after.mode.map(|_| before.mode),
            splices: splice::reversed(&after.splices, base)?,
        };
        Self::checked(after.path.clone(), Some(now), Some(target), created_dirs)
    }

    fn new_bytes(&self) -> u64 {
        self.after.iter().flat_map(|after| &after.splices).map(|splice| splice.insert.len() as u64).sum()
    }

    fn paths(&self) -> impl Iterator<Item = &ScopedPath> {
        let moved = self.after.as_ref().map(|after| &after.path).filter(|path| **path != self.path);
        std::iter::once(&self.path).chain(moved)
    }

    fn effects(&self) -> Vec<Effect> {
        let effect =
            |access, path: &ScopedPath| Effect::Path { access, extent: Extent::Single, path: path.clone() };
        match (self.kind(), &self.after) {
            (FileChangeKind::Create, _) => vec![effect(PathAccess::Create, &self.path)],
            (FileChangeKind::Delete, _) | (_, None) => vec![effect(PathAccess::Delete, &self.path)],
            (FileChangeKind::Modify | FileChangeKind::Mode, _) => {
                vec![effect(PathAccess::Modify, &self.path)]
            }
            (FileChangeKind::Rename, Some(after)) => {
                vec![effect(PathAccess::Delete, &self.path), effect(PathAccess::Create, &after.path)]
            }
        }
    }
}

/// B2: the summary line that a reader sees first.
impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), &self.after, &self.before) {
            (FileChangeKind::Create, ..) => write!(f, "CREATE FILE {}", self.path),
            (FileChangeKind::Modify, ..) => write!(f, "MODIFY {}", self.path),
            (FileChangeKind::Rename, Some(after), _) => write!(f, "RENAME {} TO {}", self.path, after.path),
            (FileChangeKind::Mode, Some(TargetFile { mode: Some(mode), .. }), Some(before)) => {
                write!(f, "MODE {} {:04o} TO {mode:04o}", self.path, before.mode)
            }
            _ => write!(f, "DELETE {}", self.path),
        }
    }
}

/// Changes that are decided about, applied and rolled back together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    // INVARIANT: sorted by path; no old or new path occurs twice; within the limits.
    files: Vec<FileChange>,
}

impl ChangeSet {
    /// Sorts the changes, checks the limits and that no path occurs twice.
    pub fn new(files: Vec<FileChange>) -> Result<Self, BadChange> {
        Self::within(files, MAX_NEW_BYTES)
    }

    /// The same for a rollback, with the larger limit: its new content was on disk before.
    pub fn rollback(files: Vec<FileChange>) -> Result<Self, BadChange> {
        Self::within(files, MAX_ROLLBACK_BYTES)
    }

    fn within(mut files: Vec<FileChange>, max_bytes: u64) -> Result<Self, BadChange> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        if files.len() > MAX_FILES {
            return Err(BadChange::OverLimit(format!("{} files, at most {MAX_FILES}", files.len())));
        }
        let bytes: u64 = files.iter().map(FileChange::new_bytes).sum();
        if bytes > max_bytes {
            return Err(BadChange::OverLimit(format!("{bytes} bytes of new content, at most {max_bytes}")));
        }
        let splices = |file: &FileChange| file.after.as_ref().map_or(0, |after| after.splices.len());
        if let Some(count) = files.iter().map(splices).max().filter(|count| *count > MAX_SPLICES) {
            return Err(BadChange::OverLimit(format!("{count} edits in one file, at most {MAX_SPLICES}")));
        }
        let mut paths: Vec<&ScopedPath> = files.iter().flat_map(FileChange::paths).collect();
        paths.sort_unstable();
        if let Some(twice) = paths.windows(2).find(|pair| pair.first() == pair.last()).and_then(<[_]>::first)
        {
            return Err(BadChange::DuplicatePath(twice.to_string()));
        }
        Ok(Self { files })
    }

    /// The changes, sorted by path.
    #[must_use]
    pub fn files(&self) -> &[FileChange] {
        &self.files
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Only the changes that `wanted` selects: for a decision on some of the files.
    #[must_use]
    pub fn filter(&self, wanted: impl Fn(&FileChange) -> bool) -> Self {
        Self { files: self.files.iter().filter(|file| wanted(file)).cloned().collect() }
    }

    /// The effects that rules judge.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        self.files.iter().flat_map(FileChange::effects).collect()
    }

    /// One line: the first few files, and how many more.
    #[must_use]
    pub fn summary(&self) -> String {
        const SHOWN: usize = 3;
        let mut lines: Vec<String> = self.files.iter().take(SHOWN).map(ToString::to_string).collect();
        if let Some(more) = self.files.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            lines.push(format!("and {more} more"));
        }
        if lines.is_empty() { "NOTHING".to_owned() } else { lines.join(", ") }
    }
}

#[cfg(test)]
mod tests;
