//! A person who wants no more of a program: the first signal ends it in good order, the second ends us.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use vambrace_sandbox::Stop;

use crate::failure::Failure;

/// Asks a run to end from now on when somebody asks us, who would end at once otherwise. Not by signals that whoever started us
/// had ignored, as a shell does for what runs in its background.
#[expect(clippy::exit, reason = "a second signal is not to wait for anything")]
pub(super) fn stops() -> Result<Stop, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("signals: {error}"));
    let stop = Stop::new().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen().map_err(failed)?
    };
    let asked = stop.clone();
    let wait = move || {
        runtime.block_on(async {
            asked.ask(signals.next().await);
            // The launcher sees us go, and ends everything.
            std::process::exit(128 + signals.next().await)
        })
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).map_err(failed)?;
    Ok(stop)
}

struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hang_up: Option<Signal>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let listen = |kind: SignalKind| {
            let number = kind.as_raw_value();
            if ignored & (1 << (number - 1)) == 0 { signal(kind).map(Some) } else { Ok(None) }
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the next that comes.
    async fn next(&mut self) -> i32 {
        async fn comes(signal: &mut Option<Signal>) {
            match signal {
                Some(signal) => _ = signal.recv().await,
                None => std::future::pending().await,
            }
        }
        let kind = tokio::select! {
            () = comes(&mut self.interrupt) => SignalKind::interrupt(),
            () = comes(&mut self.terminate) => SignalKind::terminate(),
            () = comes(&mut self.hang_up) => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}

/// The signals that do nothing to us, by what the kernel says: a bit for each.
#[expect(clippy::disallowed_methods, reason = "the kernel's own word on this process")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
