//! What is made in advance: stages, and cells and keepers that wait for their order, each used once. A guess (where the
//! home folder is, what is observed) that a run does not agree with is ended when it is quiet, never bent.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::Launcher;
use super::cgroup::Group;
use super::footing::{Footing, UNOWNED, unowned_ids};
use super::stage::{Kind, Stage, Wish};
use crate::cell;
use crate::filter::Walls;
use crate::offer::now_ms;
use crate::order::DEFAULT_HOME;
use crate::spec::Limits;
use crate::sys::process::Child;
use crate::sys::{capability, message};
use crate::tier::Tier;
use crate::wire::{self, Bytes, Expected, Go, Header, Identity, Offer};

/// A stage, and the control group that it sits in unless a run has it now.
pub(super) struct Staged {
    pub(super) stage: Stage,
    pub(super) kind: Kind,
    /// Whether it has a group, here or with a run: then it serves one run at a time.
    pub(super) grouped: bool,
    pub(super) group: Option<Group>,
}

/// What a cell or a keeper is made for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) proc: bool,
    pub(super) own_network: bool,
    pub(super) expected: Option<Expected>,
    pub(super) home: Bytes,
    pub(super) tier: Tier,
}

/// What the next run will probably want: what the last one wanted, or the last that wanted something else.
#[derive(Debug, Clone)]
pub(super) struct Guess {
    home: Bytes,
    owner: (u32, u32),
    limits: Limits,
    /// Of each kind of walls, the latest first.
    expected: Vec<(Walls, Expected)>,
}

impl Default for Guess {
    fn default() -> Self {
        let home = DEFAULT_HOME.as_bytes().to_vec();
        Self { home, owner: (0, 0), limits: Limits::default(), expected: Vec::new() }
    }
}

impl Guess {
    /// The last two different ones count.
    fn expect(&mut self, walls: Walls, expected: Expected) {
        self.expected.retain(|known| *known != (walls, expected));
        self.expected.insert(0, (walls, expected));
        let mut of_these = 0;
        self.expected.retain(|(known, _)| {
            of_these += usize::from(*known == walls);
            *known != walls || of_these <= 2
        });
    }

    /// Of what was asked for, that which fewest of those in stock are made for; of equals the latest.
    fn next(&self, walls: Walls, stock: &[Cell]) -> Option<Expected> {
        let asked = self.expected.iter().filter(|(known, _)| *known == walls).map(|(_, expected)| *expected);
        asked.min_by_key(|asked| {
            stock.iter().filter(|cell| cell.walls == walls && cell.expected == Some(*asked)).count()
        })
    }
}

/// A cell or a keeper that waits for its order.
pub(super) struct Cell {
    pub(super) number: u64,
    pub(super) child: Child,
    pub(super) channel: OwnedFd,
    pub(super) identity: Identity,
    pub(super) walls: Walls,
    pub(super) expected: Option<Expected>,
    pub(super) group: Group,
    /// Who made it.
    pub(super) stage: Pid,
}

impl Launcher {
    /// Of what there are not as many in advance as there shall be.
    pub(super) fn missing(&self) -> Option<Walls> {
        let ready = |walls: Walls| self.warm.iter().filter(|cell| cell.walls == walls).count();
        [(Walls::LandlockOnly, self.wanted_keepers), (Walls::Namespaces, self.wanted_warm)]
            .into_iter()
            .find_map(|(walls, wanted)| (ready(walls) < wanted).then_some(walls))
    }

    /// The next run will probably be like this one.
    pub(super) fn learn(&mut self, header: &Header) {
        self.guess.limits = header.limits;
        let walls = if header.tier == Tier::NoUserns {
            self.wanted_keepers = 1;
            Walls::LandlockOnly
        } else {
            self.guess.home.clone_from(&header.home);
            self.guess.owner = header.owner;
            Walls::Namespaces
        };
        if let Some(expected) = Expected::of(header, self.landlock_abi) {
            self.guess.expect(walls, expected);
        }
    }

    /// What a run needs of the kernel is there before it comes, and the broker is told.
    pub(super) fn prepare(&mut self, walls: Walls, control: BorrowedFd<'_>) {
        if self.make_offer(walls, control).is_err() {
            // Not now; the next run makes its own and tells what is wrong.
            match walls {
                Walls::Namespaces => self.wanted_warm = 0,
                Walls::LandlockOnly => self.wanted_keepers = 0,
            }
        }
    }

    fn make_offer(&mut self, walls: Walls, control: BorrowedFd<'_>) -> Result<(), (String, Errno)> {
        let at = |errno| ("offer".to_owned(), errno);
        let expected = self.guess.next(walls, &self.warm);
        let Guess { home, owner, limits, .. } = self.guess.clone();
        let tier = match walls {
            Walls::LandlockOnly => Tier::NoUserns,
            Walls::Namespaces if self.proc => Tier::Full,
            Walls::Namespaces => Tier::FullNoProc,
        };
        let asked = Asked { proc: self.proc, own_network: true, expected, home: home.clone(), tier };
        let mut cell = self.make_cell(Kind { walls, told: false }, asked, &limits)?;
        // A group that lasts may have the bounds of another run.
        cell.group.bound(&limits);
        let (number, identity) = (cell.number, cell.identity);
        let memory_limited = cell.group.limits_memory();
        let channel = rustix::io::fcntl_dupfd_cloexec(&cell.channel, 0);
        // From here on it is ended with the others, whether anybody hears of it or not.
        self.warm.push(cell);
        let channel = channel.map_err(at)?;
        // It takes half as long as to start a program.
        let count = walls == Walls::LandlockOnly && !identity.taken && self.runs.is_empty();
        let go = Go { memory_limited, others: count.then(cell::running) };
        let counted = now_ms();
        let maps = if identity.taken && walls == Walls::Namespaces {
            Some(self.maps.get(owner, identity).map_err(at)?)
        } else {
            None
        };
        let offer = Offer { number, tier, identity, expected, home, owner, limits, go, counted };
        let mut handles = vec![channel.as_fd()];
        handles.extend(maps.iter().flat_map(|(of_owner, of_root)| [of_owner.as_fd(), of_root.as_fd()]));
        message::send(control, &wire::pack(&offer).map_err(at)?, &handles).map_err(at)
    }

    /// A cell that the broker uses.
    pub(super) fn take_offered(&mut self, number: u64) -> Option<Cell> {
        let at = self.warm.iter().position(|cell| cell.number == number)?;
        Some(self.warm.swap_remove(at))
    }

    /// A cell that the broker does not want.
    pub(super) fn take_back(&mut self, number: u64) {
        if let Some(Cell { child, stage, group, .. }) = self.take_offered(number) {
            end(&child);
            self.give_back(stage, group);
        }
    }

    pub(super) fn make_cell(
        &mut self,
        kind: Kind,
        asked: Asked,
        limits: &Limits,
    ) -> Result<Cell, (String, Errno)> {
        let at = |step: &'static str| move |errno: Errno| (step.to_owned(), errno);
        let walls = kind.walls;
        let identity = self.identity(walls).map_err(at("user id"))?;
        let (number, group) = self.stage(kind).map_err(at("namespaces"))?;
        let mut group = group.unwrap_or_else(|| self.groups.make(limits, asked.tier));
        let Some(staged) = self.stages.get(number) else { return Err(("stage".to_owned(), Errno::SRCH)) };
        let (ours, theirs) = message::pair().map_err(at("channel"))?;
        let Asked { proc, own_network, expected, home, .. } = asked;
        let wish = Wish { identity, proc, own_network, expected, home };
        let birthplace = if group.lasts() { None } else { group.birthplace() };
        let born = birthplace.is_some();
        let again = rustix::io::fcntl_dupfd_cloexec(&theirs, 0).map_err(at("channel"))?;
        let made = match staged.stage.make(&wish, theirs, birthplace) {
            // Not every group can be born into; what was born elsewhere can still be moved.
            Err(_) if born => staged.stage.make(&wish, again, None).inspect(|child| group.add(child.pid)),
            made => made,
        };
        match made {
            Ok(child) => {
                let stage = staged.stage.pid;
                self.made += 1;
                Ok(Cell { number: self.made, child, channel: ours, identity, walls, expected, group, stage })
            }
            Err(why) => {
                // It may be gone, or unable: the next run gets another.
                self.stages.swap_remove(number);
                Err(why)
            }
        }
    }

    /// A stage that is free, with the group that it sits in.
    fn stage(&mut self, kind: Kind) -> Result<(usize, Option<Group>), Errno> {
        let free = |staged: &Staged| staged.kind == kind && (!staged.grouped || staged.group.is_some());
        if let Some(number) = self.stages.iter().position(free) {
            let mut group = self.stages.get_mut(number).and_then(|staged| staged.group.take());
            if let Some(group) = &mut group {
                group.begin_anew();
            }
            return Ok((number, group));
        }
        let stage = Stage::start(kind, self.footing, self.landlock_abi)?;
        let mut group = None;
        if self.groups.are_old() {
            let mut made = self.groups.make(&Limits::default(), Tier::Full);
            made.add(stage.pid);
            group = Some(made).filter(Group::lasts);
        }
        self.stages.push(Staged { stage, kind, grouped: group.is_some(), group: None });
        Ok((self.stages.len() - 1, group))
    }

    /// Takes back the group of a run that has ended.
    pub(super) fn give_back(&mut self, of: Pid, group: Group) {
        let owner = self.stages.iter_mut().find(|staged| staged.stage.pid == of && staged.grouped);
        // Without its stage, or made for one run: it is removed.
        if let Some(owner) = owner.filter(|_| group.lasts()) {
            owner.group = Some(group);
        }
    }

    /// Whom a run is. Root's runs without a user namespace have one of the unowned ids that nobody uses now.
    fn identity(&self, walls: Walls) -> Result<Identity, Errno> {
        let taken = match walls {
            Walls::Namespaces => self.footing == Footing::Powers,
            Walls::LandlockOnly => rustix::process::geteuid().is_root(),
        };
        if !taken {
            return Ok(self.footing.inside());
        }
        let used = |uid: u32| {
            self.runs.iter().any(|run| run.identity().uid == uid)
                || self.warm.iter().any(|cell| cell.identity.uid == uid)
        };
        let first = unowned_ids().filter(|_| capability::may_set_ids()).ok_or(Errno::PERM)?;
        // Launchers know nothing of each other, and what the kernel bounds for each user would be shared.
        let start = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs().wrapping_mul(619);
        let mut ids = (0..UNOWNED).map(|number| first + (start.wrapping_add(number)) % UNOWNED);
        let uid = ids.find(|uid| !used(*uid)).unwrap_or(first + UNOWNED);
        Ok(Identity { uid, gid: uid, taken })
    }
}

/// Ends a cell that nobody used.
pub(super) fn end(child: &Child) {
    let _ = rustix::process::pidfd_send_signal(&child.handle, Signal::KILL);
    let _ = rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty());
}
