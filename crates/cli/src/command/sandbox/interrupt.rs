//! A person who wants no more of a program: the first signal ends it in good order, the second ends us.

use tokio::signal::unix::{Signal, SignalKind, signal};
use vambrace_sandbox::Stop;

use crate::failure::Failure;

/// What asks a run to end from now on, instead of ending this program: SIGINT and SIGTERM, unless whoever started us had them
/// ignored (as a shell does for what runs in its background).
#[expect(clippy::exit, reason = "a second signal is not to wait for anything")]
pub(super) fn stops() -> Result<Stop, Failure> {
    let failed = |error| Failure::failed(format!("signals: {error}"));
    let stop = Stop::new().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let inside = runtime.enter();
    let mut interrupt = listen(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = listen(SignalKind::terminate()).map_err(failed)?;
    drop(inside);
    let asked = stop.clone();
    let wait = move || {
        runtime.block_on(async {
            next(&mut interrupt, &mut terminate).await;
            asked.ask();
            let number = next(&mut interrupt, &mut terminate).await;
            // The launcher sees us go, and ends everything.
            std::process::exit(128 + number)
        })
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).map_err(failed)?;
    Ok(stop)
}

fn listen(kind: SignalKind) -> std::io::Result<Option<Signal>> {
    if ignored(kind.as_raw_value()) { Ok(None) } else { signal(kind).map(Some) }
}

/// The number of the next that comes.
async fn next(interrupt: &mut Option<Signal>, terminate: &mut Option<Signal>) -> i32 {
    async fn comes(signal: &mut Option<Signal>, kind: SignalKind) -> i32 {
        match signal {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
        kind.as_raw_value()
    }
    tokio::select! {
        number = comes(interrupt, SignalKind::interrupt()) => number,
        number = comes(terminate, SignalKind::terminate()) => number,
    }
}

/// Whether a signal does nothing to us, by what the kernel says.
#[expect(clippy::disallowed_methods, reason = "the kernel's own word on this process")]
fn ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (number - 1)) != 0)
}
