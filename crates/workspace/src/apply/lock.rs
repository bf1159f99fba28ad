//! One writer at a time for each file (T9). The lock is an `flock` on a file of the lock folder, named after the folder
//! and name that are changed: it ends with its holder, whatever happens to it, and a file that was left behind blocks
//! nobody. Age takes no lock; a holder past 30 s is only reported.
//!
//! The lock file tells who holds it and which temporary name is in use, so that the next start can tidy up.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use vambrace_core::digest::Digest;

/// A holder past this is reported.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);
/// Between two attempts, from the first to the longest.
const WAITS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(5)];

/// What is locked: a name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockKey(String);

impl LockKey {
    pub(crate) fn new(device: u64, folder: u64, name: &str) -> Self {
        let digest = Digest::of(name.as_bytes());
        let hex = digest.hex();
        let short = hex.get(..32).and_then(|hex| std::str::from_utf8(hex).ok()).unwrap_or_default();
        Self(format!("{device:x}-{folder:x}-{short}"))
    }
}

/// Who holds a lock, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process; 0 when it did not say yet.
    pub process: u32,
    /// For how long.
    pub held: Duration,
}

/// A lock that is held; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct FileLock {
    folder: Arc<OwnedFd>,
    file: OwnedFd,
    name: String,
    since: u64,
}

/// Why a lock is not held.
#[derive(Debug)]
pub(crate) enum NoLock {
    Busy(Holder),
    Io(Errno),
}

impl FileLock {
    /// Takes a lock, waiting for as long as `patience` allows. Also says which holder it had to wait for too long.
    pub(crate) fn acquire(
        folder: &Arc<OwnedFd>,
        key: &LockKey,
        patience: Duration,
    ) -> Result<(Self, Option<Holder>), NoLock> {
        let begun = Instant::now();
        let mut overdue: Option<Holder> = None;
        let [mut wait, longest] = WAITS;
        loop {
            let file = open(folder, &key.0).map_err(NoLock::Io)?;
            while !taken(&file).map_err(NoLock::Io)? {
                let holder = Note::read(&file).holder();
                if holder.held > OVERDUE {
                    overdue = Some(holder.clone());
                }
                if begun.elapsed() >= patience {
                    return Err(NoLock::Busy(holder));
                }
                std::thread::sleep(wait);
                wait = (wait * 2).min(longest);
            }
            // Whoever had it may have removed the file while we waited; then others lock another one.
            if rustix::fs::fstat(&file).map_err(NoLock::Io)?.st_nlink > 0 {
                let lock =
                    Self { folder: Arc::clone(folder), file, name: key.0.clone(), since: uptime_millis() };
                lock.note("", "");
                return Ok((lock, overdue));
            }
        }
    }

    /// Writes down which temporary name of which folder is in use. Only for tidying up, so a failure does not matter.
    pub(crate) fn note(&self, place: &str, temporary: &str) {
        let text = format!("{} {} {temporary}\n{place}", std::process::id(), self.since);
        let _ = rustix::io::pwrite(&self.file, text.as_bytes(), 0);
        let _ = rustix::fs::ftruncate(&self.file, text.len() as u64);
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removed while it is still held: who waits for it notices.
        let _ = rustix::fs::unlinkat(&*self.folder, self.name.as_str(), AtFlags::empty());
    }
}

/// A lock file that nobody holds, and what its holder left.
pub(crate) fn abandoned(folder: &Arc<OwnedFd>, name: &str) -> Option<(FileLock, Option<(String, String)>)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**folder, name, flags, Mode::empty()).ok()?;
    if !taken(&file).ok()? || rustix::fs::fstat(&file).ok()?.st_nlink == 0 {
        return None;
    }
    let note = Note::read(&file);
    let left = (!note.temporary.is_empty()).then_some((note.place, note.temporary));
    let lock = FileLock { folder: Arc::clone(folder), file, name: name.to_owned(), since: 0 };
    Some((lock, left))
}

/// What a lock file says.
struct Note {
    process: u32,
    since: Option<u64>,
    temporary: String,
    place: String,
}

impl Note {
    fn read(file: &OwnedFd) -> Self {
        let mut buffer = [0; 8192];
        let length = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let (head, place) = text.split_once('\n').unwrap_or((&text, ""));
        let mut words = head.splitn(3, ' ');
        Self {
            process: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
            since: words.next().and_then(|word| word.parse().ok()),
            temporary: words.next().unwrap_or_default().to_owned(),
            place: place.to_owned(),
        }
    }

    fn holder(&self) -> Holder {
        let since = self.since.unwrap_or_else(uptime_millis);
        Holder { process: self.process, held: Duration::from_millis(uptime_millis().saturating_sub(since)) }
    }
}

fn open(folder: &Arc<OwnedFd>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(folder.as_fd(), name, flags, Mode::RUSR | Mode::WUSR)
}

fn taken(file: &OwnedFd) -> rustix::io::Result<bool> {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Since the machine started: the same for every process, and nobody sets it back.
fn uptime_millis() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}
