//! Standard output of an export: a reader who goes away ends it, and that is no failure.

use std::io::{ErrorKind, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Taken;
use crate::failure::Failure;

pub(super) fn write(bytes: &[u8]) -> Result<Taken, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Taken::Gladly),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Taken::NoMore),
        Err(error) => Err(Failure::failed(format!("standard output: {error}"))),
    }
}

/// Whether the reader is still there, also while there is nothing to write.
pub(super) fn state() -> Taken {
    let stdout = std::io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = poll(&mut asked, Some(&now)).is_ok()
        && asked.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::NVAL));
    if gone { Taken::NoMore } else { Taken::Gladly }
}
