//! A line that is asked for at the terminal and not shown while it is typed. Whatever ends the wait, Ctrl-C, a signal or an
//! error, the terminal shows again what is typed.

use std::io::Write as _;
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{SignalKind, signal};
use vambrace_core::error::ErrorCode;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::secret::{Line, Progress};

/// What an interrupt ends with.
const INTERRUPTED: u8 = 128 + 2;

/// The terminal as it was, while it is ours.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static GUARD: Once = Once::new();

/// Asks for a line.
pub(crate) fn hidden_line(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    GUARD.call_once(give_back_on_signals);
    let quiet = Quiet::begin()?;
    let _ = std::io::stderr().write_all(prompt.as_bytes());
    let read = typed();
    drop(quiet);
    let _ = std::io::stderr().write_all(b"\n");
    read
}

/// What was typed before a question was there answers nothing.
pub(crate) fn forget_typed() {
    // Without a terminal there is nothing to forget.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

/// While it is there, keys come one by one and are not shown.
struct Quiet;

impl Quiet {
    fn begin() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).map_err(|errno| fault(errno.into()))?;
        let mut quiet = before.clone();
        // The keys of signals come as bytes: the terminal is given back first.
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        let mut held = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(before);
        let set = tcsetattr(&stdin, OptionalActions::Flush, &quiet);
        drop(held);
        let quiet = Self;
        set.map_err(|errno| fault(errno.into()))?;
        Ok(quiet)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    let mut held = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = held.take() {
        // Nobody is left to hear that it failed.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}

/// Byte by byte past the buffer of standard input, which nobody would wipe.
fn typed() -> Result<Zeroizing<String>, Failure> {
    let mut line = Line::new();
    let mut bytes = Zeroizing::new([0; 64]);
    loop {
        let count =
            rustix::io::read(std::io::stdin(), &mut bytes[..]).map_err(|errno| fault(errno.into()))?;
        match line.take(bytes.get(..count).unwrap_or_default()) {
            Progress::GivenUp => return Err(given_up()),
            _ if count == 0 => return Err(given_up()),
            Progress::More => {}
            Progress::Done => {
                let bad = || Failure::usage("that is not text", "type letters that UTF-8 knows");
                return line.text().ok_or_else(bad);
            }
        }
    }
}

/// From the first prompt on, a signal that ends us gives the terminal back first.
#[expect(
    clippy::exit,
    reason = "the signal would have ended the program; nothing else can, once it is caught"
)]
fn give_back_on_signals() {
    let on = |kind: SignalKind| signal(kind).ok();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let [Some(mut interrupt), Some(mut terminate), Some(mut hangup), Some(mut quit)] = kinds.map(on) else {
        return;
    };
    tokio::spawn(async move {
        let number = tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
            _ = hangup.recv() => 1,
            _ = quit.recv() => 3,
        };
        give_back();
        std::process::exit(128 + number);
    });
}

fn given_up() -> Failure {
    let why = "interrupted: nothing was decided";
    Failure { exit: INTERRUPTED, ..Failure::denied(ErrorCode::Cancelled, why, "try again") }
}

fn fault(error: std::io::Error) -> Failure {
    Failure::failed(format!("the terminal: {error}"))
}
