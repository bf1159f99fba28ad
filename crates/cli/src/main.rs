//! The `vambrace` binary: arguments, output, prompts and exit codes. What the commands do is in the libraries.

mod args;
mod command;
mod failure;
mod output;
mod passphrase_input;
mod prompt;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    hide_panic_payloads();
    // Before anything else: the launcher must be single-threaded and small.
    if std::env::args_os().nth(1).is_some_and(|first| first == vambrace_sandbox::launcher::ARGUMENT) {
        return vambrace_sandbox::launcher::main();
    }
    let args = Cli::parse();
    let out = output::Out::new(args.json);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers(&args.command))
        .enable_all()
        .build();
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

/// A server uses every core, and at least two threads, so that a long call does not delay the others. Other commands run one
/// call: moving it between threads takes longer than reading a file.
fn workers(command: &Command) -> usize {
    match command {
        Command::Mcp { .. } => std::thread::available_parallelism().map_or(2, usize::from).max(2),
        _ => 1,
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
