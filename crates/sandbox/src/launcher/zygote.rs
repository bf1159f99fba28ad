//! The zygote: a process that lives as long as the launcher and has everything ready that runs have in common. It
//! holds the base image of the root in its own mount namespace, sits in an unused network namespace, has Landlock's
//! system rules and the seccomp filters prepared, and with cgroup v1 it sits in a cgroup, so that its children are
//! born there. It forks cells and subreapers as children of the launcher (`CLONE_PARENT`).
//!
//! **Invariant.** Whatever a run could leave traces in is used by one run only: the network namespace and the ruleset
//! go to the forked process, and new ones are made when the zygote is idle. A run that comes before that makes its
//! own.
//!
//! Network: a cell without network is born into the zygote's unused namespace, in which no interface is up and which
//! the cell cannot administer. Any other cell gets a namespace together with its own user namespace
//! (`ForkRequest::own_network`), and sets it up itself, in `cell/mounts.rs`, while it still has the capability: that
//! is where the egress gate is connected.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::identity::LauncherIdentity;
use crate::cell::{self, CellParams, NAMESPACES, Prebuilt};
use crate::error::{FailedStep, StepContext as _};
use crate::filter::{self, Confinement, FilterPart, Profile};
use crate::spec::{NetworkMode, Observe};
use crate::sys::process::{self, Child, ForkSide};
use crate::sys::{capability, message, seccomp};
use crate::wire::{self, Bytes, ExpectedFilter, RunIdentity};

/// How long the zygote must be idle before it prepares the next run: a run that has just begun comes first.
const IDLE_BEFORE_PREPARING: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };

/// What to fork. Handles: the new process's channel, and its v2 cgroup if it has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ForkRequest {
    pub(super) identity: RunIdentity,
    pub(super) proc: bool,
    /// Whether the cell needs a network namespace that it can set up.
    pub(super) own_network: bool,
    /// The expected filter; the run must match it.
    pub(super) expected: Option<ExpectedFilter>,
    /// Mount point of the home directory (all tiers but no-userns).
    pub(super) home: Bytes,
}

/// Reply to a [`ForkRequest`]. Handle: a pidfd of the new process, if there is one.
#[derive(Debug, Serialize, Deserialize)]
enum ForkReply {
    Process(i32),
    Failed { step: String, errno: i32 },
}

/// What a zygote is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZygoteKind {
    pub(super) confinement: Confinement,
    /// Whether every denial of its runs is reported, including those of the seccomp filter.
    pub(super) report_denials: bool,
}

/// The launcher's handle of a zygote.
#[derive(Debug)]
pub(super) struct Zygote {
    channel: OwnedFd,
    pub(super) pid: Pid,
    reaped: bool,
}

impl Zygote {
    /// Forks a zygote.
    pub(super) fn start(
        kind: ZygoteKind,
        launcher_identity: LauncherIdentity,
        landlock_abi: i32,
    ) -> Result<Self, Errno> {
        let ZygoteKind { confinement, .. } = kind;
        let (ours, theirs) = message::pair()?;
        let (side, entered) = match confinement {
            Confinement::Namespaces => {
                launcher_identity.clone_into(libc::CLONE_NEWNS | libc::CLONE_NEWNET)?
            }
            Confinement::LandlockOnly => (process::clone_into(0)?, Ok(())),
        };
        match side {
            ForkSide::Child => {
                let served = process::keep_only(theirs).and_then(|channel| {
                    let zygote = ZygoteProcess::begin(kind, launcher_identity, entered, landlock_abi)?;
                    zygote.serve(channel);
                    Ok(())
                });
                // The exit code is the error, which fits: `Zygote::end` reports it.
                process::leave(served.err().map_or(0, Errno::raw_os_error))
            }
            ForkSide::Parent(child) => Ok(Self { channel: ours, pid: child.pid, reaped: false }),
        }
    }

    /// Forks a cell or a subreaper.
    pub(super) fn make(
        &self,
        request: &ForkRequest,
        channel: OwnedFd,
        group: Option<OwnedFd>,
    ) -> Result<Child, ForkFailure> {
        let gone = ForkFailure::NoReply;
        let mut handles = vec![channel.as_fd()];
        handles.extend(group.as_ref().map(OwnedFd::as_fd));
        message::send(self.channel.as_fd(), &wire::pack(request).map_err(gone)?, &handles).map_err(gone)?;
        let received = message::receive(self.channel.as_fd()).map_err(gone)?;
        match wire::unpack(&received.bytes).map_err(gone)? {
            ForkReply::Process(pid) => {
                let handle = received.handles.into_iter().next().ok_or(gone(Errno::BADMSG))?;
                Ok(Child { pid: Pid::from_raw(pid).ok_or(gone(Errno::SRCH))?, handle })
            }
            ForkReply::Failed { step, errno } => {
                Err(ForkFailure::Step(step, Errno::from_raw_os_error(errno)))
            }
        }
    }

    /// Ends it, and reports how it had ended before, if it had.
    pub(super) fn end(mut self) -> &'static str {
        let ended = rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG).ok().flatten();
        let Some((_, status)) = ended else { return "it did not reply" };
        // Reaped: its pid may belong to another process from now on.
        self.reaped = true;
        match (status.terminating_signal(), status.exit_status()) {
            (Some(libc::SIGKILL), _) => "it was killed, as the kernel does when memory runs out",
            (Some(_), _) => "it was ended by a signal",
            (None, Some(libc::ENOMEM)) => "it could not begin: out of memory",
            (None, Some(libc::EAGAIN)) => "it could not begin: too many processes of this user",
            (None, Some(0)) => "it ended by itself",
            _ => "it could not begin",
        }
    }
}

/// Why a zygote forked nothing.
#[derive(Debug)]
pub(super) enum ForkFailure {
    /// It is gone, or does not reply.
    NoReply(Errno),
    /// This step failed in it.
    Step(String, Errno),
}

impl Drop for Zygote {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// State inside the zygote.
struct ZygoteProcess {
    confinement: Confinement,
    launcher_identity: LauncherIdentity,
    landlock_abi: i32,
    base_image: Result<(), FailedStep>,
    prebuilt: Prebuilt,
    /// Whether this process's network namespace is unused.
    unused_network: bool,
}

impl ZygoteProcess {
    fn begin(
        kind: ZygoteKind,
        launcher_identity: LauncherIdentity,
        entered: Result<(), FailedStep>,
        landlock_abi: i32,
    ) -> Result<Self, Errno> {
        let ZygoteKind { confinement, report_denials } = kind;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        process::default_signals();
        process::block_signals(cell::HANDLED_SIGNALS)?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let base_image = entered.and_then(|()| match confinement {
            Confinement::Namespaces => cell::make_base_image(),
            Confinement::LandlockOnly => Ok(()),
        });
        if confinement == Confinement::Namespaces && launcher_identity != LauncherIdentity::FullRoot {
            limit_inotify();
        }
        // Inherited by every cell: forty system calls that no run has to wait for.
        capability::drop_bounding();
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let part = if report_denials || base_image.is_err() { FilterPart::Whole } else { FilterPart::Late };
        if part == FilterPart::Late {
            if confinement == Confinement::LandlockOnly {
                rustix::thread::set_no_new_privs(true)?;
            }
            seccomp::install(&filter::compile(&Profile {
                network: NetworkMode::None,
                observe: Observe::Off,
                confinement,
                guarded: Vec::new(),
                part: FilterPart::Early,
            }))?;
        }
        let mut prebuilt = Prebuilt::new(confinement, part);
        prebuilt.fill(confinement, landlock_abi);
        let unused_network = confinement == Confinement::Namespaces;
        Ok(Self { confinement, launcher_identity, landlock_abi, base_image, prebuilt, unused_network })
    }

    /// Serves requests until the launcher is gone.
    fn serve(mut self, channel: OwnedFd) {
        loop {
            if !self.is_ready() && !is_asked(&channel) {
                self.prepare_next();
            }
            let Ok(received) = message::receive(channel.as_fd()) else { return };
            let mut handles = received.handles.into_iter();
            let (Ok(request), Some(new_channel)) =
                (wire::unpack::<ForkRequest>(&received.bytes), handles.next())
            else {
                return;
            };
            let group = handles.next();
            let made = self.make(&request, group.as_ref());
            let (said, child) = match made {
                Ok(ForkSide::Child) => {
                    // The child keeps no descriptor of the zygote.
                    drop(channel);
                    drop(group);
                    let prebuilt = self.prebuilt.take();
                    match self.confinement {
                        Confinement::Namespaces => {
                            let ForkRequest { identity, proc, expected, ref home, .. } = request;
                            cell::run_cell(
                                new_channel,
                                &CellParams { identity, proc, home, expected },
                                prebuilt,
                            )
                        }
                        Confinement::LandlockOnly => {
                            cell::run_subreaper(new_channel, request.identity, request.expected, prebuilt)
                        }
                    }
                }
                Ok(ForkSide::Parent(child)) => {
                    (ForkReply::Process(child.pid.as_raw_nonzero().get()), Some(child))
                }
                Err(step) => {
                    (ForkReply::Failed { step: step.name.to_owned(), errno: step.errno.raw_os_error() }, None)
                }
            };
            let handles: Vec<_> = child.iter().map(|child| child.handle.as_fd()).collect();
            let sent = wire::pack(&said).and_then(|packed| message::send(channel.as_fd(), &packed, &handles));
            if sent.is_err() {
                return;
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.prebuilt.is_full() && (self.unused_network || self.confinement == Confinement::LandlockOnly)
    }

    fn prepare_next(&mut self) {
        if !self.unused_network && self.confinement == Confinement::Namespaces {
            // If it fails, the next cell makes its own and reports the error.
            self.unused_network = process::unshare_network().is_ok();
        }
        self.prebuilt.fill(self.confinement, self.landlock_abi);
    }

    fn make(&mut self, request: &ForkRequest, group: Option<&OwnedFd>) -> Result<ForkSide, FailedStep> {
        self.base_image?;
        let mut flags = 0;
        if self.confinement == Confinement::Namespaces {
            flags |= NAMESPACES;
            if request.own_network || !self.unused_network {
                flags |= libc::CLONE_NEWNET;
            }
            flags |= self.launcher_identity.namespace();
        }
        let side = process::clone_sibling(flags, group.map(OwnedFd::as_fd)).step("namespaces")?;
        if matches!(side, ForkSide::Parent(_)) {
            self.prebuilt.forget();
            self.unused_network &= flags & libc::CLONE_NEWNET != 0;
        }
        Ok(side)
    }
}

fn is_asked(channel: &OwnedFd) -> bool {
    let mut list = [PollFd::new(channel, PollFlags::IN)];
    rustix::event::poll(&mut list, Some(&IDLE_BEFORE_PREPARING)).is_ok_and(|ready| ready > 0)
}

/// Limits the runs of this zygote together to a quarter of the user's inotify instances and watches: limits of the
/// zygote's user namespace apply to those below it. Root's runs have a user id of their own, with its own limits.
#[expect(clippy::disallowed_methods, reason = "settings of the kernel")]
fn limit_inotify() {
    for what in ["instances", "watches"] {
        let most =
            std::fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{what}")).unwrap_or_default();
        if let Ok(most) = most.trim().parse::<u64>() {
            // Not writable in every container; there the user's limits apply.
            let _ = process::set(&format!("/proc/sys/user/max_inotify_{what}"), &(most / 4).to_string());
        }
    }
}
