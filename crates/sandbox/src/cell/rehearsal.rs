//! Doing once, for nothing, what an order will ask for: a process that was just forked has to be given its code and its
//! memory page by page as it touches them, and twenty pages cost as much as fifty system calls. Done while nobody waits.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{confine, rules};
use crate::spec::{Limits, Network, Observe};
use crate::sys::message;
use crate::tier::Tier;
use crate::wire::{self, Go, Order, View};

/// Does so, unless an order waits already.
pub(super) fn rehearse(channel: BorrowedFd<'_>) {
    let mut list = [PollFd::from_borrowed_fd(channel, PollFlags::IN)];
    let asked = rustix::event::poll(&mut list, Some(&Timespec::default()));
    if asked.is_ok_and(|ready| ready > 0) {
        return;
    }
    let message = vec![0_u8; message::MOST_BYTES];
    // What goes wrong here is of no consequence, and told when it is done for something.
    let _ = wire::pack(&Go { memory_limited: false, others: None })
        .and_then(|packed| wire::unpack::<Go>(&packed));
    if let Ok(order) = wire::pack(&sample()).and_then(|packed| wire::unpack::<Order>(&packed)) {
        let _ = confine::texts(&order);
        let _ = rules::try_one();
    }
    drop(message);
}

/// As long as most are.
fn sample() -> Order {
    let text = |length: usize| vec![b'/'; length];
    Order {
        tier: Tier::Full,
        program: text(16),
        path: vec![text(16); 6],
        digest: None,
        arguments: vec![text(16); 3],
        environment: vec![text(32); 6],
        cwd: text(32),
        umask: 0o022,
        home: text(16),
        workspace: text(32),
        view: View::Read,
        masks: Vec::new(),
        ahead: vec![text(16); 8],
        read: Vec::new(),
        toolchains: vec![text(32); 2],
        write: vec![text(32); 2],
        links: Vec::new(),
        drops_writes: false,
        blank: Vec::new(),
        scratch: Vec::new(),
        limits: Limits::default(),
        network: Network::None,
        observe: Observe::Writes,
        audited: false,
        landlock_abi: 0,
        guarded: vec![0; 3],
    }
}
