//! `cargo xtask test`: every check and every test, with one summary line.
//!
//! A check (formatting, lints, dependencies, docs, generated files) counts as one test. A failed step does not stop the
//! others: a developer wants the whole list. All steps share one target directory, one profile and one set of flags, so
//! that nothing is built twice.

use std::{
    process::{Command, ExitCode},
    time::Instant,
};

use crate::{
    documents,
    error::TaskResult,
    generate, names,
    program::{run_counted, run_shown},
    project::Project,
    second_user,
    skips::SkipLog,
    tally::Tally,
    toolbox::{Toolbox, is_root},
};

/// Targets of `fuzz/`, and how many seconds each of them runs.
const FUZZED: [&str; 2] = ["stream", "rules"];
const FUZZ_SECONDS: u32 = 10;

/// Tests with third-party programs.
const INTEROP: &str = "interop::";

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Quick,
    Full,
}

pub(crate) fn run(project: &Project, extent: Extent) -> TaskResult<ExitCode> {
    let toolbox = Toolbox::open(project)?;
    let mut run = Run { project, total: Tally::default(), lines: Vec::new() };
    // Downloads mostly wait for the network; the checks use the CPUs meanwhile.
    std::thread::scope(|scope| {
        let fetched = (extent == Extent::Full).then(|| scope.spawn(|| fetch(&toolbox)));
        run.check("fmt", project.cargo("fmt").args(["--all", "--check"]))?;
        run.check(
            "clippy",
            project.cargo("clippy").args(["--workspace", "--all-targets", "--", "-D", "warnings"]),
        )?;
        run.run_check("names", || names::check(project))?;
        run.run_check("documents", || documents::check(project))?;
        match fetched.map(std::thread::ScopedJoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            Some(Ok(fetched)) => fetched,
            None => Ok(()),
        }
    })?;
    if extent == Extent::Full {
        run.check("deny", project.cargo("deny").args(["check", "licenses", "bans", "sources"]))?;
        run.check(
            "docs",
            project.cargo("doc").args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
        )?;
    }
    let built = run.check("build", project.cargo("build").args(["--workspace", "--bins", "--tests"]))?;
    run.tests("tests", &mut run.workspace_tests(&toolbox, extent))?;
    if extent == Extent::Full {
        let mut command = project.cargo("test");
        command.args([
            "--package",
            "vambrace-workspace",
            "--features",
            "full-languages",
            "--test",
            "real",
            "editing::every",
            "--",
            "--quiet",
        ]);
        run.selected_tests("full-languages", &mut command)?;
    }
    run.tests("doc tests", project.cargo("test").args(["--workspace", "--doc"]))?;
    match extent {
        Extent::Full if built => {
            run.run_check("generated files", || generate::check(project))?;
            run.fuzz(&toolbox)?;
            if is_root() {
                run.second_user()?;
            } else {
                run.lines.push("second user: not needed, these tests ran as an ordinary user".to_owned());
            }
        }
        Extent::Full => {
            run.lines.push("generated files, fuzz, second user: skipped, the build failed".to_owned())
        }
        Extent::Quick => {
            run.lines.push(
                "skipped by --quick: deny, docs, interop, generated files, fuzz, second user".to_owned(),
            );
        }
    }

    println!("\n{}", run.lines.join("\n"));
    println!("{}", run.total);
    Ok(if run.total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Installs the third-party programs that the tests need.
fn fetch(toolbox: &Toolbox<'_>) -> TaskResult<()> {
    toolbox.clients()?;
    toolbox.confined_programs();
    toolbox.deny()?;
    if let Err(error) = toolbox.nextest() {
        println!("nextest cannot be installed; using `cargo test`\n{error}");
    }
    Ok(())
}

/// A test run in progress.
struct Run<'a> {
    project: &'a Project,
    total: Tally,
    lines: Vec<String>,
}

impl Run<'_> {
    fn check(&mut self, name: &str, command: &mut Command) -> TaskResult<bool> {
        self.run_check(name, || run_shown(command))
    }

    /// Runs a check, which counts as one test.
    fn run_check(&mut self, name: &str, check: impl FnOnce() -> TaskResult<bool>) -> TaskResult<bool> {
        let start = begin(name);
        let passed = check()?;
        self.end(name, start, if passed { Tally::PASSED } else { Tally::FAILED });
        Ok(passed)
    }

    /// Runs a test runner and counts by its summary lines.
    fn tests(&mut self, name: &str, command: &mut Command) -> TaskResult<()> {
        self.counted_tests(name, command, count_failure)
    }

    /// Like [`tests`](Self::tests), for tests that are selected by name: fails when none passed, as after a rename.
    fn selected_tests(&mut self, name: &str, command: &mut Command) -> TaskResult<()> {
        self.counted_tests(name, command, |passed, tally| count_failure(passed && tally.passed > 0, tally))
    }

    fn counted_tests(
        &mut self,
        name: &str,
        command: &mut Command,
        count: impl FnOnce(bool, Tally) -> Tally,
    ) -> TaskResult<()> {
        let start = begin(name);
        let skips = SkipLog::new(&self.project.built("skips", ""))?;
        skips.attach(command);
        let (passed, mut lines) = run_counted(command)?;
        let skipped = skips.settle(&mut lines.tally)?;
        self.end(name, start, count(passed, lines.tally));
        self.lines.extend(skipped);
        self.lines.extend(lines.flaky.iter().map(|test| format!("  passed when repeated: {test}")));
        Ok(())
    }

    /// cargo-fuzz on the stable compiler: the code has no `unsafe`, so coverage is enough and no sanitizer is needed, which
    /// would require nightly.
    fn fuzz(&mut self, toolbox: &Toolbox<'_>) -> TaskResult<()> {
        if let Err(error) = toolbox.fuzz() {
            self.lines.push(format!(
                "fuzz: cargo-fuzz cannot be installed; only the tests run the targets ({error})"
            ));
            return Ok(());
        }
        let project = self.project;
        for target in FUZZED {
            let mut command = project.cargo("fuzz");
            command.args(["run", "--sanitizer", "none", target, "--"]);
            command.args([
                &format!("-max_total_time={FUZZ_SECONDS}"),
                "-seed=1",
                "-max_len=20000",
                "-verbosity=0",
            ]);
            self.check(&format!("fuzz {target}"), &mut command)?;
        }
        Ok(())
    }

    fn second_user(&mut self) -> TaskResult<()> {
        let name = "second user";
        let start = begin(name);
        let (passed, tally, skipped) = second_user::run(self.project)?;
        self.end(name, start, count_failure(passed, tally));
        self.lines.extend(skipped);
        Ok(())
    }

    fn end(&mut self, name: &str, start: Instant, tally: Tally) {
        self.total += tally;
        self.lines.push(format!("{name}: {tally} ({:.0} s)", start.elapsed().as_secs_f64()));
    }

    fn workspace_tests(&self, toolbox: &Toolbox<'_>, extent: Extent) -> Command {
        let mut command = if toolbox.has_nextest() {
            let mut command = self.project.cargo("nextest");
            command.args(["run", "--workspace"]);
            if extent == Extent::Quick {
                command.args(["--filterset", &format!("not test(/^{INTEROP}/)")]);
            }
            command
        } else {
            let mut command = self.project.cargo("test");
            command.args(["--workspace", "--lib", "--bins", "--tests", "--no-fail-fast", "--", "--quiet"]);
            if extent == Extent::Quick {
                command.args(["--skip", INTEROP]);
            }
            command
        };
        command
            .env("VAMBRACE_BIN", self.project.built("debug", "vambrace"))
            .env("VAMBRACE_TOOLS", self.project.tools())
            .env("VAMBRACE_RG", toolbox.ripgrep());
        command
    }
}

/// A runner that failed without naming a failed test (a compile error, a crash) counts as a failure itself.
fn count_failure(passed: bool, mut tally: Tally) -> Tally {
    if !passed && tally.failed == 0 {
        tally += Tally::FAILED;
    }
    tally
}

fn begin(name: &str) -> Instant {
    println!("\n== {name}");
    Instant::now()
}
