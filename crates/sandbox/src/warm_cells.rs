//! Warm cells that the launcher has offered. A run that fits one sends its request directly to the cell, so the launcher
//! does not have to wake up first; the launcher, which enforces the deadline and cleans up, is notified afterwards.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::time::ClockId;

use crate::error::SandboxError;
use crate::run_dirs::RunDirs;
use crate::sandbox::Sandbox;
use crate::spec::{Observe, RunLimits};
use crate::sys::message;
use crate::tier::Tier;
use crate::wire::{self, CellStart, ExpectedFilter, LauncherRequest, RunHeader, WarmCellOffer};

/// Maximum age of a count of the user's processes, in ms; an older one is not used.
const MAX_COUNT_AGE_MS: u64 = 2000;

/// A cell that waits for a run request.
#[derive(Debug)]
pub(crate) struct WarmCell {
    offer: WarmCellOffer,
    channel: OwnedFd,
    maps: Vec<OwnedFd>,
}

impl Sandbox {
    /// Starts a run. Handles: run request, report, standard input, output, error. Returns the notification that the
    /// launcher must still get (with the report socket): later, because now it would compete with the cell for the CPU.
    pub(crate) fn start_run(
        &self,
        header: RunHeader,
        run_dirs: Option<&RunDirs>,
        handles: [BorrowedFd<'_>; 5],
    ) -> Result<Option<LauncherRequest>, SandboxError> {
        let run = |header, cell| {
            if let Some(run_dirs) = run_dirs {
                run_dirs.forget_owner();
            }
            self.send(&LauncherRequest::Run { header, cell }, &handles).map(|()| None)
        };
        let Some(offered) = self.take_warm_cell(&header)? else { return run(header, None) };
        let cell = offered.offer.number;
        if !offered.has_limits(&header.limits) {
            return run(header, Some(cell));
        }
        // A cell that is gone takes no request; then nothing was started.
        if offered.send_request(run_dirs, handles, self.is_only_run()).is_err() {
            self.send(&LauncherRequest::Return(cell), &[])?;
            return run(header, None);
        }
        Ok(Some(LauncherRequest::Begun { header, cell }))
    }

    pub(crate) fn notify_later(&self, request: LauncherRequest, report: OwnedFd) -> LauncherNotice {
        LauncherNotice { control: self.control(), request, report }
    }

    /// Takes a cell that fits. If none does, one that was prepared for other options is returned, so that the launcher
    /// learns what to prepare.
    fn take_warm_cell(&self, header: &RunHeader) -> Result<Option<WarmCell>, SandboxError> {
        let mut offers = self.warm_cells.lock();
        while let Ok(received) = message::receive_now(self.control().as_fd()) {
            let mut handles = received.handles.into_iter();
            let (Ok(offer), Some(channel)) = (wire::unpack(&received.bytes), handles.next()) else { break };
            offers.push(WarmCell { offer, channel, maps: handles.collect() });
        }
        if header.observe == Observe::All {
            return Ok(None);
        }
        if let Some(at) = offers.iter().position(|offered| offered.fits(header)) {
            return Ok(Some(offers.swap_remove(at)));
        }
        if let Some(at) = offers.iter().position(|offered| offered.offer.tier == header.tier) {
            let returned = offers.swap_remove(at).offer.number;
            self.send(&LauncherRequest::Return(returned), &[])?;
        }
        Ok(None)
    }
}

/// The pending notification about a run that began without the launcher; dropping it sends it. It can be late: until
/// the launcher knows about the run, it kills the cell when this process goes away.
#[derive(Debug)]
pub(crate) struct LauncherNotice {
    control: Arc<OwnedFd>,
    request: LauncherRequest,
    /// The other end of the report socket.
    report: OwnedFd,
}

impl Drop for LauncherNotice {
    fn drop(&mut self) {
        let tell = |request: &LauncherRequest, handles: &[BorrowedFd<'_>]| {
            message::send(self.control.as_fd(), &wire::pack(request)?, handles)
        };
        // A launcher that is gone took the cell with it, and the waiting run sees that. If the handle cannot be sent, the
        // cell is returned, and the launcher kills it.
        if tell(&self.request, &[self.report.as_fd()]).is_err()
            && let LauncherRequest::Begun { cell, .. } = self.request
        {
            let _ = tell(&LauncherRequest::Return(cell), &[]);
        }
    }
}

impl WarmCell {
    fn fits(&self, header: &RunHeader) -> bool {
        let WarmCellOffer { tier, expected, home, owner, identity, .. } = &self.offer;
        let RunHeader { network, observe, .. } = *header;
        *tier == header.tier
            && expected.is_none_or(|expected| expected == ExpectedFilter { network, observe })
            && (*tier == Tier::NoUserns
                || (*home == header.home && (!identity.must_switch || *owner == header.owner)))
    }

    /// Whether the cell's cgroup already has these limits.
    fn has_limits(&self, limits: &RunLimits) -> bool {
        let bounds = |limits: &RunLimits| (limits.memory, limits.processes, limits.cpu_percent);
        bounds(&self.offer.limits) == bounds(limits)
    }

    fn send_request(
        &self,
        run_dirs: Option<&RunDirs>,
        handles: [BorrowedFd<'_>; 5],
        alone: bool,
    ) -> Result<(), Errno> {
        let WarmCellOffer { identity, go, counted, .. } = &self.offer;
        if let (Some(run_dirs), true) = (run_dirs, identity.must_switch) {
            run_dirs.set_owner(*identity)?;
        }
        let counted = go.others.filter(|_| alone && now_ms().saturating_sub(*counted) < MAX_COUNT_AGE_MS);
        let go = CellStart { others: counted, ..*go };
        let mut lent = handles.to_vec();
        lent.extend(self.maps.iter().map(OwnedFd::as_fd));
        message::send(self.channel.as_fd(), &wire::pack(&go)?, &lent)
    }
}

/// Milliseconds since boot (CLOCK_MONOTONIC).
pub(crate) fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
