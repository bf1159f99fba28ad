//! The paper disk as a [`Disk`] on which things go wrong: no room, short reads and writes, writes and syncs that fail,
//! the power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use vambrace_simdisk::{FileId, Paper, Random, Step};

use crate::files::{Disk, DiskFile, OpenFor};

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

#[derive(Debug)]
struct State {
    random: Random,
    paper: Paper,
    /// Files that not even their owner may write.
    sealed: BTreeSet<FileId>,
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
    id: FileId,
    path: PathBuf,
    reads_only: bool,
}

impl SimDisk {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            paper: Paper::new(),
            sealed: BTreeSet::new(),
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
        self.0.lock().paper.all().map(|(path, bytes)| (path.to_owned(), bytes.to_owned())).collect()
    }

    /// Somebody deletes a file.
    pub(super) fn remove(&self, path: &Path) {
        self.0.lock().take(Step::Remove(path.to_owned()));
    }

    /// The power is back: what was kept is all there is.
    pub(super) fn cut_power(&self) {
        let mut state = self.0.lock();
        let State { random, paper, sealed, trouble, .. } = &mut *state;
        *trouble = None;
        paper.cut_power(random);
        sealed.retain(|_| random.one_in(2));
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

    fn take(&mut self, step: Step) {
        self.paper.take(step, &mut self.random);
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        if purpose != OpenFor::Reading {
            state.step()?;
        }
        let id = match (state.paper.find(path), purpose) {
            (None, OpenFor::Reading | OpenFor::Writing) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenFor::Making | OpenFor::Replacing) => {
                state.take(Step::Make(path.to_owned()));
                state.paper.made() - 1
            }
            (Some(id), _) => id,
        };
        // As an ordinary user, whom modes concern.
        if purpose != OpenFor::Reading && state.sealed.contains(&id) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if purpose == OpenFor::Replacing {
            state.take(Step::Length(id, 0));
        }
        let reads_only = purpose == OpenFor::Reading;
        Ok(Box::new(SimFile { disk: self.clone(), id, path: path.to_owned(), reads_only }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.take(Step::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.step()? == Some(Trouble::Sync) {
            state.trouble = None;
            return Err(io::Error::from_raw_os_error(5));
        }
        state.take(Step::SyncFolder(folder.to_owned()));
        Ok(())
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, u64)>> {
        let state = self.0.lock();
        let within = state.paper.all().filter(|(path, _)| path.parent() == Some(folder));
        let entry = |(path, bytes): (&Path, &[u8])| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes.len() as u64)
        };
        Ok(within.map(entry).collect())
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        let state = self.0.lock();
        Ok(state.paper.find(path).map(|id| state.paper.read(id).len() as u64))
    }

    fn room(&self, _folder: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let id = state.paper.find(path).ok_or(io::ErrorKind::NotFound)?;
        if writable {
            state.sealed.remove(&id)
        } else {
            state.sealed.insert(id)
        };
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        let cached = state.paper.read(self.id);
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
        state.take(Step::Write(self.id, usize::try_from(offset).unwrap(), bytes[..length].to_vec()));
        Ok(length)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.step()?;
        state.take(Step::Length(self.id, usize::try_from(length).unwrap()));
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        if state.step()? == Some(Trouble::Sync) {
            state.trouble = None;
            state.take(Step::FailedSync(self.id));
            return Err(io::Error::from_raw_os_error(5));
        }
        state.take(Step::Sync(self.id));
        *state.syncs.entry(self.path.clone()).or_default() += 1;
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().paper.read(self.id).len() as u64)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }
}
