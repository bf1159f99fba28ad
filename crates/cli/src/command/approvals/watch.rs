//! `vambrace approvals watch`: shows approval requests on a full screen; keys decide. `state.rs` defines what a key means,
//! `page.rs` and `draw.rs` render, `terminal.rs` owns the terminal; this module collects events and runs actions.

mod draw;
mod editor;
mod hunks;
mod keys;
mod page;
mod readiness;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vambrace_broker::{Amendment, ApprovalChoice, ApprovalView, Approver, CallStatus, read_approval};
use vambrace_core::clock::Clock as _;
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::system::SystemClock;
use vambrace_host::{
    Host, HostError, Reader, approval_requests, approver_from_environment, approver_with_passphrase,
    has_approver_key, request_context,
};
use vambrace_store::{ApprovalFilter, ApprovalWatch};
use zeroize::Zeroizing;

use self::draw::HiddenPrompt;
use self::editor::EditorCopy;
use self::keys::{KeyInput, KeyParser};
use self::state::{WatchAction, WatchEvent, WatchState};
use self::terminal::{Keyboard, TerminalScreen, TerminalSignal, TerminalSignals, fault};
use super::render;
use crate::failure::Failure;
use crate::output::Out;
use crate::passphrase_input::{PassphraseBuffer, TypingState};

/// Interval at which the countdown is redrawn.
const TICK: Duration = Duration::from_millis(250);
/// Interval while the current step does not accept an approval yet.
const NOT_READY_TICK: Duration = Duration::from_millis(50);
const PASSPHRASE_KEYS: &str = "input is hidden; Enter continues, Esc cancels";

pub(crate) async fn run(out: Out) -> Result<ExitCode, Failure> {
    terminal::check(out.is_json())?;
    let (host, reader) = crate::command::open_reader("approvals watch").await?;
    let mut watcher = Watcher::begin(host, reader)?;
    let ended = watcher.watch().await;
    let (agreed, rejected) = watcher.count;
    drop(watcher);
    let code = ended?;
    out.message(format!(
        "{agreed} approved, {rejected} rejected; pending requests stay pending until they expire"
    ));
    Ok(ExitCode::from(code))
}

struct Watcher {
    host: Arc<Host>,
    reader: Reader,
    state: WatchState,
    screen: TerminalScreen,
    keyboard: Keyboard,
    keys: KeyParser,
    /// Time of the last key.
    read: Instant,
    signals: TerminalSignals,
    wake: Box<dyn ApprovalWatch>,
    /// The approver, once the passphrase was entered.
    decider: Option<Approver>,
    looks: Vec<ApprovalView>,
    count: (u32, u32),
}

/// Why an action stopped.
enum ActionStopped {
    /// The error is shown on the screen.
    Failed(Failure),
    /// The user cancelled.
    Cancelled,
    /// A signal arrived; its exit code.
    Ended(u8),
}

impl From<Failure> for ActionStopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<HostError> for ActionStopped {
    fn from(error: HostError) -> Self {
        Self::Failed(error.into())
    }
}

impl Watcher {
    fn begin(host: Arc<Host>, reader: Reader) -> Result<Self, Failure> {
        let wake = host.store().approval_queries().notifier().watch();
        let signals = TerminalSignals::listen()?;
        let (screen, keyboard) = (TerminalScreen::enter()?, Keyboard::listen());
        let mut state = WatchState::new(screen.size(), SystemClock.now());
        state.on(WatchEvent::Requests(Vec::new()));
        Ok(Self {
            host,
            reader,
            state,
            screen,
            keyboard,
            keys: KeyParser::default(),
            read: Instant::now(),
            signals,
            wake,
            decider: None,
            looks: Vec::new(),
            count: (0, 0),
        })
    }

    /// Runs until the user quits or a signal arrives; returns the exit code.
    async fn watch(&mut self) -> Result<u8, Failure> {
        self.refresh().await?;
        loop {
            self.update_size();
            self.state.on(WatchEvent::Time(SystemClock.now()));
            // Keys typed before a step was visible are processed while that step accepts no approval.
            let early = if self.state.is_ready() { Vec::new() } else { self.read_keys()? };
            if !early.is_empty() {
                match self.run_actions(early).await? {
                    Some(code) => return Ok(code),
                    None => continue,
                }
            }
            self.screen.draw(&self.state, None)?;
            let ready = self.state.is_ready();
            self.state.on(WatchEvent::Drawn);
            if self.state.is_ready() && !ready {
                continue;
            }
            let tick = if ready { TICK } else { NOT_READY_TICK };
            let typed = tokio::select! {
                () = self.keyboard.readable() => true,
                outside = self.signals.next() => match outside {
                    TerminalSignal::Resized => false,
                    TerminalSignal::End(code) => return Ok(code),
                },
                () = self.wake.changed(tick) => false,
            };
            self.state.on(WatchEvent::Time(SystemClock.now()));
            let effects = if typed { self.read_keys()? } else { self.refresh().await? };
            if let Some(code) = self.run_actions(effects).await? {
                return Ok(code);
            }
        }
    }

    /// Runs actions and the actions that follow from them; returns the exit code if the program is to quit.
    async fn run_actions(&mut self, effects: Vec<WatchAction>) -> Result<Option<u8>, Failure> {
        let mut effects = effects;
        while !effects.is_empty() {
            let mut after = Vec::new();
            for effect in effects {
                if effect == WatchAction::Quit {
                    return Ok(Some(0));
                }
                let result = self.run_action(effect).await;
                self.state.on(WatchEvent::Time(SystemClock.now()));
                let event = match result {
                    Ok(event) => event,
                    Err(ActionStopped::Cancelled) => {
                        Some(WatchEvent::Message("cancelled: nothing was decided".to_owned()))
                    }
                    Err(ActionStopped::Failed(failure)) => Some(WatchEvent::Failed(failure.error.message)),
                    Err(ActionStopped::Ended(code)) => return Ok(Some(code)),
                };
                after.extend(event.map(|event| self.state.on(event)).unwrap_or_default());
            }
            after.extend(self.refresh().await?);
            effects = after;
        }
        Ok(None)
    }

    /// Reads the current screen size: SIGWINCH may have arrived before the handler was installed.
    fn update_size(&mut self) {
        let (width, height) = self.screen.size();
        if self.state.size != (width, height) {
            self.state.on(WatchEvent::Size(width, height));
        }
    }

    /// Processes the typed keys one by one.
    fn read_keys(&mut self) -> Result<Vec<WatchAction>, Failure> {
        let mut effects = Vec::new();
        let mut bytes = [0; 256];
        while effects.is_empty() && Keyboard::is_readable() {
            let count = Keyboard::read(&mut bytes)?;
            let quiet = std::mem::replace(&mut self.read, Instant::now()).elapsed();
            let bytes = bytes.get(..count).unwrap_or_default();
            let typed = self.keys.take(bytes, Keyboard::is_readable(), quiet);
            for typed in typed {
                effects.extend(self.state.on(match typed {
                    KeyInput::Key(key) => WatchEvent::Key(key),
                    KeyInput::Paste(text) => WatchEvent::Paste(text),
                }));
                // Keys after one that triggers an action were typed before its result was visible.
                if !effects.is_empty() {
                    break;
                }
            }
        }
        self.keyboard.drained();
        Ok(effects)
    }

    /// Reads the pending requests.
    async fn refresh(&mut self) -> Result<Vec<WatchAction>, Failure> {
        let owner = self.reader.owner().clone();
        let open = ApprovalFilter { open: true, owner, ..ApprovalFilter::default() };
        let rows = approval_requests(&self.host, open).await?;
        if rows.iter().eq(self.looks.iter().filter_map(|look| look.request.as_ref())) {
            return Ok(Vec::new());
        }
        let mut looks: Vec<ApprovalView> = Vec::with_capacity(rows.len());
        for row in rows {
            let id = row.id.to_string();
            looks.push(match self.looks.iter().find(|look| is_about(look, &id)) {
                Some(known) => ApprovalView { request: Some(row), ..known.clone() },
                None => {
                    read_approval(self.host.store().approval_queries(), &id).await.map_err(Failure::of)?
                }
            });
        }
        self.looks.clone_from(&looks);
        Ok(self.state.on(WatchEvent::Requests(looks)))
    }

    async fn run_action(&mut self, effect: WatchAction) -> Result<Option<WatchEvent>, ActionStopped> {
        match effect {
            WatchAction::Approve(id, choice) => self.approve(id, choice).await.map(Some),
            WatchAction::Reject(id, words) => {
                let decider = self.decider().await?;
                let context = request_context(&self.host, self.view(&id)?).await?;
                context.broker().reject(&id, words.as_deref(), &decider).await.map_err(Failure::of)?;
                self.count.1 += 1;
                Ok(Some(WatchEvent::Decided(id, "rejected; the agent is notified".to_owned())))
            }
            WatchAction::Preview(id, part) => self.preview(id, part).await.map(Some),
            WatchAction::Edit(id, path) => self.edit(id, &path).await.map(Some),
            WatchAction::Ring => {
                self.screen.ring();
                Ok(None)
            }
            WatchAction::Redraw => {
                self.screen.resume()?;
                Ok(None)
            }
            WatchAction::Pause => {
                self.screen.suspend();
                let stopped =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
                self.screen.resume()?;
                stopped.map_err(|errno| fault(errno.into()))?;
                Ok(Some(WatchEvent::Away))
            }
            WatchAction::Quit => Ok(None),
        }
    }

    fn view(&self, id: &str) -> Result<&ApprovalView, Failure> {
        self.looks
            .iter()
            .find(|look| is_about(look, id))
            .ok_or_else(|| Failure::failed("the request is not pending any more"))
    }

    async fn approve(&mut self, id: String, choice: ApprovalChoice) -> Result<WatchEvent, ActionStopped> {
        let decider = self.decider().await?;
        let context = request_context(&self.host, self.view(&id)?).await?;
        let answer = context.broker().approve(&id, choice, &decider).await.map_err(Failure::of)?;
        self.count.0 += 1;
        let words = match &answer {
            None => "approved: the caller runs the call".to_owned(),
            Some(answer) => match (answer.status(), answer.error()) {
                (CallStatus::Success, _) => render::applied(answer),
                (_, Some(error)) => format!("approved, but: {}", sanitize(&error.message)),
                (_, None) => "approved, but not applied".to_owned(),
            },
        };
        Ok(WatchEvent::Decided(id, words))
    }

    async fn preview(&mut self, id: String, part: Amendment) -> Result<WatchEvent, ActionStopped> {
        let decider = self.decider().await?;
        let context = request_context(&self.host, self.view(&id)?).await?;
        let preview = context.broker().preview(&id, part.clone(), &decider).await.map_err(Failure::of)?;
        Ok(WatchEvent::Previewed(id, part, preview))
    }

    async fn edit(&mut self, id: String, path: &str) -> Result<WatchEvent, ActionStopped> {
        let decider = self.decider().await?;
        let context = request_context(&self.host, self.view(&id)?).await?;
        let content = context.broker().proposed_content(&id, path, &decider).await.map_err(Failure::of)?;
        let copy = EditorCopy::of(&content, path, self.host.paths().state())?;
        self.screen.suspend();
        let edited = copy.edit();
        // Discards signals that were meant for the editor.
        self.signals = TerminalSignals::listen()?;
        self.screen.resume()?;
        let edited = edited?;
        if edited == content {
            return Ok(WatchEvent::Message("the file was not changed".to_owned()));
        }
        self.preview(id, Amendment::Edited(vec![(path.to_owned(), edited)])).await
    }

    /// The approver; requests for the passphrase once.
    async fn decider(&mut self) -> Result<Approver, ActionStopped> {
        if let Some(decider) = &self.decider {
            return Ok(decider.clone());
        }
        let decider = match approver_from_environment(&self.host).await? {
            Some(decider) => decider,
            None => {
                let phrase = if has_approver_key(&self.host)? {
                    self.secret("Passphrase of the approver key:").await?
                } else {
                    let first =
                        self.secret("New passphrase for the approver key (no agent may know it):").await?;
                    if *first != *self.secret("Repeat the new passphrase:").await? {
                        return Err(Failure::failed("the two passphrases differ; nothing was decided").into());
                    }
                    first
                };
                approver_with_passphrase(&self.host, phrase).await?
            }
        };
        self.decider = Some(decider.clone());
        Ok(decider)
    }

    /// Reads a line without showing it.
    async fn secret(&mut self, title: &str) -> Result<Zeroizing<String>, ActionStopped> {
        self.screen.set_bracketed_paste(false);
        // Keys typed before the prompt are not part of the passphrase.
        Keyboard::discard_typed()?;
        self.keys = KeyParser::default();
        let typed = self.read_secret(title).await;
        self.keyboard.drained();
        self.screen.set_bracketed_paste(true);
        typed
    }

    async fn read_secret(&mut self, title: &str) -> Result<Zeroizing<String>, ActionStopped> {
        let mut typed = PassphraseBuffer::new();
        let mut bytes = Zeroizing::new([0; 64]);
        loop {
            self.state.on(WatchEvent::Time(SystemClock.now()));
            self.update_size();
            self.screen.draw(&self.state, Some(&HiddenPrompt { title, note: PASSPHRASE_KEYS }))?;
            tokio::select! {
                () = self.keyboard.readable() => {}
                outside = self.signals.next() => match outside {
                    TerminalSignal::Resized => {}
                    TerminalSignal::End(code) => return Err(ActionStopped::Ended(code)),
                },
                () = tokio::time::sleep(TICK) => {}
            }
            while Keyboard::is_readable() {
                let count = Keyboard::read(&mut bytes[..])?;
                match typed.take(bytes.get(..count).unwrap_or_default()) {
                    TypingState::More => {}
                    TypingState::Cancelled => return Err(ActionStopped::Cancelled),
                    TypingState::Done => {
                        let text = typed.text().filter(|text| !text.is_empty());
                        return text.ok_or(ActionStopped::Cancelled);
                    }
                }
            }
            self.keyboard.drained();
        }
    }
}

fn is_about(look: &ApprovalView, id: &str) -> bool {
    look.request.as_ref().is_some_and(|row| row.id.as_str() == id)
}
