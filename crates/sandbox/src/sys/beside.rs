//! A process that runs beside this one, in the same memory and with the same descriptors, until it becomes a program or
//! ends: made before it is needed, it costs no more than a wake-up then.
//!
//! INVARIANT: the two share even what belongs to one thread: the allocator's books, the last error. So while both run, one
//! of them does nothing but system calls; which one, and when, says who uses this.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::futex;

use super::{last_errno, process};

const STACK: usize = 512 << 10;
/// Who waits for something that may never come looks again after so long.
const LOOK_AGAIN: futex::Timespec = futex::Timespec { tv_sec: 1, tv_nsec: 0 };

/// The other process.
pub(crate) struct Beside {
    pub(crate) pid: Pid,
    /// Zero once it has left this memory: the kernel says so.
    here: &'static AtomicU32,
}

impl Beside {
    /// Starts it. What it uses is never given back: this process lives for one run.
    pub(crate) fn start(child: Box<dyn FnOnce()>) -> Result<Self, Errno> {
        extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the pointer is that of `child` below, which nobody else uses.
            let child = unsafe { Box::from_raw(argument.cast::<Box<dyn FnOnce()>>()) };
            child();
            process::leave(125)
        }
        let here: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(1)));
        // Written to from its end, as the machine does; aligned for any value.
        let stack: &'static mut [u128] = vec![0_u128; STACK / size_of::<u128>()].leak();
        let argument = Box::into_raw(Box::new(child));
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        // SAFETY: the stack and the word last as long as this memory, and the argument until the new process takes it. The
        // two keep out of each other's way as the module says.
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
    pub(crate) fn left(&self) {
        while self.is_here() {
            // The kernel's own wake-up is not a private one.
            let _ = futex::wait(self.here, futex::Flags::empty(), 1, None);
        }
    }
}

/// Something that happens once and is waited for.
#[derive(Debug, Default)]
pub(crate) struct Moment(AtomicU32);

impl Moment {
    pub(crate) fn come(&self) {
        self.0.store(1, Ordering::Release);
        // Fails for no reason but an address that is none.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, u32::MAX);
    }

    pub(crate) fn wait(&self) {
        while self.0.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// As long as it can still come.
    pub(crate) fn wait_while(&self, can_come: impl Fn() -> bool) {
        while self.0.load(Ordering::Acquire) == 0 && can_come() {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, 0, Some(&LOOK_AGAIN));
        }
    }
}
