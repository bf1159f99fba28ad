//! Id maps for a root broker: through a mount with such a map, a file of the workspace's owner appears to belong to
//! the unprivileged user that the program runs as, and what that user creates there belongs to the owner. Files of
//! other users appear as they are.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};

use crate::sys::process::{self, ForkSide};
use crate::wire::RunIdentity;

/// Cached maps; a user namespace lives as long as its handle.
#[derive(Default)]
pub(super) struct IdMaps {
    made: Vec<((u32, u32), RunIdentity, OwnedFd)>,
}

impl IdMaps {
    /// The map of an owner and that of root, for this identity.
    pub(super) fn get(
        &mut self,
        owner: (u32, u32),
        identity: RunIdentity,
    ) -> Result<(OwnedFd, OwnedFd), Errno> {
        Ok((self.one(owner, identity)?, self.one((0, 0), identity)?))
    }

    fn one(&mut self, owner: (u32, u32), identity: RunIdentity) -> Result<OwnedFd, Errno> {
        let found = self.made.iter().find(|(of, to, _)| *of == owner && *to == identity);
        if let Some((_, _, map)) = found {
            return rustix::io::fcntl_dupfd_cloexec(map, 0);
        }
        let map = make(owner, identity)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&map, 0)?;
        self.made.push((owner, identity, map));
        Ok(copy)
    }
}

/// Creates one: a process in a new user namespace is needed only until the namespace is open.
pub(super) fn make(owner: (u32, u32), identity: RunIdentity) -> Result<OwnedFd, Errno> {
    let ForkSide::Parent(child) = process::clone_into(libc::CLONE_NEWUSER)? else {
        // Until the parent kills it.
        loop {
            process::wait_signal(&[], Some(1000));
        }
    };
    let made = (|| {
        let pid = child.pid.as_raw_nonzero();
        process::set(&format!("/proc/{pid}/uid_map"), &exchange(owner.0, identity.uid))?;
        process::set(&format!("/proc/{pid}/gid_map"), &exchange(owner.1, identity.gid))?;
        rustix::fs::open(format!("/proc/{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    })();
    rustix::process::pidfd_send_signal(child.handle.as_fd(), Signal::KILL)?;
    rustix::process::waitpid(Some(child.pid), WaitOptions::empty())?;
    made
}

/// An id map that swaps two ids and keeps all others.
fn exchange(one: u32, other: u32) -> String {
    let (low, high) = (one.min(other), one.max(other));
    let mut text = String::new();
    let mut line = |first: u32, to: u32, count: u32| {
        if count > 0 {
            text.push_str(&format!("{first} {to} {count}\n"));
        }
    };
    if low == high {
        line(0, 0, u32::MAX);
        return text;
    }
    line(0, 0, low);
    line(low, high, 1);
    line(low + 1, low + 1, high - low - 1);
    line(high, low, 1);
    line(high + 1, high + 1, u32::MAX - high - 1);
    text
}

#[cfg(test)]
mod tests {
    use super::exchange;

    #[test]
    fn two_ids_are_swapped_and_all_others_stay() {
        assert_eq!(exchange(0, 1000), "0 1000 1\n1 1 999\n1000 0 1\n1001 1001 4294966294\n");
        assert_eq!(exchange(5, 3), "0 0 3\n3 5 1\n4 4 1\n5 3 1\n6 6 4294967289\n");
        assert_eq!(exchange(7, 7), "0 0 4294967295\n");
    }
}
