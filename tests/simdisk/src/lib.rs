//! A disk model: what was written, what was synced, and what a power cut may leave. Synced data is kept; of the
//! rest the survivors are random: pages in any order, sectors of a page from different moments, the length from
//! yet another; directory entries in order. Sectors are atomic, a truncation is atomic, and what was never
//! written reads as zeros.
//!
//! For tests only: it panics on invalid operations.
#![expect(clippy::indexing_slicing, reason = "for tests, which fail by panicking")]

mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use random::Random;

/// Write units of the kernel and of the disk.
const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// Identifies a file, independent of its name.
pub type FileId = usize;

/// One operation on the disk.
#[derive(Debug, Clone)]
pub enum DiskOp {
    /// A file is created; files are numbered in this order.
    Create(PathBuf),
    /// A file is renamed.
    Rename(PathBuf, PathBuf),
    /// A name is removed.
    Remove(PathBuf),
    /// The names of a directory are synced.
    SyncDir(PathBuf),
    /// Bytes are written at an offset.
    Write(FileId, usize, Vec<u8>),
    /// A file is truncated or extended.
    SetLen(FileId, usize),
    /// A file is synced.
    Sync(FileId),
    /// A sync failed: part of the data is on disk, and no later sync writes the rest.
    FailedSync(FileId),
}

#[derive(Debug, Clone)]
enum FileChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Created(PathBuf, FileId),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

#[derive(Debug, Default)]
struct FileModel {
    cached: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<FileChange>,
}

/// The disk.
#[derive(Debug, Default)]
pub struct DiskModel {
    files: Vec<FileModel>,
    names: BTreeMap<PathBuf, FileId>,
    synced_names: BTreeMap<PathBuf, FileId>,
    names_since: Vec<NameChange>,
}

impl DiskModel {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Executes one operation. What a failed sync leaves is random.
    pub fn apply(&mut self, step: DiskOp, random: &mut Random) {
        match step {
            DiskOp::Create(path) => {
                self.files.push(FileModel::default());
                self.rename_now(NameChange::Created(path, self.files.len() - 1));
            }
            DiskOp::Rename(from, to) => self.rename_now(NameChange::Renamed(from, to)),
            DiskOp::Remove(path) => self.rename_now(NameChange::Removed(path)),
            DiskOp::SyncDir(dir) => self.sync_names(&dir),
            DiskOp::Write(file, offset, bytes) => self.files[file].change(FileChange::Write(offset, bytes)),
            DiskOp::SetLen(file, length) => self.files[file].change(FileChange::SetLen(length)),
            DiskOp::Sync(file) => self.files[file].sync(),
            DiskOp::FailedSync(file) => {
                let file = &mut self.files[file];
                let cached = file.cached.clone();
                file.keep_what_survives(random);
                file.cached = cached;
            }
        }
    }

    /// The file of this name.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<FileId> {
        self.names.get(path).copied()
    }

    /// What a program reads from a file.
    #[must_use]
    pub fn read(&self, file: FileId) -> &[u8] {
        &self.files[file].cached
    }

    /// Number of files ever created.
    #[must_use]
    pub fn created_files(&self) -> usize {
        self.files.len()
    }

    /// Every name, and the content that a program reads there.
    pub fn all(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().map(|(path, file)| (path.as_path(), self.read(*file)))
    }

    /// The power is cut and comes back.
    pub fn cut_power(&mut self, random: &mut Random) {
        let kept = random.below(self.names_since.len() + 1);
        for change in self.names_since.drain(..).take(kept) {
            change.apply(&mut self.synced_names);
        }
        self.names.clone_from(&self.synced_names);
        self.files.iter_mut().for_each(|file| file.keep_what_survives(random));
    }

    fn rename_now(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.names_since.push(change);
    }

    fn sync_names(&mut self, dir: &Path) {
        let (now, later): (Vec<_>, Vec<_>) =
            self.names_since.drain(..).partition(|change| change.dir() == Some(dir));
        self.names_since = later;
        now.into_iter().for_each(|change| change.apply(&mut self.synced_names));
    }
}

impl NameChange {
    fn dir(&self) -> Option<&Path> {
        let (Self::Created(path, _) | Self::Renamed(path, _) | Self::Removed(path)) = self;
        path.parent()
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            Self::Created(path, file) => drop(names.insert(path, file)),
            Self::Removed(path) => drop(names.remove(&path)),
            Self::Renamed(from, to) => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

impl FileModel {
    fn change(&mut self, change: FileChange) {
        change.apply(&mut self.cached);
        self.since.push(change);
    }

    fn sync(&mut self) {
        for change in self.since.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// Keeps what a power cut may keep.
    fn keep_what_survives(&mut self, random: &mut Random) {
        let changes = std::mem::take(&mut self.since);
        let mut lengths = vec![self.synced.len()];
        let (mut length, mut most) = (self.synced.len(), self.synced.len());
        for change in &changes {
            length = match change {
                FileChange::Write(offset, bytes) => length.max(offset + bytes.len()),
                FileChange::SetLen(length) => *length,
            };
            most = most.max(length);
            lengths.push(length);
        }
        let mut image = std::mem::take(&mut self.synced);
        image.resize(most.next_multiple_of(PAGE_BYTES), 0);
        let lengthened = random.below(lengths.len());
        for (number, page) in image.chunks_mut(PAGE_BYTES).enumerate().filter(|_| !changes.is_empty()) {
            let (fate, moment) = (random.below(3), random.below(changes.len() + 1));
            for (sector, bytes) in page.chunks_mut(SECTOR_BYTES).enumerate() {
                let moment = match fate {
                    0 => moment,
                    1 => changes.len(),
                    _ => random.below(changes.len() + 1),
                };
                apply_survivors(
                    &changes,
                    number * PAGE_BYTES + sector * SECTOR_BYTES,
                    bytes,
                    moment,
                    lengthened,
                );
            }
        }
        image.resize(lengths[lengthened], 0);
        (self.cached, self.synced) = (image.clone(), image);
    }
}

/// Applies to a sector the surviving changes of its file: writes until one moment, and lengths until another,
/// which is the same for the whole file: file systems truncate a file atomically, and reuse the freed blocks
/// only afterwards.
fn apply_survivors(
    changes: &[FileChange],
    start: usize,
    sector: &mut [u8],
    written: usize,
    lengthened: usize,
) {
    for (moment, change) in changes.iter().enumerate() {
        match change {
            FileChange::Write(..) if moment < written => change.apply_within(start, sector),
            FileChange::SetLen(_) if moment < lengthened => change.apply_within(start, sector),
            FileChange::SetLen(length) if start + sector.len() > *length => return,
            _ => {}
        }
    }
}

impl FileChange {
    /// Applies the change to a whole file.
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write(offset, written) => {
                file.resize(file.len().max(offset + written.len()), 0);
                self.apply_within(0, file);
            }
            Self::SetLen(length) => file.resize(*length, 0),
        }
    }

    /// Applies the change to a part of the file, which keeps its length.
    fn apply_within(&self, start: usize, piece: &mut [u8]) {
        match self {
            Self::Write(offset, written) => {
                let (from, to) = (start.max(*offset), (start + piece.len()).min(offset + written.len()));
                if from < to {
                    piece[from - start..to - start].copy_from_slice(&written[from - offset..to - offset]);
                }
            }
            Self::SetLen(length) => {
                let from = length.saturating_sub(start).min(piece.len());
                piece[from..].fill(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_data_stays_and_the_rest_may_be_lost() {
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut disk = DiskModel::new();
            let path = PathBuf::from("/a/file");
            let steps = [
                DiskOp::Create(path.clone()),
                DiskOp::SyncDir("/a".into()),
                DiskOp::Write(0, 0, vec![1; 700]),
                DiskOp::Sync(0),
                DiskOp::Write(0, 700, vec![2; 5000]),
            ];
            steps.into_iter().for_each(|step| disk.apply(step, &mut random));
            disk.cut_power(&mut random);
            let bytes = disk.read(disk.find(&path).unwrap());
            assert_eq!(bytes[..700], [1; 700]);
            let rest = &bytes[700..];
            match (rest.iter().all(|byte| *byte == 0), rest.len() == 5000 && !rest.contains(&0)) {
                (true, _) => lost += 1,
                (_, true) => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 5 && kept > 5 && torn > 5, "{lost} lost, {kept} kept, {torn} torn");
    }

    #[test]
    fn a_truncation_is_atomic() {
        let (mut cut, mut whole, mut again) = (0, 0, 0);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut disk = DiskModel::new();
            let steps = [
                DiskOp::Create("/a".into()),
                DiskOp::SyncDir("/".into()),
                DiskOp::Write(0, 0, vec![1; 9000]),
                DiskOp::Sync(0),
                DiskOp::SetLen(0, 0),
                DiskOp::Write(0, 0, vec![2; 700]),
            ];
            steps.into_iter().for_each(|step| disk.apply(step, &mut random));
            disk.cut_power(&mut random);
            match disk.read(0) {
                [] => cut += 1,
                bytes if bytes.len() == 9000 => {
                    assert_eq!(bytes, [1; 9000]);
                    whole += 1;
                }
                bytes => {
                    assert!(bytes.len() == 700 && !bytes.contains(&1), "{bytes:?}");
                    again += 1;
                }
            }
        }
        assert!(cut > 20 && whole > 20 && again > 20, "{cut} cut, {whole} whole, {again} rewritten");
    }

    #[test]
    fn an_unsynced_name_may_be_lost_and_no_later_sync_repairs_a_failed_one() {
        let (mut gone, mut short) = (0, 0);
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut disk = DiskModel::new();
            let steps = [
                DiskOp::Create("/a/x".into()),
                DiskOp::Write(0, 0, vec![7; 9000]),
                DiskOp::FailedSync(0),
                DiskOp::Sync(0),
            ];
            steps.into_iter().for_each(|step| disk.apply(step, &mut random));
            assert_eq!(disk.read(0), [7; 9000]);
            disk.cut_power(&mut random);
            gone += u32::from(disk.find(Path::new("/a/x")).is_none());
            short += u32::from(disk.read(0) != [7; 9000]);
        }
        assert!(gone > 20 && short > 20, "{gone} gone, {short} short");
    }
}
