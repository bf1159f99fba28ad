//! Chores of the project: `cargo xtask test`, `bench` and `generate`.
//!
//! What they need of others is installed into the ignored folder `.tools/`, at versions that the project says; the
//! product itself is never installed or changed by them.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "chores run programs, read and write the project's own files, and talk to a person"
)]

mod bench;
mod fault;
mod generate;
mod program;
mod project;
mod scoreboard;
mod second_user;
mod tally;
mod test;
mod toolbox;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use project::Project;

/// Chores of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run every check and every test; install what they need into `.tools/` first.
    Test {
        /// Leave out what takes long: dependencies, docs, generated files, other programs' clients, the second user.
        #[arg(long)]
        quick: bool,
    },
    /// Measure against the peers, in release.
    Bench {
        /// Which bench; all of them when left out.
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run the escape probes under other sandboxes as well, as far as they can be installed, and compare.
    Scoreboard,
    /// Write the files that are made by the binary itself.
    Generate {
        /// Change nothing; fail when a committed file differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let outcome = Project::find().and_then(|project| match Args::parse().chore {
        Chore::Test { quick } => {
            test::run(&project, if quick { test::Extent::Quick } else { test::Extent::Full })
        }
        Chore::Bench { name, json } => bench::run(&project, name.as_deref(), json),
        Chore::Scoreboard => scoreboard::run(&project),
        Chore::Generate { check: true } => generate::check_built(&project),
        Chore::Generate { check: false } => generate::write(&project),
    });
    match outcome {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}
