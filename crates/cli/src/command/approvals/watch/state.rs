//! The screen as a state machine: events in, the next state and actions out. It does no input or output itself, so every key
//! can be tested without a terminal.
//!
//! Nothing is approved by accident: a step that was not drawn, or was drawn only just now, accepts no approval
//! (`readiness.rs`); pasted text is not keys; a HIGH request needs the typed name of its file or tool; no key approves more than
//! one request.

use std::collections::BTreeSet;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use vambrace_broker::{Amendment, ApprovalChoice, ApprovalView, DecisionReach, ProposalPreview};
use vambrace_core::terminal_escape::one_line;
use vambrace_core::timestamp::Timestamp;
use vambrace_host::confirmation_name;
use vambrace_store::ApprovalRow;

use super::page::{self, RequestPage};
use super::readiness::{ConfirmationStep, ReadDelay, Readiness};
use crate::command::approvals::diff::Diff;
use crate::output::Tone;

/// Minimum columns and lines; a smaller screen does not show what would be approved.
const MIN_SIZE: (u16, u16) = (30, 8);
/// Maximum number of typed characters.
const MAX_TYPED_CHARS: usize = 500;

/// Input of the state machine.
#[derive(Debug)]
pub(crate) enum WatchEvent {
    Key(KeyEvent),
    /// Pasted text.
    Paste(String),
    Size(u16, u16),
    Time(Timestamp),
    /// The pending requests, oldest first.
    Requests(Vec<ApprovalView>),
    /// The preview of a part or an edited version.
    Previewed(String, Amendment, ProposalPreview),
    /// A request was decided here; the message to show.
    Decided(String, String),
    /// An action failed.
    Failed(String),
    /// A message to show.
    Message(String),
    /// This state is on the screen, and all keys typed before were processed.
    Drawn,
    /// Another program used the screen in the meantime.
    Away,
}

/// Output of the state machine: what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchAction {
    Approve(String, ApprovalChoice),
    Reject(String, Option<String>),
    Preview(String, Amendment),
    /// Edit a file of a proposal.
    Edit(String, String),
    /// Ring the bell: a new request arrived.
    Ring,
    /// Suspend the process, as Ctrl-Z does.
    Pause,
    Redraw,
    Quit,
}

/// Determines what the keys mean.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchMode {
    Reading,
    Help,
    /// The user types a reason for the agent.
    Rejecting(String),
    Confirming(Confirmation),
}

/// An approval that needs a second step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) reach: DecisionReach,
    pub(crate) part: Amendment,
    pub(crate) preview: Option<ProposalPreview>,
    /// The text that must be typed, and the text typed so far.
    pub(crate) typed: Option<(String, String)>,
}

/// A pending request with its parsed diff.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) look: ApprovalView,
    pub(crate) diff: Diff,
}

impl PendingRequest {
    fn of(look: ApprovalView) -> Self {
        let diff = Diff::of(&look.diff, &look.files);
        Self { look, diff }
    }

    pub(crate) fn row(&self) -> Option<&ApprovalRow<String>> {
        self.look.request.as_ref()
    }

    pub(crate) fn id(&self) -> &str {
        self.row().map(|row| row.id.as_str()).unwrap_or_default()
    }
}

/// State of the screen.
#[derive(Debug)]
pub(crate) struct WatchState {
    pub(crate) requests: Vec<PendingRequest>,
    pub(crate) current: usize,
    pub(crate) mode: WatchMode,
    pub(crate) size: (u16, u16),
    pub(crate) now: Timestamp,
    pub(crate) message: Option<(Tone, String)>,
    /// The first visible line of the page.
    pub(crate) top: usize,
    /// Index of the current hunk.
    pub(crate) cursor: usize,
    pub(crate) marked: BTreeSet<(usize, usize)>,
    pub(crate) page: RequestPage,
    ready: Readiness,
    seen: BTreeSet<String>,
    begun: bool,
}

impl WatchState {
    pub(crate) fn new(size: (u16, u16), now: Timestamp) -> Self {
        Self {
            requests: Vec::new(),
            current: 0,
            mode: WatchMode::Reading,
            size,
            now,
            message: None,
            top: 0,
            cursor: 0,
            marked: BTreeSet::new(),
            page: RequestPage::default(),
            ready: Readiness::default(),
            seen: BTreeSet::new(),
            begun: false,
        }
    }

    /// The request on the screen.
    pub(crate) fn current_request(&self) -> Option<&PendingRequest> {
        self.requests.get(self.current)
    }

    /// Whether keys can decide.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_for(&self.step())
    }

    /// Whether the screen shows what would be approved.
    pub(crate) fn is_large_enough(&self) -> bool {
        self.size.0 >= MIN_SIZE.0 && self.size.1 >= MIN_SIZE.1
    }

    /// What an approval would be about.
    fn step(&self) -> ConfirmationStep {
        let row = self.current_request().and_then(PendingRequest::row);
        let wait = match &self.mode {
            WatchMode::Reading | WatchMode::Rejecting(_) => ReadDelay::Request,
            WatchMode::Help => ReadDelay::Help,
            WatchMode::Confirming(Confirmation { typed: None, .. }) => ReadDelay::Confirm,
            WatchMode::Confirming(_) => ReadDelay::Type,
        };
        let confirmation = match &self.mode {
            WatchMode::Confirming(confirmation) => {
                Some((confirmation.reach, confirmation.preview.as_ref().map(|shown| shown.digest)))
            }
            _ => None,
        };
        ConfirmationStep {
            question: row.map(|row| (row.id.to_string(), row.digest)),
            wait,
            confirmation,
            seen: self.is_large_enough(),
        }
    }

    /// Processes an event.
    pub(crate) fn on(&mut self, event: WatchEvent) -> Vec<WatchAction> {
        let effects = match event {
            WatchEvent::Key(key) => self.key(key),
            WatchEvent::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            WatchEvent::Size(width, height) => {
                self.size = (width, height);
                Vec::new()
            }
            WatchEvent::Time(now) => {
                self.now = now;
                Vec::new()
            }
            WatchEvent::Requests(looks) => self.update_requests(looks),
            WatchEvent::Previewed(id, part, preview) => {
                if self.current_request().is_some_and(|request| request.id() == id) {
                    self.start_confirmation(DecisionReach::Once, part, Some(preview));
                }
                Vec::new()
            }
            WatchEvent::Decided(id, words) => {
                self.show_message(Tone::Good, words);
                self.ready.forget();
                self.remove_request(&id);
                Vec::new()
            }
            WatchEvent::Failed(words) => {
                self.mode = WatchMode::Reading;
                self.ready.forget();
                self.show_message(Tone::Bad, words);
                Vec::new()
            }
            WatchEvent::Message(words) => {
                self.ready.forget();
                self.show_message(Tone::Care, words);
                Vec::new()
            }
            WatchEvent::Drawn => {
                let step = self.step();
                self.ready.drawn(step, self.now);
                return Vec::new();
            }
            WatchEvent::Away => {
                self.ready.forget();
                Vec::new()
            }
        };
        self.page = page::of(self);
        self.top = self.top.min(self.page.rows.len().saturating_sub(self.page.height.max(1)));
        effects
    }

    pub(super) fn show_message(&mut self, tone: Tone, words: impl Into<String>) {
        self.message = Some((tone, one_line(&words.into())));
    }

    /// Updates the pending requests. The current one stays on the screen; if it is gone, a message says so.
    fn update_requests(&mut self, looks: Vec<ApprovalView>) -> Vec<WatchAction> {
        let plan = |request: &PendingRequest| request.row().map(|row| row.digest);
        let (old, old_plan) = (
            self.current_request().map(|request| request.id().to_owned()),
            self.current_request().and_then(plan),
        );
        let place = self.current;
        self.requests = looks.into_iter().map(PendingRequest::of).collect();
        let ids: BTreeSet<String> = self.requests.iter().map(|request| request.id().to_owned()).collect();
        let news = ids.iter().any(|id| !self.seen.contains(id));
        self.seen.extend(ids);
        match old.as_ref().and_then(|old| self.requests.iter().position(|request| request.id() == old)) {
            Some(same) if self.requests.get(same).and_then(plan) == old_plan => self.current = same,
            Some(other) => self.turn_to(other),
            None => {
                // The reason of a failed approval is more important than this message.
                if old.is_some() && !matches!(self.message, Some((Tone::Bad, _))) {
                    self.show_message(Tone::Care, "the request was decided elsewhere, or it expired");
                }
                self.turn_to(place.min(self.requests.len().saturating_sub(1)));
            }
        }
        let rings = news && std::mem::replace(&mut self.begun, true);
        self.begun = true;
        if rings { vec![WatchAction::Ring] } else { Vec::new() }
    }

    /// Shows another request.
    fn turn_to(&mut self, place: usize) {
        (self.current, self.top, self.cursor) = (place, 0, 0);
        self.mode = WatchMode::Reading;
        self.marked.clear();
    }

    fn remove_request(&mut self, id: &str) {
        let Some(place) = self.requests.iter().position(|request| request.id() == id) else { return };
        self.requests.remove(place);
        if place == self.current {
            self.turn_to(place.min(self.requests.len().saturating_sub(1)));
        } else if place < self.current {
            self.current -= 1;
        }
    }

    fn key(&mut self, key: KeyEvent) -> Vec<WatchAction> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return vec![WatchAction::Quit],
            KeyCode::Char('z') if control => return vec![WatchAction::Pause],
            KeyCode::Char('l') if control => return vec![WatchAction::Redraw],
            _ if control || key.modifiers.contains(KeyModifiers::ALT) => return Vec::new(),
            _ => {}
        }
        if self.scroll(key.code) {
            return Vec::new();
        }
        self.message = None;
        let ready = self.is_ready();
        match std::mem::replace(&mut self.mode, WatchMode::Reading) {
            WatchMode::Help => Vec::new(),
            WatchMode::Reading => self.look_key(key.code),
            WatchMode::Rejecting(words) => self.reject_key(key.code, words),
            WatchMode::Confirming(confirmation) => self.confirm_key(key.code, confirmation, ready),
        }
    }

    /// Scrolls the page; returns whether the key was a scroll key.
    fn scroll(&mut self, key: KeyCode) -> bool {
        let typing = match &self.mode {
            WatchMode::Rejecting(_) => true,
            WatchMode::Confirming(confirmation) => confirmation.typed.is_some(),
            WatchMode::Reading | WatchMode::Help => false,
        };
        let most = self.page.rows.len().saturating_sub(self.page.height.max(1));
        let leaf = self.page.height.saturating_sub(2).max(1);
        self.top = match key {
            KeyCode::Down => self.top + 1,
            KeyCode::Up => self.top.saturating_sub(1),
            KeyCode::PageDown => self.top + leaf,
            KeyCode::PageUp => self.top.saturating_sub(leaf),
            KeyCode::Home => 0,
            KeyCode::End => most,
            KeyCode::Char('j') if !typing => self.top + 1,
            KeyCode::Char('k') if !typing => self.top.saturating_sub(1),
            KeyCode::Char('g') if !typing => 0,
            KeyCode::Char('G') if !typing => most,
            _ => return false,
        }
        .min(most);
        true
    }

    fn look_key(&mut self, key: KeyCode) -> Vec<WatchAction> {
        match key {
            KeyCode::Char('q') => return vec![WatchAction::Quit],
            KeyCode::Char('?' | 'h') => self.mode = WatchMode::Help,
            KeyCode::Char('n') => self.skip(1),
            KeyCode::Char('b') => self.skip(self.requests.len().saturating_sub(1)),
            KeyCode::Tab | KeyCode::Char(']') => self.jump(1),
            KeyCode::BackTab | KeyCode::Char('[') => self.jump(-1),
            KeyCode::Char(' ') => self.mark(false),
            KeyCode::Char('f') => self.mark(true),
            KeyCode::Esc => self.marked.clear(),
            KeyCode::Char('y' | 'c' | 's' | 'e' | 'p' | 'r') if self.current_request().is_none() => {
                self.show_message(Tone::Faint, "no pending approval requests");
            }
            KeyCode::Char('y' | 'c' | 's' | 'e' | 'p') if !self.is_large_enough() => self.too_small(),
            KeyCode::Char('y' | 'c' | 's' | 'e' | 'p' | 'r') if !self.is_ready() => {
                self.show_message(Tone::Care, "this request has just arrived: read it first");
            }
            KeyCode::Char('y') => return self.once(),
            KeyCode::Char('c') => self.start_grant(DecisionReach::Class),
            KeyCode::Char('s') => self.start_grant(DecisionReach::Session),
            KeyCode::Char('p') => return self.part(),
            KeyCode::Char('e') => return self.edit(),
            KeyCode::Char('r') => self.mode = WatchMode::Rejecting(String::new()),
            _ => {}
        }
        Vec::new()
    }

    fn skip(&mut self, by: usize) {
        if self.requests.len() < 2 {
            self.show_message(Tone::Faint, "there is no other request");
        } else {
            self.turn_to((self.current + by) % self.requests.len());
        }
    }

    fn once(&mut self) -> Vec<WatchAction> {
        if !self.marked.is_empty() {
            self.show_message(Tone::Care, "hunks are marked: p approves only those, Esc unmarks them");
            return Vec::new();
        }
        let Some(request) = self.current_request() else { return Vec::new() };
        if request.row().is_some_and(|row| row.risk == "HIGH") {
            self.start_confirmation(DecisionReach::Once, Amendment::Whole, None);
            return Vec::new();
        }
        vec![WatchAction::Approve(request.id().to_owned(), ApprovalChoice::once())]
    }

    fn start_grant(&mut self, reach: DecisionReach) {
        if self.current_request().and_then(PendingRequest::row).is_some_and(|row| row.grantable) {
            self.start_confirmation(reach, Amendment::Whole, None);
        } else {
            self.show_message(Tone::Bad, "only once: it is HIGH, or the organisation requires approval");
        }
    }

    /// Starts the second step of an approval.
    fn start_confirmation(
        &mut self,
        reach: DecisionReach,
        part: Amendment,
        preview: Option<ProposalPreview>,
    ) {
        let Some(request) = self.current_request() else { return };
        let high = request.row().is_some_and(|row| row.risk == "HIGH");
        let wanted = match reach {
            DecisionReach::Session => Some("session".to_owned()),
            _ if high => Some(confirmation_name(&request.look)),
            _ => None,
        };
        self.mode = WatchMode::Confirming(Confirmation {
            reach,
            part,
            preview,
            typed: wanted.map(|wanted| (wanted, String::new())),
        });
        if matches!(&self.mode, WatchMode::Confirming(confirmation) if confirmation.preview.is_some()) {
            self.top = 0;
        }
    }

    fn reject_key(&mut self, key: KeyCode, mut words: String) -> Vec<WatchAction> {
        match key {
            KeyCode::Esc => return Vec::new(),
            KeyCode::Enter => {
                let Some(request) = self.current_request() else { return Vec::new() };
                let words = Some(words.trim().to_owned()).filter(|words| !words.is_empty());
                return vec![WatchAction::Reject(request.id().to_owned(), words)];
            }
            KeyCode::Backspace => drop(words.pop()),
            KeyCode::Char(c) if words.chars().count() < MAX_TYPED_CHARS => words.push(c),
            _ => {}
        }
        self.mode = WatchMode::Rejecting(words);
        Vec::new()
    }

    fn too_small(&mut self) {
        self.show_message(Tone::Bad, "the screen is too small to show what would be approved");
    }

    fn confirm_key(&mut self, key: KeyCode, mut confirmation: Confirmation, ready: bool) -> Vec<WatchAction> {
        if key != KeyCode::Esc && !(ready && self.is_large_enough()) {
            // Typed before the step was visible: ignored.
            self.mode = WatchMode::Confirming(confirmation);
            if !self.is_large_enough() {
                self.too_small();
            }
            return Vec::new();
        }
        let agreed = match (&mut confirmation.typed, key) {
            (_, KeyCode::Esc) => {
                self.show_message(Tone::Faint, "nothing was approved");
                return Vec::new();
            }
            (Some((wanted, typed)), KeyCode::Enter) => wanted == typed,
            (None, KeyCode::Enter | KeyCode::Char('y')) => true,
            (None, _) => false,
            (Some((_, typed)), key) => {
                match key {
                    KeyCode::Backspace => drop(typed.pop()),
                    KeyCode::Char(c) if typed.chars().count() < MAX_TYPED_CHARS => typed.push(c),
                    _ => {}
                }
                self.mode = WatchMode::Confirming(confirmation);
                return Vec::new();
            }
        };
        if !agreed {
            if let Some((wanted, typed)) = &mut confirmation.typed {
                typed.clear();
                let words = format!("that is not `{wanted}`; Esc cancels");
                self.show_message(Tone::Bad, words);
            }
            self.mode = WatchMode::Confirming(confirmation);
            return Vec::new();
        }
        let Some(request) = self.current_request() else { return Vec::new() };
        let shown = confirmation.preview.as_ref().map(|preview| preview.digest);
        let choice = ApprovalChoice {
            part: confirmation.part,
            reach: confirmation.reach,
            shown,
            ..ApprovalChoice::once()
        };
        vec![WatchAction::Approve(request.id().to_owned(), choice)]
    }

    /// Pasted text counts only in the reason of a rejection: it is not keys and approves nothing.
    fn paste(&mut self, text: &str) {
        if let WatchMode::Rejecting(words) = &mut self.mode {
            let left = MAX_TYPED_CHARS.saturating_sub(words.chars().count());
            words.extend(text.chars().filter(|c| !c.is_control()).take(left));
        }
    }
}
