//! Resource exhaustion probes: more kernel memory, descriptors or CPU time than one run may use.

use std::fs::File;
use std::io::{Error, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::probes::{Attempt, Probe};

const MIB: usize = 1 << 20;

/// Probes by name.
pub(crate) const EXHAUSTION_PROBES: &[Probe] = &[
    // Descriptors that are in flight in sockets are counted too.
    ("descriptors_in_flight", || {
        let pairs = socket_pairs(300);
        bounded(fill_with_descriptors(&pairs)?, 5000)
    }),
    // Memory that the kernel holds in pipe buffers.
    ("memory_in_pipes", || {
        let mut held = 0;
        let mut open = Vec::new();
        while let Ok((from, to)) = std::io::pipe() {
            unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETPIPE_SZ, MIB) };
            held += fill(to.into());
            open.push(from);
        }
        bounded(held, 400 * MIB)
    }),
    ("memory_in_sockets", || {
        let pairs = socket_pairs(2000);
        let held = pairs.iter().map(|(from, _)| from.try_clone().map_or(0, |from| fill(from.into())));
        bounded(held.sum(), 400 * MIB)
    }),
    ("watchers", || {
        let many = (0..2000).take_while(|_| unsafe { libc::inotify_init1(0) } >= 0).count();
        bounded(many, 2000)
    }),
    // For longer than the run's deadline.
    ("spin_on_every_processor", || {
        let end = Instant::now() + Duration::from_secs(30);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| while Instant::now() < end {});
            }
        });
        Ok(())
    }),
];

/// Holds as many descriptors in flight as possible until it is killed.
pub(crate) fn hold_descriptors() -> Attempt {
    let pairs = socket_pairs(300);
    println!("{} in flight", fill_with_descriptors(&pairs)?);
    loop {
        unsafe { libc::pause() };
    }
}

fn fill_with_descriptors(pairs: &[(UnixStream, UnixStream)]) -> Result<usize, Error> {
    let file = File::open("/dev/null")?;
    Ok(pairs.iter().map(|(from, _)| (0..100).take_while(|_| send(from, &file)).count()).sum())
}

fn bounded(got: usize, most: usize) -> Attempt {
    if got >= most { Ok(()) } else { Err(Error::other(format!("bounded: {got}"))) }
}

fn socket_pairs(most: usize) -> Vec<(UnixStream, UnixStream)> {
    (0..most).map_while(|_| UnixStream::pair().ok()).collect()
}

/// Number of bytes written before it was full.
fn fill(to: OwnedFd) -> usize {
    unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let piece = [0_u8; 64 << 10];
    let mut to = File::from(to);
    std::iter::from_fn(|| to.write(&piece).ok()).sum()
}

/// Sends one byte with a copy of a descriptor.
fn send(to: &UnixStream, file: &File) -> bool {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut space = [0_u64; 4];
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(head).cast::<i32>().write_unaligned(file.as_raw_fd());
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    unsafe { libc::sendmsg(to.as_raw_fd(), &raw const message, flags) > 0 }
}
