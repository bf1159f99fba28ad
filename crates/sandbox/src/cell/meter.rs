//! What a tree uses where the kernel does not bound it: memory without control groups, and what was written without a file
//! system of the run's own, or into build folders. Looked at ten times a second, whatever else happens meanwhile.
//!
//! Memory is what processes have in memory or swapped out, shared memory included; files are left out. What several
//! share is counted once where the kernel tells, which takes longer and is asked only when the plain sum is too much.
//! Not seen: a file in memory that nobody has mapped, and a file of the disk that has no name any more.
#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's words about processes; folders of this run alone"
)]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::wire::Report;

const LOOK: Duration = Duration::from_millis(100);
/// So long at most nobody looks.
const RARELY: Duration = Duration::from_secs(1);
/// Of the time, one part in so many is spent on looking through folders.
const SHARE: u32 = 20;

/// What is hidden for so many looks is too much.
const HIDDEN: u32 = 3;

pub(super) struct Meter {
    memory: Option<u64>,
    disk: Option<Disk>,
    next: Instant,
    next_walk: Instant,
    /// For how many looks something could not be counted.
    hidden: u32,
}

/// Folders that may hold so much together.
pub(super) struct Disk {
    pub(super) folders: Vec<PathBuf>,
    pub(super) most: u64,
    /// Only what changed since then counts, in nanoseconds: a build folder is old.
    pub(super) since: Option<i128>,
}

/// What there was too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Memory,
    Disk,
}

impl Over {
    pub(super) fn report(self) -> Report {
        match self {
            Self::Memory => Report::OverMemory,
            Self::Disk => Report::OverDisk,
        }
    }
}

impl Meter {
    /// Bounds for memory, and for what lies below folders.
    pub(super) fn new(memory: Option<u64>, disk: Option<Disk>) -> Self {
        let next = Instant::now() + LOOK;
        Self { memory, disk, next, next_walk: next, hidden: 0 }
    }

    /// How long to wait for anything else before the next look, in milliseconds.
    pub(super) fn patience(&self) -> Option<u32> {
        let looks = self.memory.is_some() || self.disk.is_some();
        let left = self.next.saturating_duration_since(Instant::now()).as_millis();
        looks.then(|| u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Looks, when it is time to: nothing that happens more often puts it off.
    pub(super) fn look(&mut self, processes: impl FnOnce() -> Vec<i32>) -> Option<Over> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        if self.memory.is_some_and(|most| use_more(&processes(), most)) {
            return Some(Over::Memory);
        }
        // Many large processes that share much take long to count, and on a busy machine everything does.
        self.next = now + (now.elapsed() * 4).clamp(LOOK, RARELY);
        let disk = self.disk.as_ref().filter(|_| self.next_walk <= now)?;
        let total = lies_below(disk);
        // A test of somebody's may hide a folder for a moment.
        self.hidden = if total == u64::MAX { self.hidden + 1 } else { 0 };
        let more = total > disk.most && (self.hidden == 0 || self.hidden >= HIDDEN);
        self.next_walk = now + now.elapsed() * SHARE;
        more.then_some(Over::Disk)
    }
}

fn use_more(processes: &[i32], most: u64) -> bool {
    let plain = |pid: i32| sum(pid, "status", &["RssAnon:", "RssShmem:", "VmSwap:"]);
    let exact = |pid: i32| sum(pid, "smaps_rollup", &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]);
    let all = |one: &dyn Fn(i32) -> Option<u64>| processes.iter().filter_map(|pid| one(*pid)).sum::<u64>();
    // One that cannot be looked into is counted with all that it shares.
    all(&plain) > most && all(&|pid| exact(pid).or_else(|| plain(pid))) > most
}

/// Some of a process's numbers, in bytes; nothing where none is told. One whose first thread has left is asked by another.
fn sum(pid: i32, file: &str, names: &[&str]) -> Option<u64> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    told(&process.join(file), names).or_else(|| {
        let threads = fs::read_dir(process.join("task")).ok()?;
        threads.filter_map(Result::ok).find_map(|thread| told(&thread.path().join(file), names))
    })
}

fn told(file: &Path, names: &[&str]) -> Option<u64> {
    // A process may call itself what is no text.
    let text = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text);
    let number = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let numbers: Vec<u64> = text.lines().filter_map(number).collect();
    (!numbers.is_empty()).then(|| numbers.iter().sum::<u64>() << 10)
}

/// What is written below folders, in bytes; more than anybody may where it cannot be told. A file of several names counts
/// once.
fn lies_below(disk: &Disk) -> u64 {
    let counts = |facts: &fs::Metadata| {
        let changed = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
        disk.since.is_none_or(|since| changed >= since)
    };
    let mut total: u64 = 0;
    let mut linked = HashSet::new();
    let mut ahead = disk.folders.clone();
    while let Some(here) = ahead.pop() {
        let entries = match fs::read_dir(&here) {
            Ok(entries) => entries,
            // It went away meanwhile. Any other reason, a path that is too long for one, hides what lies there.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            // What an earlier run hid is no sign of this one.
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
    fn what_lies_below_is_counted_and_what_is_hidden_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/f"), vec![1; 100_000]).unwrap();
        // No room is taken by what is not written, nor by what a link leads to.
        fs::File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/usr", at("link")).unwrap();
        fs::hard_link(at("a/b/f"), at("again")).unwrap();
        let below = |name: &str, since| lies_below(&Disk { folders: vec![at(name)], most: 0, since });
        let total = below("", None);
        assert!((100_000..200_000).contains(&total), "{total}");
        assert_eq!(below("none", None), 0);
        assert_eq!((below("", Some(0)), below("", Some(i128::MAX))), (total, 0));
        let mut here =
            rustix::fs::open(folder.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
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
    fn it_is_looked_however_often_something_else_happens() {
        let mut meter = Meter::new(Some(0), None);
        let me = i32::try_from(std::process::id()).unwrap();
        let start = Instant::now();
        while meter.look(|| vec![me]).is_none() {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        assert!(meter.patience().is_some_and(|patience| patience <= 100));
        assert_eq!(Meter::new(None, None).patience(), None);
    }
}
