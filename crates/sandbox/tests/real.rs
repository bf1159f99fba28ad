//! The sandbox against the real kernel, as whoever runs the tests: root and an ordinary user must both pass.
//!
//! The test program is three programs: the tests, the launcher that they start, and the probes that run inside. So it
//! has its own `main`, which decides before there are threads.
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
    pub(crate) mod input;
    pub(crate) mod kit;
    pub(crate) mod observing;
    pub(crate) mod promotion;
    pub(crate) mod protected;
    pub(crate) mod tiers;
    pub(crate) mod toolchains;
    pub(crate) mod trees;
}

#[path = "escape"]
mod escape {
    pub(crate) mod events;
    pub(crate) mod hoards;
    pub(crate) mod neighbours;
    pub(crate) mod probes;
    pub(crate) mod suite;
    pub(crate) mod tricks;
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
        ["masked-proc", room] => real::tiers::behind_a_mask(room),
        ["another-user", room] => real::tiers::as_another_user(room),
        ["unified-only", room] => return real::tiers::unified_only(room),
        ["inner-processes", room] => return real::tiers::with_inner_processes(room),
        ["one-id", room] => real::tiers::with_one_id(room),
        ["capabilities", room] => real::tiers::with_few_capabilities(room),
        ["few-watches", room] => real::tiers::few_watches(room),
        ["say-watches", room] => return real::tiers::say_watches(room),
        ["say-who", room] => return real::tiers::say_who(room),
        ["foreign-group", room] => return real::tiers::in_a_foreign_group(room, true),
        ["foreign-proc", room] => return real::tiers::in_a_foreign_group(room, false),
        ["container-filter", room] => real::tiers::behind_a_filter(room),
        ["say-run", room] => return real::tiers::say_run(room),
        ["say-tier", room] => return real::tiers::say_tier(room),
        ["same-place", who] => real::observing::same_place(who),
        ["closed", path] => real::observing::closed(path),
        ["nameless"] => real::observing::nameless(),
        ["hog", how] => real::trees::hog(how),
        ["mounted-below", room] => return real::promotion::mounted_below(room),
        ["promoter", room] => {
            real::crash::promoter(room);
            return ExitCode::SUCCESS;
        }
        ["table"] => {
            escape::suite::table();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if arguments.first().is_some_and(|first| first == "broker") {
        real::trees::broker(&arguments[1..]);
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(real::basics::trials());
    trials.extend(real::files::trials());
    trials.extend(real::toolchains::trials());
    trials.extend(real::changes::trials());
    trials.extend(real::protected::trials());
    trials.extend(real::crash::trials());
    trials.extend(real::input::trials());
    trials.extend(real::observing::trials());
    trials.extend(real::promotion::trials());
    trials.extend(real::trees::trials());
    trials.extend(real::tiers::trials());
    trials.extend(real::audit::trials());
    trials.extend(escape::suite::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
