//! Prompts at the terminal: the passphrase of the approver key, read without echo. Echo is restored on every exit: Ctrl-C, a
//! signal or an error.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{SignalKind, signal};
use vambrace_host::{HostError, NewPassphrase, PassphraseSource};
use zeroize::Zeroizing;

use crate::output::Out;
use crate::passphrase_input::{PassphraseBuffer, TypingState};

/// The terminal's original settings while echo is off.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static GUARD: Once = Once::new();

/// Asks for the passphrase of the approver key at the terminal, unless the output is JSON.
pub(crate) struct TerminalPassphrase(pub(crate) Out);

impl PassphraseSource for TerminalPassphrase {
    fn can_ask(&self) -> bool {
        !self.0.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    fn existing(&self) -> Result<Zeroizing<String>, HostError> {
        hidden_line("Passphrase of the approver key: ")
    }

    fn new_one(&self, why: NewPassphrase) -> Result<Zeroizing<String>, HostError> {
        if why == NewPassphrase::FirstKey {
            self.0.message("There is no approver key yet. It signs every decision. Choose a passphrase that no agent knows.");
        }
        let first = hidden_line("New passphrase: ")?;
        if *first != *hidden_line("Repeat: ")? {
            return Err(HostError::usage("the two passphrases differ", "nothing changed; try again"));
        }
        if first.chars().count() < 8 {
            self.0.message(
                "note: a passphrase of fewer than eight characters can be guessed by an attacker who has the key file",
            );
        }
        Ok(first)
    }
}

/// Prompts for a line and reads it without echo.
fn hidden_line(prompt: &str) -> Result<Zeroizing<String>, HostError> {
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
    fn begin() -> Result<Self, HostError> {
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
fn read_hidden() -> Result<Zeroizing<String>, HostError> {
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
                let bad = || HostError::usage("the input is not valid UTF-8", "type text");
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

fn cancelled() -> HostError {
    let why = "interrupted: nothing was decided";
    HostError::interrupted(why, "try again")
}

fn fault(error: std::io::Error) -> HostError {
    HostError::failed(format!("terminal: {error}"))
}
