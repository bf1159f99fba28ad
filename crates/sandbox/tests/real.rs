//! Runs the sandbox on the real kernel, as the user who runs the tests: root and an ordinary user must both pass.
//!
//! The test program is three programs: the tests, the launcher that they start, and the probes that run inside. So it
//! has its own `main`, which chooses one before there are threads.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::exit,
    reason = "tests make files, start programs and fail loudly"
)]

mod real {
    pub(crate) mod audit;
    pub(crate) mod basics;
    pub(crate) mod changes;
    pub(crate) mod crash;
    pub(crate) mod files;
    pub(crate) mod harness;
    pub(crate) mod input;
    pub(crate) mod observer;
    pub(crate) mod processes;
    pub(crate) mod protected;
    pub(crate) mod tiers;
    pub(crate) mod toolchains;
    pub(crate) mod write_back;
}

#[path = "escape"]
mod escape {
    pub(crate) mod expected_denials;
    pub(crate) mod indirect_execution;
    pub(crate) mod other_runs;
    pub(crate) mod probes;
    pub(crate) mod resource_exhaustion;
    pub(crate) mod suite;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(vambrace_sandbox::launcher::ARGUMENT) {
        return vambrace_sandbox::launcher::main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["probe", name] => return ExitCode::from(escape::probes::main(name)),
        ["masked-proc", fixture] => real::tiers::behind_a_mask(fixture),
        ["another-user", fixture] => real::tiers::as_another_user(fixture),
        ["unified-only", fixture] => return real::tiers::unified_only(fixture),
        ["inner-processes", fixture] => return real::tiers::with_inner_processes(fixture),
        ["one-id", fixture] => real::tiers::with_one_id(fixture),
        ["capabilities", fixture] => real::tiers::with_few_capabilities(fixture),
        ["few-watches", fixture] => real::tiers::few_watches(fixture),
        ["say-watches", fixture] => return real::tiers::say_watches(fixture),
        ["say-who", fixture] => return real::tiers::say_who(fixture),
        ["foreign-group", fixture] => return real::tiers::in_a_foreign_group(fixture, true),
        ["foreign-proc", fixture] => return real::tiers::in_a_foreign_group(fixture, false),
        ["container-filter", fixture] => real::tiers::behind_a_filter(fixture),
        ["say-run", fixture] => return real::tiers::say_run(fixture),
        ["say-tier", fixture] => return real::tiers::say_tier(fixture),
        ["same-place", who] => real::observer::same_place(who),
        ["closed", path] => real::observer::closed(path),
        ["nameless"] => real::observer::nameless(),
        ["hog", how] => real::processes::hog(how),
        ["mounted-below", fixture] => return real::write_back::with_mounts_below(fixture),
        ["writer", fixture] => {
            real::crash::writer(fixture);
            return ExitCode::SUCCESS;
        }
        ["table"] => {
            escape::suite::table();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if arguments.first().is_some_and(|first| first == "broker") {
        real::processes::broker(&arguments[1..]);
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(real::basics::trials());
    trials.extend(real::files::trials());
    trials.extend(real::toolchains::trials());
    trials.extend(real::changes::trials());
    trials.extend(real::protected::trials());
    trials.extend(real::crash::trials());
    trials.extend(real::input::trials());
    trials.extend(real::observer::trials());
    trials.extend(real::write_back::trials());
    trials.extend(real::processes::trials());
    trials.extend(real::tiers::trials());
    trials.extend(real::audit::trials());
    trials.extend(escape::suite::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
