//! Notifies waiters about changed approval requests: in this process by a counter, in other processes by a
//! datagram to a socket in the state directory. A notification only says "read again"; a waiter that misses one
//! polls after a while.
#![expect(clippy::disallowed_methods, reason = "this crate owns the state directory")]

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use vambrace_ledger::Id;

/// Polling interval of a waiter without and with a socket.
const POLL_WITHOUT_SOCKET: Duration = Duration::from_millis(50);
const POLL_WITH_SOCKET: Duration = Duration::from_millis(500);

/// Sends and receives the notifications of one state directory.
#[derive(Debug)]
pub(crate) struct Notifier {
    dir: PathBuf,
    /// Prefix of the names of our sockets.
    prefix: String,
    count: watch::Sender<u64>,
    next: AtomicU64,
}

impl Notifier {
    pub(crate) fn of(dir: PathBuf, prefix: &Id) -> Self {
        Self { dir, prefix: prefix.to_string(), count: watch::Sender::new(0), next: AtomicU64::new(0) }
    }

    /// An approval request changed: every waiter reads again.
    pub(crate) fn notify(&self) {
        self.count.send_modify(|count| *count += 1);
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        if names.is_empty() {
            return;
        }
        let (Ok(sender), Some(handle)) = (StdUnixDatagram::unbound(), self.handle()) else { return };
        let _ = sender.set_nonblocking(true);
        for name in names {
            // Through a handle of the directory: a socket path has at most 107 bytes, the path of a state
            // directory may have more.
            let path = format!("/proc/self/fd/{}/{}", handle.as_raw_fd(), name.to_string_lossy());
            if let Err(error) = sender.send_to(b"!", path)
                && error.kind() == std::io::ErrorKind::ConnectionRefused
            {
                // Its process is gone.
                let _ = fs::remove_file(self.dir.join(&name));
            }
        }
    }

    /// Starts listening; no change after this call is missed.
    pub(crate) fn subscribe(&self) -> ApprovalWatch {
        let name = format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed));
        let path = self.dir.join(&name);
        let _ = fs::remove_file(&path);
        let socket = self.handle().and_then(|handle| {
            UnixDatagram::bind(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd())).ok()
        });
        ApprovalWatch { count: self.count.subscribe(), socket, path }
    }

    fn handle(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.dir, flags, Mode::empty()).ok()
    }
}

/// Waits for changes of approval requests.
#[derive(Debug)]
pub struct ApprovalWatch {
    count: watch::Receiver<u64>,
    socket: Option<UnixDatagram>,
    path: PathBuf,
}

impl ApprovalWatch {
    /// Returns when something may have changed, after `longest` at the latest.
    pub async fn changed(&mut self, longest: Duration) {
        let has_socket = self.socket.is_some();
        let lock_timeout = longest.min(if has_socket { POLL_WITH_SOCKET } else { POLL_WITHOUT_SOCKET });
        let mut byte = [0; 8];
        let socket = self.socket.as_ref();
        let received = async {
            match socket {
                Some(socket) => drop(socket.recv(&mut byte).await),
                None => std::future::pending::<()>().await,
            }
        };
        tokio::select! {
            _ = self.count.changed() => {}
            () = received => {}
            () = tokio::time::sleep(lock_timeout) => {}
        }
        // Notifications that came together cause one read.
        while self.socket.as_ref().is_some_and(|socket| socket.try_recv(&mut byte).is_ok()) {}
    }
}

impl Drop for ApprovalWatch {
    fn drop(&mut self) {
        if self.socket.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
