//! A person who wants no more of a program: the first signal ends it in good order, the second ends us.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use vambrace_sandbox::Stop;

use crate::failure::Failure;

/// After everything was done, whoever reads what is told about it has so long when somebody wants no more.
const PATIENCE: Duration = Duration::from_secs(2);

/// Heeds signals for one command.
pub(super) struct Interrupt {
    stop: Stop,
    telling: Arc<Notify>,
}

impl Interrupt {
    /// Asks a run to end from now on when somebody asks us, who would end at once otherwise. Not by signals that whoever
    /// started us had ignored, as a shell does for what runs in its background.
    pub(super) fn heed() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::failed(format!("signals: {error}"));
        let stop = Stop::new().map_err(failed)?;
        let telling = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut signals = {
            let _inside = runtime.enter();
            Signals::listen().map_err(failed)?
        };
        let (asked, only_telling) = (stop.clone(), Arc::clone(&telling));
        let wait = move || {
            runtime.block_on(async {
                let first = tokio::select! {
                    biased;
                    first = signals.next() => first,
                    // Nothing is left to be done in good order.
                    () = only_telling.notified() => std::process::exit(128 + signals.next().await),
                };
                asked.ask(first);
                let told = async {
                    only_telling.notified().await;
                    tokio::time::sleep(PATIENCE).await;
                };
                // The launcher sees us go, and ends everything.
                let last = tokio::select! {
                    second = signals.next() => second,
                    () = told => first,
                };
                std::process::exit(128 + last)
            })
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).map_err(failed)?;
        Ok(Self { stop, telling })
    }

    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// From now on nothing is done but telling what was: no signal has to wait for that.
    pub(super) fn only_telling(&self) {
        self.telling.notify_one();
    }
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
