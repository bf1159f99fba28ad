//! Journal records of a write-back: the workspace, the staging directory, the steps.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::changes::{EntryChange, FileKind};
use crate::wire::{self, Bytes};

/// One journal record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WriteBackRecord {
    pub(super) workspace: Bytes,
    /// Device and inode of the workspace: another directory in its place is not touched.
    pub(super) identity: (u64, u64),
    /// Name of the staging directory in the workspace, which holds the new files.
    pub(super) staging: String,
    /// `None` while the staging directory is still being filled.
    pub(super) steps: Option<Vec<WriteBackStep>>,
    /// The boot id, if the staged files were not synced: after a power cut they may be empty.
    pub(super) unsynced_since: Option<String>,
    /// What the caller changes together with the steps; empty if nothing.
    pub(super) companion: Bytes,
}

/// Permission bits that the owner needs to work in a directory.
pub(super) const OWNER_RWX: u32 = 0o700;

/// One idempotent step of a write-back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum WriteBackStep {
    CreateDirectory {
        path: Bytes,
        mode: u32,
    },
    /// Move the file or symlink with this number from the staging directory into place.
    Install {
        path: Bytes,
        number: u64,
        before: Option<BaseStamp>,
    },
    Mode {
        path: Bytes,
        mode: u32,
    },
    Rename {
        from: Bytes,
        to: Bytes,
    },
    Delete {
        path: Bytes,
        dir: bool,
        before: Option<BaseStamp>,
    },
}

/// Inode and ctime (ns) of the replaced entry: after a crash, a later change by another process wins.
pub(super) type BaseStamp = (u64, i128);

impl WriteBackStep {
    pub(super) fn before(&self) -> Option<&BaseStamp> {
        match self {
            Self::Install { before, .. } | Self::Delete { before, .. } => before.as_ref(),
            _ => None,
        }
    }

    pub(super) fn path(&self) -> &[u8] {
        match self {
            Self::CreateDirectory { path, .. }
            | Self::Install { path, .. }
            | Self::Mode { path, .. }
            | Self::Delete { path, .. } => path,
            Self::Rename { to, .. } => to,
        }
    }
}

pub(super) fn before(change: &EntryChange) -> Option<BaseStamp> {
    change.before.as_ref().map(|before| (before.inode, before.changed))
}

pub(super) fn is_directory(change: &EntryChange) -> bool {
    change.after.as_ref().is_some_and(|after| after.kind == FileKind::Directory)
}

/// Whether the owner lacks permissions in the directory.
pub(super) fn is_closed_to_owner(change: &EntryChange) -> bool {
    change.after.as_ref().is_some_and(|after| after.mode & OWNER_RWX != OWNER_RWX)
}

pub(super) fn mode(change: &EntryChange, besides: u32) -> Option<WriteBackStep> {
    let mode = change.after.as_ref()?.mode | besides;
    Some(WriteBackStep::Mode { path: change.path.as_os_str().as_bytes().to_vec(), mode })
}

pub(super) fn delete(change: &EntryChange) -> WriteBackStep {
    let dir = change.before.as_ref().is_some_and(|before| before.kind == FileKind::Directory);
    WriteBackStep::Delete { path: change.path.as_os_str().as_bytes().to_vec(), dir, before: before(change) }
}

/// Appends a record and syncs it: length, hash, content. Recovery uses the last complete record.
pub(super) fn append_record(mut file: &File, record: &WriteBackRecord) -> Result<(), Errno> {
    let bytes = wire::pack(record)?;
    let mut record = (bytes.len() as u64).to_le_bytes().to_vec();
    record.extend_from_slice(&Sha256::digest(&bytes));
    record.extend_from_slice(&bytes);
    file.write_all(&record).and_then(|()| file.sync_data()).map_err(|error| super::errno(&error))
}

pub(super) fn last_complete_record(mut bytes: &[u8]) -> Option<WriteBackRecord> {
    let mut last = None;
    while let Some((length, rest)) = bytes.split_first_chunk::<8>()
        && let Some((hash, rest)) = rest.split_first_chunk::<32>()
        && let Ok(length) = usize::try_from(u64::from_le_bytes(*length))
        && let Some((record, rest)) = rest.split_at_checked(length)
        && Sha256::digest(record).as_slice() == hash
    {
        last = wire::unpack(record).ok();
        bytes = rest;
    }
    last
}
