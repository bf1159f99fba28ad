//! Governed runs on the real kernel. The test program is also the launcher that the sandbox starts, and a process that is
//! killed during a write-back.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests make files, start programs and fail loudly"
)]

mod real {
    pub(crate) mod concurrency;
    pub(crate) mod crash;
    pub(crate) mod fences;
    pub(crate) mod harness;
    pub(crate) mod output;
    pub(crate) mod write_back;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [first, ..] if *first == vambrace_sandbox::launcher::ARGUMENT => {
            return vambrace_sandbox::launcher::main();
        }
        ["writer", dir] => {
            real::crash::writer(dir.as_ref());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(real::fences::trials());
    trials.extend(real::output::trials());
    trials.extend(real::write_back::trials());
    trials.extend(real::concurrency::trials());
    trials.extend(real::crash::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
