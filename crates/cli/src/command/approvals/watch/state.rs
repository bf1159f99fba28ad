//! The screen as a state machine: events in, the next state and effects out. It opens, draws and decides nothing itself, so
//! every key can be tested without a terminal.
//!
//! Nothing is agreed to by accident: what was not drawn, or has only just been, takes no yes (`ready.rs`), pasted text presses
//! no keys, what is HIGH takes the name of what it is about, and there is no key that says yes to more than one question.

use std::collections::BTreeSet;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use vambrace_broker::{Choice, Look, Part, Preview, Reach};
use vambrace_core::timestamp::Timestamp;
use vambrace_store::ApprovalRow;

use super::page::{self, Page};
use super::ready::{Readiness, Step, Wait};
use crate::command::approvals::card::name;
use crate::command::approvals::diff::Diff;
use crate::command::audit::one_line;
use crate::out::Tone;

/// Fewer columns or lines do not show what is agreed to.
const LEAST_SIZE: (u16, u16) = (30, 8);
/// Words for an agent.
const WORDS: usize = 500;

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    Key(KeyEvent),
    /// Text that was pasted, not typed.
    Paste(String),
    Size(u16, u16),
    Time(Timestamp),
    /// The open questions, oldest first.
    Asks(Vec<Look>),
    /// What a part or an edited version would be.
    Previewed(String, Part, Preview),
    /// A question was decided here.
    Decided(String, String),
    /// Something could not be done.
    Failed(String),
    Told(String),
    /// All of this state is on the screen, and nothing that was typed before waits to be read.
    Drawn,
    /// The screen was somebody else's meanwhile.
    Away,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Approve(String, Choice),
    Reject(String, Option<String>),
    Preview(String, Part),
    /// Let the person edit a file of a proposal.
    Edit(String, String),
    /// Something new waits.
    Ring,
    /// Stop, until the shell goes on with us.
    Pause,
    Redraw,
    Quit,
}

/// What the keys mean.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Looking,
    Help,
    /// Words for the agent are typed.
    Rejecting(String),
    Agreeing(Agreeing),
}

/// A yes that takes one more step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Agreeing {
    pub(crate) reach: Reach,
    pub(crate) part: Part,
    pub(crate) preview: Option<Preview>,
    /// What must be typed, and what is typed so far.
    pub(crate) typed: Option<(String, String)>,
}

/// A question with its diff.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) look: Look,
    pub(crate) diff: Diff,
}

impl Ask {
    fn of(look: Look) -> Self {
        let diff = Diff::of(&look.diff, &look.files);
        Self { look, diff }
    }

    pub(crate) fn row(&self) -> Option<&ApprovalRow<String>> {
        self.look.question.as_ref()
    }

    pub(crate) fn id(&self) -> &str {
        self.row().map(|row| row.id.as_str()).unwrap_or_default()
    }
}

/// The screen.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) asks: Vec<Ask>,
    pub(crate) current: usize,
    pub(crate) mode: Mode,
    pub(crate) size: (u16, u16),
    pub(crate) now: Timestamp,
    pub(crate) message: Option<(Tone, String)>,
    /// The first line of the page that is seen.
    pub(crate) top: usize,
    /// Where the cursor is among the hunks.
    pub(crate) cursor: usize,
    pub(crate) marked: BTreeSet<(usize, usize)>,
    pub(crate) page: Page,
    ready: Readiness,
    seen: BTreeSet<String>,
    begun: bool,
}

impl State {
    pub(crate) fn new(size: (u16, u16), now: Timestamp) -> Self {
        Self {
            asks: Vec::new(),
            current: 0,
            mode: Mode::Looking,
            size,
            now,
            message: None,
            top: 0,
            cursor: 0,
            marked: BTreeSet::new(),
            page: Page::default(),
            ready: Readiness::default(),
            seen: BTreeSet::new(),
            begun: false,
        }
    }

    /// The question on the screen.
    pub(crate) fn ask(&self) -> Option<&Ask> {
        self.asks.get(self.current)
    }

    /// Whether keys decide yet.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_for(&self.step())
    }

    /// Whether what is agreed to can be seen.
    pub(crate) fn is_large_enough(&self) -> bool {
        self.size.0 >= LEAST_SIZE.0 && self.size.1 >= LEAST_SIZE.1
    }

    /// What a yes would be about.
    fn step(&self) -> Step {
        let row = self.ask().and_then(Ask::row);
        let wait = match &self.mode {
            Mode::Looking | Mode::Rejecting(_) => Wait::Look,
            Mode::Help => Wait::Help,
            Mode::Agreeing(Agreeing { typed: None, .. }) => Wait::Confirm,
            Mode::Agreeing(_) => Wait::Type,
        };
        let agreeing = match &self.mode {
            Mode::Agreeing(agreeing) => {
                Some((agreeing.reach, agreeing.preview.as_ref().map(|shown| shown.digest)))
            }
            _ => None,
        };
        Step {
            question: row.map(|row| (row.id.to_string(), row.digest)),
            wait,
            agreeing,
            seen: self.is_large_enough(),
        }
    }

    /// Takes an event.
    pub(crate) fn on(&mut self, event: Event) -> Vec<Effect> {
        let effects = match event {
            Event::Key(key) => self.key(key),
            Event::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            Event::Size(width, height) => {
                self.size = (width, height);
                Vec::new()
            }
            Event::Time(now) => {
                self.now = now;
                Vec::new()
            }
            Event::Asks(looks) => self.asked(looks),
            Event::Previewed(id, part, preview) => {
                if self.ask().is_some_and(|ask| ask.id() == id) {
                    self.agreeing(Reach::Once, part, Some(preview));
                }
                Vec::new()
            }
            Event::Decided(id, words) => {
                self.say(Tone::Good, words);
                self.ready.forget();
                self.without(&id);
                Vec::new()
            }
            Event::Failed(words) => {
                self.mode = Mode::Looking;
                self.ready.forget();
                self.say(Tone::Bad, words);
                Vec::new()
            }
            Event::Told(words) => {
                self.ready.forget();
                self.say(Tone::Care, words);
                Vec::new()
            }
            Event::Drawn => {
                let step = self.step();
                self.ready.drawn(step, self.now);
                return Vec::new();
            }
            Event::Away => {
                self.ready.forget();
                Vec::new()
            }
        };
        self.page = page::of(self);
        self.top = self.top.min(self.page.rows.len().saturating_sub(self.page.height.max(1)));
        effects
    }

    pub(super) fn say(&mut self, tone: Tone, words: impl Into<String>) {
        self.message = Some((tone, one_line(&words.into())));
    }

    /// The open questions are these now. The one on the screen stays there; one that is gone is told.
    fn asked(&mut self, looks: Vec<Look>) -> Vec<Effect> {
        let plan = |ask: &Ask| ask.row().map(|row| row.digest);
        let (old, old_plan) = (self.ask().map(|ask| ask.id().to_owned()), self.ask().and_then(plan));
        let place = self.current;
        self.asks = looks.into_iter().map(Ask::of).collect();
        let ids: BTreeSet<String> = self.asks.iter().map(|ask| ask.id().to_owned()).collect();
        let news = ids.iter().any(|id| !self.seen.contains(id));
        self.seen.extend(ids);
        match old.as_ref().and_then(|old| self.asks.iter().position(|ask| ask.id() == old)) {
            Some(same) if self.asks.get(same).and_then(plan) == old_plan => self.current = same,
            Some(other) => self.turn_to(other),
            None => {
                // Why a yes failed is worth more than that the question is gone with it.
                if old.is_some() && !matches!(self.message, Some((Tone::Bad, _))) {
                    self.say(Tone::Care, "the question was decided elsewhere, or its time is over");
                }
                self.turn_to(place.min(self.asks.len().saturating_sub(1)));
            }
        }
        let rings = news && std::mem::replace(&mut self.begun, true);
        self.begun = true;
        if rings { vec![Effect::Ring] } else { Vec::new() }
    }

    /// Another question comes on the screen.
    fn turn_to(&mut self, place: usize) {
        (self.current, self.top, self.cursor) = (place, 0, 0);
        self.mode = Mode::Looking;
        self.marked.clear();
    }

    fn without(&mut self, id: &str) {
        let Some(place) = self.asks.iter().position(|ask| ask.id() == id) else { return };
        self.asks.remove(place);
        if place == self.current {
            self.turn_to(place.min(self.asks.len().saturating_sub(1)));
        } else if place < self.current {
            self.current -= 1;
        }
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return vec![Effect::Quit],
            KeyCode::Char('z') if control => return vec![Effect::Pause],
            KeyCode::Char('l') if control => return vec![Effect::Redraw],
            _ if control || key.modifiers.contains(KeyModifiers::ALT) => return Vec::new(),
            _ => {}
        }
        if self.scrolls(key.code) {
            return Vec::new();
        }
        self.message = None;
        let ready = self.is_ready();
        match std::mem::replace(&mut self.mode, Mode::Looking) {
            Mode::Help => Vec::new(),
            Mode::Looking => self.look_key(key.code),
            Mode::Rejecting(words) => self.reject_key(key.code, words),
            Mode::Agreeing(agreeing) => self.agree_key(key.code, agreeing, ready),
        }
    }

    /// Moves the page; whether the key was one for that.
    fn scrolls(&mut self, key: KeyCode) -> bool {
        let typing = match &self.mode {
            Mode::Rejecting(_) => true,
            Mode::Agreeing(agreeing) => agreeing.typed.is_some(),
            Mode::Looking | Mode::Help => false,
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

    fn look_key(&mut self, key: KeyCode) -> Vec<Effect> {
        match key {
            KeyCode::Char('q') => return vec![Effect::Quit],
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('n') => self.skip(1),
            KeyCode::Char('b') => self.skip(self.asks.len().saturating_sub(1)),
            KeyCode::Tab | KeyCode::Char(']') => self.jump(1),
            KeyCode::BackTab | KeyCode::Char('[') => self.jump(-1),
            KeyCode::Char(' ') => self.mark(false),
            KeyCode::Char('f') => self.mark(true),
            KeyCode::Esc => self.marked.clear(),
            KeyCode::Char('y' | 'c' | 's' | 'e' | 'p' | 'r') if self.ask().is_none() => {
                self.say(Tone::Faint, "nothing waits for you");
            }
            KeyCode::Char('y' | 'c' | 's' | 'e' | 'p') if !self.is_large_enough() => self.too_small(),
            KeyCode::Char('y' | 'c' | 's' | 'e' | 'p' | 'r') if !self.is_ready() => {
                self.say(Tone::Care, "this question has just come: look at it first");
            }
            KeyCode::Char('y') => return self.once(),
            KeyCode::Char('c') => self.granting(Reach::Class),
            KeyCode::Char('s') => self.granting(Reach::Session),
            KeyCode::Char('p') => return self.part(),
            KeyCode::Char('e') => return self.edit(),
            KeyCode::Char('r') => self.mode = Mode::Rejecting(String::new()),
            _ => {}
        }
        Vec::new()
    }

    fn skip(&mut self, by: usize) {
        if self.asks.len() < 2 {
            self.say(Tone::Faint, "there is no other question");
        } else {
            self.turn_to((self.current + by) % self.asks.len());
        }
    }

    fn once(&mut self) -> Vec<Effect> {
        if !self.marked.is_empty() {
            self.say(Tone::Care, "hunks are marked: p agrees to those alone, Esc unmarks them");
            return Vec::new();
        }
        let Some(ask) = self.ask() else { return Vec::new() };
        if ask.row().is_some_and(|row| row.risk == "HIGH") {
            self.agreeing(Reach::Once, Part::Whole, None);
            return Vec::new();
        }
        vec![Effect::Approve(ask.id().to_owned(), Choice::once())]
    }

    fn granting(&mut self, reach: Reach) {
        if self.ask().and_then(Ask::row).is_some_and(|row| row.grantable) {
            self.agreeing(reach, Part::Whole, None);
        } else {
            self.say(Tone::Bad, "only once: it is HIGH, or the organisation asks");
        }
    }

    /// One more step before a yes.
    fn agreeing(&mut self, reach: Reach, part: Part, preview: Option<Preview>) {
        let Some(ask) = self.ask() else { return };
        let high = ask.row().is_some_and(|row| row.risk == "HIGH");
        let wanted = match reach {
            Reach::Session => Some("session".to_owned()),
            _ if high => Some(name(&ask.look)),
            _ => None,
        };
        self.mode = Mode::Agreeing(Agreeing {
            reach,
            part,
            preview,
            typed: wanted.map(|wanted| (wanted, String::new())),
        });
        if matches!(&self.mode, Mode::Agreeing(agreeing) if agreeing.preview.is_some()) {
            self.top = 0;
        }
    }

    fn reject_key(&mut self, key: KeyCode, mut words: String) -> Vec<Effect> {
        match key {
            KeyCode::Esc => return Vec::new(),
            KeyCode::Enter => {
                let Some(ask) = self.ask() else { return Vec::new() };
                let words = Some(words.trim().to_owned()).filter(|words| !words.is_empty());
                return vec![Effect::Reject(ask.id().to_owned(), words)];
            }
            KeyCode::Backspace => drop(words.pop()),
            KeyCode::Char(c) if words.chars().count() < WORDS => words.push(c),
            _ => {}
        }
        self.mode = Mode::Rejecting(words);
        Vec::new()
    }

    fn too_small(&mut self) {
        self.say(Tone::Bad, "the screen is too small to see what that would be");
    }

    fn agree_key(&mut self, key: KeyCode, mut agreeing: Agreeing, ready: bool) -> Vec<Effect> {
        if key != KeyCode::Esc && !(ready && self.is_large_enough()) {
            // Typed before it could be seen: it means nothing.
            self.mode = Mode::Agreeing(agreeing);
            if !self.is_large_enough() {
                self.too_small();
            }
            return Vec::new();
        }
        let agreed = match (&mut agreeing.typed, key) {
            (_, KeyCode::Esc) => {
                self.say(Tone::Faint, "nothing was agreed to");
                return Vec::new();
            }
            (Some((wanted, typed)), KeyCode::Enter) => wanted == typed,
            (None, KeyCode::Enter | KeyCode::Char('y')) => true,
            (None, _) => false,
            (Some((_, typed)), key) => {
                match key {
                    KeyCode::Backspace => drop(typed.pop()),
                    KeyCode::Char(c) if typed.chars().count() < WORDS => typed.push(c),
                    _ => {}
                }
                self.mode = Mode::Agreeing(agreeing);
                return Vec::new();
            }
        };
        if !agreed {
            if let Some((wanted, typed)) = &mut agreeing.typed {
                typed.clear();
                let words = format!("that is not `{wanted}`; Esc goes back");
                self.say(Tone::Bad, words);
            }
            self.mode = Mode::Agreeing(agreeing);
            return Vec::new();
        }
        let Some(ask) = self.ask() else { return Vec::new() };
        let shown = agreeing.preview.as_ref().map(|preview| preview.digest);
        let choice = Choice { part: agreeing.part, reach: agreeing.reach, path: None, shown };
        vec![Effect::Approve(ask.id().to_owned(), choice)]
    }

    /// Pasted text is words where words are typed, and nothing else: it presses no keys, and agrees to nothing.
    fn paste(&mut self, text: &str) {
        if let Mode::Rejecting(words) = &mut self.mode {
            let left = WORDS.saturating_sub(words.chars().count());
            words.extend(text.chars().filter(|c| !c.is_control()).take(left));
        }
    }
}
