//! Reads the memory of a process that waits at the filter, through `/proc/PID/mem` or process_vm_readv.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::process;

/// Maximum length of a path in bytes (PATH_MAX).
const PATH_MAX: usize = 4096;
/// Bytes read at a time; most paths are shorter.
const READ_BYTES: usize = 256;

pub(crate) enum ProcessMemory {
    /// The address space that the process had when this was opened. After an exec the process has another one, and reads
    /// here return nothing unless another process shares it.
    Open(OwnedFd),
    /// For a process whose files in `/proc` are closed to everybody but root (not dumpable): a process with capabilities in
    /// its user namespace can still use process_vm_readv.
    VmRead(u32),
}

impl ProcessMemory {
    pub(crate) fn of(pid: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/{pid}/mem"), flags, Mode::empty()) {
            Ok(file) => Ok(Self::Open(file)),
            Err(Errno::ACCESS) => Ok(Self::VmRead(pid)),
            Err(errno) => Err(errno),
        }
    }

    fn read(&self, address: u64, piece: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::io::pread(file, piece, address),
            Self::VmRead(pid) => process::read_memory(*pid, address, piece),
        }
    }

    /// Replaces `text` with a C string of at most the length of a path.
    pub(crate) fn read_text(&self, address: u64, text: &mut Vec<u8>) -> Result<(), Errno> {
        text.clear();
        while text.len() < PATH_MAX {
            let mut piece = [0_u8; READ_BYTES];
            // A read is short if the next page is not mapped.
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

    /// Reads up to `length` bytes; fewer if the next page is not mapped.
    pub(crate) fn read_bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0_u8; length];
        let read = self.read(address, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
