//! One writer at a time for each file (T9). The lock is an `flock` on a file in the lock directory, named after the inode
//! of the directory and the name that are changed. It is released when its holder exits for any reason, and a stale lock
//! file blocks no process. A lock is never stolen because of its age: a holder past 30 s is reported, and if it is one of
//! our worker processes (which serve one call) it is killed first, so that the kernel releases the lock. Two processes never
//! hold the same lock.
//!
//! The lock file records its holder and the temporary name in use, so that the next start can clean up.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use vambrace_core::digest::Digest;

/// A holder past this age is reported.
pub(crate) const OVERDUE_AFTER: Duration = Duration::from_secs(30);

/// Options for acquiring locks.
#[derive(Debug, Clone)]
pub(crate) struct LockOptions {
    /// Id of the workspace in the shared lock directory.
    pub(crate) owner: String,
    /// How long to wait for a lock.
    pub(crate) lock_timeout: Duration,
    /// Age at which a holder is overdue.
    pub(crate) overdue: Duration,
    /// Whether this process is a worker that may be killed when it holds a lock for too long.
    pub(crate) worker: bool,
}

/// First and longest delay between two attempts.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(5)];

/// Identifies what is locked: a name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockKey(String);

impl LockKey {
    pub(crate) fn new(device: u64, dir: u64, name: &[u8]) -> Self {
        let digest = Digest::of(name);
        let hex = digest.hex();
        let short = hex.get(..32).and_then(|hex| std::str::from_utf8(hex).ok()).unwrap_or_default();
        Self(format!("{device:x}-{dir:x}-{short}"))
    }
}

/// The process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Process id; 0 when the lock file does not name it yet.
    pub process: u32,
    /// How long it has held the lock.
    pub held: Duration,
    /// Whether it was one of our workers and was killed.
    pub ended: bool,
}

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub(crate) struct FileLock {
    dir: Arc<OwnedFd>,
    file: OwnedFd,
    name: String,
    since: u64,
    /// The workspace it is held for.
    owner: String,
    worker: bool,
    /// Temporary file left by a killed holder: a directory and a name in it.
    pub(crate) leftover: Option<(String, String)>,
}

/// Why a lock could not be acquired.
#[derive(Debug)]
pub(crate) enum LockError {
    Busy(LockHolder),
    Io(Errno),
}

impl FileLock {
    /// Acquires a lock, waiting up to the timeout. Also returns the overdue holder it waited for, if any.
    pub(crate) fn acquire(
        dir: &Arc<OwnedFd>,
        key: &LockKey,
        lock_options: &LockOptions,
    ) -> Result<(Self, Option<LockHolder>), LockError> {
        let begun = Instant::now();
        let mut overdue: Option<LockHolder> = None;
        let [mut wait, longest] = RETRY_DELAYS;
        loop {
            let file = open(dir, &key.0).map_err(LockError::Io)?;
            while !try_flock(&file).map_err(LockError::Io)? {
                let note = LockNote::read(&file);
                let mut holder = note.holder();
                if holder.held > lock_options.overdue {
                    // The lock is not stolen: the kernel grants it to the next waiter when the process is gone.
                    holder.ended = overdue.as_ref().is_some_and(|before| before.ended) || note.kill_worker();
                    overdue = Some(holder.clone());
                }
                if begun.elapsed() >= lock_options.lock_timeout {
                    return Err(LockError::Busy(holder));
                }
                std::thread::sleep(wait);
                wait = (wait * 2).min(longest);
            }
            // The previous holder may have removed the file while we waited; other processes then lock a new one.
            if rustix::fs::fstat(&file).map_err(LockError::Io)?.st_nlink > 0 {
                let leftover = LockNote::read(&file).leftover(&lock_options.owner);
                let (name, owner, worker) = (key.0.clone(), lock_options.owner.clone(), lock_options.worker);
                let since = uptime_millis();
                let lock = Self { dir: Arc::clone(dir), file, name, since, owner, worker, leftover };
                lock.note("", "");
                return Ok((lock, overdue));
            }
        }
    }

    /// Records the directory and temporary name in use. Only needed for cleaning up, so errors are ignored.
    pub(crate) fn note(&self, rel_path: &str, temporary: &str) {
        let (owner, own) = (&self.owner, std::process::id());
        let worker = self.worker.then(|| start_time(own)).flatten();
        let who = worker.map_or_else(|| own.to_string(), |start_time| format!("{own}:{start_time}"));
        let text = format!("{who} {} {owner} {temporary}\n{rel_path}", self.since);
        let _ = rustix::io::pwrite(&self.file, text.as_bytes(), 0);
        let _ = rustix::fs::ftruncate(&self.file, text.len() as u64);
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removed while still held, so that waiting processes notice.
        let _ = rustix::fs::unlinkat(&*self.dir, self.name.as_str(), AtFlags::empty());
    }
}

/// Takes a lock file of this workspace that no process holds.
pub(crate) fn take_abandoned(dir: &Arc<OwnedFd>, name: &str, owner: &str) -> Option<FileLock> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**dir, name, flags, Mode::empty()).ok()?;
    if !try_flock(&file).ok()? || rustix::fs::fstat(&file).ok()?.st_nlink == 0 {
        return None;
    }
    let note = LockNote::read(&file);
    // Lock files of other projects that share the state directory are left alone; a file without an owner is taken.
    if note.owner != owner && !note.owner.is_empty() {
        return None;
    }
    let (leftover, dir) = (note.leftover(owner), Arc::clone(dir));
    Some(FileLock {
        dir,
        file,
        name: name.to_owned(),
        since: 0,
        owner: owner.to_owned(),
        worker: false,
        leftover,
    })
}

/// The parsed content of a lock file.
struct LockNote {
    process: u32,
    /// Start time of a worker that may be killed; guards against a reused process id.
    worker: Option<u64>,
    since: Option<u64>,
    owner: String,
    temporary: String,
    rel_path: String,
}

impl LockNote {
    fn read(file: &OwnedFd) -> Self {
        let mut buffer = [0; 8192];
        let length = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let (head, rel_path) = text.split_once('\n').unwrap_or((&text, ""));
        let mut words = head.splitn(4, ' ');
        let who = words.next().unwrap_or_default();
        let (process, worker) = who.split_once(':').unwrap_or((who, ""));
        Self {
            process: process.parse().unwrap_or(0),
            worker: worker.parse().ok(),
            since: words.next().and_then(|word| word.parse().ok()),
            owner: words.next().unwrap_or_default().to_owned(),
            temporary: words.next().unwrap_or_default().to_owned(),
            rel_path: rel_path.to_owned(),
        }
    }

    fn leftover(&self, owner: &str) -> Option<(String, String)> {
        (self.owner == owner && !self.temporary.is_empty())
            .then(|| (self.rel_path.clone(), self.temporary.clone()))
    }

    fn holder(&self) -> LockHolder {
        let since = self.since.unwrap_or_else(uptime_millis);
        let held = Duration::from_millis(uptime_millis().saturating_sub(since));
        LockHolder { process: self.process, held, ended: false }
    }

    /// Kills the holder if it is one of our workers; returns whether it did.
    fn kill_worker(&self) -> bool {
        let own = self.process == std::process::id();
        let (Some(known), false, Ok(raw)) = (self.worker, own, i32::try_from(self.process)) else {
            return false;
        };
        let Some(pid) = Pid::from_raw(raw) else { return false };
        // The pidfd first: the process checked afterwards is the one that is killed.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        start_time(self.process) == Some(known) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
    }
}

fn open(dir: &Arc<OwnedFd>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(dir.as_fd(), name, flags, Mode::RUSR | Mode::WUSR)
}

fn try_flock(file: &OwnedFd) -> rustix::io::Result<bool> {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Start time of a process in clock ticks (proc(5), field 22 of `stat`).
fn start_time(process: u32) -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(rustix::fs::CWD, format!("/proc/{process}/stat"), flags, Mode::empty()).ok()?;
    let mut buffer = [0; 1024];
    let length = rustix::io::read(&file, &mut buffer).ok()?;
    let text = String::from_utf8_lossy(buffer.get(..length)?).into_owned();
    // The program name may contain anything, so fields are counted from the last bracket.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Milliseconds since boot: the same clock in every process, and it never goes back.
fn uptime_millis() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests create the files they check")]
mod tests {
    use super::*;

    // T9
    #[test]
    fn an_overdue_holder_is_reported_and_keeps_its_lock() {
        let temp = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = rustix::fs::openat(rustix::fs::CWD, temp.path(), flags, Mode::empty()).unwrap();
        let dir = Arc::new(dir);
        let key = LockKey::new(1, 2, b"name");
        let lock_options = |lock_timeout| LockOptions {
            owner: "w".to_owned(),
            lock_timeout,
            overdue: OVERDUE_AFTER,
            worker: true,
        };
        let (mut held, _) = FileLock::acquire(&dir, &key, &lock_options(Duration::ZERO)).unwrap();
        held.since = uptime_millis().saturating_sub(31_000);
        held.note("", "");
        match FileLock::acquire(&dir, &key, &lock_options(Duration::from_millis(5))) {
            Err(LockError::Busy(holder)) => {
                assert_eq!(holder.process, std::process::id());
                assert!(holder.held > OVERDUE_AFTER);
                assert!(!holder.ended, "a process does not kill itself");
            }
            other => panic!("{other:?}"),
        }
    }

    // T9: a process that reused the process id of a worker is left alone
    #[test]
    fn only_the_recorded_worker_process_is_killed() {
        let note = |process: u32, worker: Option<u64>| LockNote {
            process,
            worker,
            since: None,
            owner: String::new(),
            temporary: String::new(),
            rel_path: String::new(),
        };
        let parent = u32::try_from(rustix::process::getppid().unwrap().as_raw_nonzero().get()).unwrap();
        assert!(start_time(parent).is_some());
        assert!(!note(parent, None).kill_worker(), "not a worker");
        assert!(!note(parent, Some(start_time(parent).unwrap() + 1)).kill_worker(), "another process");
        assert!(!note(std::process::id(), start_time(std::process::id())).kill_worker(), "ourselves");
        assert!(!note(0, Some(1)).kill_worker());
    }

    #[test]
    fn an_abandoned_lock_file_is_taken_with_its_leftover_name() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("1-2-3"), "99 5 w .vambrace-x.tmp\nsrc/deep").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = Arc::new(rustix::fs::openat(rustix::fs::CWD, temp.path(), flags, Mode::empty()).unwrap());
        assert!(take_abandoned(&dir, "1-2-3", "other").is_none(), "another workspace's");
        let lock = take_abandoned(&dir, "1-2-3", "w").unwrap();
        assert_eq!(lock.leftover, Some(("src/deep".to_owned(), ".vambrace-x.tmp".to_owned())));
        assert!(take_abandoned(&dir, "1-2-3", "w").is_none(), "it is held now");
        drop(lock);
        assert!(!temp.path().join("1-2-3").exists());
    }
}
