//! Side-by-side measurements. Each bench is a module with one function that returns a [`Report`]. Most figures are
//! ratios within one run, because machines are shared and noisy. `cargo xtask bench NAME` runs this in the `dist` profile.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a benchmark program: an error ends it, it prints its results, and it starts the peers itself"
)]

mod append;
mod decide;
mod diff;
mod edit;
mod edit_ast;
mod egress;
mod governed_run;
mod ledger;
mod project;
mod read;
mod redact;
mod report;
mod responsive;
mod search;
mod spawn;
mod start;
mod system_clock;
mod verify;
mod wake;
mod witness_log;

use clap::Parser;
use report::Report;

/// Compares Vambrace with its peers, one bench at a time.
#[derive(Debug, Parser)]
struct Args {
    /// Which bench to run; all of them by default.
    name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A name and its function.
type Bench = (&'static str, fn() -> Report);

/// Every bench by its name.
const BENCHES: &[Bench] = &[
    ("append", append::run),
    ("decide", decide::run),
    ("diff", diff::run),
    ("edit", edit::run),
    ("edit-ast", edit_ast::run),
    ("egress", egress::run),
    ("governed-run", governed_run::run),
    ("read", read::run),
    ("redact", redact::run),
    ("responsive", responsive::run),
    ("search", search::run),
    ("spawn", spawn::run),
    ("start", start::run),
    ("verify", verify::run),
    ("witness-log", witness_log::run),
    ("wake", wake::run),
];

fn main() -> std::process::ExitCode {
    if std::env::args().nth(1).as_deref() == Some(vambrace_sandbox::launcher::ARGUMENT) {
        return vambrace_sandbox::launcher::main();
    }
    if std::env::args().nth(1).as_deref() == Some(spawn::WRITER) {
        spawn::write_files();
        return std::process::ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some(egress::CLIENT) {
        egress::client();
        return std::process::ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some(egress::SERVER) {
        egress::server();
        return std::process::ExitCode::SUCCESS;
    }
    let args = Args::parse();
    let chosen: Vec<_> =
        BENCHES.iter().filter(|(name, _)| args.name.as_deref().is_none_or(|n| n == *name)).collect();
    if chosen.is_empty() {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        println!("no such bench; known: {}", known.join(", "));
        return std::process::ExitCode::from(2);
    }
    let mut missed = false;
    for (_, bench) in chosen {
        let report = bench();
        missed |= !report.reached();
        println!("{}", if args.json { report.json().to_string() } else { report.text() });
    }
    std::process::ExitCode::from(u8::from(missed))
}
