//! The memory of a process that waits at the filter: whoever may look at a process may open it as a file.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::process;

/// The longest path that the kernel takes.
const LONGEST: usize = 4096;
/// Most paths are shorter.
const PIECE: usize = 256;

pub(crate) enum Memory {
    /// What a process had when this was opened: after its next program it is another, and this one is empty unless
    /// somebody else has it too.
    Open(OwnedFd),
    /// Of a process that closed its files in `/proc` to everybody but root: whoever has power over its user namespace may
    /// still ask.
    Asked(u32),
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/{pid}/mem"), flags, Mode::empty()) {
            Ok(file) => Ok(Self::Open(file)),
            Err(Errno::ACCESS) => Ok(Self::Asked(pid)),
            Err(errno) => Err(errno),
        }
    }

    fn read(&self, address: u64, piece: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::io::pread(file, piece, address),
            Self::Asked(pid) => process::read_memory(*pid, address, piece),
        }
    }

    /// A C string, at most a path's length, in place of what is in `text`.
    pub(crate) fn read_text(&self, address: u64, text: &mut Vec<u8>) -> Result<(), Errno> {
        text.clear();
        while text.len() < LONGEST {
            let mut piece = [0_u8; PIECE];
            // Less comes where what follows is not there.
            let read = self.read(address.wrapping_add(text.len() as u64), &mut piece)?;
            let piece = piece.get(..read).unwrap_or_default();
            let end = piece.iter().position(|byte| *byte == 0);
            text.extend_from_slice(piece.get(..end.unwrap_or(read)).unwrap_or_default());
            match end {
                Some(_) => return Ok(()),
                None if read == 0 => return Err(Errno::FAULT),
                None => {}
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    /// As many bytes as are there, at most so many.
    pub(crate) fn read_bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0_u8; length];
        let read = self.read(address, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
