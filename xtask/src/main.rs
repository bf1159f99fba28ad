//! Project automation: `cargo xtask test`, `bench`, `scoreboard`, `lint-names` and `generate`.
//!
//! Third-party programs are installed into the ignored directory `.tools/`, at pinned versions; the product itself is
//! never installed or changed.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "xtask runs programs, reads and writes the project's own files, and prints to the developer"
)]

mod bench;
mod documents;
mod error;
mod generate;
mod names;
mod pictures;
mod program;
mod project;
mod requirements;
mod scoreboard;
mod second_user;
mod skips;
mod sources;
mod tally;
mod test;
mod toolbox;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use project::Project;

/// Project automation.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check and every test; install what they need into `.tools/` first.
    Test {
        /// Skip what takes long: dependencies, docs, generated files, interop clients, fuzzing, the second user.
        #[arg(long)]
        quick: bool,
    },
    /// Run the benches against their peers, in the `dist` profile.
    Bench {
        /// Which bench to run; all of them by default.
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run the escape probes under other sandboxes as well, as far as they can be installed, and compare.
    Scoreboard,
    /// List type names that are defined more than once; fails when there are too many.
    LintNames,
    /// Write the generated files: reference pages made by the binary, lists of tests by requirement.
    Generate {
        /// Change nothing; fail when a committed file differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let outcome = Project::find().and_then(|project| match Args::parse().task {
        Task::Test { quick } => {
            test::run(&project, if quick { test::Extent::Quick } else { test::Extent::Full })
        }
        Task::Bench { name, json } => bench::run(&project, name.as_deref(), json),
        Task::Scoreboard => scoreboard::run(&project),
        Task::LintNames => names::run(&project),
        Task::Generate { check: true } => generate::check_built(&project),
        Task::Generate { check: false } => generate::write(&project),
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
