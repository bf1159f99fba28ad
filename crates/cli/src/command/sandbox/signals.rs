//! Signals during `sandbox run`: the first one stops the program cleanly, the second one terminates this process.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use vambrace_sandbox::StopHandle;

use crate::failure::Failure;

/// Time to print the report after a signal.
const REPORT_GRACE: Duration = Duration::from_secs(2);

/// Handles the signals of one command.
pub(super) struct Interrupt {
    stop: StopHandle,
    reporting: Arc<Notify>,
}

impl Interrupt {
    /// From now on, a terminating signal stops the run instead of this process. Signals that the parent had set to ignored
    /// (as a shell does for background jobs) stay ignored.
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::failed(format!("signals: {error}"));
        let stop = StopHandle::new().map_err(failed)?;
        let reporting = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut signals = {
            let _inside = runtime.enter();
            StopSignals::listen().map_err(failed)?
        };
        let (asked, only_reporting) = (stop.clone(), Arc::clone(&reporting));
        let wait = move || {
            runtime.block_on(async {
                let first = tokio::select! {
                    biased;
                    first = signals.next() => first,
                    // Nothing is left to clean up.
                    () = only_reporting.notified() => std::process::exit(128 + signals.next().await),
                };
                asked.request(first);
                let reported = async {
                    only_reporting.notified().await;
                    tokio::time::sleep(REPORT_GRACE).await;
                };
                // The launcher notices the exit and kills all processes.
                let last = tokio::select! {
                    second = signals.next() => second,
                    () = reported => first,
                };
                std::process::exit(128 + last)
            })
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).map_err(failed)?;
        Ok(Self { stop, reporting })
    }

    pub(super) fn stop(&self) -> StopHandle {
        self.stop.clone()
    }

    /// The run is over and only the report is printed: a signal terminates the process at once.
    pub(super) fn only_reporting(&self) {
        self.reporting.notify_one();
    }
}

struct StopSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hang_up: Option<Signal>,
    quit: Option<Signal>,
}

impl StopSignals {
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
            quit: listen(SignalKind::quit())?,
        })
    }

    /// The number of the next signal.
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
            () = comes(&mut self.quit) => SignalKind::quit(),
        };
        kind.as_raw_value()
    }
}

/// The ignored signals of this process as a bit mask, from /proc/self/status.
#[expect(clippy::disallowed_methods, reason = "reads a file of procfs")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
