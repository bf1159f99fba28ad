//! A ChangeSet as bytes: what is stored, what a journal holds, and what the digest is taken of. Versioned, written and
//! read by hand; there is one spelling for each value, so equal digests mean equal changes.
//!
//! Layout, numbers big-endian: the mark, the number of files, then for each file its path, what is there, what shall be
//! there, and the folders to remove; texts and contents are preceded by their length.

use crate::change::{BadChange, ChangeSet, Facts, FileChange, MAX_FILES, MAX_SPLICES, Splice, Target};
use crate::digest::Digest;
use crate::path::{AskedPath, ScopedPath};

const MARK: &[u8] = b"vambrace-changes-1\n";

/// Bytes that are not a ChangeSet of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a stored change: {0}")]
pub struct BadRecord(&'static str);

impl From<BadChange> for BadRecord {
    fn from(_: BadChange) -> Self {
        Self("its parts do not fit together")
    }
}

impl ChangeSet {
    /// What an approval is bound to.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// For the store and the journal.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let content: u64 = self.files.iter().map(FileChange::new_bytes).sum();
        let mut out = Vec::with_capacity(usize::try_from(content).unwrap_or(0).saturating_add(1024));
        out.extend_from_slice(MARK);
        number(&mut out, self.files.len() as u64);
        for file in &self.files {
            text(&mut out, &file.path);
            match &file.before {
                None => out.push(0),
                Some(facts) => {
                    out.push(1);
                    out.extend_from_slice(facts.hash.as_bytes());
                    number(&mut out, facts.size);
                    number(&mut out, facts.mode.into());
                }
            }
            match &file.after {
                None => out.push(0),
                Some(target) => {
                    out.push(1);
                    text(&mut out, &target.path);
                    out.extend_from_slice(target.hash.as_bytes());
                    number(&mut out, target.size);
                    // No permission bits is told apart from any of them.
                    number(&mut out, target.mode.map_or(u64::MAX, u64::from));
                    number(&mut out, target.splices.len() as u64);
                    for splice in &target.splices {
                        number(&mut out, splice.at);
                        number(&mut out, splice.remove);
                        bytes(&mut out, &splice.insert);
                    }
                }
            }
            number(&mut out, file.folders.into());
        }
        out
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote and nothing else.
    pub fn from_bytes(record: &[u8]) -> Result<Self, BadRecord> {
        let rest =
            record.strip_prefix(MARK).ok_or(BadRecord("it does not start with the mark of version 1"))?;
        let mut reader = Reader { rest };
        let count = reader.count(MAX_FILES)?;
        let mut files = Vec::new();
        for _ in 0..count {
            files.push(reader.file()?);
        }
        if !reader.rest.is_empty() {
            return Err(BadRecord("something follows its end"));
        }
        let changes = Self::back(files)?;
        // One spelling: unsorted files would read back sorted.
        if changes.to_bytes() == record { Ok(changes) } else { Err(BadRecord("it is not in its one form")) }
    }
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    number(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn text(out: &mut Vec<u8>, path: &ScopedPath) {
    bytes(out, path.to_string().as_bytes());
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(BadRecord("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        let taken = self.take(8)?.try_into().map_err(|_| BadRecord("it ends too early"))?;
        Ok(u64::from_be_bytes(taken))
    }

    fn small(&mut self) -> Result<u32, BadRecord> {
        u32::try_from(self.number()?).map_err(|_| BadRecord("a number is too large"))
    }

    fn count(&mut self, most: usize) -> Result<usize, BadRecord> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= most);
        count.ok_or(BadRecord("a count is over its limit"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadRecord> {
        let length = usize::try_from(self.number()?).map_err(|_| BadRecord("a length is too large"))?;
        self.take(length)
    }

    fn digest(&mut self) -> Result<Digest, BadRecord> {
        let taken = self.take(32)?.try_into().map_err(|_| BadRecord("it ends too early"))?;
        Ok(Digest::from_bytes(taken))
    }

    fn path(&mut self) -> Result<ScopedPath, BadRecord> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| BadRecord("a path is not text"))?;
        AskedPath::new(text).parse().map_err(|_| BadRecord("a path is not allowed"))
    }

    fn some(&mut self) -> Result<bool, BadRecord> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(BadRecord("a mark is neither 0 nor 1")),
        }
    }

    fn file(&mut self) -> Result<FileChange, BadRecord> {
        let path = self.path()?;
        let before = match self.some()? {
            true => Some(Facts { hash: self.digest()?, size: self.number()?, mode: self.small()? }),
            false => None,
        };
        let after = if self.some()? { Some(self.target()?) } else { None };
        let folders = self.small()?;
        if before.is_none() && after.is_none() {
            return Err(BadRecord("a file neither is nor shall be"));
        }
        Ok(FileChange::checked(path, before, after, folders)?)
    }

    fn target(&mut self) -> Result<Target, BadRecord> {
        let (path, hash, size) = (self.path()?, self.digest()?, self.number()?);
        let mode = match self.number()? {
            u64::MAX => None,
            mode => Some(u32::try_from(mode).map_err(|_| BadRecord("permission bits are too large"))?),
        };
        let count = self.count(MAX_SPLICES)?;
        let mut splices = Vec::new();
        for _ in 0..count {
            splices.push(Splice {
                at: self.number()?,
                remove: self.number()?,
                insert: self.bytes()?.to_vec(),
            });
        }
        Ok(Target { path, hash, size, mode, splices })
    }
}
