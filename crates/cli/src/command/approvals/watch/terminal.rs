//! The terminal of `approvals watch`. It is restored on every exit: an error, a signal or a panic. Only SIGKILL leaves it
//! as it is (`reset` helps then).

use std::io::{IsTerminal as _, Stdout, Write as _, stdin, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::draw::{HiddenPrompt, Palette, draw};
use super::state::WatchState;
use crate::failure::Failure;

/// Whether the terminal is in raw mode and on the alternate screen.
static TAKEN: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// Fails without an interactive terminal.
pub(crate) fn check(json: bool) -> Result<(), Failure> {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if json || dumb || !stdin().is_terminal() || !stdout().is_terminal() {
        let hint = "`vambrace approvals list`, `show`, `approve` and `reject` work everywhere, with --json for programs";
        return Err(Failure::usage("`approvals watch` needs a terminal", hint));
    }
    Ok(())
}

pub(crate) fn fault(error: std::io::Error) -> Failure {
    Failure::failed(format!("terminal: {error}"))
}

/// The screen.
pub(crate) struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

impl TerminalScreen {
    /// Switches the terminal to raw mode and the alternate screen.
    pub(crate) fn enter() -> Result<Self, Failure> {
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore_terminal();
                before(info);
            }));
        });
        let palette = match std::env::var_os("NO_COLOR") {
            Some(value) if !value.is_empty() => Palette::Plain,
            _ => Palette::Colour,
        };
        let mut screen = Self { terminal: blank()?, palette };
        screen.resume()?;
        Ok(screen)
    }

    /// Does so again, for example after an editor.
    pub(crate) fn resume(&mut self) -> Result<(), Failure> {
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode().map_err(fault)?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Clear(ClearType::All))
            .map_err(fault)?;
        // A new terminal object redraws everything. `clear` on the old one would query the cursor position and wait for the
        // reply.
        self.terminal = blank()?;
        Ok(())
    }

    /// Restores the terminal for another program.
    pub(crate) fn suspend(&mut self) {
        restore_terminal();
    }

    /// Turns bracketed paste off (pastes arrive as plain bytes, for a passphrase) or on.
    pub(crate) fn set_bracketed_paste(&mut self, enabled: bool) {
        // Terminals without support ignore it.
        let _ = if enabled {
            execute!(stdout(), EnableBracketedPaste)
        } else {
            execute!(stdout(), DisableBracketedPaste)
        };
    }

    pub(crate) fn size(&self) -> (u16, u16) {
        self.terminal.size().map_or((0, 0), |size| (size.width, size.height))
    }

    pub(crate) fn draw(
        &mut self,
        state: &WatchState,
        prompt: Option<&HiddenPrompt<'_>>,
    ) -> Result<(), Failure> {
        if !TAKEN.load(Ordering::SeqCst) {
            // The hook of a panic in another task restored the terminal.
            self.resume()?;
        }
        let palette = self.palette;
        self.terminal.draw(|frame| draw(frame, state, palette, prompt)).map_err(fault)?;
        Ok(())
    }

    pub(crate) fn ring(&mut self) {
        let _ = stdout().write_all(b"\x07").and_then(|()| stdout().flush());
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

fn blank() -> Result<Terminal<CrosstermBackend<Stdout>>, Failure> {
    Terminal::new(CrosstermBackend::new(stdout())).map_err(fault)
}

/// Restores the terminal once. Errors cannot be reported here.
fn restore_terminal() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Signals that resize or end the screen.
pub(crate) struct TerminalSignals {
    resized: Signal,
    ends: [Signal; 4],
}

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalSignal {
    Resized,
    /// A terminating signal; its exit code.
    End(u8),
}

impl TerminalSignals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let on = |kind: SignalKind| signal(kind).map_err(fault);
        Ok(Self {
            resized: on(SignalKind::window_change())?,
            ends: [
                on(SignalKind::terminate())?,
                on(SignalKind::hangup())?,
                on(SignalKind::interrupt())?,
                on(SignalKind::quit())?,
            ],
        })
    }

    pub(crate) async fn next(&mut self) -> TerminalSignal {
        let [terminate, hangup, interrupt, quit] = &mut self.ends;
        tokio::select! {
            _ = self.resized.recv() => TerminalSignal::Resized,
            _ = terminate.recv() => TerminalSignal::End(128 + 15),
            _ = hangup.recv() => TerminalSignal::End(128 + 1),
            _ = interrupt.recv() => TerminalSignal::End(128 + 2),
            _ = quit.recv() => TerminalSignal::End(128 + 3),
        }
    }
}

/// Waits for keyboard input. The waiting thread reads nothing itself, so that an editor gets every key.
pub(crate) struct Keyboard {
    ready: mpsc::Receiver<()>,
    again: std::sync::mpsc::SyncSender<()>,
}

impl Keyboard {
    pub(crate) fn listen() -> Self {
        let (tell, ready) = mpsc::channel(1);
        let (again, go_on) = std::sync::mpsc::sync_channel(1);
        // The thread blocks in poll(2) until input is available; it ends with the process.
        std::thread::spawn(move || {
            loop {
                wait(None);
                if tell.blocking_send(()).is_err() || go_on.recv().is_err() {
                    return;
                }
            }
        });
        Self { ready, again }
    }

    /// Returns when input is available.
    pub(crate) async fn readable(&mut self) {
        if self.ready.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// All input was read: wait for more.
    pub(crate) fn drained(&self) {
        let _ = self.again.try_send(());
    }

    /// Whether input is available now.
    pub(crate) fn is_readable() -> bool {
        wait(Some(&NOW))
    }

    /// Reads without a buffer. A closed terminal is an error.
    pub(crate) fn read(bytes: &mut [u8]) -> Result<usize, Failure> {
        match rustix::io::read(stdin(), bytes) {
            Ok(0) => Err(fault(std::io::ErrorKind::BrokenPipe.into())),
            Ok(count) => Ok(count),
            Err(errno) => Err(fault(errno.into())),
        }
    }

    /// Discards unread input.
    pub(crate) fn discard_typed() -> Result<(), Failure> {
        tcflush(stdin(), QueueSelector::IFlush).map_err(|errno| fault(errno.into()))
    }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn wait(longest: Option<&Timespec>) -> bool {
    let stdin = stdin();
    let mut waits = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut waits, longest).is_ok_and(|ready| ready > 0)
}
