//! The `vambrace` binary: commands and the stdio MCP server. Only here: arguments, the environment, the clock,
//! standard streams, where files lie.

mod approver;
mod args;
mod command;
mod desk;
mod failure;
mod found;
mod harmless;
mod machine;
mod out;
mod places;
mod project;
mod prompt;
mod secret;
mod vault;
mod witness;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::Args;

fn main() -> ExitCode {
    quiet_panics();
    // Before anything else: the launcher must have one thread and little memory.
    if std::env::args_os().nth(1).is_some_and(|first| first == vambrace_sandbox::launcher::ARGUMENT) {
        return vambrace_sandbox::launcher::main();
    }
    let args = Args::parse();
    let out = out::Out::new(args.json);
    // One worker: a call that hops between threads waits longer for the hop than for the file. What takes long runs
    // on threads of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let _limit = no_death_by_size();
            command::run(args, &out).await
        }),
        Err(error) => Err(failure::Failure::failed(format!("cannot start: {error}"))),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => out.failure(&failure),
    }
}

/// A write past the limit for files (`ulimit -f`) is to fail like any other, and a failed write is answered; the signal
/// would end the program. It is caught, not ignored: programs that we start must not inherit that.
fn no_death_by_size() -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// A panic in one call answers that call; what it prints must not carry an agent's data.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        anstream::eprintln!("internal fault at {place}; please report it");
    }));
}
