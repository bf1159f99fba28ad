//! The cell: one process per run, forked by a zygote of the launcher, that confines itself and then starts the
//! program. All code here runs in a process with one thread.
//!
//! Sequence: the zygote has prepared what all runs share (`base_image`, `prebuilt`); the cell builds what is
//! independent of the run (`root_skeleton`), waits for its run request, mounts what it asks for (`mounts`), and drops
//! its privileges (`confine`). So a cell can be made before a run needs it.
//!
//! **Invariants.** A child without any privilege starts the program; a step that fails ends the cell and is reported
//! by name; no descriptor of the broker is inherited.

mod base_image;
mod confine;
mod init;
mod landlock_rules;
mod mounts;
mod prebuilt;
mod prefault;
mod process_count;
mod program;
mod root_skeleton;
mod subreaper;
mod usage;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::error::{FailedStep, StepContext as _};
use crate::spec::{NetworkMode, RunLimits};
use crate::sys::{capability, message, process};
use crate::wire::{self, CellStart, ExpectedFilter, RunIdentity, RunReport, RunRequest};

pub(crate) use base_image::{SYSTEM_DIRS, make as make_base_image, write_own_id_maps};
pub(crate) use confine::{landlock_abi, landlock_problem, take};
pub(crate) use landlock_rules::{readable, trigger_denial};
pub(crate) use prebuilt::Prebuilt;
pub(crate) use process_count::count_user_processes;
use program::ProgramProcess;
pub(crate) use root_skeleton::{NAMESPACES, RootSkeleton};
pub(crate) use subreaper::{kill_strays, run_subreaper};

/// Signals that the first process of a run waits for: TERM asks its tree to end, INT (without namespaces; from the
/// launcher, or by its death) kills it. Blocked before that process is forked: a run may be asked to end before
/// anything waits for the signal, and the init of a pid namespace never receives signals that it neither blocks nor
/// handles.
pub(crate) const HANDLED_SIGNALS: &[Signal] = &[Signal::CHILD, Signal::TERM, Signal::INT];

/// A run request with its descriptors, as received by the cell.
pub(crate) struct CellRun {
    pub(crate) request: RunRequest,
    pub(crate) go: CellStart,
    pub(crate) report: OwnedFd,
    pub(crate) streams: [OwnedFd; 3],
    pub(crate) ids: Option<IdMappings>,
}

/// What is known of a run before its request.
#[derive(Clone, Copy)]
pub(crate) struct CellParams<'a> {
    pub(crate) identity: RunIdentity,
    pub(crate) proc: bool,
    pub(crate) home: &'a [u8],
    /// The filter that it will probably need.
    pub(crate) expected: Option<ExpectedFilter>,
}

/// Id maps that show files to an unprivileged user when the broker is root.
pub(crate) struct IdMappings {
    pub(crate) of_owner: OwnedFd,
    pub(crate) of_root: OwnedFd,
}

/// Runs one cell of the tiers with namespaces; never returns.
pub(crate) fn run_cell(channel: OwnedFd, params: &CellParams<'_>, prebuilt: Prebuilt) -> ! {
    let code = match run(channel, params, prebuilt) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    process::leave(code)
}

fn run(channel: OwnedFd, params: &CellParams<'_>, mut prebuilt: Prebuilt) -> Result<(), Errno> {
    let CellParams { identity, proc, home, expected } = *params;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let ids = if identity.must_switch {
        Ok(())
    } else {
        capability::drop_bounding();
        write_own_id_maps(identity, (identity.uid, identity.gid)).step("user namespace")
    };
    raise_oom_score();
    let program = ids.and_then(|()| ProgramProcess::make(identity, expected, &prebuilt));
    let built = program.and_then(|program| {
        let mut skeleton = RootSkeleton::build(identity, proc, RunLimits::default().disk, home)?;
        prebuilt.add_run_paths(std::path::Path::new(base_image::ROOT_SITE), home);
        if expected.is_some_and(|expected| expected.network == NetworkMode::Gated) {
            // An error here is ignored; the run request tries again and reports it.
            skeleton.network = skeleton.set_up_gated_network().ok();
        }
        let root = skeleton.pivot()?;
        Ok((program, skeleton, root))
    });
    prefault::prefault(channel.as_fd());
    // If the launcher died before the death signal was set, nothing arrives.
    let run = Arc::new(receive(channel.as_fd())?);
    let finished = built.and_then(|(program, mut skeleton, root)| {
        program.send_listener(run.report.as_fd())?;
        let handles = skeleton.mount_all(&run)?;
        if !handles.is_empty() {
            let lent: Vec<BorrowedFd<'_>> = handles.iter().map(OwnedFd::as_fd).collect();
            send_report(run.report.as_fd(), &RunReport::Layers, &lent).step("report")?;
        }
        drop(handles);
        // From here on both processes run: this one allocates nothing until the other has left this memory.
        program.request_start(Arc::clone(&run), prebuilt, root);
        // As long as the old root exists, the other process waits for its removal, and can be killed at any point.
        skeleton.detach_host_root(root).inspect_err(|_| program.stop())?;
        if confine::drop_privileges(identity).is_err() {
            // Nothing can be reported any more; the other process dies with this one.
            process::leave(1)
        }
        let program = program.begin();
        // Closes the handles of host directories.
        drop(skeleton);
        init::wait(program, &run)
    });
    if let Err(step) = finished {
        let failed = RunReport::Failed { step: step.name.to_owned(), errno: step.errno.raw_os_error() };
        send_report(run.report.as_fd(), &failed, &[])?;
    }
    Ok(())
}

/// If memory runs out, of the machine or of a cgroup, runs are killed before anything else of the user: without cgroups
/// not all memory of a program is accounted. Not the zygote, which shares a v1 cgroup with its run. A user's process
/// must be dumpable to write its own file.
fn raise_oom_score() {
    let _ = process::set("/proc/self/oom_score_adj", "1000");
}

/// Waits for the run request.
pub(crate) fn receive(channel: BorrowedFd<'_>) -> Result<CellRun, Errno> {
    let received = message::receive(channel)?;
    let go: CellStart = wire::unpack(&received.bytes)?;
    let mut handles = received.handles.into_iter();
    let mut next = || handles.next().ok_or(Errno::BADMSG);
    let (request, report) = (next()?, next()?);
    let streams = [next()?, next()?, next()?];
    let ids = match (handles.next(), handles.next()) {
        (Some(of_owner), Some(of_root)) => Some(IdMappings { of_owner, of_root }),
        _ => None,
    };
    Ok(CellRun { request: wire::unpack_from(request)?, go, report, streams, ids })
}

/// Sends a report to the broker.
pub(crate) fn send_report(
    report: BorrowedFd<'_>,
    what: &RunReport,
    handles: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    message::send(report, &wire::pack(what)?, handles)
}

/// In the child: executes the program, or reports why not. `last` is called right before the exec.
fn become_program(
    run: &CellRun,
    confinement: crate::filter::Confinement,
    identity: RunIdentity,
    ready: confine::EarlyConfinement,
    prebuilt: &mut Prebuilt,
    last: &dyn Fn(),
) -> ! {
    let became = confine::confine(run, confinement, identity, ready, prebuilt, last);
    let reported = match became {
        Ok(confine::StartFailure::Refused(errno)) => RunReport::NotStarted { errno: errno.raw_os_error() },
        Ok(confine::StartFailure::Replaced) => RunReport::Replaced,
        Err(FailedStep { name, errno }) => {
            RunReport::Failed { step: name.to_owned(), errno: errno.raw_os_error() }
        }
    };
    // The parent sees this process end even if the broker no longer reads reports.
    let _ = send_report(run.report.as_fd(), &reported, &[]);
    process::leave(125)
}
