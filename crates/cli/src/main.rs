//! The `vambrace` binary: commands and the stdio MCP server. Arguments, the environment, the clock, the standard streams and
//! the paths of files are read here only; the libraries get them as values.

mod approver;
mod args;
mod command;
mod config_files;
mod failure;
mod output;
mod passphrase_input;
mod paths;
mod project_context;
mod project_files;
mod prompt;
mod secrets;
mod system;
mod terminal_escape;
mod witness_client;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::Cli;

fn main() -> ExitCode {
    hide_panic_payloads();
    // Before anything else: the launcher must be single-threaded and small.
    if std::env::args_os().nth(1).is_some_and(|first| first == vambrace_sandbox::launcher::ARGUMENT) {
        return vambrace_sandbox::launcher::main();
    }
    let args = Cli::parse();
    let out = output::Out::new(args.json);
    // One worker: moving a call between threads takes longer than reading a file. Long work runs on its own threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let _limit = catch_file_size_signal();
            command::run(args, &out).await
        }),
        Err(error) => Err(failure::Failure::failed(format!("cannot start: {error}"))),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => out.failure(&failure),
    }
}

/// Catches SIGXFSZ, so that a write beyond `ulimit -f` fails with an error instead of killing the process. The signal is
/// caught, not ignored: child processes would inherit an ignored signal.
fn catch_file_size_signal() -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// A panic fails one call only. Its payload may contain the agent's data, so only the location is printed.
fn hide_panic_payloads() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        anstream::eprintln!("internal error at {place}; please report it");
    }));
}
