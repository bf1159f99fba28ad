//! The warm pool: zygotes, and cells and subreapers that wait for a run; each is used once. A cell is prepared for a
//! guess (home directory, what is observed); one that does not match a run is killed later, when the launcher is
//! idle, and never adapted.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::Launcher;
use super::cgroup::RunCgroup;
use super::identity::{LauncherIdentity, UNOWNED_ID_COUNT, first_unowned_id};
use super::zygote::{ForkFailure, ForkRequest, Zygote, ZygoteKind};
use crate::cell;
use crate::filter::Confinement;
use crate::run_request::DEFAULT_HOME;
use crate::spec::RunLimits;
use crate::sys::process::Child;
use crate::sys::{capability, message};
use crate::tier::Tier;
use crate::warm_cells::now_ms;
use crate::wire::{self, Bytes, CellStart, ExpectedFilter, RunHeader, RunIdentity, WarmCellOffer};

/// How many zygotes are asked for one cell, if each is gone.
const MAX_ZYGOTE_ATTEMPTS: u32 = 3;

/// Why no cell was made.
enum CellFailure {
    /// Its zygote is gone: how it ended, and the error of its channel.
    ZygoteGone(&'static str, Errno),
    /// This step failed.
    Step(String, Errno),
}

/// A zygote, and the cgroup that it sits in unless a run uses it now.
pub(super) struct ZygoteSlot {
    pub(super) zygote: Zygote,
    pub(super) kind: ZygoteKind,
    /// Whether it has a cgroup, here or with a run: then it serves one run at a time.
    pub(super) grouped: bool,
    pub(super) group: Option<RunCgroup>,
}

/// What a cell or a subreaper is made for.
#[derive(Debug)]
pub(super) struct CellRequest {
    pub(super) proc: bool,
    pub(super) own_network: bool,
    pub(super) expected: Option<ExpectedFilter>,
    pub(super) home: Bytes,
    pub(super) tier: Tier,
}

/// What the next run will probably need: the same as the last one, or as the last different one.
#[derive(Debug, Clone)]
pub(super) struct NextRunGuess {
    home: Bytes,
    owner: (u32, u32),
    limits: RunLimits,
    /// Recent filters per isolation, latest first.
    expected: Vec<(Confinement, ExpectedFilter)>,
}

impl Default for NextRunGuess {
    fn default() -> Self {
        let home = DEFAULT_HOME.as_bytes().to_vec();
        Self { home, owner: (0, 0), limits: RunLimits::default(), expected: Vec::new() }
    }
}

impl NextRunGuess {
    /// Keeps the last two different ones.
    fn expect(&mut self, confinement: Confinement, expected: ExpectedFilter) {
        self.expected.retain(|known| *known != (confinement, expected));
        self.expected.insert(0, (confinement, expected));
        let mut of_these = 0;
        self.expected.retain(|(known, _)| {
            of_these += usize::from(*known == confinement);
            *known != confinement || of_these <= 2
        });
    }

    /// Of the recent filters, the one that the fewest warm cells are made for; among equals the latest.
    fn next(&self, confinement: Confinement, prebuilt: &[CellHandle]) -> Option<ExpectedFilter> {
        let asked =
            self.expected.iter().filter(|(known, _)| *known == confinement).map(|(_, expected)| *expected);
        asked.min_by_key(|asked| {
            prebuilt
                .iter()
                .filter(|cell| cell.confinement == confinement && cell.expected == Some(*asked))
                .count()
        })
    }
}

/// A cell or a subreaper that waits for its run.
pub(super) struct CellHandle {
    pub(super) number: u64,
    pub(super) child: Child,
    pub(super) channel: OwnedFd,
    pub(super) identity: RunIdentity,
    pub(super) confinement: Confinement,
    pub(super) expected: Option<ExpectedFilter>,
    pub(super) group: RunCgroup,
    /// Its zygote.
    pub(super) zygote: Pid,
}

impl Launcher {
    /// The isolation of which fewer cells are ready than wanted.
    pub(super) fn next_to_warm(&self) -> Option<Confinement> {
        let ready = |confinement: Confinement| {
            self.warm.iter().filter(|cell| cell.confinement == confinement).count()
        };
        [(Confinement::LandlockOnly, self.wanted_subreapers), (Confinement::Namespaces, self.wanted_warm)]
            .into_iter()
            .find_map(|(confinement, wanted)| (ready(confinement) < wanted).then_some(confinement))
    }

    /// Updates the guess: the next run will probably be like this one.
    pub(super) fn learn(&mut self, header: &RunHeader) {
        self.guess.limits = header.limits;
        let confinement = if header.tier == Tier::NoUserns {
            self.wanted_subreapers = 1;
            Confinement::LandlockOnly
        } else {
            self.guess.home.clone_from(&header.home);
            self.guess.owner = header.owner;
            Confinement::Namespaces
        };
        if let Some(expected) = ExpectedFilter::of(header, self.landlock_abi) {
            self.guess.expect(confinement, expected);
        }
    }

    /// Prepares a cell before a run needs it, and offers it to the broker.
    pub(super) fn prepare(&mut self, confinement: Confinement, control: BorrowedFd<'_>) {
        if self.offer_warm_cell(confinement, control).is_err() {
            // Stop preparing; the next run makes its own cell and reports the error.
            match confinement {
                Confinement::Namespaces => self.wanted_warm = 0,
                Confinement::LandlockOnly => self.wanted_subreapers = 0,
            }
        }
    }

    fn offer_warm_cell(
        &mut self,
        confinement: Confinement,
        control: BorrowedFd<'_>,
    ) -> Result<(), (String, Errno)> {
        let at = |errno| ("offer".to_owned(), errno);
        let expected = self.guess.next(confinement, &self.warm);
        let NextRunGuess { home, owner, limits, .. } = self.guess.clone();
        let tier = match confinement {
            Confinement::LandlockOnly => Tier::NoUserns,
            Confinement::Namespaces if self.proc => Tier::Full,
            Confinement::Namespaces => Tier::FullNoProc,
        };
        let asked = CellRequest { proc: self.proc, own_network: true, expected, home: home.clone(), tier };
        let mut cell = self.make_cell(ZygoteKind { confinement, report_denials: false }, asked, &limits)?;
        // A reused cgroup may have the limits of another run.
        cell.group.bound(&limits);
        let (number, identity) = (cell.number, cell.identity);
        let memory_limited = cell.group.limits_memory();
        let channel = rustix::io::fcntl_dupfd_cloexec(&cell.channel, 0);
        // From here on it is killed with the others, whether the broker learns of it or not.
        self.warm.push(cell);
        let channel = channel.map_err(at)?;
        // Counting takes half as long as starting a program.
        let count = confinement == Confinement::LandlockOnly && !identity.must_switch && self.runs.is_empty();
        let go = CellStart { memory_limited, others: count.then(cell::count_user_processes) };
        let counted = now_ms();
        let maps = if identity.must_switch && confinement == Confinement::Namespaces {
            Some(self.maps.get(owner, identity).map_err(at)?)
        } else {
            None
        };
        let offer = WarmCellOffer { number, tier, identity, expected, home, owner, limits, go, counted };
        let mut handles = vec![channel.as_fd()];
        handles.extend(maps.iter().flat_map(|(of_owner, of_root)| [of_owner.as_fd(), of_root.as_fd()]));
        message::send(control, &wire::pack(&offer).map_err(at)?, &handles).map_err(at)
    }

    /// Removes a cell that the broker uses.
    pub(super) fn take_warm(&mut self, number: u64) -> Option<CellHandle> {
        let at = self.warm.iter().position(|cell| cell.number == number)?;
        Some(self.warm.swap_remove(at))
    }

    /// Kills a cell that the broker returned unused.
    pub(super) fn discard_warm(&mut self, number: u64) {
        if let Some(CellHandle { child, zygote, group, .. }) = self.take_warm(number) {
            end(&child);
            self.return_cgroup(zygote, group);
        }
    }

    /// Makes a cell. A zygote can die between runs: it shares the memory limit of its run (cgroup v1), and the kernel
    /// may kill it when that is exceeded. Then another one is started, a bounded number of times.
    pub(super) fn make_cell(
        &mut self,
        kind: ZygoteKind,
        asked: CellRequest,
        limits: &RunLimits,
    ) -> Result<CellHandle, (String, Errno)> {
        let mut attempt = 1;
        loop {
            match self.try_make_cell(kind, &asked, limits) {
                Ok(cell) => return Ok(cell),
                Err(CellFailure::Step(step, errno)) => return Err((step, errno)),
                Err(CellFailure::ZygoteGone(why, errno)) if attempt == MAX_ZYGOTE_ATTEMPTS => {
                    return Err((format!("zygote ({attempt} were started; {why})"), errno));
                }
                Err(CellFailure::ZygoteGone(..)) => {
                    // The others may have died with it: the last attempt uses one that is certainly new.
                    attempt += 1;
                    if attempt == MAX_ZYGOTE_ATTEMPTS {
                        self.zygotes
                            .retain(|slot| slot.kind != kind || (slot.grouped && slot.group.is_none()));
                    }
                }
            }
        }
    }

    fn try_make_cell(
        &mut self,
        kind: ZygoteKind,
        asked: &CellRequest,
        limits: &RunLimits,
    ) -> Result<CellHandle, CellFailure> {
        let at = |step: &'static str| move |errno: Errno| CellFailure::Step(step.to_owned(), errno);
        let confinement = kind.confinement;
        let identity = self.identity(confinement).map_err(at("user id"))?;
        let (number, group) = self.zygote_of(kind).map_err(at("namespaces"))?;
        let mut group = group.unwrap_or_else(|| self.groups.make(limits, asked.tier));
        let Some(slot) = self.zygotes.get(number) else { return Err(at("zygote")(Errno::SRCH)) };
        let (ours, theirs) = message::pair().map_err(at("channel"))?;
        let CellRequest { proc, own_network, expected, ref home, .. } = *asked;
        let fork_request = ForkRequest { identity, proc, own_network, expected, home: home.clone() };
        let open_for_clone = if group.is_reusable() { None } else { group.open_for_clone() };
        let born = open_for_clone.is_some();
        let again = rustix::io::fcntl_dupfd_cloexec(&theirs, 0).map_err(at("channel"))?;
        let made = match slot.zygote.make(&fork_request, theirs, open_for_clone) {
            // Not every cgroup supports `CLONE_INTO_CGROUP`; a process that was born elsewhere can still be moved.
            Err(ForkFailure::Step(..)) if born => {
                slot.zygote.make(&fork_request, again, None).inspect(|child| group.add(child.pid))
            }
            made => made,
        };
        match made {
            Ok(child) => {
                let zygote = slot.zygote.pid;
                self.made += 1;
                Ok(CellHandle {
                    number: self.made,
                    child,
                    channel: ours,
                    identity,
                    confinement,
                    expected,
                    group,
                    zygote,
                })
            }
            // It may be broken: the next run gets another.
            Err(failure) => {
                let why = self.zygotes.swap_remove(number).zygote.end();
                Err(match failure {
                    ForkFailure::NoReply(errno) => CellFailure::ZygoteGone(why, errno),
                    ForkFailure::Step(step, errno) => CellFailure::Step(step, errno),
                })
            }
        }
    }

    /// A free zygote, with the cgroup that it sits in.
    fn zygote_of(&mut self, kind: ZygoteKind) -> Result<(usize, Option<RunCgroup>), Errno> {
        let free = |slot: &ZygoteSlot| slot.kind == kind && (!slot.grouped || slot.group.is_some());
        if let Some(number) = self.zygotes.iter().position(free) {
            let mut group = self.zygotes.get_mut(number).and_then(|slot| slot.group.take());
            if let Some(group) = &mut group {
                group.reset();
            }
            return Ok((number, group));
        }
        let zygote = Zygote::start(kind, self.launcher_identity, self.landlock_abi)?;
        let mut group = None;
        if self.groups.uses_v1() {
            let mut made = self.groups.make(&RunLimits::default(), Tier::Full);
            made.add(zygote.pid);
            group = Some(made).filter(RunCgroup::is_reusable);
        }
        self.zygotes.push(ZygoteSlot { zygote, kind, grouped: group.is_some(), group: None });
        Ok((self.zygotes.len() - 1, group))
    }

    /// Returns the cgroup of an ended run to its zygote.
    pub(super) fn return_cgroup(&mut self, of: Pid, group: RunCgroup) {
        let owner = self.zygotes.iter_mut().find(|slot| slot.zygote.pid == of && slot.grouped);
        // Without its zygote, or made for one run only: it is removed.
        if let Some(owner) = owner.filter(|_| group.is_reusable()) {
            owner.group = Some(group);
        }
    }

    /// Identity of a run. Root's runs without a user namespace get an unowned id that no other run uses now.
    fn identity(&self, confinement: Confinement) -> Result<RunIdentity, Errno> {
        let must_switch = match confinement {
            Confinement::Namespaces => self.launcher_identity == LauncherIdentity::FullRoot,
            Confinement::LandlockOnly => rustix::process::geteuid().is_root(),
        };
        if !must_switch {
            return Ok(self.launcher_identity.inside());
        }
        let used = |uid: u32| {
            self.runs.iter().any(|run| run.identity().uid == uid)
                || self.warm.iter().any(|cell| cell.identity.uid == uid)
        };
        let first = first_unowned_id().filter(|_| capability::may_set_ids()).ok_or(Errno::PERM)?;
        // Launchers do not coordinate, and per-user limits of the kernel would be shared: start at different ids.
        let start = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs().wrapping_mul(619);
        let mut ids =
            (0..UNOWNED_ID_COUNT).map(|number| first + (start.wrapping_add(number)) % UNOWNED_ID_COUNT);
        let uid = ids.find(|uid| !used(*uid)).unwrap_or(first + UNOWNED_ID_COUNT);
        Ok(RunIdentity { uid, gid: uid, must_switch })
    }
}

/// Kills a cell that was not used.
pub(super) fn end(child: &Child) {
    let _ = rustix::process::pidfd_send_signal(&child.handle, Signal::KILL);
    let _ = rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty());
}
