//! The terminal while the screen is up. Whatever ends us, an error, a signal or a panic, the terminal is given back as it
//! was; only what cannot be caught leaves it (`reset` helps then).

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

use super::draw::{Asking, Palette, draw};
use super::state::State;
use crate::failure::Failure;

/// Whether the terminal is ours now.
static OURS: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Refuses where nobody could look and type.
pub(crate) fn check(json: bool) -> Result<(), Failure> {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if json || dumb || !stdin().is_terminal() || !stdout().is_terminal() {
        let hint = "`vambrace approvals list`, `show`, `approve` and `reject` work everywhere, with --json for programs";
        return Err(Failure::usage("`approvals watch` needs a terminal to draw on", hint));
    }
    Ok(())
}

pub(crate) fn fault(error: std::io::Error) -> Failure {
    Failure::failed(format!("the terminal: {error}"))
}

/// The screen.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn enter() -> Result<Self, Failure> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        let palette = match std::env::var_os("NO_COLOR") {
            Some(value) if !value.is_empty() => Palette::Plain,
            _ => Palette::Colour,
        };
        let mut screen = Self { terminal: blank()?, palette };
        screen.back()?;
        Ok(screen)
    }

    /// Takes it over again, as after an editor.
    pub(crate) fn back(&mut self) -> Result<(), Failure> {
        OURS.store(true, Ordering::SeqCst);
        enable_raw_mode().map_err(fault)?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Clear(ClearType::All))
            .map_err(fault)?;
        // A new one draws everything; clearing the old one would ask the terminal where its cursor is, and wait for it.
        self.terminal = blank()?;
        Ok(())
    }

    /// Gives it back for a while.
    pub(crate) fn away(&mut self) {
        give_back();
    }

    /// What is pasted comes as plain bytes, for a passphrase; or as pasted text again.
    pub(crate) fn pastes_are_told(&mut self, told: bool) {
        // A terminal that does not know this does not tell pastes apart anyway.
        let _ = if told {
            execute!(stdout(), EnableBracketedPaste)
        } else {
            execute!(stdout(), DisableBracketedPaste)
        };
    }

    pub(crate) fn size(&self) -> (u16, u16) {
        self.terminal.size().map_or((0, 0), |size| (size.width, size.height))
    }

    pub(crate) fn draw(&mut self, state: &State, asking: Option<&Asking<'_>>) -> Result<(), Failure> {
        if !OURS.load(Ordering::SeqCst) {
            // A call that panicked was answered; its report gave the terminal back.
            self.back()?;
        }
        let palette = self.palette;
        self.terminal.draw(|frame| draw(frame, state, palette, asking)).map_err(fault)?;
        Ok(())
    }

    pub(crate) fn ring(&mut self) {
        let _ = stdout().write_all(b"\x07").and_then(|()| stdout().flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn blank() -> Result<Terminal<CrosstermBackend<Stdout>>, Failure> {
    Terminal::new(CrosstermBackend::new(stdout())).map_err(fault)
}

/// Once, however many ask for it. Nobody is left to hear that it failed.
fn give_back() {
    if OURS.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// What ends or changes the screen from outside.
pub(crate) struct Signals {
    resized: Signal,
    ends: [Signal; 4],
}

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Resized,
    /// Somebody wants us to end; the exit code of that.
    End(u8),
}

impl Signals {
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

    pub(crate) async fn next(&mut self) -> Outside {
        let [terminate, hangup, interrupt, quit] = &mut self.ends;
        tokio::select! {
            _ = self.resized.recv() => Outside::Resized,
            _ = terminate.recv() => Outside::End(128 + 15),
            _ = hangup.recv() => Outside::End(128 + 1),
            _ = interrupt.recv() => Outside::End(128 + 2),
            _ = quit.recv() => Outside::End(128 + 3),
        }
    }
}

/// The keyboard: tells when something can be read, and reads nothing itself, so that an editor gets every key meanwhile.
pub(crate) struct Keyboard {
    ready: mpsc::Receiver<()>,
    again: std::sync::mpsc::SyncSender<()>,
}

impl Keyboard {
    pub(crate) fn listen() -> Self {
        let (tell, ready) = mpsc::channel(1);
        let (again, go_on) = std::sync::mpsc::sync_channel(1);
        // It waits in the kernel until somebody types, and ends with the program.
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

    /// Returns when something can be read.
    pub(crate) async fn readable(&mut self) {
        if self.ready.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Everything was read: look out for more.
    pub(crate) fn drained(&self) {
        let _ = self.again.try_send(());
    }

    /// Whether a read would bring something at once.
    pub(crate) fn is_readable() -> bool {
        wait(Some(&NOW))
    }

    /// Reads what is there, past every buffer. A terminal that was closed is an error: there is nobody left to ask.
    pub(crate) fn read(bytes: &mut [u8]) -> Result<usize, Failure> {
        match rustix::io::read(stdin(), bytes) {
            Ok(0) => Err(fault(std::io::ErrorKind::BrokenPipe.into())),
            Ok(count) => Ok(count),
            Err(errno) => Err(fault(errno.into())),
        }
    }

    /// Throws away what was typed and not read.
    pub(crate) fn forget() -> Result<(), Failure> {
        tcflush(stdin(), QueueSelector::IFlush).map_err(|errno| fault(errno.into()))
    }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn wait(longest: Option<&Timespec>) -> bool {
    let stdin = stdin();
    let mut waits = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut waits, longest).is_ok_and(|ready| ready > 0)
}
