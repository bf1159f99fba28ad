//! Reads the kernel's audit records of Landlock denials, if this process may (`CAP_AUDIT_READ` and `CAP_AUDIT_CONTROL` in
//! the initial namespaces) and audit is enabled. It is never enabled from here: that affects the whole machine and slows
//! down every later process.
//!
//! The kernel queues a record before the denied call returns, but a kernel thread sends it later. So at the end of a run
//! we ask for the length of that queue and wait for what is still in it, for at most 100 ms. Lost records are reported
//! as missing; no run ever depends on a record.

mod record;
mod run_denials;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::netlink::{AUDIT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use record::LandlockRecord;
pub(crate) use record::LandlockRight;
pub(crate) use run_denials::RunDenials;

/// The first Landlock ABI with audit records.
pub(crate) const MIN_ABI: i32 = 7;
/// The multicast group of the records (`AUDIT_NLGRP_READLOG`), as a mask.
const READLOG_GROUP: u32 = 1;
const ERROR: u16 = 2;
const GET_STATUS: u16 = 1000;
const HEADER: usize = 16;
/// Maximum size of a record (`MAX_AUDIT_MESSAGE_LENGTH`) with its header, in bytes.
const MAX_RECORD_BYTES: usize = 8970 + HEADER;
/// Size of the receive buffer in bytes; enough for some thousand records.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;
/// Maximum number of records read before other events get a turn.
const MAX_RECORDS_AT_ONCE: usize = 64;
/// Maximum wait for a reply of the kernel, or for the records in its queue.
const MAX_WAIT: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The kernel's audit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelAuditStatus {
    enabled: bool,
    /// Number of records lost since boot.
    lost: u32,
    /// Number of records that are not sent yet.
    queued: u32,
}

/// Whether the kernel's audit records can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditAccess {
    On,
    Off,
    /// This process may not ask.
    Denied,
    /// The kernel did not answer in time.
    NoAnswer,
}

/// Reads the records of one run; opened before its program starts.
#[derive(Debug)]
pub(crate) struct LandlockAudit {
    socket: OwnedFd,
    first: Option<KernelAuditStatus>,
    last: Option<KernelAuditStatus>,
    denied: bool,
    piece: Vec<u8>,
    denials: RunDenials,
}

impl LandlockAudit {
    /// Subscribes to the records, and asks for the status without waiting for the answer.
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(AUDIT))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, READLOG_GROUP))?;
        // A smaller buffer only means that more records may be missing, which is reported.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES);
        let (piece, denials) = (vec![0; MAX_RECORD_BYTES], RunDenials::default());
        let audit = Self { socket, first: None, last: None, denied: false, piece, denials };
        audit.request_status()?;
        Ok(audit)
    }

    /// Waits for the status: whether records can be read.
    pub(crate) fn access(&mut self) -> AuditAccess {
        self.await_status(Instant::now() + MAX_WAIT);
        match self.first {
            _ if self.denied => AuditAccess::Denied,
            None => AuditAccess::NoAnswer,
            Some(status) if status.enabled => AuditAccess::On,
            Some(_) => AuditAccess::Off,
        }
    }

    /// The socket to poll, until enough was read.
    pub(crate) fn handle(&self) -> Option<&OwnedFd> {
        (!self.denials.is_full()).then_some(&self.socket)
    }

    /// Sets the process of the run's program.
    pub(crate) fn set_program(&mut self, pid: u32, uid: u32) {
        self.denials.set_program(pid, uid);
    }

    /// Reads some of the available records; `false` if there were none.
    pub(crate) fn read_available(&mut self) -> bool {
        let mut any = false;
        for _ in 0..MAX_RECORDS_AT_ONCE {
            match rustix::net::recvfrom(&self.socket, self.piece.as_mut_slice(), RecvFlags::empty()) {
                Ok((length, _, from)) => {
                    any = true;
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    // Only port id 0 is the kernel.
                    if from.is_some_and(|from| from.pid() == 0) {
                        self.handle_message(length);
                    }
                }
                Err(Errno::INTR) => {}
                // The receive buffer overflowed.
                Err(Errno::NOBUFS) => {
                    any = true;
                    self.denials.missing = true;
                }
                Err(_) => break,
            }
        }
        any
    }

    /// After the program has ended: its denials, once the kernel has sent the records in its queue.
    pub(crate) fn finish(mut self) -> RunDenials {
        let until = Instant::now() + MAX_WAIT;
        let mut settled = false;
        while !self.denials.is_full() {
            self.last = None;
            if self.request_status().is_err() || !self.await_status(until) {
                self.denials.missing = true;
                break;
            }
            let queued = self.last.map_or(0, |status| status.queued);
            while self.read_available() && Instant::now() < until {}
            if queued == 0 && (settled || !self.denials.has_unattributed()) {
                break;
            }
            // The very last record, which names the domain's creator, may be in transit and in no queue.
            settled = queued == 0;
            if Instant::now() >= until {
                self.denials.missing = true;
                break;
            }
            self.wait(until.min(Instant::now() + POLL_INTERVAL));
        }
        let lost = |status: Option<KernelAuditStatus>| status.map(|status| status.lost);
        self.denials.missing |= self.last.is_some() && lost(self.last) != lost(self.first);
        self.denials
    }

    fn request_status(&self) -> Result<(), Errno> {
        const REQUEST: u16 = 1;
        let mut message = Vec::with_capacity(HEADER);
        message.extend((HEADER as u32).to_ne_bytes());
        message.extend(GET_STATUS.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend([0; 8]);
        rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
            .map(drop)
    }

    /// Reads until the status arrives; `false` at the deadline.
    fn await_status(&mut self, until: Instant) -> bool {
        loop {
            self.read_available();
            if self.last.is_some() || self.denied {
                return self.last.is_some();
            }
            if !self.wait(until) {
                return false;
            }
        }
    }

    /// Waits until something can be read; `false` at the deadline.
    fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        let mut list = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut list, Some(&left)) {
            Ok(ready) => ready > 0,
            Err(errno) => errno == Errno::INTR,
        }
    }

    fn handle_message(&mut self, length: usize) {
        // The length in the header differs between kernels; a message is one record.
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
            ERROR => self.denied = true,
            kind => {
                let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if let Some(record) = text.get(..end).and_then(|text| LandlockRecord::read(kind, text)) {
                    self.denials.add(record);
                }
            }
        }
    }
}

/// Parses `struct audit_status`; its first eight numbers are the same in every kernel.
fn status(bytes: &[u8]) -> Option<KernelAuditStatus> {
    let number = |at: usize| bytes.as_chunks::<4>().0.get(at).copied().map(u32::from_ne_bytes);
    Some(KernelAuditStatus { enabled: number(1)? != 0, lost: number(6)?, queued: number(7)? })
}
