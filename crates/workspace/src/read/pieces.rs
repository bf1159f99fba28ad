//! The bytes of a file in pieces, sized so that a small file is one piece and one system call. What a piece
//! ends with but does not finish, half a character, is carried over to the next.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

const BUFFER_BYTES: usize = 128 * 1024;

/// The bytes of a file, piece by piece, with the unfinished end of one carried over to the next.
pub(crate) struct Pieces<'a> {
    file: BorrowedFd<'a>,
    buffer: Vec<u8>,
    carried: usize,
    offset: u64,
    ended: bool,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(file: BorrowedFd<'a>, size: u64) -> Self {
        let room = usize::try_from(size).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES - 1) + 1;
        Self { file, buffer: Vec::with_capacity(room), carried: 0, offset: 0, ended: false }
    }

    /// Fills the buffer. A read that leaves room is the end of a regular file.
    pub(crate) fn next(&mut self) -> Result<&[u8], Errno> {
        let room = self.buffer.capacity() - self.buffer.len();
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(self.file.as_fd(), spare_capacity(&mut self.buffer), self.offset)
        })?;
        self.offset += read as u64;
        self.ended = read < room;
        Ok(&self.buffer)
    }

    pub(crate) fn piece(&self) -> &[u8] {
        &self.buffer
    }

    /// What the last read brought.
    pub(crate) fn fresh(&self) -> &[u8] {
        self.buffer.get(self.carried..).unwrap_or_default()
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn keep_last(&mut self, bytes: usize) {
        let from = self.buffer.len().saturating_sub(bytes);
        self.buffer.drain(..from);
        self.carried = self.buffer.len();
        // A small file that grew: read on in larger pieces.
        self.buffer.reserve_exact(BUFFER_BYTES);
    }
}
