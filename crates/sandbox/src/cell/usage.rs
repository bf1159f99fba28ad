//! Resource usage of a process tree where the kernel does not limit it: memory without cgroups, and disk usage
//! without a private file system, or in scratch directories. Polled ten times a second, however busy the loop is.
//!
//! Memory counts resident and swapped-out pages, including shared memory, but no file pages. Shared pages are counted
//! once where the kernel reports that (`smaps_rollup`), which is slower and read only when the plain sum is too
//! large. Not counted: a memfd that no process has mapped, and a deleted file on disk.
#![expect(clippy::disallowed_methods, reason = "process files of the kernel; directories of this run alone")]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::wire::RunReport;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest polling interval.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// At most one part in this many of the time is spent on scanning directories.
const SCAN_TIME_SHARE: u32 = 20;

/// Consecutive scans with an unreadable directory before that counts as exceeding the limit.
const MAX_UNREADABLE_SCANS: u32 = 3;

pub(super) struct UsageMonitor {
    memory: Option<u64>,
    disk: Option<DiskLimit>,
    next: Instant,
    next_walk: Instant,
    /// Consecutive scans in which something was unreadable.
    hidden: u32,
}

/// Directories with a common limit, in bytes.
pub(super) struct DiskLimit {
    pub(super) dirs: Vec<PathBuf>,
    pub(super) most: u64,
    /// Only files that changed since then count, in ns since the epoch: a scratch directory has older content.
    pub(super) since: Option<i128>,
}

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Memory,
    DiskLimit,
}

impl ExceededLimit {
    pub(super) fn report(self) -> RunReport {
        match self {
            Self::Memory => RunReport::OverMemory,
            Self::DiskLimit => RunReport::OverDisk,
        }
    }
}

impl UsageMonitor {
    /// Limits for memory in bytes, and for directories.
    pub(super) fn new(memory: Option<u64>, disk: Option<DiskLimit>) -> Self {
        let next = Instant::now() + POLL_INTERVAL;
        Self { memory, disk, next, next_walk: next, hidden: 0 }
    }

    /// How long to wait for other events before the next check, in milliseconds.
    pub(super) fn wait_ms(&self) -> Option<u32> {
        let looks = self.memory.is_some() || self.disk.is_some();
        let left = self.next.saturating_duration_since(Instant::now()).as_millis();
        looks.then(|| u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Checks the limits if the interval has passed: more frequent events do not postpone it.
    pub(super) fn check(&mut self, processes: impl FnOnce() -> Vec<i32>) -> Option<ExceededLimit> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        if self.memory.is_some_and(|most| exceeds_memory(&processes(), most)) {
            return Some(ExceededLimit::Memory);
        }
        // Counting many large processes that share memory is slow, and so is everything on a busy machine.
        self.next = now + (now.elapsed() * 4).clamp(POLL_INTERVAL, MAX_POLL_INTERVAL);
        let disk = self.disk.as_ref().filter(|_| self.next_walk <= now)?;
        let total = disk_usage(disk);
        // A program's test may make a directory unreadable for a moment.
        self.hidden = if total == u64::MAX { self.hidden + 1 } else { 0 };
        let more = total > disk.most && (self.hidden == 0 || self.hidden >= MAX_UNREADABLE_SCANS);
        self.next_walk = now + now.elapsed() * SCAN_TIME_SHARE;
        more.then_some(ExceededLimit::DiskLimit)
    }
}

fn exceeds_memory(processes: &[i32], most: u64) -> bool {
    let plain = |pid: i32| sum(pid, "status", &["RssAnon:", "RssShmem:", "VmSwap:"]);
    let exact = |pid: i32| sum(pid, "smaps_rollup", &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]);
    let all = |one: &dyn Fn(i32) -> Option<u64>| processes.iter().filter_map(|pid| one(*pid)).sum::<u64>();
    // A process without readable smaps counts with all its shared memory.
    all(&plain) > most && all(&|pid| exact(pid).or_else(|| plain(pid))) > most
}

/// Sum of some fields of a process, in bytes; `None` if there is none. If the main thread has exited, reads another
/// thread.
fn sum(pid: i32, file: &str, names: &[&str]) -> Option<u64> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    reported(&process.join(file), names).or_else(|| {
        let threads = fs::read_dir(process.join("task")).ok()?;
        threads.filter_map(Result::ok).find_map(|thread| reported(&thread.path().join(file), names))
    })
}

fn reported(file: &Path, names: &[&str]) -> Option<u64> {
    // A process name need not be UTF-8.
    let text = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text);
    let number = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let numbers: Vec<u64> = text.lines().filter_map(number).collect();
    (!numbers.is_empty()).then(|| numbers.iter().sum::<u64>() << 10)
}

/// Disk usage below directories in bytes; `u64::MAX` if part of it is unreadable. Hard links count once.
fn disk_usage(disk: &DiskLimit) -> u64 {
    let counts = |facts: &fs::Metadata| {
        let changed = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
        disk.since.is_none_or(|since| changed >= since)
    };
    let mut total: u64 = 0;
    let mut linked = HashSet::new();
    let mut ahead = disk.dirs.clone();
    while let Some(here) = ahead.pop() {
        let entries = match fs::read_dir(&here) {
            Ok(entries) => entries,
            // It was removed meanwhile. Any other error, for example a path that is too long, hides its content.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            // A directory that an earlier run hid says nothing about this one.
            Err(_) if fs::symlink_metadata(&here).is_ok_and(|facts| !counts(&facts)) => continue,
            Err(_) => return u64::MAX,
        };
        for entry in entries {
            let (path, facts) = match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(_) => return u64::MAX,
            };
            let again = facts.nlink() > 1 && facts.is_file() && !linked.insert((facts.dev(), facts.ino()));
            if counts(&facts) && !again {
                total = total.saturating_add(facts.blocks().saturating_mul(512));
            }
            if facts.is_dir() {
                ahead.push(path);
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_usage_counts_files_and_unreadable_directories_exceed_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/f"), vec![1; 100_000]).unwrap();
        // Sparse files and the targets of symlinks take no space.
        fs::File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/usr", at("link")).unwrap();
        fs::hard_link(at("a/b/f"), at("again")).unwrap();
        let below = |name: &str, since| disk_usage(&DiskLimit { dirs: vec![at(name)], most: 0, since });
        let total = below("", None);
        assert!((100_000..200_000).contains(&total), "{total}");
        assert_eq!(below("none", None), 0);
        assert_eq!((below("", Some(0)), below("", Some(i128::MAX))), (total, 0));
        let mut here =
            rustix::fs::open(dir.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let long = "n".repeat(250);
        for _ in 0..18 {
            rustix::fs::mkdirat(&here, &long, rustix::fs::Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, &long, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
                .unwrap();
        }
        assert_eq!(below("", None), u64::MAX);
        fs::remove_dir_all(at(&long)).unwrap();
        fs::set_permissions(at("a"), std::os::unix::fs::PermissionsExt::from_mode(0o300)).unwrap();
        if !rustix::process::geteuid().is_root() {
            assert_eq!((below("", None), below("", Some(i128::MAX))), (u64::MAX, 0));
        }
        fs::set_permissions(at("a"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn frequent_events_do_not_postpone_the_check() {
        let mut monitor = UsageMonitor::new(Some(0), None);
        let me = i32::try_from(std::process::id()).unwrap();
        let start = Instant::now();
        while monitor.check(|| vec![me]).is_none() {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        assert!(monitor.wait_ms().is_some_and(|wait_ms| wait_ms <= 100));
        assert_eq!(UsageMonitor::new(None, None).wait_ms(), None);
    }
}
