//! Standard input of a program, without the original handle: the handle would allow more than reading. A terminal can
//! be written to and configured, a socket leads to its other end, a file has a mode and attributes. So everything but
//! the reading end of an unnamed pipe is read here, by a thread, and passed on through a pipe.
//!
//! No more is read than the program is likely to need: the unread rest of a file is given back by seeking, and of
//! anything else the next chunk is read when the last one was consumed.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Signal;

use crate::error::SandboxError;
use crate::prefetch::allow_reopening;
use crate::run::Input;
use crate::sys::process;

/// Magic number of pipefs, the file system of unnamed pipes.
const PIPEFS_MAGIC: rustix::fs::FsWord = 0x5049_5045;
/// Chunk and pipe size in bytes: the pipe is writable only when it is empty.
const CHUNK_BYTES: usize = 4096;
/// Retry interval for a terminal whose foreground process group is another one.
const FOREIGN_TTY_RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Standard input of one run.
pub(crate) struct InputFeed {
    /// The handle that the program gets.
    handle: OwnedFd,
    pump: Option<InputPump>,
}

struct InputPump {
    /// Closed when the run has ended.
    stop: OwnedFd,
    thread: JoinHandle<()>,
    /// The source if it is a file, for seeking back.
    file: Option<OwnedFd>,
}

impl InputFeed {
    pub(crate) fn new(input: Input<'_>) -> Result<Self, SandboxError> {
        let input_error = SandboxError::system("standard input");
        let Input::From(input) = input else { return null_input().map_err(input_error) };
        let facts = rustix::fs::fstat(input).map_err(SandboxError::system("standard input"))?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        if kind == FileType::Directory {
            // A directory handle gives access to what is below it, past the run's mounts.
            let why = "standard input is a directory, which would bypass the sandbox".to_owned();
            return Err(SandboxError::Refused(why));
        }
        if kind == FileType::CharacterDevice && facts.st_rdev == rustix::fs::makedev(1, 3) {
            return null_input().map_err(input_error);
        }
        Self::of(input, kind).map_err(input_error)
    }

    fn of(input: BorrowedFd<'_>, kind: FileType) -> Result<Self, Errno> {
        let flags = rustix::fs::fcntl_getfl(input)?;
        let copy = || rustix::io::fcntl_dupfd_cloexec(input, 0);
        // A named pipe is a file with a mode and timestamps.
        let unnamed = || rustix::fs::fstatfs(input).is_ok_and(|facts| facts.f_type == PIPEFS_MAGIC);
        if kind == FileType::Fifo && flags & OFlags::RWMODE == OFlags::RDONLY && unnamed() {
            let handle = copy()?;
            allow_reopening(&handle, 0o644);
            return Ok(Self { handle, pump: None });
        }
        let (handle, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        allow_reopening(&handle, 0o644);
        let (source, file) = if kind == FileType::RegularFile {
            (copy()?, Some(copy()?))
        } else {
            rustix::pipe::fcntl_setpipe_size(&write, CHUNK_BYTES)?;
            // A new open file description can be non-blocking without affecting other readers; a read then does not
            // block when another reader was faster.
            let again = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let path = format!("/proc/self/fd/{}", input.as_raw_fd());
            (rustix::fs::open(path, again, Mode::empty()).or_else(|_| copy())?, None)
        };
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let thread = std::thread::Builder::new().name("standard input".to_owned());
        let thread = thread.spawn(move || pump(&source, &write, &stopped)).map_err(|_| Errno::AGAIN)?;
        Ok(Self { handle, pump: Some(InputPump { stop, thread, file }) })
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for InputFeed {
    fn drop(&mut self) {
        let Some(InputPump { stop, thread, file }) = self.pump.take() else { return };
        drop(stop);
        // Only with a file is it certain that the thread does not block in a read; any other thread exits when its
        // read returns.
        if let Some(file) = file
            && thread.join().is_ok()
            && let Ok(left) = rustix::io::ioctl_fionread(&self.handle)
            && let Ok(back) = i64::try_from(left)
        {
            // A source that cannot seek has no further reader that would notice.
            let _ = rustix::fs::seek(&file, SeekFrom::Current(-back));
        }
    }
}

fn null_input() -> Result<InputFeed, Errno> {
    let handle = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(InputFeed { handle, pump: None })
}

/// Copies until the input or the run has ended, or the program has closed its end.
fn pump(source: &OwnedFd, write: &OwnedFd, stopped: &OwnedFd) {
    // Reading from the terminal in the background then fails with an error instead of stopping us; writing to a
    // closed pipe does not kill us.
    let _ = process::block_signals(&[Signal::TTIN, Signal::PIPE]);
    let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK_BYTES);
    loop {
        let room = wait(write, PollFlags::OUT, stopped);
        if !room.contains(PollFlags::OUT) || wait(source, PollFlags::IN, stopped).is_empty() {
            return;
        }
        chunk.clear();
        match rustix::io::read(source, spare_capacity(&mut chunk)) {
            Ok(0) => return,
            // The whole chunk fits: the pipe was empty, and there is no other writer.
            Ok(_) if rustix::io::write(write, &chunk) != Ok(chunk.len()) => return,
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::IO) => {
                let mut list = [PollFd::new(stopped, PollFlags::IN)];
                if rustix::event::poll(&mut list, Some(&FOREIGN_TTY_RETRY)) != Ok(0) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// Waits for an event; empty when the run has ended.
fn wait(handle: &OwnedFd, wanted: PollFlags, stopped: &OwnedFd) -> PollFlags {
    loop {
        let mut list = [PollFd::new(stopped, PollFlags::IN), PollFd::new(handle, wanted)];
        match rustix::event::poll(&mut list, None) {
            Err(Errno::INTR) => {}
            Err(_) => return PollFlags::empty(),
            Ok(_) => {
                let [stopped, handle] = &list;
                return if stopped.revents().is_empty() { handle.revents() } else { PollFlags::empty() };
            }
        }
    }
}
