//! `vambrace approvals watch`: the questions on one screen, decided with keys. `state.rs` says what a key means, `page.rs` and
//! `draw.rs` what is seen, `terminal.rs` owns the terminal; here events are gathered and effects carried out.

mod draw;
mod editor;
mod hunks;
mod keys;
mod page;
mod ready;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vambrace_broker::{Choice, Decider, Ending, Look, Part, look};
use vambrace_core::clock::Clock as _;
use vambrace_store::{Asked, SqliteStore, Store as _, Watch};
use zeroize::Zeroizing;

use self::draw::Asking;
use self::editor::Copy;
use self::keys::{Keys, Typed};
use self::state::{Effect, Event, State};
use self::terminal::{Keyboard, Outside, Screen, Signals, fault};
use super::{desk_of, questions, told};
use crate::approver;
use crate::desk;
use crate::failure::Failure;
use crate::harmless::plain;
use crate::machine::SystemClock;
use crate::out::Out;
use crate::secret::{Line, Progress};

/// The clock on the screen goes on at least so often.
const TICK: Duration = Duration::from_millis(250);
/// While a step is not ready for a yes, it is looked at more often.
const SOON: Duration = Duration::from_millis(50);
const WAITING: &str = "not shown while you type; Enter goes on, Esc goes back";

pub(crate) async fn run(out: Out) -> Result<ExitCode, Failure> {
    terminal::check(out.is_json())?;
    let store = desk::open_store()?;
    let mut watcher = Watcher::begin(store)?;
    let ended = watcher.watch().await;
    let (agreed, rejected) = watcher.count;
    drop(watcher);
    let code = ended?;
    out.say(format!(
        "{agreed} agreed to, {rejected} rejected; what is open stays open until its time is over"
    ));
    Ok(ExitCode::from(code))
}

struct Watcher {
    store: Arc<SqliteStore>,
    state: State,
    screen: Screen,
    keyboard: Keyboard,
    keys: Keys,
    /// When something was read last.
    read: Instant,
    signals: Signals,
    wake: Watch,
    /// Whoever decides, once the passphrase was given.
    decider: Option<Decider>,
    looks: Vec<Look>,
    count: (u32, u32),
}

/// Why an effect did not go on.
enum Stop {
    /// Told on the screen.
    Failed(Failure),
    /// The person gave up.
    GivenUp,
    /// A signal, with its exit code.
    Ended(u8),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Watcher {
    fn begin(store: Arc<SqliteStore>) -> Result<Self, Failure> {
        let wake = store.questions().watch();
        let signals = Signals::listen()?;
        let (screen, keyboard) = (Screen::enter()?, Keyboard::listen());
        let mut state = State::new(screen.size(), SystemClock.now());
        state.on(Event::Asks(Vec::new()));
        Ok(Self {
            store,
            state,
            screen,
            keyboard,
            keys: Keys::default(),
            read: Instant::now(),
            signals,
            wake,
            decider: None,
            looks: Vec::new(),
            count: (0, 0),
        })
    }

    /// Until the person or a signal ends it.
    async fn watch(&mut self) -> Result<u8, Failure> {
        self.refresh().await?;
        loop {
            self.fit();
            self.state.on(Event::Time(SystemClock.now()));
            // What was typed before a step could be seen meets it while it takes no yes.
            let early = if self.state.is_ready() { Vec::new() } else { self.typed()? };
            if !early.is_empty() {
                match self.carry_out(early).await? {
                    Some(code) => return Ok(code),
                    None => continue,
                }
            }
            self.screen.draw(&self.state, None)?;
            let ready = self.state.is_ready();
            self.state.on(Event::Drawn);
            if self.state.is_ready() && !ready {
                continue;
            }
            let tick = if ready { TICK } else { SOON };
            let typed = tokio::select! {
                () = self.keyboard.readable() => true,
                outside = self.signals.next() => match outside {
                    Outside::Resized => false,
                    Outside::End(code) => return Ok(code),
                },
                () = self.wake.changed(tick) => false,
            };
            self.state.on(Event::Time(SystemClock.now()));
            let effects = if typed { self.typed()? } else { self.refresh().await? };
            if let Some(code) = self.carry_out(effects).await? {
                return Ok(code);
            }
        }
    }

    /// Does what is to be done; the exit code when that is to end.
    async fn carry_out(&mut self, effects: Vec<Effect>) -> Result<Option<u8>, Failure> {
        let mut effects = effects;
        while !effects.is_empty() {
            let mut after = Vec::new();
            for effect in effects {
                if effect == Effect::Quit {
                    return Ok(Some(0));
                }
                let acted = self.act(effect).await;
                self.state.on(Event::Time(SystemClock.now()));
                let event = match acted {
                    Ok(event) => event,
                    Err(Stop::GivenUp) => Some(Event::Told("nothing was decided".to_owned())),
                    Err(Stop::Failed(failure)) => Some(Event::Failed(failure.error.message)),
                    Err(Stop::Ended(code)) => return Ok(Some(code)),
                };
                after.extend(event.map(|event| self.state.on(event)).unwrap_or_default());
            }
            after.extend(self.refresh().await?);
            effects = after;
        }
        Ok(None)
    }

    /// The screen is as large as it is: the signal may have come before anybody listened.
    fn fit(&mut self) {
        let (width, height) = self.screen.size();
        if self.state.size != (width, height) {
            self.state.on(Event::Size(width, height));
        }
    }

    /// What was typed, one key after the other.
    fn typed(&mut self) -> Result<Vec<Effect>, Failure> {
        let mut effects = Vec::new();
        let mut bytes = [0; 256];
        while effects.is_empty() && Keyboard::is_readable() {
            let count = Keyboard::read(&mut bytes)?;
            let quiet = std::mem::replace(&mut self.read, Instant::now()).elapsed();
            let bytes = bytes.get(..count).unwrap_or_default();
            let typed = self.keys.take(bytes, Keyboard::is_readable(), quiet);
            for typed in typed {
                effects.extend(self.state.on(match typed {
                    Typed::Key(key) => Event::Key(key),
                    Typed::Paste(text) => Event::Paste(text),
                }));
                // What was typed behind a key that does something was typed before that could be seen.
                if !effects.is_empty() {
                    break;
                }
            }
        }
        self.keyboard.drained();
        Ok(effects)
    }

    /// The open questions as they are now.
    async fn refresh(&mut self) -> Result<Vec<Effect>, Failure> {
        let rows = questions(&self.store, Asked { open: true, ..Asked::default() }).await?;
        if rows.iter().eq(self.looks.iter().filter_map(|look| look.question.as_ref())) {
            return Ok(Vec::new());
        }
        let mut looks: Vec<Look> = Vec::with_capacity(rows.len());
        for row in rows {
            let id = row.id.to_string();
            looks.push(match self.looks.iter().find(|look| is_about(look, &id)) {
                Some(known) => Look { question: Some(row), ..known.clone() },
                None => look(self.store.questions(), &id).await.map_err(Failure::of)?,
            });
        }
        self.looks.clone_from(&looks);
        Ok(self.state.on(Event::Asks(looks)))
    }

    async fn act(&mut self, effect: Effect) -> Result<Option<Event>, Stop> {
        match effect {
            Effect::Approve(id, choice) => self.approve(id, choice).await.map(Some),
            Effect::Reject(id, words) => {
                let decider = self.decider().await?;
                let desk = desk_of(self.looked(&id)?, &self.store).await?;
                desk.broker.reject(&id, words.as_deref(), &decider).await.map_err(Failure::of)?;
                self.count.1 += 1;
                Ok(Some(Event::Decided(id, "rejected; the agent hears it".to_owned())))
            }
            Effect::Preview(id, part) => self.preview(id, part).await.map(Some),
            Effect::Edit(id, path) => self.edit(id, &path).await.map(Some),
            Effect::Ring => {
                self.screen.ring();
                Ok(None)
            }
            Effect::Redraw => {
                self.screen.back()?;
                Ok(None)
            }
            Effect::Pause => {
                self.screen.away();
                let stopped =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
                self.screen.back()?;
                stopped.map_err(|errno| fault(errno.into()))?;
                Ok(Some(Event::Away))
            }
            Effect::Quit => Ok(None),
        }
    }

    fn looked(&self, id: &str) -> Result<&Look, Failure> {
        self.looks
            .iter()
            .find(|look| is_about(look, id))
            .ok_or_else(|| Failure::failed("the question is not open any more"))
    }

    async fn approve(&mut self, id: String, choice: Choice) -> Result<Event, Stop> {
        let decider = self.decider().await?;
        let desk = desk_of(self.looked(&id)?, &self.store).await?;
        let answer = desk.broker.approve(&id, choice, &decider).await.map_err(Failure::of)?;
        self.count.0 += 1;
        let words = match &answer {
            None => "agreed: its caller carries it out".to_owned(),
            Some(answer) => match (answer.ending(), answer.error()) {
                (Ending::Success, _) => told::applied(answer),
                (_, Some(error)) => format!("agreed, but: {}", plain(&error.message)),
                (_, None) => "agreed, but it was not applied".to_owned(),
            },
        };
        Ok(Event::Decided(id, words))
    }

    async fn preview(&mut self, id: String, part: Part) -> Result<Event, Stop> {
        let decider = self.decider().await?;
        let desk = desk_of(self.looked(&id)?, &self.store).await?;
        let preview = desk.broker.preview(&id, part.clone(), &decider).await.map_err(Failure::of)?;
        Ok(Event::Previewed(id, part, preview))
    }

    async fn edit(&mut self, id: String, path: &str) -> Result<Event, Stop> {
        let decider = self.decider().await?;
        let desk = desk_of(self.looked(&id)?, &self.store).await?;
        let content = desk.broker.proposed_content(&id, path, &decider).await.map_err(Failure::of)?;
        let copy = Copy::of(&content, path, self.store.dir().path())?;
        self.screen.away();
        let edited = copy.edit();
        // An interrupt that was meant for the editor is not meant for us.
        self.signals = Signals::listen()?;
        self.screen.back()?;
        let edited = edited?;
        if edited == content {
            return Ok(Event::Told("nothing was edited".to_owned()));
        }
        self.preview(id, Part::Edited(vec![(path.to_owned(), edited)])).await
    }

    /// Whoever decides: asked for the passphrase once, while the screen is up.
    async fn decider(&mut self) -> Result<Decider, Stop> {
        if let Some(decider) = &self.decider {
            return Ok(decider.clone());
        }
        let decider = match approver::unasked(&self.store).await? {
            Some(decider) => decider,
            None => {
                let phrase = if approver::has_key(&self.store)? {
                    self.secret("Passphrase of the approver key:").await?
                } else {
                    let first = self
                        .secret("New passphrase (there is no approver key yet), one that no agent knows:")
                        .await?;
                    if *first != *self.secret("The new passphrase once more:").await? {
                        return Err(Failure::failed("the two passphrases differ; nothing was decided").into());
                    }
                    first
                };
                approver::with_phrase(&self.store, phrase).await?
            }
        };
        self.decider = Some(decider.clone());
        Ok(decider)
    }

    /// A line that is not shown.
    async fn secret(&mut self, title: &str) -> Result<Zeroizing<String>, Stop> {
        self.screen.pastes_are_told(false);
        // A passphrase begins after the prompt is there.
        Keyboard::forget()?;
        self.keys = Keys::default();
        let typed = self.secretly(title).await;
        self.keyboard.drained();
        self.screen.pastes_are_told(true);
        typed
    }

    async fn secretly(&mut self, title: &str) -> Result<Zeroizing<String>, Stop> {
        let mut typed = Line::new();
        let mut bytes = Zeroizing::new([0; 64]);
        loop {
            self.state.on(Event::Time(SystemClock.now()));
            self.fit();
            self.screen.draw(&self.state, Some(&Asking { title, note: WAITING }))?;
            tokio::select! {
                () = self.keyboard.readable() => {}
                outside = self.signals.next() => match outside {
                    Outside::Resized => {}
                    Outside::End(code) => return Err(Stop::Ended(code)),
                },
                () = tokio::time::sleep(TICK) => {}
            }
            while Keyboard::is_readable() {
                let count = Keyboard::read(&mut bytes[..])?;
                match typed.take(bytes.get(..count).unwrap_or_default()) {
                    Progress::More => {}
                    Progress::GivenUp => return Err(Stop::GivenUp),
                    Progress::Done => {
                        let text = typed.text().filter(|text| !text.is_empty());
                        return text.ok_or(Stop::GivenUp);
                    }
                }
            }
            self.keyboard.drained();
        }
    }
}

fn is_about(look: &Look, id: &str) -> bool {
    look.question.as_ref().is_some_and(|row| row.id.as_str() == id)
}
