//! Cells that the launcher has offered: a run whose wishes were guessed right hands its order to the cell itself, so that
//! nobody is woken in between, and the launcher, who ends it in time and cleans up, hears of it meanwhile.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::time::ClockId;

use crate::fault::SandboxFault;
use crate::sandbox::Sandbox;
use crate::spec::{Limits, Observe};
use crate::sys::message;
use crate::task::Task;
use crate::tier::Tier;
use crate::wire::{self, Expected, Go, Header, Offer, Request};

/// A count of the user's processes that is older is made again, in milliseconds.
const FRESH_MS: u64 = 2000;

/// A cell that waits for an order of ours.
#[derive(Debug)]
pub(crate) struct Offered {
    offer: Offer,
    channel: OwnedFd,
    maps: Vec<OwnedFd>,
}

impl Sandbox {
    /// Has a run started. Handles: order, report, standard input, output, error. Gives what the launcher is still to hear
    /// of it (with the report): later, because it would be in the way of the cell now.
    pub(crate) fn begin(
        &self,
        header: Header,
        task: Option<&Task>,
        handles: [BorrowedFd<'_>; 5],
    ) -> Result<Option<Request>, SandboxFault> {
        let run = |header, cell| {
            if let Some(task) = task {
                task.is_handed_over();
            }
            self.send(&Request::Run { header, cell }, &handles).map(|()| None)
        };
        let Some(offered) = self.offered(&header)? else { return run(header, None) };
        let cell = offered.offer.number;
        if !offered.is_bound_as(&header.limits) {
            return run(header, Some(cell));
        }
        // One that is gone takes no order; then nothing was started.
        if offered.order(task, handles, self.is_alone()).is_err() {
            self.send(&Request::Return(cell), &[])?;
            return run(header, None);
        }
        Ok(Some(Request::Begun { header, cell }))
    }

    pub(crate) fn tell_later(&self, request: Request, report: OwnedFd) -> Untold {
        Untold { control: self.control(), request, report }
    }

    /// A cell that fits. One that was made for something else goes back, so that the launcher learns.
    fn offered(&self, header: &Header) -> Result<Option<Offered>, SandboxFault> {
        let mut offers = self.offers.lock();
        while let Ok(received) = message::receive_now(self.control().as_fd()) {
            let mut handles = received.handles.into_iter();
            let (Ok(offer), Some(channel)) = (wire::unpack(&received.bytes), handles.next()) else { break };
            offers.push(Offered { offer, channel, maps: handles.collect() });
        }
        if header.observe == Observe::All {
            return Ok(None);
        }
        if let Some(at) = offers.iter().position(|offered| offered.fits(header)) {
            return Ok(Some(offers.swap_remove(at)));
        }
        if let Some(at) = offers.iter().position(|offered| offered.offer.tier == header.tier) {
            let returned = offers.swap_remove(at).offer.number;
            self.send(&Request::Return(returned), &[])?;
        }
        Ok(None)
    }
}

/// What the launcher is still to hear of a run that began without it; it does when this goes. Before that, nobody has to
/// wait for it: until it knows, it ends the cell with us.
#[derive(Debug)]
pub(crate) struct Untold {
    control: Arc<OwnedFd>,
    request: Request,
    /// The other end of the reports.
    report: OwnedFd,
}

impl Drop for Untold {
    fn drop(&mut self) {
        let tell = |request: &Request, handles: &[BorrowedFd<'_>]| {
            message::send(self.control.as_fd(), &wire::pack(request)?, handles)
        };
        // A launcher that is gone took the cell with it, and whoever waits for that hears it. One that cannot be given the
        // handle ends the cell.
        if tell(&self.request, &[self.report.as_fd()]).is_err()
            && let Request::Begun { cell, .. } = self.request
        {
            let _ = tell(&Request::Return(cell), &[]);
        }
    }
}

impl Offered {
    fn fits(&self, header: &Header) -> bool {
        let Offer { tier, expected, home, owner, identity, .. } = &self.offer;
        let Header { network, observe, .. } = *header;
        *tier == header.tier
            && expected.is_none_or(|expected| expected == Expected { network, observe })
            && (*tier == Tier::NoUserns
                || (*home == header.home && (!identity.taken || *owner == header.owner)))
    }

    /// Whether the control group needs no other bounds.
    fn is_bound_as(&self, limits: &Limits) -> bool {
        let bounds = |limits: &Limits| (limits.memory, limits.processes, limits.cpu_percent);
        bounds(&self.offer.limits) == bounds(limits)
    }

    fn order(&self, task: Option<&Task>, handles: [BorrowedFd<'_>; 5], alone: bool) -> Result<(), Errno> {
        let Offer { identity, go, counted, .. } = &self.offer;
        if let (Some(task), true) = (task, identity.taken) {
            task.hand_over(*identity)?;
        }
        let counted = go.others.filter(|_| alone && now_ms().saturating_sub(*counted) < FRESH_MS);
        let go = Go { others: counted, ..*go };
        let mut lent = handles.to_vec();
        lent.extend(self.maps.iter().map(OwnedFd::as_fd));
        message::send(self.channel.as_fd(), &wire::pack(&go)?, &lent)
    }
}

/// Milliseconds since the machine started.
pub(crate) fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
