//! What a program reads, without the handle that it comes from: whoever has that handle can do more with it than read. A
//! terminal can be written to and set, a socket leads to its other end, a file has a mode and attributes. So everything but
//! the reading end of a pipe without a name is read here, by a thread, and handed on through a pipe.
//!
//! No more is taken than the program is likely to want: of a file what it did not read is given back, of anything else the
//! next piece is read when the last one is gone.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Signal;

use crate::aside::let_others_open;
use crate::fault::SandboxFault;
use crate::run::Input;
use crate::sys::process;

/// The kernel's own file system of pipes that have no name.
const PIPES: rustix::fs::FsWord = 0x5049_5045;
/// A pipe of this size holds one piece: it can be written to when nothing is in it.
const PIECE: usize = 4096;
/// How long a terminal that belongs to somebody else now is left alone.
const ANOTHERS: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Standard input of one run, until it ends.
pub(crate) struct Feed {
    /// What the program gets.
    handle: OwnedFd,
    pump: Option<Pump>,
}

struct Pump {
    /// Closed when the run has ended.
    stop: OwnedFd,
    thread: JoinHandle<()>,
    /// A file, which knows how far it was read.
    file: Option<OwnedFd>,
}

impl Feed {
    pub(crate) fn new(input: Input<'_>) -> Result<Self, SandboxFault> {
        let fault = SandboxFault::system("standard input");
        let Input::From(input) = input else { return nothing().map_err(fault) };
        let facts = rustix::fs::fstat(input).map_err(SandboxFault::system("standard input"))?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        if kind == FileType::Directory {
            // Whoever holds a folder gets to what lies below it without meeting any mount of the run's own.
            let why = "standard input is a folder, which leads past the walls".to_owned();
            return Err(SandboxFault::Refused(why));
        }
        if kind == FileType::CharacterDevice && facts.st_rdev == rustix::fs::makedev(1, 3) {
            return nothing().map_err(fault);
        }
        Self::of(input, kind).map_err(fault)
    }

    fn of(input: BorrowedFd<'_>, kind: FileType) -> Result<Self, Errno> {
        let flags = rustix::fs::fcntl_getfl(input)?;
        let copy = || rustix::io::fcntl_dupfd_cloexec(input, 0);
        // One with a name is a file of somebody's, with a mode and times.
        let unnamed = || rustix::fs::fstatfs(input).is_ok_and(|facts| facts.f_type == PIPES);
        if kind == FileType::Fifo && flags & OFlags::RWMODE == OFlags::RDONLY && unnamed() {
            let handle = copy()?;
            let_others_open(&handle, 0o644);
            return Ok(Self { handle, pump: None });
        }
        let (handle, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let_others_open(&handle, 0o644);
        let (source, file) = if kind == FileType::RegularFile {
            (copy()?, Some(copy()?))
        } else {
            rustix::pipe::fcntl_setpipe_size(&write, PIECE)?;
            // Opened once more it does not wait where another reader was faster, and no other reader notices.
            let again = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let path = format!("/proc/self/fd/{}", input.as_raw_fd());
            (rustix::fs::open(path, again, Mode::empty()).or_else(|_| copy())?, None)
        };
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let thread = std::thread::Builder::new().name("standard input".to_owned());
        let thread = thread.spawn(move || pump(&source, &write, &stopped)).map_err(|_| Errno::AGAIN)?;
        Ok(Self { handle, pump: Some(Pump { stop, thread, file }) })
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let Some(Pump { stop, thread, file }) = self.pump.take() else { return };
        drop(stop);
        // Only of a file it is certain that nobody waits in a read; any other thread ends when it comes back.
        if let Some(file) = file
            && thread.join().is_ok()
            && let Ok(left) = rustix::io::ioctl_fionread(&self.handle)
            && let Ok(back) = i64::try_from(left)
        {
            // One that cannot be set back is none that anybody reads on.
            let _ = rustix::fs::seek(&file, SeekFrom::Current(-back));
        }
    }
}

fn nothing() -> Result<Feed, Errno> {
    let handle = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Feed { handle, pump: None })
}

/// Until the input or the run has ended, or nobody reads any more.
fn pump(source: &OwnedFd, write: &OwnedFd, stopped: &OwnedFd) {
    // From a terminal that is somebody else's now we then read an error, and are not stopped; nor ended when nobody is left
    // who reads.
    let _ = process::block_signals(&[Signal::TTIN, Signal::PIPE]);
    let mut piece: Vec<u8> = Vec::with_capacity(PIECE);
    loop {
        let room = wait(write, PollFlags::OUT, stopped);
        if !room.contains(PollFlags::OUT) || wait(source, PollFlags::IN, stopped).is_empty() {
            return;
        }
        piece.clear();
        match rustix::io::read(source, spare_capacity(&mut piece)) {
            Ok(0) => return,
            // The whole piece fits: there was room, and nobody else writes here.
            Ok(_) if rustix::io::write(write, &piece) != Ok(piece.len()) => return,
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::IO) => {
                let mut list = [PollFd::new(stopped, PollFlags::IN)];
                if rustix::event::poll(&mut list, Some(&ANOTHERS)) != Ok(0) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// Waits for something; nothing when the run has ended.
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
