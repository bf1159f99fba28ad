//! What a journal notes: where it works, and the steps of a promotion.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::changes::{Change, EntryKind};
use crate::wire::{self, Bytes};

/// What is noted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) workspace: Bytes,
    /// Device and number: another folder in its place is not touched.
    pub(super) identity: (u64, u64),
    /// The folder in the workspace with what is new.
    pub(super) beside: String,
    /// Nothing while that is still being written.
    pub(super) steps: Option<Vec<Step>>,
    /// Since when the machine runs, where what is new was not brought to the disk: after a power cut it may be empty.
    pub(super) unsynced_since: Option<String>,
}

/// What a folder's owner needs to work in it.
pub(super) const OWNERS: u32 = 0o700;

/// One thing to be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Step {
    Folder {
        path: Bytes,
        mode: u32,
    },
    /// A file or link that lies beside under this number.
    Place {
        path: Bytes,
        number: u64,
        before: Option<Before>,
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
        folder: bool,
        before: Option<Before>,
    },
}

/// Number and last change of what was there: after a crash, somebody else's later change of it wins.
pub(super) type Before = (u64, i128);

impl Step {
    pub(super) fn before(&self) -> Option<&Before> {
        match self {
            Self::Place { before, .. } | Self::Delete { before, .. } => before.as_ref(),
            _ => None,
        }
    }

    pub(super) fn path(&self) -> &[u8] {
        match self {
            Self::Folder { path, .. }
            | Self::Place { path, .. }
            | Self::Mode { path, .. }
            | Self::Delete { path, .. } => path,
            Self::Rename { to, .. } => to,
        }
    }
}

pub(super) fn before(change: &Change) -> Option<Before> {
    change.before.as_ref().map(|before| (before.inode, before.changed))
}

pub(super) fn is_folder(change: &Change) -> bool {
    change.after.as_ref().is_some_and(|after| after.kind == EntryKind::Folder)
}

/// Whether its owner cannot do everything in there.
pub(super) fn is_closed(change: &Change) -> bool {
    change.after.as_ref().is_some_and(|after| after.mode & OWNERS != OWNERS)
}

pub(super) fn mode(change: &Change, besides: u32) -> Option<Step> {
    let mode = change.after.as_ref()?.mode | besides;
    Some(Step::Mode { path: change.path.as_os_str().as_bytes().to_vec(), mode })
}

pub(super) fn delete(change: &Change) -> Step {
    let folder = change.before.as_ref().is_some_and(|before| before.kind == EntryKind::Folder);
    Step::Delete { path: change.path.as_os_str().as_bytes().to_vec(), folder, before: before(change) }
}

/// Adds a note: its length, its hash, itself. The last one that is whole counts.
pub(super) fn write_note(mut file: &File, note: &Note) -> Result<(), Errno> {
    let bytes = wire::pack(note)?;
    let mut record = (bytes.len() as u64).to_le_bytes().to_vec();
    record.extend_from_slice(&Sha256::digest(&bytes));
    record.extend_from_slice(&bytes);
    file.write_all(&record).and_then(|()| file.sync_data()).map_err(|error| super::errno(&error))
}

pub(super) fn last_note(mut bytes: &[u8]) -> Option<Note> {
    let mut last = None;
    while let Some((length, rest)) = bytes.split_first_chunk::<8>()
        && let Some((hash, rest)) = rest.split_first_chunk::<32>()
        && let Ok(length) = usize::try_from(u64::from_le_bytes(*length))
        && let Some((note, rest)) = rest.split_at_checked(length)
        && Sha256::digest(note).as_slice() == hash
    {
        last = wire::unpack(note).ok();
        bytes = rest;
    }
    last
}
