//! The cost of confining a program: a run of `/bin/true` compared with a bare `posix_spawn` of it and with bubblewrap, all
//! interleaved; a large workspace with an empty one; a large broker with a small one; writing many files in an overlay and
//! writing them back with writing them directly.
//!
//! The program is `/bin/true`; the launcher is this program with a hidden argument, as in `vambrace`. Denials are observed as by
//! default unless a line says otherwise.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vambrace_sandbox::{
    Exit, Filesystem, Input, JournaledWriteBack, Observe, RunOutcome, Sandbox, Spec, StateDirs, Tier,
};

use crate::{
    read::{micros, percentile},
    report::{Report, Requirement},
};

const ROUNDS: usize = 150;
const FILES: usize = 10_000;
/// Pause between runs, for the background work of the last one: refilling the warm pool, unmounting.
const PAUSE: Duration = Duration::from_millis(4);
const HEAP: usize = 400 << 20;
/// The hidden argument that makes this program the writer of many files.
pub(crate) const WRITER: &str = "write-files";

pub(crate) fn run() -> Report {
    let mut report = Report::new("spawn");
    let place = BenchDirs::new();
    spawns(&place, &mut report);
    large_workspace(&place, &mut report);
    large_broker(&place, &mut report);
    many_files(&place, &mut report);
    report
}

/// The writer of many files: below the directory in its argument, or in its working directory. Prints how long that took,
/// in microseconds.
pub(crate) fn write_files() {
    if let Some(dir) = std::env::args_os().nth(2) {
        std::env::set_current_dir(dir).unwrap();
    }
    let start = Instant::now();
    for number in 0..FILES {
        if number % 100 == 0 {
            std::fs::create_dir(format!("d{}", number / 100)).unwrap();
        }
        std::fs::write(format!("d{}/f{number}", number / 100), format!("{number}\n")).unwrap();
    }
    println!("{}", micros(start));
}

pub(crate) struct BenchDirs {
    dir: TempDir,
}

impl BenchDirs {
    pub(crate) fn new() -> Self {
        let base = std::env::var_os("VAMBRACE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let place = Self { dir: TempDir::new_in(base).unwrap() };
        for name in ["empty", "direct", "overlay"] {
            std::fs::create_dir(place.path(name)).unwrap();
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn sandbox(&self) -> Sandbox {
        Sandbox::start(&std::env::current_exe().unwrap(), StateDirs::below(&self.path("state"))).unwrap()
    }

    pub(crate) fn spec(&self, workspace: &str, tier: Tier) -> Spec {
        let mut spec = Spec::new("/bin/true", self.path(workspace));
        spec.forced_tier = Some(tier);
        spec
    }
}

pub(crate) fn confined(sandbox: &Sandbox, spec: &Spec) -> f64 {
    let start = Instant::now();
    let outcome = sandbox.run(spec, Input::Nothing, &mut |_, _| {});
    let time = micros(start);
    assert_eq!(outcome.map(|outcome| outcome.exit).ok(), Some(Exit::Code(0)));
    time
}

/// `posix_spawn`: what the standard library uses when there is nothing to do between fork and exec.
pub(crate) fn spawned(command: &mut Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status();
    let time = micros(start);
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{command:?}: {status:?}");
    time
}

pub(crate) fn medians(rounds: usize, ways: &mut [&mut dyn FnMut() -> f64]) -> Vec<f64> {
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            std::thread::sleep(PAUSE);
            let time = way();
            // The first round warms the caches.
            if round > 0 {
                times.push(time);
            }
        }
    }
    times.iter_mut().map(|times| percentile(times, 50)).collect()
}

fn spawns(place: &BenchDirs, report: &mut Report) {
    let (cold, warm) = (place.sandbox(), place.sandbox());
    warm.keep_warm(2).unwrap();
    let full = place.spec("empty", Tier::Full);
    let mut quiet = full.clone();
    quiet.observe = Observe::Off;
    let light = place.spec("empty", Tier::NoUserns);
    let bubble = || {
        let mut command = Command::new(std::env::var_os("VAMBRACE_BWRAP").unwrap_or_else(|| "bwrap".into()));
        command.args([
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ]);
        command.args(["--die-with-parent", "--new-session", "/bin/true"]);
        command
    };
    let has_bubble = bubble().output().is_ok_and(|output| output.status.success());
    let mut peer = || if has_bubble { spawned(&mut bubble()) } else { f64::NAN };
    let times = medians(
        ROUNDS,
        &mut [
            &mut || spawned(&mut Command::new("/bin/true")),
            &mut || confined(&cold, &full),
            &mut || confined(&warm, &full),
            &mut || confined(&cold, &quiet),
            &mut || confined(&warm, &quiet),
            &mut || confined(&cold, &light),
            &mut peer,
        ],
    );
    let [bare, cold, warm, cold_quiet, warm_quiet, light, peer] = times[..] else { panic!("{times:?}") };
    report.add("bare posix_spawn of /bin/true, median", bare / 1e3, "ms");
    report.require("tier full, cold / bare", cold / bare, "times", Requirement::AtMost(3.8));
    report.require("tier full, warm / bare", warm / bare, "times", Requirement::AtMost(1.8));
    report.require("tier no-userns / bare", light / bare, "times", Requirement::AtMost(1.5));
    report.add("tier full, cold, not observed / bare", cold_quiet / bare, "times");
    report.add("tier full, warm, not observed / bare", warm_quiet / bare, "times");
    if has_bubble {
        report.add("bubblewrap / bare", peer / bare, "times");
        report.require("tier full, cold / bubblewrap", cold / peer, "times", Requirement::AtMost(0.5));
    }
}

fn large_workspace(place: &BenchDirs, report: &mut Report) {
    let large = place.path("large");
    for dir in 0..1000 {
        let dir = large.join(format!("d{}/e{dir}", dir / 50));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            std::fs::write(dir.join(format!("f{file}")), "x").unwrap();
        }
    }
    let sandbox = place.sandbox();
    let specs = ["empty", "large"].map(|name| {
        let read = place.spec(name, Tier::Full);
        let mut speculative = read.clone();
        speculative.filesystem = Filesystem::Speculative;
        (read, speculative)
    });
    let [(empty_read, empty_spec), (large_read, large_spec)] = &specs;
    // Timestamps that are too recent are not trusted.
    std::thread::sleep(Duration::from_millis(100));
    let times = medians(
        60,
        &mut [
            &mut || confined(&sandbox, empty_read),
            &mut || confined(&sandbox, large_read),
            &mut || confined(&sandbox, empty_spec),
            &mut || confined(&sandbox, large_spec),
        ],
    );
    let [empty_read, large_read, empty_spec, large_spec] = times[..] else { panic!("{times:?}") };
    report.require(
        "100,000 files / empty workspace, read",
        large_read / empty_read,
        "times",
        Requirement::AtMost(1.3),
    );
    report.require(
        "100,000 files / empty workspace, speculative",
        large_spec / empty_spec,
        "times",
        Requirement::AtMost(1.3),
    );
}

fn large_broker(place: &BenchDirs, report: &mut Report) {
    let sandbox = place.sandbox();
    let spec = place.spec("empty", Tier::Full);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for round in 0..4 {
        for _ in 0..30 {
            std::thread::sleep(PAUSE);
            small.push(confined(&sandbox, &spec));
        }
        let heap = vec![round as u8 + 1; HEAP];
        for _ in 0..30 {
            std::thread::sleep(PAUSE);
            large.push(confined(&sandbox, &spec));
        }
        assert_eq!(std::hint::black_box(&heap)[HEAP / 2], round as u8 + 1);
    }
    let ratio = percentile(&mut large, 50) / percentile(&mut small, 50);
    report.require("broker with 400 MB heap / small one", ratio, "times", Requirement::AtMost(1.2));
}

fn many_files(place: &BenchDirs, report: &mut Report) {
    let sandbox = place.sandbox();
    let program = std::env::current_exe().unwrap();
    let (mut direct, mut overlay, mut quiet, mut whole) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut lent, mut copied, mut promoted) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..5 {
        let new = |name: String| {
            let dir = place.path("overlay").join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let dir = place.path("direct").join(round.to_string());
        std::fs::create_dir(&dir).unwrap();
        let output = Command::new(&program).arg(WRITER).current_dir(&dir).output().unwrap();
        direct.push(reported(&output.stdout));
        let workspace = new(round.to_string());
        let mut spec = Spec::new(program.clone(), &workspace);
        spec.arguments = vec![WRITER.into()];
        spec.read = vec![program.clone()];
        spec.filesystem = Filesystem::Speculative;
        spec.forced_tier = Some(Tier::Full);
        let (outcome, time) = written(&sandbox, &spec);
        overlay.push(reported(&outcome.stdout.bytes));
        whole.push(time);
        let own = new(format!("{round}-lent"));
        let mut directly = spec.clone();
        directly.filesystem = Filesystem::Read;
        directly.arguments.push(own.clone().into());
        directly.write = vec![own];
        lent.push(reported(&written(&sandbox, &directly).0.stdout.bytes));
        spec.observe = Observe::Off;
        quiet.push(reported(&written(&sandbox, &spec).0.stdout.bytes));
        let start = Instant::now();
        let copy = place.path("overlay").join(format!("{round}-copy"));
        assert!(Command::new("cp").arg("-a").arg(&dir).arg(&copy).status().unwrap().success());
        copied.push(micros(start));
        promoted.push(promotion(&sandbox, &outcome));
        assert!(same(&dir, &workspace));
    }
    let direct = percentile(&mut direct, 50);
    // Some file systems are many times slower for minutes after many files were deleted: then the rows below mean nothing.
    report.add("a small file written directly, unconfined", direct / FILES as f64, "us");
    let must = Requirement::AtMost(1.5);
    let quiet = percentile(&mut quiet, 50) / direct;
    report.require("10,000 files, overlay / directly, not observed", quiet, "times", must);
    let overlay = percentile(&mut overlay, 50);
    let lent = overlay / percentile(&mut lent, 50);
    report.require("the same, both in the sandbox and observed", lent, "times", must);
    // Every open for writing goes to the observer, which costs two context switches: enough for a row of its own.
    report.add("10,000 files, overlay, observed / directly, unconfined", overlay / direct, "times");
    let whole = percentile(&mut whole, 50) / direct;
    report.add("the same, with start and comparison", whole, "times");
    let ratio = percentile(&mut promoted, 50) / percentile(&mut copied, 50);
    report.require("writing 10,000 files back / cp -a", ratio, "times", Requirement::AtMost(2.0));
}

/// The time that the writer printed.
fn reported(stdout: &[u8]) -> f64 {
    String::from_utf8_lossy(stdout).trim().parse().unwrap()
}

/// A run including the comparison of the workspace: what a caller waits for.
fn written(sandbox: &Sandbox, spec: &Spec) -> (RunOutcome, f64) {
    let start = Instant::now();
    let outcome = sandbox.run(spec, Input::Nothing, &mut |_, _| {}).unwrap();
    let time = micros(start);
    assert_eq!(outcome.exit, Exit::Code(0), "{}", String::from_utf8_lossy(&outcome.stderr.bytes));
    (outcome, time)
}

fn promotion(sandbox: &Sandbox, outcome: &RunOutcome) -> f64 {
    let changes = outcome.changes.as_ref().unwrap();
    let start = Instant::now();
    let done = JournaledWriteBack::new(changes, sandbox.places()).unwrap().write_back(changes).unwrap();
    assert_eq!(done.changes, FILES + FILES / 100);
    micros(start)
}

fn same(one: &Path, other: &Path) -> bool {
    let ran = Command::new("diff").arg("-r").arg(one).arg(other).output();
    ran.is_ok_and(|output| output.status.success())
}
