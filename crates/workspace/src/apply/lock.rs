//! One writer at a time for each file (T9). The lock is an `flock` on a file of the lock folder, named after the folder
//! and name that are changed: it ends with its holder, whatever happens to it, and a file that was left behind blocks
//! nobody. Age takes no lock: a holder past 30 s is reported, and one that is a worker of ours (a process that lives for one
//! call) is ended first, so that the kernel gives its lock back. Two never hold it.
//!
//! The lock file tells who holds it and which temporary name is in use, so that the next start can tidy up.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use vambrace_core::digest::Digest;

/// A holder past this is reported.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

/// How locks are taken.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    /// Names the workspace in the shared folder.
    pub(crate) owner: String,
    /// How long a lock is waited for.
    pub(crate) patience: Duration,
    /// When a holder is overdue.
    pub(crate) overdue: Duration,
    /// Whether this process is a worker that may be ended when it holds one for too long.
    pub(crate) worker: bool,
}

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
    /// Whether it was a worker of ours and was ended.
    pub ended: bool,
}

/// A lock that is held; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct FileLock {
    folder: Arc<OwnedFd>,
    file: OwnedFd,
    name: String,
    since: u64,
    /// The workspace it is held for.
    owner: String,
    worker: bool,
    /// What a holder that was killed has left: a folder and a temporary name in it.
    pub(crate) left: Option<(String, String)>,
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
        manner: &Manner,
    ) -> Result<(Self, Option<Holder>), NoLock> {
        let begun = Instant::now();
        let mut overdue: Option<Holder> = None;
        let [mut wait, longest] = WAITS;
        loop {
            let file = open(folder, &key.0).map_err(NoLock::Io)?;
            while !taken(&file).map_err(NoLock::Io)? {
                let note = Note::read(&file);
                let mut holder = note.holder();
                if holder.held > manner.overdue {
                    // Its lock is not taken: it falls to whoever is next when the process is gone.
                    holder.ended = overdue.as_ref().is_some_and(|before| before.ended) || note.end();
                    overdue = Some(holder.clone());
                }
                if begun.elapsed() >= manner.patience {
                    return Err(NoLock::Busy(holder));
                }
                std::thread::sleep(wait);
                wait = (wait * 2).min(longest);
            }
            // Whoever had it may have removed the file while we waited; then others lock another one.
            if rustix::fs::fstat(&file).map_err(NoLock::Io)?.st_nlink > 0 {
                let left = Note::read(&file).left(&manner.owner);
                let (name, owner, worker) = (key.0.clone(), manner.owner.clone(), manner.worker);
                let since = uptime_millis();
                let lock = Self { folder: Arc::clone(folder), file, name, since, owner, worker, left };
                lock.note("", "");
                return Ok((lock, overdue));
            }
        }
    }

    /// Writes down which temporary name of which folder of the workspace is in use. Only for tidying up, so a failure
    /// does not matter.
    pub(crate) fn note(&self, place: &str, temporary: &str) {
        let (owner, own) = (&self.owner, std::process::id());
        let worker = self.worker.then(|| started(own)).flatten();
        let who = worker.map_or_else(|| own.to_string(), |started| format!("{own}:{started}"));
        let text = format!("{who} {} {owner} {temporary}\n{place}", self.since);
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

/// A lock file of this workspace that nobody holds.
pub(crate) fn abandoned(folder: &Arc<OwnedFd>, name: &str, owner: &str) -> Option<FileLock> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**folder, name, flags, Mode::empty()).ok()?;
    if !taken(&file).ok()? || rustix::fs::fstat(&file).ok()?.st_nlink == 0 {
        return None;
    }
    let note = Note::read(&file);
    // Another project may share the state folder; its litter is its own, and an empty note is anybody's.
    if note.owner != owner && !note.owner.is_empty() {
        return None;
    }
    let (left, folder) = (note.left(owner), Arc::clone(folder));
    Some(FileLock {
        folder,
        file,
        name: name.to_owned(),
        since: 0,
        owner: owner.to_owned(),
        worker: false,
        left,
    })
}

/// What a lock file says.
struct Note {
    process: u32,
    /// When the process was started, of a worker that may be ended; another process of the same number is not it.
    worker: Option<u64>,
    since: Option<u64>,
    owner: String,
    temporary: String,
    place: String,
}

impl Note {
    fn read(file: &OwnedFd) -> Self {
        let mut buffer = [0; 8192];
        let length = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let (head, place) = text.split_once('\n').unwrap_or((&text, ""));
        let mut words = head.splitn(4, ' ');
        let who = words.next().unwrap_or_default();
        let (process, worker) = who.split_once(':').unwrap_or((who, ""));
        Self {
            process: process.parse().unwrap_or(0),
            worker: worker.parse().ok(),
            since: words.next().and_then(|word| word.parse().ok()),
            owner: words.next().unwrap_or_default().to_owned(),
            temporary: words.next().unwrap_or_default().to_owned(),
            place: place.to_owned(),
        }
    }

    fn left(&self, owner: &str) -> Option<(String, String)> {
        (self.owner == owner && !self.temporary.is_empty())
            .then(|| (self.place.clone(), self.temporary.clone()))
    }

    fn holder(&self) -> Holder {
        let since = self.since.unwrap_or_else(uptime_millis);
        let held = Duration::from_millis(uptime_millis().saturating_sub(since));
        Holder { process: self.process, held, ended: false }
    }

    /// Ends the holder if it is a worker of ours; whether it was.
    fn end(&self) -> bool {
        let own = self.process == std::process::id();
        let (Some(known), false, Ok(raw)) = (self.worker, own, i32::try_from(self.process)) else {
            return false;
        };
        let Some(pid) = Pid::from_raw(raw) else { return false };
        // The handle first: what is looked at then is what is ended.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        started(self.process) == Some(known) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
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

/// When a process was started, in the kernel's ticks (proc(5), the 22nd field of its `stat`).
fn started(process: u32) -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(rustix::fs::CWD, format!("/proc/{process}/stat"), flags, Mode::empty()).ok()?;
    let mut buffer = [0; 1024];
    let length = rustix::io::read(&file, &mut buffer).ok()?;
    let text = String::from_utf8_lossy(buffer.get(..length)?).into_owned();
    // The name of the program may hold anything; the fields behind its bracket do not.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Since the machine started: the same for every process, and nobody sets it back.
fn uptime_millis() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests: they make the files they look at")]
mod tests {
    use super::*;

    // T9
    #[test]
    fn a_holder_past_its_time_is_told_and_keeps_its_lock() {
        let temp = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = rustix::fs::openat(rustix::fs::CWD, temp.path(), flags, Mode::empty()).unwrap();
        let folder = Arc::new(folder);
        let key = LockKey::new(1, 2, "name");
        let manner = |patience| Manner { owner: "w".to_owned(), patience, overdue: OVERDUE, worker: true };
        let (mut held, _) = FileLock::acquire(&folder, &key, &manner(Duration::ZERO)).unwrap();
        held.since = uptime_millis().saturating_sub(31_000);
        held.note("", "");
        match FileLock::acquire(&folder, &key, &manner(Duration::from_millis(5))) {
            Err(NoLock::Busy(holder)) => {
                assert_eq!(holder.process, std::process::id());
                assert!(holder.held > OVERDUE);
                assert!(!holder.ended, "nobody ends itself");
            }
            other => panic!("{other:?}"),
        }
    }

    // T9: a process that only has the number of a worker is left alone
    #[test]
    fn only_the_very_process_is_ended() {
        let note = |process: u32, worker: Option<u64>| Note {
            process,
            worker,
            since: None,
            owner: String::new(),
            temporary: String::new(),
            place: String::new(),
        };
        let parent = u32::try_from(rustix::process::getppid().unwrap().as_raw_nonzero().get()).unwrap();
        assert!(started(parent).is_some());
        assert!(!note(parent, None).end(), "not a worker");
        assert!(!note(parent, Some(started(parent).unwrap() + 1)).end(), "another process");
        assert!(!note(std::process::id(), started(std::process::id())).end(), "ourselves");
        assert!(!note(0, Some(1)).end());
    }

    #[test]
    fn a_lock_file_left_behind_is_taken_over_with_what_it_says() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("1-2-3"), "99 5 w .vambrace-x.tmp\nsrc/deep").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder =
            Arc::new(rustix::fs::openat(rustix::fs::CWD, temp.path(), flags, Mode::empty()).unwrap());
        assert!(abandoned(&folder, "1-2-3", "other").is_none(), "another workspace's");
        let lock = abandoned(&folder, "1-2-3", "w").unwrap();
        assert_eq!(lock.left, Some(("src/deep".to_owned(), ".vambrace-x.tmp".to_owned())));
        assert!(abandoned(&folder, "1-2-3", "w").is_none(), "it is held now");
        drop(lock);
        assert!(!temp.path().join("1-2-3").exists());
    }
}
