//! Reads a file in chunks, sized so that a small file is one chunk and one system call. An incomplete character at the end
//! of a chunk is carried over to the next.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

const BUFFER_BYTES: usize = 128 * 1024;

/// A file's bytes in chunks.
pub(crate) struct FileChunks<'a> {
    file: BorrowedFd<'a>,
    buffer: Vec<u8>,
    carried: usize,
    offset: u64,
    ended: bool,
}

impl<'a> FileChunks<'a> {
    pub(crate) fn new(file: BorrowedFd<'a>, size: u64) -> Self {
        let room = usize::try_from(size).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES - 1) + 1;
        Self { file, buffer: Vec::with_capacity(room), carried: 0, offset: 0, ended: false }
    }

    /// Fills the buffer. On a regular file a short read means end of file.
    pub(crate) fn next(&mut self) -> Result<&[u8], Errno> {
        let room = self.buffer.capacity() - self.buffer.len();
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(self.file.as_fd(), spare_capacity(&mut self.buffer), self.offset)
        })?;
        self.offset += read as u64;
        self.ended = read < room;
        Ok(&self.buffer)
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        &self.buffer
    }

    /// The bytes of the last read, without those carried over.
    pub(crate) fn last_read(&self) -> &[u8] {
        self.buffer.get(self.carried..).unwrap_or_default()
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn keep_last(&mut self, bytes: usize) {
        let from = self.buffer.len().saturating_sub(bytes);
        self.buffer.drain(..from);
        self.carried = self.buffer.len();
        // A small file that grew: continue in larger chunks.
        self.buffer.reserve_exact(BUFFER_BYTES);
    }
}
