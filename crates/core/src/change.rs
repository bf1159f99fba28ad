//! A ChangeSet: what was there and what shall be there, for one or several files, as a value. Whoever proposes a change
//! makes one, a human sees it as a diff, an approval is bound to its digest, and applying takes nothing else.
//!
//! **Invariants.** Files are sorted by path and no path is touched twice. New content is a list of splices against the
//! content whose hash is in `before`, so nothing but the spliced bytes can change. Deliberately absent: reading, writing,
//! diffs; those are `workspace`'s.

use std::fmt;

use crate::digest::Digest;
use crate::effect::{Access, Effect, Extent};
use crate::error::{CallError, ErrorCode};
use crate::path::ScopedPath;

mod record;
mod splice;
mod standing;

pub use record::BadRecord;
pub use splice::{BadSplice, Splice, check_splices, pieces, spliced};
pub use standing::{Standing, check_standing};

/// The most files of one ChangeSet.
pub const MAX_FILES: usize = 1000;
/// The most bytes of new content of one ChangeSet.
pub const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The most bytes of old content that a way back holds: every file that may be changed, and less than a journal takes.
pub const MAX_BACK_BYTES: u64 = 192 * 1024 * 1024;
/// The most splices of one file.
pub const MAX_SPLICES: usize = 1_000_000;

/// What is there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Of the whole content: what applying compares.
    pub hash: Digest,
    /// In bytes.
    pub size: u64,
    /// Permission bits, for the reader; never compared.
    pub mode: u32,
}

/// What shall be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where; the path of the change itself unless it is a rename.
    pub path: ScopedPath,
    /// Of the whole new content.
    pub hash: Digest,
    /// In bytes.
    pub size: u64,
    /// Permission bits to set; those of the old file, or the ordinary ones, when left out.
    pub mode: Option<u32>,
    /// From the old content to the new one; a new file starts from nothing.
    pub splices: Vec<Splice>,
}

/// What happens to a file, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A new file.
    Create,
    /// New content, perhaps new permission bits.
    Modify,
    /// It goes.
    Delete,
    /// It moves, perhaps with new content.
    Rename,
    /// Only its permission bits.
    Mode,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    // INVARIANT: `before` or `after` is there; splices are sorted, do not overlap, fit `before.size` and add up to
    // `after.size`; `after.path` differs from `path` only when `before` is there.
    path: ScopedPath,
    before: Option<Facts>,
    after: Option<Target>,
    folders: u32,
}

/// Why a change cannot be made into a ChangeSet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadChange {
    /// The same path twice.
    #[error("`{0}` is changed twice")]
    Twice(String),
    /// Over a limit.
    #[error("the change is over its limit: {0}")]
    OverLimit(String),
    /// Splices that make no sense.
    #[error(transparent)]
    Splice(#[from] BadSplice),
    /// The root itself.
    #[error("`{0}` is not the path of a file")]
    NotAFile(String),
}

impl From<BadChange> for CallError {
    fn from(bad: BadChange) -> Self {
        let code = match &bad {
            BadChange::OverLimit(_) => ErrorCode::TooLarge,
            BadChange::Twice(_) | BadChange::NotAFile(_) => ErrorCode::InvalidArguments,
            BadChange::Splice(_) => ErrorCode::Internal,
        };
        Self::new(code, bad.to_string()).suggest("propose the change in smaller parts, each file once")
    }
}

impl FileChange {
    /// A new file.
    pub fn create(path: ScopedPath, content: Vec<u8>, mode: Option<u32>) -> Result<Self, BadChange> {
        let after = Target {
            path: path.clone(),
            hash: Digest::of(&content),
            size: content.len() as u64,
            mode,
            splices: Splice::whole(content),
        };
        Self::checked(path, None, Some(after), 0)
    }

    /// New content, permission bits or place for a file.
    pub fn modify(path: ScopedPath, before: Facts, after: Target) -> Result<Self, BadChange> {
        Self::checked(path, Some(before), Some(after), 0)
    }

    /// A file goes.
    pub fn delete(path: ScopedPath, before: Facts) -> Result<Self, BadChange> {
        Self::checked(path, Some(before), None, 0)
    }

    pub(crate) fn checked(
        path: ScopedPath,
        before: Option<Facts>,
        after: Option<Target>,
        folders: u32,
    ) -> Result<Self, BadChange> {
        let change = Self { path, before, after, folders };
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

    /// Where the file is; where it will be, for a new one.
    #[must_use]
    pub fn path(&self) -> &ScopedPath {
        &self.path
    }

    /// What is there; `None` for a new file.
    #[must_use]
    pub fn before(&self) -> Option<&Facts> {
        self.before.as_ref()
    }

    /// What shall be there; `None` when it goes.
    #[must_use]
    pub fn after(&self) -> Option<&Target> {
        self.after.as_ref()
    }

    /// How many folders above a file that goes, or moves, are removed when they are empty; only a rollback has any.
    #[must_use]
    pub fn folders(&self) -> u32 {
        self.folders
    }

    /// In one word.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (&self.before, &self.after) {
            (None, _) => Kind::Create,
            (Some(_), None) => Kind::Delete,
            (Some(_), Some(after)) if after.path != self.path => Kind::Rename,
            (Some(_), Some(after)) if after.splices.is_empty() && after.mode.is_some() => Kind::Mode,
            (Some(_), Some(_)) => Kind::Modify,
        }
    }

    /// What undoes it, given the content that was there. `folders` is how many folders are made for it, `made` the
    /// permission bits that it has or gets.
    pub fn reverse(&self, base: &[u8], folders: u32, made: u32) -> Result<Self, BadChange> {
        let Some(after) = &self.after else {
            let mode = self.before.map(|before| before.mode);
            return Self::create(self.path.clone(), base.to_vec(), mode);
        };
        let now = Facts { hash: after.hash, size: after.size, mode: after.mode.unwrap_or(made) };
        let Some(before) = self.before else {
            return Self::checked(self.path.clone(), Some(now), None, folders);
        };
        let target = Target {
            path: self.path.clone(),
            hash: before.hash,
            size: before.size,
            mode: after.mode.map(|_| before.mode),
            splices: splice::reversed(&after.splices, base)?,
        };
        Self::checked(after.path.clone(), Some(now), Some(target), folders)
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
            (Kind::Create, _) => vec![effect(Access::Create, &self.path)],
            (Kind::Delete, _) | (_, None) => vec![effect(Access::Delete, &self.path)],
            (Kind::Modify | Kind::Mode, _) => vec![effect(Access::Modify, &self.path)],
            (Kind::Rename, Some(after)) => {
                vec![effect(Access::Delete, &self.path), effect(Access::Create, &after.path)]
            }
        }
    }
}

/// B2: what a reader sees first.
impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), &self.after, &self.before) {
            (Kind::Create, ..) => write!(f, "CREATE FILE {}", self.path),
            (Kind::Modify, ..) => write!(f, "MODIFY {}", self.path),
            (Kind::Rename, Some(after), _) => write!(f, "RENAME {} TO {}", self.path, after.path),
            (Kind::Mode, Some(Target { mode: Some(mode), .. }), Some(before)) => {
                write!(f, "MODE {} {:04o} TO {mode:04o}", self.path, before.mode)
            }
            _ => write!(f, "DELETE {}", self.path),
        }
    }
}

/// Changes that are decided about, applied and rolled back together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    // INVARIANT: sorted by path; no path, old or new, occurs twice; within the limits.
    files: Vec<FileChange>,
}

impl ChangeSet {
    /// Sorts the changes and checks that none meets another.
    pub fn new(files: Vec<FileChange>) -> Result<Self, BadChange> {
        Self::within(files, MAX_BYTES)
    }

    /// The same for what undoes another one: what comes was there before, and only the disk has to hold it.
    pub fn back(files: Vec<FileChange>) -> Result<Self, BadChange> {
        Self::within(files, MAX_BACK_BYTES)
    }

    fn within(mut files: Vec<FileChange>, most_bytes: u64) -> Result<Self, BadChange> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        if files.len() > MAX_FILES {
            return Err(BadChange::OverLimit(format!("{} files, at most {MAX_FILES}", files.len())));
        }
        let bytes: u64 = files.iter().map(FileChange::new_bytes).sum();
        if bytes > most_bytes {
            return Err(BadChange::OverLimit(format!("{bytes} bytes of new content, at most {most_bytes}")));
        }
        let splices = |file: &FileChange| file.after.as_ref().map_or(0, |after| after.splices.len());
        if let Some(most) = files.iter().map(splices).max().filter(|most| *most > MAX_SPLICES) {
            return Err(BadChange::OverLimit(format!("{most} places in one file, at most {MAX_SPLICES}")));
        }
        let mut paths: Vec<&ScopedPath> = files.iter().flat_map(FileChange::paths).collect();
        paths.sort_unstable();
        if let Some(twice) = paths.windows(2).find(|pair| pair.first() == pair.last()).and_then(<[_]>::first)
        {
            return Err(BadChange::Twice(twice.to_string()));
        }
        Ok(Self { files })
    }

    /// In the order of their paths.
    #[must_use]
    pub fn files(&self) -> &[FileChange] {
        &self.files
    }

    /// Whether nothing changes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The part of it that is wanted: a decision over some of the files.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&FileChange) -> bool) -> Self {
        Self { files: self.files.iter().filter(|file| wanted(file)).cloned().collect() }
    }

    /// What it amounts to, in the words of rules.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        self.files.iter().flat_map(FileChange::effects).collect()
    }

    /// One line: the first few files, and how many more.
    #[must_use]
    pub fn summary(&self) -> String {
        const SHOWN: usize = 3;
        let mut words: Vec<String> = self.files.iter().take(SHOWN).map(ToString::to_string).collect();
        if let Some(more) = self.files.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            words.push(format!("and {more} more"));
        }
        if words.is_empty() { "NOTHING".to_owned() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests;
