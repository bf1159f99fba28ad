//! Reads a line from the terminal without echo. Echo is restored on every exit: Ctrl-C, a signal or an error.

use std::io::Write as _;
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{SignalKind, signal};
use vambrace_core::error::ErrorCode;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::passphrase_input::{PassphraseBuffer, TypingState};

/// Exit code after an interrupt.
const INTERRUPTED: u8 = 128 + 2;

/// The terminal's original settings while echo is off.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static GUARD: Once = Once::new();

/// Prompts for a line and reads it without echo.
pub(crate) fn hidden_line(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    GUARD.call_once(restore_on_signals);
    let quiet = EchoOff::begin()?;
    let _ = std::io::stderr().write_all(prompt.as_bytes());
    let read = read_hidden();
    drop(quiet);
    let _ = std::io::stderr().write_all(b"\n");
    read
}

/// Discards what was typed before the prompt was shown.
pub(crate) fn discard_typed() {
    // Fails without a terminal; then there is nothing to discard.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

/// Turns echo and line mode off until it is dropped.
struct EchoOff;

impl EchoOff {
    fn begin() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).map_err(|errno| fault(errno.into()))?;
        let mut quiet = before.clone();
        // Ctrl-C and similar keys arrive as bytes, so that the terminal is restored before the process exits.
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

impl Drop for EchoOff {
    fn drop(&mut self) {
        restore_terminal();
    }
}

fn restore_terminal() {
    let mut held = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = held.take() {
        // An error cannot be reported here.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}

/// Bypasses the buffer of standard input, because that is never wiped.
fn read_hidden() -> Result<Zeroizing<String>, Failure> {
    let mut line = PassphraseBuffer::new();
    let mut bytes = Zeroizing::new([0; 64]);
    loop {
        let count =
            rustix::io::read(std::io::stdin(), &mut bytes[..]).map_err(|errno| fault(errno.into()))?;
        match line.take(bytes.get(..count).unwrap_or_default()) {
            TypingState::Cancelled => return Err(cancelled()),
            _ if count == 0 => return Err(cancelled()),
            TypingState::More => {}
            TypingState::Done => {
                let bad = || Failure::usage("the input is not valid UTF-8", "type text");
                return line.text().ok_or_else(bad);
            }
        }
    }
}

/// After the first prompt, a terminating signal restores the terminal before the process exits.
#[expect(clippy::exit, reason = "the caught signal would have terminated the process; now this must")]
fn restore_on_signals() {
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
        restore_terminal();
        std::process::exit(128 + number);
    });
}

fn cancelled() -> Failure {
    let why = "interrupted: nothing was decided";
    Failure { exit: INTERRUPTED, ..Failure::denied(ErrorCode::Cancelled, why, "try again") }
}

fn fault(error: std::io::Error) -> Failure {
    Failure::failed(format!("terminal: {error}"))
}
