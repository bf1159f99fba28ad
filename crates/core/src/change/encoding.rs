//! Binary encoding of a ChangeSet: for the store, for the journal, and as the input of the digest. Versioned, encoded and
//! decoded by hand; each value has exactly one encoding, so equal digests mean equal changes.
//!
//! Layout, numbers big-endian: magic bytes, number of files, then for each file its path, its state before, its state
//! after, and the number of directories to remove; texts and contents are preceded by their length.

use crate::change::{BadChange, BaseFile, ChangeSet, FileChange, MAX_FILES, MAX_SPLICES, Splice, TargetFile};
use crate::digest::Digest;
use crate::path::{AskedPath, ScopedPath};

const MAGIC: &[u8] = b"vambrace-changes-1\n";

/// Bytes that do not decode to a ChangeSet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a stored change: {0}")]
pub struct BadChangeRecord(&'static str);

impl From<BadChange> for BadChangeRecord {
    fn from(_: BadChange) -> Self {
        Self("its parts do not fit together")
    }
}

impl ChangeSet {
    /// The digest that an approval is bound to.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// Encodes the changes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let content: u64 = self.files.iter().map(FileChange::new_bytes).sum();
        let mut out = Vec::with_capacity(usize::try_from(content).unwrap_or(0).saturating_add(1024));
        out.extend_from_slice(MAGIC);
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
                    // u64::MAX stands for "no permission bits": it differs from every valid mode.
                    number(&mut out, target.mode.map_or(u64::MAX, u64::from));
                    number(&mut out, target.splices.len() as u64);
                    for splice in &target.splices {
                        number(&mut out, splice.at);
                        number(&mut out, splice.remove);
                        bytes(&mut out, &splice.insert);
                    }
                }
            }
            number(&mut out, file.empty_dirs.into());
        }
        out
    }

    /// Decodes exactly what [`to_bytes`](Self::to_bytes) produces.
    pub fn from_bytes(record: &[u8]) -> Result<Self, BadChangeRecord> {
        let rest = record
            .strip_prefix(MAGIC)
            .ok_or(BadChangeRecord("it does not start with the magic bytes of version 1"))?;
        let mut reader = ChangeDecoder { rest };
        let count = reader.count(MAX_FILES)?;
        let mut files = Vec::new();
        for _ in 0..count {
            files.push(reader.file()?);
        }
        if !reader.rest.is_empty() {
            return Err(BadChangeRecord("bytes follow its end"));
        }
        let changes = Self::rollback(files)?;
        // Only the canonical encoding is accepted: unsorted files, for example, would be sorted here.
        if changes.to_bytes() == record {
            Ok(changes)
        } else {
            Err(BadChangeRecord("it is not in canonical form"))
        }
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

struct ChangeDecoder<'a> {
    rest: &'a [u8],
}

impl<'a> ChangeDecoder<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], BadChangeRecord> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(BadChangeRecord("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, BadChangeRecord> {
        let taken = self.take(8)?.try_into().map_err(|_| BadChangeRecord("it ends too early"))?;
        Ok(u64::from_be_bytes(taken))
    }

    fn number_u32(&mut self) -> Result<u32, BadChangeRecord> {
        u32::try_from(self.number()?).map_err(|_| BadChangeRecord("a number is too large"))
    }

    fn count(&mut self, max: usize) -> Result<usize, BadChangeRecord> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= max);
        count.ok_or(BadChangeRecord("a count exceeds its limit"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadChangeRecord> {
        let length = usize::try_from(self.number()?).map_err(|_| BadChangeRecord("a length is too large"))?;
        self.take(length)
    }

    fn digest(&mut self) -> Result<Digest, BadChangeRecord> {
        let taken = self.take(32)?.try_into().map_err(|_| BadChangeRecord("it ends too early"))?;
        Ok(Digest::from_bytes(taken))
    }

    fn path(&mut self) -> Result<ScopedPath, BadChangeRecord> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| BadChangeRecord("a path is not text"))?;
        AskedPath::new(text).parse().map_err(|_| BadChangeRecord("a path is not allowed"))
    }

    fn flag(&mut self) -> Result<bool, BadChangeRecord> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(BadChangeRecord("a flag is neither 0 nor 1")),
        }
    }

    fn file(&mut self) -> Result<FileChange, BadChangeRecord> {
        let path = self.path()?;
        let before = match self.flag()? {
            true => Some(BaseFile { hash: self.digest()?, size: self.number()?, mode: self.number_u32()? }),
            false => None,
        };
        let after = if self.flag()? { Some(self.target()?) } else { None };
        let empty_dirs = self.number_u32()?;
        if before.is_none() && after.is_none() {
            return Err(BadChangeRecord("a file has neither a state before nor a state after"));
        }
        Ok(FileChange::checked(path, before, after, empty_dirs)?)
    }

    fn target(&mut self) -> Result<TargetFile, BadChangeRecord> {
        let (path, hash, size) = (self.path()?, self.digest()?, self.number()?);
        let mode = match self.number()? {
            u64::MAX => None,
            mode => Some(u32::try_from(mode).map_err(|_| BadChangeRecord("permission bits are too large"))?),
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
        Ok(TargetFile { path, hash, size, mode, splices })
    }
}
