//! The inside: a process of its own per run, made by a stage of the launcher, that builds the walls around itself and
//! then starts the program. Everything here runs in a process with one thread.
//!
//! The order of work: what is the same for every run was made by the stage (`template`, `stock`), then what needs no
//! order (`shell`), then the order is waited for, then what it asks for (`dress`), then the privileges go (`confine`).
//! So a cell can be made before anybody needs it.
//!
//! **Invariants.** The program is started by a child whose every privilege is gone; a step that fails ends the cell
//! and is told by name; nothing of the broker's descriptors is inherited.

mod confine;
mod count;
mod dress;
mod keeper;
mod meter;
mod program;
mod rehearsal;
mod rules;
mod shell;
mod stock;
mod template;
mod watch;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::fault::{Named as _, Step};
use crate::spec::{Limits, Network};
use crate::sys::{capability, message, process};
use crate::wire::{self, Expected, Go, Identity, Order, Report};

pub(crate) use confine::{landlock_abi, landlock_lacks, take};
pub(crate) use count::running;
pub(crate) use keeper::{end_strays, keep};
use program::Program;
pub(crate) use rules::{be_refused, readable};
pub(crate) use shell::{NAMESPACES, Shell};
pub(crate) use stock::Stock;
pub(crate) use template::{SYSTEM, make as make_template, own_ids};

/// What whoever keeps a run waits for: TERM asks its tree to end, INT (without namespaces; from the launcher, or by its death)
/// ends it. Blocked before it is made: a run may be asked to end before anybody waits for that, and the first process of a
/// namespace does not hear what it neither blocks nor handles.
pub(crate) const HEARD: &[Signal] = &[Signal::CHILD, Signal::TERM, Signal::INT];

/// What came with an order.
pub(crate) struct Errand {
    pub(crate) order: Order,
    pub(crate) go: Go,
    pub(crate) report: OwnedFd,
    pub(crate) streams: [OwnedFd; 3],
    pub(crate) ids: Option<Ids>,
}

/// What is known of a run before its order.
#[derive(Clone, Copy)]
pub(crate) struct MadeFor<'a> {
    pub(crate) identity: Identity,
    pub(crate) proc: bool,
    pub(crate) home: &'a [u8],
    /// What it will probably ask for.
    pub(crate) expected: Option<Expected>,
}

/// How files look to an unprivileged user when the broker is root.
pub(crate) struct Ids {
    pub(crate) of_owner: OwnedFd,
    pub(crate) of_root: OwnedFd,
}

/// Lives one run of tier full; never returns.
pub(crate) fn live(channel: OwnedFd, made_for: &MadeFor<'_>, stock: Stock) -> ! {
    let code = match run(channel, made_for, stock) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    process::leave(code)
}

fn run(channel: OwnedFd, made_for: &MadeFor<'_>, mut stock: Stock) -> Result<(), Errno> {
    let MadeFor { identity, proc, home, expected } = *made_for;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let ids = if identity.taken {
        Ok(())
    } else {
        capability::drop_bounding();
        own_ids(identity, (identity.uid, identity.gid)).step("user namespace")
    };
    let program = ids.and_then(|()| Program::make(identity, expected, &stock));
    let built = program.and_then(|program| {
        let mut shell = Shell::build(identity, proc, Limits::default().disk, home)?;
        stock.furnish(std::path::Path::new(template::SITE), home);
        if expected.is_some_and(|expected| expected.network == Network::Gated) {
            // What fails here is tried again, and told, when there is an order.
            shell.network = shell.lead_to_a_gate().ok();
        }
        let root = shell.move_in()?;
        Ok((program, shell, root))
    });
    rehearsal::rehearse(channel.as_fd());
    // Where the launcher died before our death was tied to its, nothing comes.
    let errand = Arc::new(receive(channel.as_fd())?);
    let finished = built.and_then(|(program, mut shell, root)| {
        program.announce(errand.report.as_fd())?;
        let handles = shell.dress(&errand)?;
        if !handles.is_empty() {
            let lent: Vec<BorrowedFd<'_>> = handles.iter().map(OwnedFd::as_fd).collect();
            tell(errand.report.as_fd(), &Report::Layers, &lent).step("report")?;
        }
        drop(handles);
        // From here on both run: this process allocates nothing until the other has left.
        program.go(Arc::clone(&errand), stock, root);
        // As long as the old root is there, the other waits for that, and can be stopped anywhere.
        shell.leave_host(root).inspect_err(|_| program.stop())?;
        if confine::give_up(identity).is_err() {
            // Nothing can be told; the other goes with this one.
            process::leave(1)
        }
        let program = program.begin();
        // With the handles of the machine's own folders.
        drop(shell);
        watch::wait(program, &errand)
    });
    if let Err(step) = finished {
        let failed = Report::Failed { step: step.name.to_owned(), errno: step.errno.raw_os_error() };
        tell(errand.report.as_fd(), &failed, &[])?;
    }
    Ok(())
}

/// Waits for the order.
pub(crate) fn receive(channel: BorrowedFd<'_>) -> Result<Errand, Errno> {
    let received = message::receive(channel)?;
    let go: Go = wire::unpack(&received.bytes)?;
    let mut handles = received.handles.into_iter();
    let mut next = || handles.next().ok_or(Errno::BADMSG);
    let (order, report) = (next()?, next()?);
    let streams = [next()?, next()?, next()?];
    let ids = match (handles.next(), handles.next()) {
        (Some(of_owner), Some(of_root)) => Some(Ids { of_owner, of_root }),
        _ => None,
    };
    Ok(Errand { order: wire::unpack_from(order)?, go, report, streams, ids })
}

/// Says something to the broker.
pub(crate) fn tell(report: BorrowedFd<'_>, what: &Report, handles: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    message::send(report, &wire::pack(what)?, handles)
}

/// The child's part: become the program, or tell why not. `last` is done when nothing else is left to do.
fn become_program(
    errand: &Errand,
    walls: crate::filter::Walls,
    identity: Identity,
    ready: confine::Ready,
    stock: &mut Stock,
    last: &dyn Fn(),
) -> ! {
    let became = confine::confine(errand, walls, identity, ready, stock, last);
    let told = match became {
        Ok(confine::NotBegun::Refused(errno)) => Report::NotStarted { errno: errno.raw_os_error() },
        Ok(confine::NotBegun::Replaced) => Report::Replaced,
        Err(Step { name, errno }) => Report::Failed { step: name.to_owned(), errno: errno.raw_os_error() },
    };
    // Whoever waits sees the end of this process even when nobody listens any more.
    let _ = tell(errand.report.as_fd(), &told, &[]);
    process::leave(125)
}
