//! Every check and every test, in one order, with one closing line.
//!
//! A check (formatting, lints, dependencies, docs, generated files) counts as one. A step that fails does not keep
//! the others from running: a person wants the whole list. All steps share one target folder, one profile and one
//! set of flags, so that nothing is built twice.

use std::{
    process::{Command, ExitCode},
    time::Instant,
};

use crate::{
    fault::Outcome,
    generate,
    program::{aloud, counted},
    project::Project,
    second_user,
    tally::Tally,
    toolbox::{Toolbox, is_root},
};

/// Targets of `fuzz/`, and the seconds each of them is driven.
const FUZZED: [&str; 2] = ["stream", "rules"];
const FUZZ_SECONDS: u32 = 10;

/// Tests that meet programs of others.
const INTEROP: &str = "interop::";

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Quick,
    Full,
}

pub(crate) fn run(project: &Project, extent: Extent) -> Outcome<ExitCode> {
    let toolbox = Toolbox::open(project)?;
    let mut run = Run { project, total: Tally::default(), lines: Vec::new() };
    // Fetching waits for others most of the time; meanwhile the processors are used.
    std::thread::scope(|scope| {
        let fetched = (extent == Extent::Full).then(|| scope.spawn(|| fetch(&toolbox)));
        run.check("fmt", project.cargo("fmt").args(["--all", "--check"]))?;
        run.check(
            "clippy",
            project.cargo("clippy").args(["--workspace", "--all-targets", "--", "-D", "warnings"]),
        )?;
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
    run.tests("doc tests", project.cargo("test").args(["--workspace", "--doc"]))?;
    match extent {
        Extent::Full if built => {
            run.did("generated files", || generate::check(project))?;
            run.fuzz(&toolbox)?;
            if is_root() {
                run.second_user()?;
            } else {
                run.lines.push("second user: not needed, these tests ran as an ordinary user".to_owned());
            }
        }
        Extent::Full => {
            run.lines.push("generated files, fuzz, second user: not reached, the build failed".to_owned())
        }
        Extent::Quick => {
            run.lines.push(
                "left out by --quick: deny, docs, interop, generated files, fuzz, second user".to_owned(),
            );
        }
    }

    println!("\n{}", run.lines.join("\n"));
    println!("{}", run.total);
    Ok(if run.total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the tests need of others.
fn fetch(toolbox: &Toolbox<'_>) -> Outcome<()> {
    toolbox.clients()?;
    toolbox.confined_programs();
    toolbox.deny()?;
    if let Err(fault) = toolbox.nextest() {
        println!("nextest cannot be had, `cargo test` does its work\n{fault}");
    }
    Ok(())
}

/// A run under way.
struct Run<'a> {
    project: &'a Project,
    total: Tally,
    lines: Vec<String>,
}

impl Run<'_> {
    fn check(&mut self, name: &str, command: &mut Command) -> Outcome<bool> {
        self.did(name, || aloud(command))
    }

    /// A check: one that passes or fails.
    fn did(&mut self, name: &str, check: impl FnOnce() -> Outcome<bool>) -> Outcome<bool> {
        let start = begin(name);
        let passed = check()?;
        self.end(name, start, if passed { Tally::PASSED } else { Tally::FAILED });
        Ok(passed)
    }

    /// A runner of tests, counted by its closing lines.
    fn tests(&mut self, name: &str, command: &mut Command) -> Outcome<()> {
        let start = begin(name);
        let (passed, tally) = counted(command)?;
        self.end(name, start, honest(passed, tally));
        Ok(())
    }

    /// cargo-fuzz on the stable compiler: the code is without `unsafe`, so that coverage is enough and no sanitizer,
    /// which would need a nightly one, is missed.
    fn fuzz(&mut self, toolbox: &Toolbox<'_>) -> Outcome<()> {
        if let Err(fault) = toolbox.fuzz() {
            self.lines
                .push(format!("fuzz: cargo-fuzz cannot be had, the tests drive the targets alone ({fault})"));
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

    fn second_user(&mut self) -> Outcome<()> {
        let name = "second user";
        let start = begin(name);
        let (passed, tally) = second_user::run(self.project)?;
        self.end(name, start, honest(passed, tally));
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

/// A runner that ended badly without naming a failed test (it did not compile, it crashed) is a failure itself.
fn honest(passed: bool, mut tally: Tally) -> Tally {
    if !passed && tally.failed == 0 {
        tally += Tally::FAILED;
    }
    tally
}

fn begin(name: &str) -> Instant {
    println!("\n== {name}");
    Instant::now()
}
