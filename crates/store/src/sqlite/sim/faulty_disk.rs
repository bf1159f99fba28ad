//! The disk model as a [`Disk`] with faults: no space, short reads and writes, failing writes and syncs, power
//! cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use vambrace_simdisk::{DiskModel, DiskOp, FileId, Random};

use crate::disk::{Disk, DiskFile, OpenFor};

/// An injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskFault {
    /// No space, for some operations.
    NoRoom,
    /// A write fails.
    Write,
    /// A sync fails; part of its data is on disk, and no later sync writes the rest.
    Sync,
    /// The power is cut.
    PowerCut,
}

#[derive(Debug)]
struct SimDiskState {
    random: Random,
    model: DiskModel,
    /// Read-only files.
    sealed: BTreeSet<FileId>,
    operation: u64,
    /// The fault, and the operation at which it begins.
    fault: Option<(u64, DiskFault)>,
    syncs: BTreeMap<PathBuf, u64>,
}

#[derive(Debug, Clone)]
pub(super) struct SimDisk(Arc<Mutex<SimDiskState>>);

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: FileId,
    path: PathBuf,
    read_only: bool,
}

impl SimDisk {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SimDiskState {
            random: Random::new(seed),
            model: DiskModel::new(),
            sealed: BTreeSet::new(),
            operation: 0,
            fault: None,
            syncs: BTreeMap::new(),
        })))
    }

    /// Plans a fault some operations from now.
    pub(super) fn plan(&self, fault: Option<(u64, DiskFault)>) {
        let mut state = self.0.lock();
        state.fault = fault.map(|(after, fault)| (state.operation + after, fault));
    }

    /// How often a file was synced.
    pub(super) fn syncs(&self, path: &Path) -> u64 {
        self.0.lock().syncs.get(path).copied().unwrap_or(0)
    }

    pub(super) fn has_lost_power(&self) -> bool {
        let state = self.0.lock();
        matches!(state.fault, Some((at, DiskFault::PowerCut)) if state.operation >= at)
    }

    /// Everything that can be read, by path.
    pub(super) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.0.lock().model.all().map(|(path, bytes)| (path.to_owned(), bytes.to_owned())).collect()
    }

    /// Deletes a file, as another program would.
    pub(super) fn remove(&self, path: &Path) {
        self.0.lock().apply(DiskOp::Remove(path.to_owned()));
    }

    /// The power is back: only what survived is there.
    pub(super) fn cut_power(&self) {
        let mut state = self.0.lock();
        let SimDiskState { random, model, sealed, fault, .. } = &mut *state;
        *fault = None;
        model.cut_power(random);
        sealed.retain(|_| random.one_in(2));
    }
}

impl SimDiskState {
    /// Counts an operation, and returns its fault.
    fn next_operation(&mut self) -> io::Result<Option<DiskFault>> {
        self.operation += 1;
        match self.fault {
            Some((at, DiskFault::PowerCut)) if self.operation >= at => Err(io::Error::other("power cut")),
            Some((at, DiskFault::NoRoom)) if self.operation >= at => {
                if self.operation > at + 6 {
                    self.fault = None;
                }
                Ok(Some(DiskFault::NoRoom))
            }
            Some((at, fault)) if self.operation >= at => Ok(Some(fault)),
            _ => Ok(None),
        }
    }

    fn apply(&mut self, step: DiskOp) {
        self.model.apply(step, &mut self.random);
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        if purpose != OpenFor::Reading {
            state.next_operation()?;
        }
        let id = match (state.model.find(path), purpose) {
            (None, OpenFor::Reading | OpenFor::Writing) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenFor::Creating | OpenFor::Replacing) => {
                state.apply(DiskOp::Create(path.to_owned()));
                state.model.created_files() - 1
            }
            (Some(id), _) => id,
        };
        // As for a user that file modes apply to.
        if purpose != OpenFor::Reading && state.sealed.contains(&id) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if purpose == OpenFor::Replacing {
            state.apply(DiskOp::SetLen(id, 0));
        }
        let read_only = purpose == OpenFor::Reading;
        Ok(Box::new(SimFile { disk: self.clone(), id, path: path.to_owned(), read_only }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.next_operation()?;
        state.apply(DiskOp::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.next_operation()? == Some(DiskFault::Sync) {
            state.fault = None;
            return Err(io::Error::from_raw_os_error(5));
        }
        state.apply(DiskOp::SyncDir(dir.to_owned()));
        Ok(())
    }

    fn create_dir(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let state = self.0.lock();
        let within = state.model.all().filter(|(path, _)| path.parent() == Some(dir));
        let entry = |(path, bytes): (&Path, &[u8])| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes.len() as u64)
        };
        Ok(within.map(entry).collect())
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        let state = self.0.lock();
        Ok(state.model.find(path).map(|id| state.model.read(id).len() as u64))
    }

    fn free_bytes(&self, _folder: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        let mut state = self.0.lock();
        state.next_operation()?;
        let id = state.model.find(path).ok_or(io::ErrorKind::NotFound)?;
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
        let cached = state.model.read(self.id);
        let start = usize::try_from(offset).unwrap().min(cached.len());
        let mut length = buffer.len().min(cached.len() - start);
        buffer[..length].copy_from_slice(&cached[start..start + length]);
        if length > 1 && state.random.one_in(8) {
            length = 1 + state.random.below(length - 1);
        }
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert!(!self.read_only);
        let mut state = self.disk.0.lock();
        match state.next_operation()? {
            Some(DiskFault::NoRoom) if state.random.one_in(2) => {
                return Err(io::Error::from_raw_os_error(28));
            }
            Some(DiskFault::Write) => {
                state.fault = None;
                return Err(io::Error::from_raw_os_error(5));
            }
            _ => {}
        }
        let short = state.random.one_in(4);
        let length = if short { 1 + state.random.below(bytes.len()) } else { bytes.len() };
        state.apply(DiskOp::Write(self.id, usize::try_from(offset).unwrap(), bytes[..length].to_vec()));
        Ok(length)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.next_operation()?;
        state.apply(DiskOp::SetLen(self.id, usize::try_from(length).unwrap()));
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        if state.next_operation()? == Some(DiskFault::Sync) {
            state.fault = None;
            state.apply(DiskOp::FailedSync(self.id));
            return Err(io::Error::from_raw_os_error(5));
        }
        state.apply(DiskOp::Sync(self.id));
        *state.syncs.entry(self.path.clone()).or_default() += 1;
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().model.read(self.id).len() as u64)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }
}
