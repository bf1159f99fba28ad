//! The gate against the real kernel and real servers; the tests must pass as root and as an ordinary user.
//!
//! This binary has five roles: the tests, the setup of their network (`test_network`: a machine and an internet, each a
//! network namespace), the servers of that internet, the sandbox launcher, and the probe that runs in the sandbox.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests create files, start programs and fail by panicking"
)]

mod real {
    pub(crate) mod escape_cases;
    pub(crate) mod harness;
    pub(crate) mod internet;
    pub(crate) mod probe;
    pub(crate) mod programs;
    pub(crate) mod test_network;
    pub(crate) mod tls_termination;
    pub(crate) mod upstream_proxy;
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
        ["internet", dir] => return real::internet::main(dir),
        _ => {}
    }
    let parsed = Arguments::from_args();
    if !parsed.list && !real::test_network::is_inside() {
        // Returns only when the network could not be set up.
        return real::test_network::enter();
    }
    if arguments.first().is_some_and(|first| first == "table") {
        real::escape_cases::table();
        return ExitCode::SUCCESS;
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(real::escape_cases::trials());
    trials.extend(real::programs::trials());
    trials.extend(real::tls_termination::trials());
    trials.extend(real::upstream_proxy::trials());
    libtest_mimic::run(&parsed, trials).exit_code()
}
