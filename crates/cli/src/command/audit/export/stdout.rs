//! Export to standard output: a closed pipe ends the export without an error.

use std::io::{ErrorKind, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ReaderState;
use crate::failure::Failure;

pub(super) fn write(bytes: &[u8]) -> Result<ReaderState, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ReaderState::Reading),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ReaderState::Gone),
        Err(error) => Err(Failure::failed(format!("standard output: {error}"))),
    }
}

/// Whether the pipe still has a reader; works without writing.
pub(super) fn reader_state() -> ReaderState {
    let stdout = std::io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = poll(&mut asked, Some(&now)).is_ok()
        && asked.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::NVAL));
    if gone { ReaderState::Gone } else { ReaderState::Reading }
}
