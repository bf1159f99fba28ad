//! A child process that shares this one's memory and descriptors until it executes a program or exits: forked in
//! advance, it costs only a wake-up when it is needed.
//!
//! INVARIANT: the two share even thread-local state: the allocator's, errno. So while both run, one of them makes
//! system calls only; the caller defines which one, and when.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::futex;

use super::{last_errno, process};

const STACK: usize = 512 << 10;
/// Interval at which a wait for an event that may never come is rechecked.
const RECHECK_INTERVAL: futex::Timespec = futex::Timespec { tv_sec: 1, tv_nsec: 0 };

/// Handle of the other process.
pub(crate) struct SharedProcess {
    pub(crate) pid: Pid,
    /// The kernel sets it to zero when the process has left this memory (`CLONE_CHILD_CLEARTID`).
    here: &'static AtomicU32,
}

impl SharedProcess {
    /// Forks it. Its stack is never freed: this process lives for one run.
    pub(crate) fn start(child: Box<dyn FnOnce()>) -> Result<Self, Errno> {
        extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the pointer is that of `child` below, which nothing else uses.
            let child = unsafe { Box::from_raw(argument.cast::<Box<dyn FnOnce()>>()) };
            child();
            process::leave(125)
        }
        let here: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(1)));
        // The stack grows down from its end; aligned for any value.
        let stack: &'static mut [u128] = vec![0_u128; STACK / size_of::<u128>()].leak();
        let argument = Box::into_raw(Box::new(child));
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        // SAFETY: the stack and the word live as long as this memory, and the argument until the new process takes
        // it. The two processes do not interfere, by the module's invariant.
        let pid = unsafe {
            libc::clone(
                enter,
                stack.as_mut_ptr_range().end.cast(),
                flags,
                argument.cast(),
                std::ptr::null_mut::<libc::pid_t>(),
                std::ptr::null_mut::<libc::c_void>(),
                here.as_ptr(),
            )
        };
        if pid < 0 {
            return Err(last_errno());
        }
        Ok(Self { pid: Pid::from_raw(pid).ok_or(Errno::SRCH)?, here })
    }

    /// Whether it is still in this memory.
    pub(crate) fn is_here(&self) -> bool {
        self.here.load(Ordering::Acquire) != 0
    }

    /// Waits until it has left this memory.
    pub(crate) fn wait_until_gone(&self) {
        while self.is_here() {
            // The kernel's wake-up is not a private one.
            let _ = futex::wait(self.here, futex::Flags::empty(), 1, None);
        }
    }
}

/// An event that is set once, with waiters.
#[derive(Debug, Default)]
pub(crate) struct OneShotEvent(AtomicU32);

impl OneShotEvent {
    pub(crate) fn set(&self) {
        self.0.store(1, Ordering::Release);
        // Can only fail for an invalid address.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, u32::MAX);
    }

    pub(crate) fn wait(&self) {
        while self.0.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// Waits while the event can still be set.
    pub(crate) fn wait_while(&self, can_be_set: impl Fn() -> bool) {
        while self.0.load(Ordering::Acquire) == 0 && can_be_set() {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, 0, Some(&RECHECK_INTERVAL));
        }
    }
}
