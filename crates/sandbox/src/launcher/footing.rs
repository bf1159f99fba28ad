//! As whom programs run: never as root inside, and never as root outside where there is another user id to be had.
//!
//! In a user namespace the stage decides: its map says who everybody in it is outside. Cells map themselves to themselves.

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use crate::cell;
use crate::fault::{Named as _, Step};
use crate::sys::capability;
use crate::sys::process::{self, Side};
use crate::wire::Identity;

/// User ids that belong to nobody: past those that systemd and container programs give away.
const FIRST_UID: u32 = 1_990_000_000;
/// So many of them are used.
pub(super) const UNOWNED: u32 = 1000;
/// Whom a program finds itself to be where the number is free to choose: not nobody's, which stands for everybody who is
/// not in the map.
const INSIDE: u32 = 1000;

/// What a launcher can make of the user that it runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Footing {
    /// An ordinary user: programs run as that user.
    User,
    /// Root of the machine: cells need no user namespace, programs take an id of nobody's, and what they are to see is shown
    /// to them as theirs.
    Powers,
    /// Root that may not mount but may say who is who: programs are nobody of the machine's by the map of their user
    /// namespace. Files cannot be shown as theirs.
    Nobody,
    /// Root of a container that is an ordinary user outside of it: programs are that user, under another number.
    Renamed,
    /// Root that can be nobody else: programs have another number and no capability, and to files they are still root.
    OnlyRoot,
}

impl Footing {
    pub(crate) fn now() -> Self {
        let root = rustix::process::geteuid().is_root();
        Self::of(root, &own_map(), capability::may_administer(), capability::may_set_ids())
    }

    fn of(root: bool, map: &str, administer: bool, set_ids: bool) -> Self {
        let whole = |(first, outside, count)| first == 0 && outside == 0 && count >= u64::from(u32::MAX);
        let is_root_outside = ranges(map).any(|(first, outside, _)| first == 0 && outside == 0);
        if !root {
            Self::User
        } else if administer && ranges(map).any(whole) {
            Self::Powers
        } else if !is_root_outside {
            Self::Renamed
        } else if set_ids && unowned_in(map).is_some() {
            Self::Nobody
        } else {
            Self::OnlyRoot
        }
    }

    /// Whom a program in a user namespace finds itself to be.
    pub(super) fn inside(self) -> Identity {
        match self {
            Self::User | Self::Powers => Identity::own(),
            _ => Identity { uid: INSIDE, gid: INSIDE, taken: false },
        }
    }

    /// The namespace of users that a cell needs besides the others.
    pub(super) fn namespace(self) -> libc::c_int {
        if self == Self::Powers { 0 } else { libc::CLONE_NEWUSER }
    }

    /// Forks into namespaces where the child is whom programs are to be, with every power over them. The child is told
    /// where that failed.
    pub(super) fn clone_into(self, flags: libc::c_int) -> Result<(Side, Result<(), Step>), Errno> {
        let (outside, inside) = (Identity::own(), self.inside());
        let (mapped, go_on) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let side = process::clone_into(flags | self.namespace())?;
        let entered = match &side {
            Side::Parent(child) => {
                if self == Self::Nobody && map_nobody(child.pid).is_ok() {
                    // A child that is gone is noticed by whoever waits for it.
                    let _ = rustix::io::write(&go_on, b"+");
                }
                Ok(())
            }
            Side::Child => match self {
                Self::Powers => Ok(()),
                Self::Nobody => {
                    drop(go_on);
                    match rustix::io::read(&mapped, &mut [0_u8]) {
                        Ok(1) => cell::take(Identity { taken: true, ..inside }),
                        _ => Err(Errno::PERM),
                    }
                }
                _ => cell::own_ids(inside, (outside.uid, outside.gid)),
            },
        };
        Ok((side, entered.step("user namespace")))
    }

    /// How `doctor` says it; an error where programs are less than they should be.
    pub(super) fn describe(self) -> Result<String, String> {
        match self {
            Self::User | Self::Powers => Ok("works".to_owned()),
            Self::Nobody => {
                Ok("of nobody's; root's files are not lent without CAP_SYS_ADMIN, so filesystem \
                 `readwrite` and speculative runs are refused, and there are no build folders"
                    .to_owned())
            }
            Self::Renamed => Ok(format!("{INSIDE}; outside of this container it is whoever root here is")),
            Self::OnlyRoot => Err("no other than root's can be had".to_owned()),
        }
    }
}

/// Whom nobody is: one id for all, because each run has a user namespace of its own.
fn map_nobody(pid: Pid) -> Result<(), Errno> {
    let (pid, outside) = (pid.as_raw_nonzero(), unowned_ids().ok_or(Errno::PERM)?);
    for kind in ["gid", "uid"] {
        process::set(&format!("/proc/{pid}/{kind}_map"), &format!("{INSIDE} {outside} 1"))?;
    }
    Ok(())
}

/// The kernel's word on which ids there are.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn own_map() -> String {
    std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default()
}

/// The first id inside, the one that it is outside, how many.
fn ranges(map: &str) -> impl Iterator<Item = (u64, u64, u64)> {
    map.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
        Some((words.next()??, words.next()??, words.next()??))
    })
}

/// The first of the ids that nobody owns, where there are any. A container may have only lower ones: then its last ones.
pub(super) fn unowned_ids() -> Option<u32> {
    unowned_in(&own_map())
}

/// All of them that runs of a root broker get.
pub(crate) fn unowned() -> std::ops::Range<u32> {
    unowned_ids().map_or(0..0, |first| first..first + UNOWNED + 1)
}

fn unowned_in(map: &str) -> Option<u32> {
    let (low, high) = (u64::from(FIRST_UID), u64::from(FIRST_UID + UNOWNED));
    let mut last = None;
    for (first, _, count) in ranges(map) {
        let end = first + count;
        if first <= low && high < end {
            return Some(FIRST_UID);
        }
        // Room for them above those that people and services have.
        if count > 10_000 {
            last = last.max(u32::try_from(end - u64::from(UNOWNED) - 2).ok());
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "         0          0 4294967295\n";

    #[test]
    fn ids_that_a_container_has_are_used_in_it() {
        assert_eq!(unowned_in(MACHINE), Some(FIRST_UID));
        assert_eq!(unowned_in("0 100000 65536\n"), Some(64_534));
        assert_eq!(unowned_in("0 1000 1\n1 100000 65536\n"), Some(64_535));
        assert_eq!(unowned_in("0 0 1\n"), None);
        assert_eq!(unowned_in(""), None);
    }

    #[test]
    fn no_root_runs_programs_as_itself() {
        let check = |map, administer, set_ids, expected| {
            assert_eq!(Footing::of(true, map, administer, set_ids), expected, "{map} {administer} {set_ids}");
        };
        check(MACHINE, true, true, Footing::Powers);
        check(MACHINE, false, true, Footing::Nobody);
        check(MACHINE, false, false, Footing::OnlyRoot);
        check("0 1000 1", true, true, Footing::Renamed);
        check("0 100000 65536", true, true, Footing::Renamed);
        check("0 0 65536", true, true, Footing::Nobody);
        check("0 0 1", true, true, Footing::OnlyRoot);
        check("", true, true, Footing::Renamed);
        assert_eq!(Footing::of(false, MACHINE, false, false), Footing::User);
    }
}
