//! The gate against the real kernel and real servers, as whoever runs the tests: root and an ordinary user must both
//! pass.
//!
//! The test program is five programs: the tests, the world that they run in (`world`: a machine and an internet, each
//! a network namespace), the servers of that internet, the sandbox's launcher, and the probes that run inside.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests make files, start programs and fail loudly"
)]

mod real {
    pub(crate) mod cases;
    pub(crate) mod inside;
    pub(crate) mod internet;
    pub(crate) mod kit;
    pub(crate) mod probe;
    pub(crate) mod programs;
    pub(crate) mod upstream;
    pub(crate) mod world;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [first, ..] if *first == vambrace_sandbox::launcher::ARGUMENT => {
            return vambrace_sandbox::launcher::main();
        }
        ["probe", words @ ..] => return real::probe::main(words),
        ["internet", folder] => return real::internet::main(folder),
        _ => {}
    }
    let parsed = Arguments::from_args();
    if !parsed.list && !real::world::is_inside() {
        // Returns only when it could not be made.
        return real::world::enter();
    }
    if arguments.first().is_some_and(|first| first == "table") {
        real::cases::table();
        return ExitCode::SUCCESS;
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(real::cases::trials());
    trials.extend(real::programs::trials());
    trials.extend(real::inside::trials());
    trials.extend(real::upstream::trials());
    libtest_mimic::run(&parsed, trials).exit_code()
}
