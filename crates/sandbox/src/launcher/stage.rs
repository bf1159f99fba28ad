//! A stage: a process that lives as long as the launcher, where everything stands ready that runs have in common. It
//! has the template of the root in a mount namespace of its own, sits in a network namespace that nobody has used, has
//! Landlock's rules of the system and the filters at hand, and where control groups are of version 1 it sits in one, so
//! that what it makes is born there. Cells and keepers are made by it, as children of the launcher.
//!
//! **Invariant.** What a run could leave traces in is used by one run only: the network namespace and the set of rules
//! are given away with the process that is made, and new ones are made when it is quiet. A run that comes before that
//! makes its own.
//!
//! The network: a cell without network is born into the stage's unused namespace, in which no interface is up and
//! which the cell cannot administer. Any other cell gets one with its own user namespace (`Wish::own_network`), and sets
//! it up itself, in `dress`, while it still may: that is where a gate has its place.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::footing::Footing;
use crate::cell::{self, MadeFor, NAMESPACES, Stock};
use crate::fault::{Named as _, Step};
use crate::filter::{self, Part, Profile, Walls};
use crate::spec::{Network, Observe};
use crate::sys::process::{self, Child, Side};
use crate::sys::{capability, message, seccomp};
use crate::wire::{self, Bytes, Expected, Identity};

/// So long nothing was asked for before the next run is prepared: a run that has just begun comes first.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };

/// What to make. Handles: the new process's channel, and its control group of version 2 where it is to have one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Wish {
    pub(super) identity: Identity,
    pub(super) proc: bool,
    /// A network namespace that the cell may set up.
    pub(super) own_network: bool,
    /// What will be asked for; the run must agree.
    pub(super) expected: Option<Expected>,
    /// Where the home folder is shown (the other tiers).
    pub(super) home: Bytes,
}

/// What became of it. Handle: the new process's, where there is one.
#[derive(Debug, Serialize, Deserialize)]
enum Made {
    Process(i32),
    Failed { step: String, errno: i32 },
}

/// What a stage is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) walls: Walls,
    /// Whether every refusal of its runs is to be told, those of the filter included.
    pub(super) told: bool,
}

/// The launcher's end.
#[derive(Debug)]
pub(super) struct Stage {
    channel: OwnedFd,
    pub(super) pid: Pid,
}

impl Stage {
    /// Starts one.
    pub(super) fn start(kind: Kind, footing: Footing, landlock_abi: i32) -> Result<Self, Errno> {
        let Kind { walls, .. } = kind;
        let (ours, theirs) = message::pair()?;
        let (side, entered) = match walls {
            Walls::Namespaces => footing.clone_into(libc::CLONE_NEWNS | libc::CLONE_NEWNET)?,
            Walls::LandlockOnly => (process::clone_into(0)?, Ok(())),
        };
        match side {
            Side::Child => {
                let served = process::keep_only(theirs).and_then(|channel| {
                    let serving = Serving::begin(kind, footing, entered, landlock_abi)?;
                    serving.serve(channel);
                    Ok(())
                });
                process::leave(i32::from(served.is_err()))
            }
            Side::Parent(child) => Ok(Self { channel: ours, pid: child.pid }),
        }
    }

    /// Makes a cell or a keeper.
    pub(super) fn make(
        &self,
        wish: &Wish,
        channel: OwnedFd,
        group: Option<OwnedFd>,
    ) -> Result<Child, (String, Errno)> {
        let at = |errno| ("stage".to_owned(), errno);
        let mut handles = vec![channel.as_fd()];
        handles.extend(group.as_ref().map(OwnedFd::as_fd));
        message::send(self.channel.as_fd(), &wire::pack(wish).map_err(at)?, &handles).map_err(at)?;
        let received = message::receive(self.channel.as_fd()).map_err(at)?;
        match wire::unpack(&received.bytes).map_err(at)? {
            Made::Process(pid) => {
                let handle = received.handles.into_iter().next().ok_or(at(Errno::BADMSG))?;
                Ok(Child { pid: Pid::from_raw(pid).ok_or(at(Errno::SRCH))?, handle })
            }
            Made::Failed { step, errno } => Err((step, Errno::from_raw_os_error(errno))),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// The stage itself.
struct Serving {
    walls: Walls,
    footing: Footing,
    landlock_abi: i32,
    template: Result<(), Step>,
    stock: Stock,
    /// Whether nobody has used the network namespace that this process is in.
    unused_network: bool,
}

impl Serving {
    fn begin(
        kind: Kind,
        footing: Footing,
        entered: Result<(), Step>,
        landlock_abi: i32,
    ) -> Result<Self, Errno> {
        let Kind { walls, told } = kind;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        process::default_signals();
        process::block_signals(cell::HEARD)?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let template = entered.and_then(|()| match walls {
            Walls::Namespaces => cell::make_template(),
            Walls::LandlockOnly => Ok(()),
        });
        if walls == Walls::Namespaces && footing != Footing::Powers {
            share_watches();
        }
        first_to_go();
        // Inherited by every cell; forty calls that no run has to wait for.
        capability::drop_bounding();
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let part = if told || template.is_err() { Part::Whole } else { Part::Late };
        if part == Part::Late {
            if walls == Walls::LandlockOnly {
                rustix::thread::set_no_new_privs(true)?;
            }
            seccomp::install(&filter::compile(&Profile {
                network: Network::None,
                observe: Observe::Off,
                walls,
                guarded: Vec::new(),
                part: Part::Early,
            }))?;
        }
        let mut stock = Stock::new(walls, part);
        stock.fill(walls, landlock_abi);
        let unused_network = walls == Walls::Namespaces;
        Ok(Self { walls, footing, landlock_abi, template, stock, unused_network })
    }

    /// Until the launcher is gone.
    fn serve(mut self, channel: OwnedFd) {
        loop {
            if !self.is_ready() && !is_asked(&channel) {
                self.prepare_next();
            }
            let Ok(received) = message::receive(channel.as_fd()) else { return };
            let mut handles = received.handles.into_iter();
            let (Ok(wish), Some(new_channel)) = (wire::unpack::<Wish>(&received.bytes), handles.next())
            else {
                return;
            };
            let group = handles.next();
            let made = self.make(&wish, group.as_ref());
            let (said, child) = match made {
                Ok(Side::Child) => {
                    // Nothing of the stage's goes along.
                    drop(channel);
                    drop(group);
                    let stock = self.stock.take();
                    match self.walls {
                        Walls::Namespaces => {
                            let Wish { identity, proc, expected, ref home, .. } = wish;
                            cell::live(new_channel, &MadeFor { identity, proc, home, expected }, stock)
                        }
                        Walls::LandlockOnly => cell::keep(new_channel, wish.identity, wish.expected, stock),
                    }
                }
                Ok(Side::Parent(child)) => (Made::Process(child.pid.as_raw_nonzero().get()), Some(child)),
                Err(step) => {
                    (Made::Failed { step: step.name.to_owned(), errno: step.errno.raw_os_error() }, None)
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
        self.stock.is_full() && (self.unused_network || self.walls == Walls::LandlockOnly)
    }

    fn prepare_next(&mut self) {
        if !self.unused_network && self.walls == Walls::Namespaces {
            // Where it fails, the next cell makes its own and tells what is wrong.
            self.unused_network = process::leave_network().is_ok();
        }
        self.stock.fill(self.walls, self.landlock_abi);
    }

    fn make(&mut self, wish: &Wish, group: Option<&OwnedFd>) -> Result<Side, Step> {
        self.template?;
        let mut flags = 0;
        if self.walls == Walls::Namespaces {
            flags |= NAMESPACES;
            if wish.own_network || !self.unused_network {
                flags |= libc::CLONE_NEWNET;
            }
            flags |= self.footing.namespace();
        }
        let side = process::clone_beside(flags, group.map(OwnedFd::as_fd)).step("namespaces")?;
        if matches!(side, Side::Parent(_)) {
            self.stock.forget();
            self.unused_network &= flags & libc::CLONE_NEWNET != 0;
        }
        Ok(side)
    }
}

fn is_asked(channel: &OwnedFd) -> bool {
    let mut list = [PollFd::new(channel, PollFlags::IN)];
    rustix::event::poll(&mut list, Some(&QUIET)).is_ok_and(|ready| ready > 0)
}

/// Of the inotify instances and watches that the user may have, the runs of this stage get a quarter together: bounds of the
/// stage's user namespace hold for those below it. Root's runs have a user id of their own, and bounds with it.
#[expect(clippy::disallowed_methods, reason = "settings of the kernel")]
fn share_watches() {
    for what in ["instances", "watches"] {
        let most =
            std::fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{what}")).unwrap_or_default();
        if let Ok(most) = most.trim().parse::<u64>() {
            // Not in every container; there they are what the user has.
            let _ = process::set(&format!("/proc/sys/user/max_inotify_{what}"), &(most / 4).to_string());
        }
    }
}

/// When the whole machine is out of memory, runs are ended before anything of the user's: not everything that a program
/// holds is counted where there are no control groups.
fn first_to_go() {
    // Whoever may not be looked into may not say this of itself either.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
    let _ = process::set("/proc/self/oom_score_adj", "1000");
}
