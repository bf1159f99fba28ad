//! Which user id programs run as: never root inside the cell, and never root outside where another user id is
//! available.
//!
//! In a user namespace the zygote decides: its id map defines which outside id everything in it has. Cells map their
//! own id to itself.

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use crate::cell;
use crate::error::{FailedStep, StepContext as _};
use crate::sys::capability;
use crate::sys::process::{self, ForkSide};
use crate::wire::RunIdentity;

/// First of the user ids that no user owns: above the ranges that systemd and container runtimes assign.
const FIRST_UNOWNED_ID: u32 = 1_990_000_000;
/// Number of unowned ids in use.
pub(super) const UNOWNED_ID_COUNT: u32 = 1000;
/// User id inside the cell where it can be chosen. Not 65534 (nobody), which stands for every id outside the map.
const INSIDE_ID: u32 = 1000;

/// What the launcher can do with the user that it runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LauncherIdentity {
    /// An ordinary user: programs run as that user.
    User,
    /// Root of the machine: cells need no user namespace, programs get an unowned id, and idmapped mounts show them
    /// their files as their own.
    FullRoot,
    /// Root that may not mount but may write id maps: the map of their user namespace gives programs an unowned id.
    /// Files cannot be shown as theirs.
    RootWithSetuid,
    /// Root of a container that is an ordinary user outside of it: programs are that user, under another number.
    ContainerRoot,
    /// Root that cannot use any other id: programs see another number and have no capability, but to files they are
    /// still root.
    OnlyRoot,
}

impl LauncherIdentity {
    pub(crate) fn now() -> Self {
        let root = rustix::process::geteuid().is_root();
        Self::of(root, &own_uid_map(), capability::may_administer(), capability::may_set_ids())
    }

    fn of(root: bool, map: &str, administer: bool, set_ids: bool) -> Self {
        let whole = |(first, outside, count)| first == 0 && outside == 0 && count >= u64::from(u32::MAX);
        let is_root_outside = ranges(map).any(|(first, outside, _)| first == 0 && outside == 0);
        if !root {
            Self::User
        } else if administer && ranges(map).any(whole) {
            Self::FullRoot
        } else if !is_root_outside {
            Self::ContainerRoot
        } else if set_ids && first_unowned_id_in(map).is_some() {
            Self::RootWithSetuid
        } else {
            Self::OnlyRoot
        }
    }

    /// Identity of a program inside a user namespace.
    pub(super) fn inside(self) -> RunIdentity {
        match self {
            Self::User | Self::FullRoot => RunIdentity::of_this_process(),
            _ => RunIdentity { uid: INSIDE_ID, gid: INSIDE_ID, must_switch: false },
        }
    }

    /// `CLONE_NEWUSER` where a cell needs a user namespace besides the others.
    pub(super) fn namespace(self) -> libc::c_int {
        if self == Self::FullRoot { 0 } else { libc::CLONE_NEWUSER }
    }

    /// Forks into namespaces where the child has the identity of programs and every capability over them. The child
    /// gets the step that failed.
    pub(super) fn clone_into(self, flags: libc::c_int) -> Result<(ForkSide, Result<(), FailedStep>), Errno> {
        let (outside, inside) = (RunIdentity::of_this_process(), self.inside());
        let (mapped, go_on) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let side = process::clone_into(flags | self.namespace())?;
        let entered = match &side {
            ForkSide::Parent(child) => {
                if self == Self::RootWithSetuid && map_unowned_id(child.pid).is_ok() {
                    // A child that is gone is noticed when it is waited for.
                    let _ = rustix::io::write(&go_on, b"+");
                }
                Ok(())
            }
            ForkSide::Child => match self {
                Self::FullRoot => Ok(()),
                Self::RootWithSetuid => {
                    drop(go_on);
                    match rustix::io::read(&mapped, &mut [0_u8]) {
                        Ok(1) => cell::take(RunIdentity { must_switch: true, ..inside }),
                        _ => Err(Errno::PERM),
                    }
                }
                _ => cell::write_own_id_maps(inside, (outside.uid, outside.gid)),
            },
        };
        Ok((side, entered.step("user namespace")))
    }

    /// Text for `doctor`; an error where programs have more rights than they should.
    pub(super) fn describe(self) -> Result<String, String> {
        match self {
            Self::User | Self::FullRoot => Ok("works".to_owned()),
            Self::RootWithSetuid => {
                Ok("an unowned id; root's files cannot be shown without CAP_SYS_ADMIN, so filesystem \
                 `readwrite` and speculative runs are denied, and there are no scratch directories"
                    .to_owned())
            }
            Self::ContainerRoot => {
                Ok(format!("{INSIDE_ID}; outside of this container it is the user that root maps to"))
            }
            Self::OnlyRoot => Err("no id other than root is available".to_owned()),
        }
    }
}

/// Maps the inside id to one unowned id, shared by all runs, because each run has its own user namespace.
fn map_unowned_id(pid: Pid) -> Result<(), Errno> {
    let (pid, outside) = (pid.as_raw_nonzero(), first_unowned_id().ok_or(Errno::PERM)?);
    for kind in ["gid", "uid"] {
        process::set(&format!("/proc/{pid}/{kind}_map"), &format!("{INSIDE_ID} {outside} 1"))?;
    }
    Ok(())
}

/// The id map of this process.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn own_uid_map() -> String {
    std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default()
}

/// Ranges of an id map: first id inside, first id outside, count.
fn ranges(map: &str) -> impl Iterator<Item = (u64, u64, u64)> {
    map.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
        Some((words.next()??, words.next()??, words.next()??))
    })
}

/// The first unowned id, if there is one. A container may have only lower ones: then its last ones.
pub(super) fn first_unowned_id() -> Option<u32> {
    first_unowned_id_in(&own_uid_map())
}

/// All unowned ids that runs of a root broker use.
pub(crate) fn unowned() -> std::ops::Range<u32> {
    first_unowned_id().map_or(0..0, |first| first..first + UNOWNED_ID_COUNT + 1)
}

fn first_unowned_id_in(map: &str) -> Option<u32> {
    let (low, high) = (u64::from(FIRST_UNOWNED_ID), u64::from(FIRST_UNOWNED_ID + UNOWNED_ID_COUNT));
    let mut last = None;
    for (first, _, count) in ranges(map) {
        let end = first + count;
        if first <= low && high < end {
            return Some(FIRST_UNOWNED_ID);
        }
        // Enough ids above those that people and services use.
        if count > 10_000 {
            last = last.max(u32::try_from(end - u64::from(UNOWNED_ID_COUNT) - 2).ok());
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "         0          0 4294967295\n";

    #[test]
    fn container_uses_ids_of_its_own_map() {
        assert_eq!(first_unowned_id_in(MACHINE), Some(FIRST_UNOWNED_ID));
        assert_eq!(first_unowned_id_in("0 100000 65536\n"), Some(64_534));
        assert_eq!(first_unowned_id_in("0 1000 1\n1 100000 65536\n"), Some(64_535));
        assert_eq!(first_unowned_id_in("0 0 1\n"), None);
        assert_eq!(first_unowned_id_in(""), None);
    }

    #[test]
    fn root_never_runs_programs_as_itself() {
        let check = |map, administer, set_ids, expected| {
            assert_eq!(
                LauncherIdentity::of(true, map, administer, set_ids),
                expected,
                "{map} {administer} {set_ids}"
            );
        };
        check(MACHINE, true, true, LauncherIdentity::FullRoot);
        check(MACHINE, false, true, LauncherIdentity::RootWithSetuid);
        check(MACHINE, false, false, LauncherIdentity::OnlyRoot);
        check("0 1000 1", true, true, LauncherIdentity::ContainerRoot);
        check("0 100000 65536", true, true, LauncherIdentity::ContainerRoot);
        check("0 0 65536", true, true, LauncherIdentity::RootWithSetuid);
        check("0 0 1", true, true, LauncherIdentity::OnlyRoot);
        check("", true, true, LauncherIdentity::ContainerRoot);
        assert_eq!(LauncherIdentity::of(false, MACHINE, false, false), LauncherIdentity::User);
    }
}
