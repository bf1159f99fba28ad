//! The memory of a process that waits at the filter: whoever may look at a process may open it as a file.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The longest path that the kernel takes.
const LONGEST: usize = 4096;
/// Most paths are shorter.
const PIECE: usize = 256;

/// The memory that a process had when this was opened: after its next program it is another, and this one is empty
/// unless somebody else has it too.
pub(crate) struct Memory(OwnedFd);

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(format!("/proc/{pid}/mem"), flags, Mode::empty()).map(Self)
    }

    /// A C string, at most a path's length, in place of what is in `text`.
    pub(crate) fn read_text(&self, address: u64, text: &mut Vec<u8>) -> Result<(), Errno> {
        text.clear();
        while text.len() < LONGEST {
            let mut piece = [0_u8; PIECE];
            // Less comes where what follows is not there.
            let read = rustix::io::pread(&self.0, &mut piece, address.wrapping_add(text.len() as u64))?;
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
        let read = rustix::io::pread(&self.0, &mut bytes, address)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
