//! What Landlock itself refused, in the kernel's own words: its audit records, where this process may read them
//! (`CAP_AUDIT_READ` and `CAP_AUDIT_CONTROL` in the first namespaces) and audit is switched on. It is never switched on
//! from here: that is the whole machine's business, and slows every later process down.
//!
//! The kernel queues a record before the refused call returns, but a thread of its own hands it out later. So at the end
//! of a run the length of that queue is asked for, and what is still in it is waited for, a moment at most. What was
//! lost on the way is told as such; no run ever depends on a record.

mod heard;
mod record;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::netlink::{AUDIT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

pub(crate) use heard::Heard;
use record::Record;
pub(crate) use record::Right;

/// From here on Landlock writes records.
pub(crate) const LEAST_ABI: i32 = 7;
/// The group that records are sent to (`AUDIT_NLGRP_READLOG`), as a mask.
const READ_LOG: u32 = 1;
const ERROR: u16 = 2;
const GET_STATUS: u16 = 1000;
const HEADER: usize = 16;
/// The longest record of the kernel (`MAX_AUDIT_MESSAGE_LENGTH`), and its header.
const LONGEST: usize = 8970 + HEADER;
/// Room for some thousand records.
const ROOM: usize = 2 << 20;
/// Before somebody else gets a turn.
const AT_ONCE: usize = 64;
/// How long the kernel is waited for, for an answer or for what it still has in its queue.
const WAIT: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What the kernel says of its audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Status {
    enabled: bool,
    /// Records that it could not keep, since it started.
    lost: u32,
    /// Records that it has not handed out yet.
    queued: u32,
}

/// How the kernel's audit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    On,
    Off,
    /// It is not ours to ask.
    Refused,
    /// There was no answer in time.
    Unsaid,
}

/// A listener for one run, from before its program starts.
#[derive(Debug)]
pub(crate) struct Audit {
    socket: OwnedFd,
    first: Option<Status>,
    last: Option<Status>,
    refused: bool,
    piece: Vec<u8>,
    heard: Heard,
}

impl Audit {
    /// Listens from now on, and asks how things stand without waiting for the answer.
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(AUDIT))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, READ_LOG))?;
        // Less room only means that more may be missing, which is told.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, ROOM);
        let (piece, heard) = (vec![0; LONGEST], Heard::default());
        let audit = Self { socket, first: None, last: None, refused: false, piece, heard };
        audit.ask()?;
        Ok(audit)
    }

    /// Whether there are records to be heard.
    pub(crate) fn standing(&mut self) -> Standing {
        self.await_status(Instant::now() + WAIT);
        match self.first {
            _ if self.refused => Standing::Refused,
            None => Standing::Unsaid,
            Some(status) if status.enabled => Standing::On,
            Some(_) => Standing::Off,
        }
    }

    /// To be polled, as long as something is worth reading.
    pub(crate) fn handle(&self) -> Option<&OwnedFd> {
        (!self.heard.is_full()).then_some(&self.socket)
    }

    /// The run's program is this process.
    pub(crate) fn claim(&mut self, pid: u32, uid: u32) {
        self.heard.claim(pid, uid);
    }

    /// Takes some of what is there; `false` when there was nothing.
    pub(crate) fn take(&mut self) -> bool {
        let mut any = false;
        for _ in 0..AT_ONCE {
            match rustix::net::recvfrom(&self.socket, self.piece.as_mut_slice(), RecvFlags::empty()) {
                Ok((length, _, from)) => {
                    any = true;
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    // Whoever else may send here is not the kernel.
                    if from.is_some_and(|from| from.pid() == 0) {
                        self.sort(length);
                    }
                }
                Err(Errno::INTR) => {}
                // More came than there was room for.
                Err(Errno::NOBUFS) => {
                    any = true;
                    self.heard.missing = true;
                }
                Err(_) => break,
            }
        }
        any
    }

    /// The program has ended: what was refused to it, once the kernel has handed out what it has.
    pub(crate) fn finish(mut self) -> Heard {
        let until = Instant::now() + WAIT;
        let mut settled = false;
        while !self.heard.is_full() {
            self.last = None;
            if self.ask().is_err() || !self.await_status(until) {
                self.heard.missing = true;
                break;
            }
            let queued = self.last.map_or(0, |status| status.queued);
            while self.take() && Instant::now() < until {}
            if queued == 0 && (settled || !self.heard.is_unsettled()) {
                break;
            }
            // The very last record may be on its way, in no queue: the one that says whose domain it was.
            settled = queued == 0;
            if Instant::now() >= until {
                self.heard.missing = true;
                break;
            }
            self.wait(until.min(Instant::now() + LOOK_AGAIN));
        }
        let lost = |status: Option<Status>| status.map(|status| status.lost);
        self.heard.missing |= self.last.is_some() && lost(self.last) != lost(self.first);
        self.heard
    }

    fn ask(&self) -> Result<(), Errno> {
        const REQUEST: u16 = 1;
        let mut message = Vec::with_capacity(HEADER);
        message.extend((HEADER as u32).to_ne_bytes());
        message.extend(GET_STATUS.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend([0; 8]);
        rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
            .map(drop)
    }

    /// Reads until an answer is there.
    fn await_status(&mut self, until: Instant) -> bool {
        loop {
            self.take();
            if self.last.is_some() || self.refused {
                return self.last.is_some();
            }
            if !self.wait(until) {
                return false;
            }
        }
    }

    /// Until something is there; `false` when it is too late.
    fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        let mut list = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut list, Some(&left)) {
            Ok(ready) => ready > 0,
            Err(errno) => errno == Errno::INTR,
        }
    }

    fn sort(&mut self, length: usize) {
        // The length that the header tells is not the same in every kernel; a message is one record.
        let Some((header, text)) = self.piece.get(..length).and_then(|piece| piece.split_at_checked(HEADER))
        else {
            return;
        };
        let Some(kind) = header.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes)
        else {
            return;
        };
        match kind {
            GET_STATUS => {
                self.last = status(text);
                self.first = self.first.or(self.last);
            }
            ERROR => self.refused = true,
            kind => {
                let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if let Some(record) = text.get(..end).and_then(|text| Record::read(kind, text)) {
                    self.heard.add(record);
                }
            }
        }
    }
}

/// `struct audit_status`, whose first eight numbers every kernel has.
fn status(bytes: &[u8]) -> Option<Status> {
    let number = |at: usize| bytes.as_chunks::<4>().0.get(at).copied().map(u32::from_ne_bytes);
    Some(Status { enabled: number(1)? != 0, lost: number(6)?, queued: number(7)? })
}
