//! Drops capabilities permanently, and checks for them.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Empties the bounding set: no program that this process or its children execute can gain a capability; the process
/// keeps its own. A new user namespace starts with a full set, so it must be repeated there. Must be called before
/// the identity changes: it needs a capability itself.
pub(crate) fn drop_bounding() {
    for number in 0..64_u32 {
        // SAFETY: no memory is involved. Unknown numbers fail with EINVAL.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if done != 0 {
            // Unknown (past the last), or not ours to drop: then it cannot be used either, because no_new_privs keeps
            // every exec from gaining one.
            break;
        }
    }
}

/// Clears every capability set.
pub(crate) fn drop_all() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

/// Whether this process may switch to another user, and write id maps of a child user namespace.
pub(crate) fn may_set_ids() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETGID | CapabilitySet::SETUID))
}

/// Whether this process may ptrace processes of other users.
pub(crate) fn may_look_into_others() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Whether this process may mount in its own mount namespace: root with capabilities, not root of a container.
pub(crate) fn may_administer() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID))
}
