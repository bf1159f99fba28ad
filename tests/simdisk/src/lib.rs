//! A disk on paper: what was written, what was synced, and what a power cut may leave. It keeps what was synced, and
//! of the rest whatever chance keeps: pages in any order, sectors of a page from different moments, the length from
//! yet another; names in their order. Sectors are whole, a file is cut at once, and what was never written reads as
//! zeros.
//!
//! For tests only: it panics where something is asked that cannot be.
#![expect(clippy::indexing_slicing, reason = "for tests, which fail by panicking")]

mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use random::Random;

/// What the system writes to the disk at once, and what the disk writes at once.
const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// A file, however it is called.
pub type FileId = usize;

/// One operation on the disk.
#[derive(Debug, Clone)]
pub enum Step {
    /// A file is made; files are numbered in this order.
    Make(PathBuf),
    /// A file gets another name.
    Rename(PathBuf, PathBuf),
    /// A name goes.
    Remove(PathBuf),
    /// The names of a folder are brought to the disk.
    SyncFolder(PathBuf),
    /// Bytes are written at an offset.
    Write(FileId, usize, Vec<u8>),
    /// A file is cut or lengthened.
    Length(FileId, usize),
    /// A file is brought to the disk.
    Sync(FileId),
    /// It was to be, and that failed: some of it is there, and no later sync cares for the rest.
    FailedSync(FileId),
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Made(PathBuf, FileId),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

#[derive(Debug, Default)]
struct File {
    cached: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
}

/// The disk.
#[derive(Debug, Default)]
pub struct Paper {
    files: Vec<File>,
    names: BTreeMap<PathBuf, FileId>,
    synced_names: BTreeMap<PathBuf, FileId>,
    names_since: Vec<NameChange>,
}

impl Paper {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Does one thing. Chance decides what is left of a failed sync.
    pub fn take(&mut self, step: Step, random: &mut Random) {
        match step {
            Step::Make(path) => {
                self.files.push(File::default());
                self.rename_now(NameChange::Made(path, self.files.len() - 1));
            }
            Step::Rename(from, to) => self.rename_now(NameChange::Renamed(from, to)),
            Step::Remove(path) => self.rename_now(NameChange::Removed(path)),
            Step::SyncFolder(folder) => self.sync_names(&folder),
            Step::Write(file, offset, bytes) => self.files[file].change(Change::Write(offset, bytes)),
            Step::Length(file, length) => self.files[file].change(Change::Length(length)),
            Step::Sync(file) => self.files[file].sync(),
            Step::FailedSync(file) => {
                let file = &mut self.files[file];
                let cached = file.cached.clone();
                file.settle(random);
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

    /// How many files were ever made.
    #[must_use]
    pub fn made(&self) -> usize {
        self.files.len()
    }

    /// Every name, and what is read there.
    pub fn all(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().map(|(path, file)| (path.as_path(), self.read(*file)))
    }

    /// The power goes and comes back.
    pub fn cut_power(&mut self, random: &mut Random) {
        let kept = random.below(self.names_since.len() + 1);
        for change in self.names_since.drain(..).take(kept) {
            change.apply(&mut self.synced_names);
        }
        self.names.clone_from(&self.synced_names);
        self.files.iter_mut().for_each(|file| file.settle(random));
    }

    fn rename_now(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.names_since.push(change);
    }

    fn sync_names(&mut self, folder: &Path) {
        let (now, later): (Vec<_>, Vec<_>) =
            self.names_since.drain(..).partition(|change| change.folder() == Some(folder));
        self.names_since = later;
        now.into_iter().for_each(|change| change.apply(&mut self.synced_names));
    }
}

impl NameChange {
    fn folder(&self) -> Option<&Path> {
        let (Self::Made(path, _) | Self::Renamed(path, _) | Self::Removed(path)) = self;
        path.parent()
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            Self::Made(path, file) => drop(names.insert(path, file)),
            Self::Removed(path) => drop(names.remove(&path)),
            Self::Renamed(from, to) => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.since.push(change);
    }

    fn sync(&mut self) {
        for change in self.since.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// Keeps what a power cut may keep.
    fn settle(&mut self, random: &mut Random) {
        let changes = std::mem::take(&mut self.since);
        let mut lengths = vec![self.synced.len()];
        let (mut length, mut most) = (self.synced.len(), self.synced.len());
        for change in &changes {
            length = match change {
                Change::Write(offset, bytes) => length.max(offset + bytes.len()),
                Change::Length(length) => *length,
            };
            most = most.max(length);
            lengths.push(length);
        }
        let mut image = std::mem::take(&mut self.synced);
        image.resize(most.next_multiple_of(PAGE), 0);
        let lengthened = random.below(lengths.len());
        for (number, page) in image.chunks_mut(PAGE).enumerate().filter(|_| !changes.is_empty()) {
            let (fate, moment) = (random.below(3), random.below(changes.len() + 1));
            for (sector, bytes) in page.chunks_mut(SECTOR).enumerate() {
                let moment = match fate {
                    0 => moment,
                    1 => changes.len(),
                    _ => random.below(changes.len() + 1),
                };
                survive(&changes, number * PAGE + sector * SECTOR, bytes, moment, lengthened);
            }
        }
        image.resize(lengths[lengthened], 0);
        (self.cached, self.synced) = (image.clone(), image);
    }
}

/// What a sector has of the changes to its file: writes until one moment, and lengths until another, which is the same
/// for the whole file: file systems cut a file at once or not at all, and give what was cut to nobody before that.
fn survive(changes: &[Change], start: usize, sector: &mut [u8], written: usize, lengthened: usize) {
    for (moment, change) in changes.iter().enumerate() {
        match change {
            Change::Write(..) if moment < written => change.reach(start, sector),
            Change::Length(_) if moment < lengthened => change.reach(start, sector),
            Change::Length(length) if start + sector.len() > *length => return,
            _ => {}
        }
    }
}

impl Change {
    /// Makes it in a whole file.
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write(offset, written) => {
                file.resize(file.len().max(offset + written.len()), 0);
                self.reach(0, file);
            }
            Self::Length(length) => file.resize(*length, 0),
        }
    }

    /// Makes it as far as it falls into a piece of the file, which keeps its length.
    fn reach(&self, start: usize, piece: &mut [u8]) {
        match self {
            Self::Write(offset, written) => {
                let (from, to) = (start.max(*offset), (start + piece.len()).min(offset + written.len()));
                if from < to {
                    piece[from - start..to - start].copy_from_slice(&written[from - offset..to - offset]);
                }
            }
            Self::Length(length) => {
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
    fn what_was_synced_stays_and_the_rest_may_not() {
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut disk = Paper::new();
            let path = PathBuf::from("/a/file");
            let steps = [
                Step::Make(path.clone()),
                Step::SyncFolder("/a".into()),
                Step::Write(0, 0, vec![1; 700]),
                Step::Sync(0),
                Step::Write(0, 700, vec![2; 5000]),
            ];
            steps.into_iter().for_each(|step| disk.take(step, &mut random));
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
    fn a_file_is_cut_as_a_whole_or_not_at_all() {
        let (mut cut, mut whole, mut again) = (0, 0, 0);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut disk = Paper::new();
            let steps = [
                Step::Make("/a".into()),
                Step::SyncFolder("/".into()),
                Step::Write(0, 0, vec![1; 9000]),
                Step::Sync(0),
                Step::Length(0, 0),
                Step::Write(0, 0, vec![2; 700]),
            ];
            steps.into_iter().for_each(|step| disk.take(step, &mut random));
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
        assert!(cut > 20 && whole > 20 && again > 20, "{cut} cut, {whole} whole, {again} written again");
    }

    #[test]
    fn a_name_without_a_sync_may_be_gone_and_a_failed_sync_is_never_made_good() {
        let (mut gone, mut short) = (0, 0);
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut disk = Paper::new();
            let steps = [
                Step::Make("/a/x".into()),
                Step::Write(0, 0, vec![7; 9000]),
                Step::FailedSync(0),
                Step::Sync(0),
            ];
            steps.into_iter().for_each(|step| disk.take(step, &mut random));
            assert_eq!(disk.read(0), [7; 9000]);
            disk.cut_power(&mut random);
            gone += u32::from(disk.find(Path::new("/a/x")).is_none());
            short += u32::from(disk.read(0) != [7; 9000]);
        }
        assert!(gone > 20 && short > 20, "{gone} gone, {short} short");
    }
}
