//! What a stage makes for its next run before anybody asks, because it takes long and is the same for most.

use std::time::{Duration, Instant};

use super::rules::Base;
use crate::filter::{self, Part, Profile, Walls};
use crate::spec::{Network, Observe};
use crate::sys::seccomp::Instruction;

/// For one run.
pub(crate) struct Stock {
    /// Landlock's rules of the system's own files.
    pub(super) base: Option<Base>,
    filters: Vec<(Profile, Vec<Instruction>)>,
    /// The part of the filter that is not installed yet.
    pub(super) part: Part,
    /// How many processes the user had, and when.
    others: Option<(u64, Instant)>,
}

/// A count that is older is made again.
const FRESH: Duration = Duration::from_secs(2);

impl Stock {
    /// The filters that most runs need; no rules yet.
    pub(crate) fn new(walls: Walls, part: Part) -> Self {
        let mut filters = Vec::new();
        for observe in [Observe::Writes, Observe::Off] {
            let profile = Profile { network: Network::None, observe, walls, guarded: Vec::new(), part };
            let filter = filter::compile(&profile);
            filters.push((profile, filter));
        }
        Self { base: None, filters, part, others: None }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.base.is_some()
    }

    pub(crate) fn fill(&mut self, walls: Walls, landlock_abi: i32) {
        self.base = Base::make(walls, landlock_abi);
        if walls == Walls::LandlockOnly {
            self.others = Some((running(), Instant::now()));
        }
    }

    /// What is used once is gone from here; what was only read stays.
    pub(crate) fn take(&mut self) -> Self {
        let filters = std::mem::take(&mut self.filters);
        Self { base: self.base.take(), filters, part: self.part, others: self.others }
    }

    /// After a child has taken it: in this process the rest is still there, but the rules are the child's.
    pub(crate) fn forget(&mut self) {
        self.base = None;
    }

    /// How many processes the user has besides the run's: they count together. To count means to look at every process
    /// of the machine, which takes half as long as to start one.
    pub(super) fn others(&self) -> u64 {
        match self.others {
            Some((count, when)) if when.elapsed() < FRESH => count,
            _ => running(),
        }
    }

    pub(super) fn filter(&self, profile: &Profile) -> Vec<Instruction> {
        let known = self.filters.iter().find(|(one, _)| one == profile);
        known.map_or_else(|| filter::compile(profile), |(_, filter)| filter.clone())
    }
}

/// How many processes and threads this user has now.
fn running() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    #[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes")]
    let Ok(list) = std::fs::read_dir("/proc") else { return 0 };
    let me = rustix::process::getuid().as_raw();
    let threads = list.filter_map(|entry| {
        let entry = entry.ok()?;
        let process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let mine = process && entry.metadata().ok()?.uid() == me;
        // A folder for each thread, and the folder's own two names.
        mine.then(|| {
            entry.path().join("task").symlink_metadata().map_or(1, |facts| facts.nlink().saturating_sub(2))
        })
    });
    threads.sum()
}
