//! Waking those who wait for a decision: in this process by a counter, in others by a datagram to a socket in the state
//! folder. A wake says only "look again"; whoever loses one looks anyway after a while.
#![expect(clippy::disallowed_methods, reason = "the state folder is owned by this crate")]

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram as Plain;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use vambrace_ledger::Id;

/// How often somebody looks who could not get a socket, and who could.
const BLIND: Duration = Duration::from_millis(50);
const SEEING: Duration = Duration::from_millis(500);

/// The bells of one state folder.
#[derive(Debug)]
pub(crate) struct Wakes {
    folder: PathBuf,
    /// In front of the names of our sockets.
    own: String,
    count: watch::Sender<u64>,
    next: AtomicU64,
}

impl Wakes {
    pub(crate) fn of(folder: PathBuf, own: &Id) -> Self {
        Self { folder, own: own.to_string(), count: watch::Sender::new(0), next: AtomicU64::new(0) }
    }

    /// Something about a question changed: everybody looks again.
    pub(crate) fn ring(&self) {
        self.count.send_modify(|count| *count += 1);
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        if names.is_empty() {
            return;
        }
        let (Ok(bell), Some(handle)) = (Plain::unbound(), self.handle()) else { return };
        let _ = bell.set_nonblocking(true);
        for name in names {
            // Through the handle of the folder: a socket's path may have 107 bytes, a state folder more.
            let path = format!("/proc/self/fd/{}/{}", handle.as_raw_fd(), name.to_string_lossy());
            if let Err(error) = bell.send_to(b"!", path)
                && error.kind() == std::io::ErrorKind::ConnectionRefused
            {
                // Its owner is gone.
                let _ = fs::remove_file(self.folder.join(&name));
            }
        }
    }

    /// Begins to listen; from now on nothing is missed.
    pub(crate) fn listen(&self) -> Watch {
        let name = format!("{}-{}", self.own, self.next.fetch_add(1, Ordering::Relaxed));
        let path = self.folder.join(&name);
        let _ = fs::remove_file(&path);
        let socket = self.handle().and_then(|handle| {
            UnixDatagram::bind(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd())).ok()
        });
        Watch { count: self.count.subscribe(), socket, path }
    }

    fn handle(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.folder, flags, Mode::empty()).ok()
    }
}

/// Listens for changes of questions.
#[derive(Debug)]
pub struct Watch {
    count: watch::Receiver<u64>,
    socket: Option<UnixDatagram>,
    path: PathBuf,
}

impl Watch {
    /// Returns when something may have changed, at the latest after `longest`.
    pub async fn changed(&mut self, longest: Duration) {
        let seeing = self.socket.is_some();
        let patience = longest.min(if seeing { SEEING } else { BLIND });
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
            () = tokio::time::sleep(patience) => {}
        }
        // What came together is one look.
        while self.socket.as_ref().is_some_and(|socket| socket.try_recv(&mut byte).is_ok()) {}
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.socket.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
