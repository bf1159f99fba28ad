//! A writable project in a temporary directory, for the benches of edits.

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use vambrace_core::blocked_paths::BlockList;
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_workspace::{Applier, ScopeRules, Workspace, open_state_dir};

/// A project, its workspace and an applier.
pub(crate) struct Project {
    dir: tempfile::TempDir,
    pub(crate) ws: Workspace,
    pub(crate) applier: Applier,
}

impl Project {
    /// A new project, below `VAMBRACE_BENCH_DIR` if it is set.
    pub(crate) fn new() -> Self {
        let dir = match std::env::var_os("VAMBRACE_BENCH_DIR") {
            Some(home) => tempfile::tempdir_in(home).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        let root = dir.path().join("project");
        std::fs::create_dir(&root).unwrap();
        let block = BlockList::with_defaults::<&str>(&[]).unwrap();
        let ws = Workspace::open(&root, ScopeRules::new("", block)).unwrap();
        let home =
            rustix::fs::openat(CWD, dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let state = |name| open_state_dir(&home, name).unwrap();
        let applier = Applier::new(ws.clone(), state("locks"), state("journal"));
        Self { dir, ws, applier }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("project").join(name)
    }
}

pub(crate) fn path(name: &str) -> ScopedPath {
    AskedPath::new(name).parse().unwrap()
}

/// CPU time of this process, all threads.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Source code of so many lines; line 10,000 has the number that every edit changes.
pub(crate) fn code(lines: usize) -> String {
    let mut text = String::new();
    for line in 0..lines {
        text += &match line {
            10_000 => "const TARGET: u64 = 0;\n".to_owned(),
            line => format!("fn function_{line}(value: u64) -> u64 {{ value + {} }}\n", line % 97),
        };
    }
    text
}
