//! What a tree uses where the kernel does not bound it: memory without control groups, and what was written without a file
//! system of the run's own. Looked at ten times a second, whatever else happens meanwhile.
//!
//! Memory is what processes have in memory or swapped out, shared memory included; files are left out. What several
//! share is counted once where the kernel tells, which takes longer and is asked only when the plain sum is too much.
//! Not seen: a file in memory that nobody has mapped, and a file of the disk that has no name any more.
#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's words about processes; folders of this run alone"
)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(100);
/// Of the time, one part in so many is spent on looking through folders.
const SHARE: u32 = 20;

pub(super) struct Meter {
    memory: Option<u64>,
    disk: Option<(PathBuf, u64)>,
    next: Instant,
    next_walk: Instant,
}

/// What there was too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Memory,
    Disk,
}

impl Meter {
    /// Bounds for memory, and for what lies below a folder.
    pub(super) fn new(memory: Option<u64>, disk: Option<(PathBuf, u64)>) -> Self {
        let next = Instant::now() + LOOK;
        Self { memory, disk, next, next_walk: next }
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
        // Many large processes that share much take long to count.
        self.next = now + LOOK.max(now.elapsed() * 4);
        let (folder, most) = self.disk.as_ref().filter(|_| self.next_walk <= now)?;
        let more = lies_below(folder) > *most;
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

/// Some of a process's numbers, in bytes; nothing where none is told.
fn sum(pid: i32, file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let number = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let numbers: Vec<u64> = text.lines().filter_map(number).collect();
    (!numbers.is_empty()).then(|| numbers.iter().sum::<u64>() << 10)
}

/// What is written below a folder, in bytes; more than anybody may where it cannot be told.
fn lies_below(folder: &Path) -> u64 {
    let mut total: u64 = 0;
    let mut ahead = vec![folder.to_owned()];
    while let Some(here) = ahead.pop() {
        let entries = match fs::read_dir(&here) {
            Ok(entries) => entries,
            // It went away meanwhile. Any other reason, a path that is too long for one, hides what lies there.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => return u64::MAX,
        };
        for entry in entries {
            match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
                Ok((path, facts)) => {
                    total = total.saturating_add(facts.blocks().saturating_mul(512));
                    if facts.is_dir() {
                        ahead.push(path);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => return u64::MAX,
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
        let total = lies_below(folder.path());
        assert!((100_000..1_000_000).contains(&total), "{total}");
        assert_eq!(lies_below(&at("none")), 0);
        let mut here =
            rustix::fs::open(folder.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let long = "n".repeat(250);
        for _ in 0..18 {
            rustix::fs::mkdirat(&here, &long, rustix::fs::Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, &long, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
                .unwrap();
        }
        assert_eq!(lies_below(folder.path()), u64::MAX);
        fs::remove_dir_all(at(&long)).unwrap();
        fs::set_permissions(at("a"), std::os::unix::fs::PermissionsExt::from_mode(0o300)).unwrap();
        if !rustix::process::geteuid().is_root() {
            assert_eq!(lies_below(folder.path()), u64::MAX);
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
