//! Pre-faults code and data pages before a request arrives: a freshly forked process gets its pages one fault at a
//! time, and twenty faults cost as much as fifty system calls. Runs while the cell is idle.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{confine, landlock_rules};
use crate::spec::{NetworkMode, Observe, RunLimits};
use crate::sys::message;
use crate::tier::Tier;
use crate::wire::{self, CellStart, RunRequest, WorkspaceView};

/// Pre-faults, unless a request is waiting already.
pub(super) fn prefault(channel: BorrowedFd<'_>) {
    let mut list = [PollFd::from_borrowed_fd(channel, PollFlags::IN)];
    let asked = rustix::event::poll(&mut list, Some(&Timespec::default()));
    if asked.is_ok_and(|ready| ready > 0) {
        return;
    }
    let message = vec![0_u8; message::MAX_MESSAGE_BYTES];
    // Errors here do not matter; the real call reports them.
    let _ = wire::pack(&CellStart { memory_limited: false, others: None })
        .and_then(|packed| wire::unpack::<CellStart>(&packed));
    if let Ok(request) = wire::pack(&sample()).and_then(|packed| wire::unpack::<RunRequest>(&packed)) {
        let _ = confine::exec_strings(&request);
        let _ = landlock_rules::build_sample();
    }
    drop(message);
}

/// A request of typical size.
fn sample() -> RunRequest {
    let text = |length: usize| vec![b'/'; length];
    RunRequest {
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
        view: WorkspaceView::Read,
        masks: Vec::new(),
        ahead: vec![text(16); 8],
        read: Vec::new(),
        toolchains: vec![text(32); 2],
        write: vec![text(32); 2],
        links: Vec::new(),
        drops_writes: false,
        blank: Vec::new(),
        scratch: Vec::new(),
        limits: RunLimits::default(),
        network: NetworkMode::None,
        observe: Observe::Writes,
        audited: false,
        landlock_abi: 0,
        guarded: vec![0; 3],
    }
}
