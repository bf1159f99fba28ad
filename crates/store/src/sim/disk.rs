//! A disk in memory that remembers what was synced. A power cut keeps that, and of the rest whatever chance keeps:
//! pages in any order, sectors of a page from different moments, the length from yet another; names in their order.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::random::Random;
use crate::files::{Disk, DiskFile, OpenFor};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No room, for some operations.
    NoRoom,
    /// A write fails.
    Write,
    /// A sync fails; of what it should have brought to the disk some is there, and no later sync cares for it.
    Sync,
    /// The power goes.
    PowerCut,
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Made(PathBuf, usize),
    Renamed(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct Inode {
    cached: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
    sealed: bool,
}

#[derive(Debug)]
struct State {
    random: Random,
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    names_since: Vec<NameChange>,
    operation: u64,
    /// From this operation on.
    trouble: Option<(u64, Trouble)>,
    syncs: BTreeMap<PathBuf, u64>,
}

#[derive(Debug, Clone)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
    path: PathBuf,
    reads_only: bool,
}

impl SimDisk {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            inodes: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            names_since: Vec::new(),
            operation: 0,
            trouble: None,
            syncs: BTreeMap::new(),
        })))
    }

    /// Something goes wrong some operations from now.
    pub(super) fn plan(&self, trouble: Option<(u64, Trouble)>) {
        let mut state = self.0.lock();
        state.trouble = trouble.map(|(after, trouble)| (state.operation + after, trouble));
    }

    /// How often a file was synced.
    pub(super) fn syncs(&self, path: &Path) -> u64 {
        self.0.lock().syncs.get(path).copied().unwrap_or(0)
    }

    pub(super) fn has_lost_power(&self) -> bool {
        let state = self.0.lock();
        matches!(state.trouble, Some((at, Trouble::PowerCut)) if state.operation >= at)
    }

    /// Everything that can be read, by its path.
    pub(super) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.0.lock();
        state.names.iter().map(|(path, inode)| (path.clone(), state.inodes[*inode].cached.clone())).collect()
    }

    /// The power is back: what was kept is all there is.
    pub(super) fn cut_power(&self) {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.trouble = None;
        let kept = state.random.below(state.names_since.len() + 1);
        let mut names = std::mem::take(&mut state.synced_names);
        state.names_since.drain(..).take(kept).for_each(|change| apply_name(&mut names, change));
        for inode in &mut state.inodes {
            inode.settle(&mut state.random);
            inode.sealed &= state.random.one_in(2);
        }
        (state.names, state.synced_names) = (names.clone(), names);
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: NameChange) {
    match change {
        NameChange::Made(path, inode) => drop(names.insert(path, inode)),
        NameChange::Renamed(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
    }
}

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.since.push(change);
    }

    /// Keeps what a power cut may keep.
    fn settle(&mut self, random: &mut Random) {
        let changes = std::mem::take(&mut self.since);
        if changes.is_empty() {
            self.cached.clone_from(&self.synced);
            return;
        }
        let mut lengths = vec![self.synced.len()];
        for change in &changes {
            let last = *lengths.last().unwrap();
            lengths.push(match change {
                Change::Write(offset, bytes) => last.max(offset + bytes.len()),
                Change::Length(length) => *length,
            });
        }
        let most = *lengths.iter().max().unwrap();
        let mut image = std::mem::take(&mut self.synced);
        image.resize(most.next_multiple_of(PAGE), 0);
        for (number, page) in image.chunks_mut(PAGE).enumerate() {
            let (fate, moment) = (random.below(3), random.below(changes.len() + 1));
            for (sector, bytes) in page.chunks_mut(SECTOR).enumerate() {
                let moment = match fate {
                    0 => moment,
                    1 => changes.len(),
                    _ => random.below(changes.len() + 1),
                };
                let start = number * PAGE + sector * SECTOR;
                changes.iter().take(moment).for_each(|change| change.reach(start, bytes));
            }
        }
        image.resize(lengths[random.below(lengths.len())], 0);
        (self.cached, self.synced) = (image.clone(), image);
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

impl State {
    /// Counts an operation, and tells what goes wrong with it.
    fn step(&mut self) -> io::Result<Option<Trouble>> {
        self.operation += 1;
        match self.trouble {
            Some((at, Trouble::PowerCut)) if self.operation >= at => Err(io::Error::other("power cut")),
            Some((at, Trouble::NoRoom)) if self.operation >= at => {
                if self.operation > at + 6 {
                    self.trouble = None;
                }
                Ok(Some(Trouble::NoRoom))
            }
            Some((at, trouble)) if self.operation >= at => Ok(Some(trouble)),
            _ => Ok(None),
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        if purpose != OpenFor::Reading {
            state.step()?;
        }
        let found = state.names.get(path).copied();
        let inode = match (found, purpose) {
            (None, OpenFor::Reading | OpenFor::Writing) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenFor::Making | OpenFor::Replacing) => {
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.names.insert(path.to_owned(), inode);
                state.names_since.push(NameChange::Made(path.to_owned(), inode));
                inode
            }
            (Some(inode), _) => inode,
        };
        // As an ordinary user, whom modes concern.
        if purpose != OpenFor::Reading && state.inodes[inode].sealed {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if purpose == OpenFor::Replacing {
            state.inodes[inode].change(Change::Length(0));
        }
        let reads_only = purpose == OpenFor::Reading;
        Ok(Box::new(SimFile { disk: self.clone(), inode, path: path.to_owned(), reads_only }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let change = NameChange::Renamed(from.to_owned(), to.to_owned());
        apply_name(&mut state.names, change.clone());
        state.names_since.push(change);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.step()? == Some(Trouble::Sync) {
            state.trouble = None;
            return Err(io::Error::from_raw_os_error(5));
        }
        let within = |change: &NameChange| match change {
            NameChange::Made(path, _) | NameChange::Renamed(path, _) => path.parent() == Some(folder),
        };
        let state = &mut *state;
        let (now, later): (Vec<_>, Vec<_>) = state.names_since.drain(..).partition(within);
        now.into_iter().for_each(|change| apply_name(&mut state.synced_names, change));
        state.names_since = later;
        Ok(())
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, u64)>> {
        let state = self.0.lock();
        let within = state.names.iter().filter(|(path, _)| path.parent() == Some(folder));
        let entry = |(path, inode): (&PathBuf, &usize)| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, state.inodes[*inode].cached.len() as u64)
        };
        Ok(within.map(entry).collect())
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        let state = self.0.lock();
        Ok(state.names.get(path).map(|inode| state.inodes[*inode].cached.len() as u64))
    }

    fn room(&self, _folder: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        state.inodes[inode].sealed = !writable;
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        let cached = &state.inodes[self.inode].cached;
        let start = usize::try_from(offset).unwrap().min(cached.len());
        let mut length = buffer.len().min(cached.len() - start);
        buffer[..length].copy_from_slice(&cached[start..start + length]);
        if length > 1 && state.random.one_in(8) {
            length = 1 + state.random.below(length - 1);
        }
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert!(!self.reads_only);
        let mut state = self.disk.0.lock();
        match state.step()? {
            Some(Trouble::NoRoom) if state.random.one_in(2) => return Err(io::Error::from_raw_os_error(28)),
            Some(Trouble::Write) => {
                state.trouble = None;
                return Err(io::Error::from_raw_os_error(5));
            }
            _ => {}
        }
        let short = state.random.one_in(4);
        let length = if short { 1 + state.random.below(bytes.len()) } else { bytes.len() };
        let change = Change::Write(usize::try_from(offset).unwrap(), bytes[..length].to_vec());
        state.inodes[self.inode].change(change);
        Ok(length)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.step()?;
        state.inodes[self.inode].change(Change::Length(usize::try_from(length).unwrap()));
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let state = &mut *state;
        let trouble = state.step()?;
        let inode = &mut state.inodes[self.inode];
        if trouble == Some(Trouble::Sync) {
            state.trouble = None;
            let cached = inode.cached.clone();
            inode.settle(&mut state.random);
            inode.cached = cached;
            return Err(io::Error::from_raw_os_error(5));
        }
        for change in inode.since.drain(..) {
            change.apply(&mut inode.synced);
        }
        *state.syncs.entry(self.path.clone()).or_default() += 1;
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().inodes[self.inode].cached.len() as u64)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }
}
