//! Notifies waiters about changed approval requests. A notification only says "read again"; a waiter that misses one
//! polls after a while.
//!
//! Processes that share a state directory notify each other by a datagram to a socket in it, and waiters in the same
//! process by a counter.
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

use crate::store::BoxFuture;

/// Polling interval of a waiter without and with a socket.
const POLL_WITHOUT_SOCKET: Duration = Duration::from_millis(50);
const POLL_WITH_SOCKET: Duration = Duration::from_millis(500);

/// Notifications about changed approval requests, between all processes that use a store.
pub trait ApprovalNotifier: Send + Sync {
    /// An approval request changed: every waiter reads again. A store calls this after a commit.
    fn notify(&self);

    /// Starts to listen; no change after this call is missed.
    fn watch(&self) -> Box<dyn ApprovalWatch>;
}

/// Waits for changes of approval requests.
pub trait ApprovalWatch: Send {
    /// Returns when something may have changed, after `longest` at the latest.
    fn changed(&mut self, longest: Duration) -> BoxFuture<'_, ()>;
}

/// Sends and receives the notifications of one state directory.
#[derive(Debug)]
pub(crate) struct DatagramNotifier {
    dir: PathBuf,
    /// Prefix of the names of our sockets.
    prefix: String,
    count: watch::Sender<u64>,
    next: AtomicU64,
}

impl DatagramNotifier {
    pub(crate) fn of(dir: PathBuf, prefix: &Id) -> Self {
        Self { dir, prefix: prefix.to_string(), count: watch::Sender::new(0), next: AtomicU64::new(0) }
    }

    fn handle(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.dir, flags, Mode::empty()).ok()
    }
}

impl ApprovalNotifier for DatagramNotifier {
    fn notify(&self) {
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

    fn watch(&self) -> Box<dyn ApprovalWatch> {
        let name = format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed));
        let path = self.dir.join(&name);
        let _ = fs::remove_file(&path);
        let socket = self.handle().and_then(|handle| {
            UnixDatagram::bind(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd())).ok()
        });
        Box::new(DatagramWatch { count: self.count.subscribe(), socket, path })
    }
}

/// A counter and a socket of its own.
#[derive(Debug)]
struct DatagramWatch {
    count: watch::Receiver<u64>,
    socket: Option<UnixDatagram>,
    path: PathBuf,
}

impl DatagramWatch {
    async fn wait(&mut self, longest: Duration) {
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

impl ApprovalWatch for DatagramWatch {
    fn changed(&mut self, longest: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.wait(longest))
    }
}

impl Drop for DatagramWatch {
    fn drop(&mut self) {
        if self.socket.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
