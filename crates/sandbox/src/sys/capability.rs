//! Giving up privilege for good.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// No program that is started later, by this process or by one that it makes, can have a capability; this one keeps its
/// own. A new user namespace begins with all of them, so there it is to be done again. Before the identity changes: it
/// needs a capability itself.
pub(crate) fn drop_bounding() {
    for number in 0..64_u32 {
        // SAFETY: no memory is involved. Numbers that the kernel does not know are refused with EINVAL.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if done != 0 {
            // Not known (past the last), or no longer ours to drop: then it is not ours to use either, because
            // no_new_privs keeps every exec from gaining one.
            break;
        }
    }
}

/// No capability in any set.
pub(crate) fn drop_all() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

/// Whether this process may become another user, and say who is who in a user namespace below its own.
pub(crate) fn may_set_ids() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETGID | CapabilitySet::SETUID))
}

/// Whether this process may look into those of other users.
pub(crate) fn may_look_into_others() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Whether this process may mount in its own mount namespace: root with its powers, not root of a container.
pub(crate) fn may_administer() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID))
}
