//! The smallest set of further grants that a failed program would need, from what was refused to it.
//!
//! What it only looked at counts where nothing else was refused that can be granted: programs ask for much that they can
//! do without. What lies behind a refusal is not known before that is granted; what gives a program nothing of the machine
//! is granted for a try, anything else is not.

use std::collections::BTreeSet;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vambrace_sandbox::{Denial, Exit, Filesystem, Network, Operation, Outcome, Rule, Sandbox, Spec, Tier};

use super::network::{self, Attempts};
use super::{MISSING, denial_json, shown};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// A grant that an option names, without a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    See,
    Change,
    /// Without namespaces: only new files, in a folder that begins empty.
    Make,
    Loopback,
}

/// What is known besides what the run itself came to.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What the run had beyond what was asked for.
    pub(super) given: Vec<Mode>,
    /// What was tried and did not help.
    pub(super) vain: Vec<Mode>,
    /// What `--network` listed.
    pub(super) listed: Option<String>,
    /// Hosts that were refused.
    pub(super) hosts: BTreeSet<String>,
}

impl Mode {
    fn words(self) -> (&'static str, String) {
        let (option, value) = match self {
            Self::See => ("--filesystem", "read"),
            Self::Change => ("--filesystem", "readwrite"),
            Self::Make => ("--filesystem", "write"),
            Self::Loopback => ("--network", "loopback"),
        };
        (option, value.to_owned())
    }

    /// For a run whose changes are dropped.
    pub(super) fn give(self, spec: &mut Spec) {
        match self {
            Self::See => spec.filesystem = Filesystem::Read,
            Self::Change => spec.filesystem = Filesystem::Speculative,
            Self::Make => spec.filesystem = Filesystem::Write,
            Self::Loopback => spec.network = Network::Loopback,
        }
    }
}

/// What was refused when everything was observed, and what would let it through.
#[derive(Debug)]
pub(super) struct Grants {
    exit_code: i32,
    /// Whether it could not be run again.
    not_again: bool,
    /// Whether somebody wanted no more of it.
    stopped: bool,
    denials: Vec<Denial>,
    /// Whether there may have been more.
    missing: bool,
    words: Vec<(&'static str, String)>,
    /// What no grant lets through.
    never: BTreeSet<String>,
    /// Whether it looked for its files where they are not.
    elsewhere: bool,
    harmless: Option<Mode>,
    /// What was attempted where a gate was there only to tell it.
    attempts: Option<Attempts>,
}

impl Grants {
    pub(super) fn of(
        outcome: &Outcome,
        spec: &Spec,
        sandbox: &Sandbox,
        known: &Known,
        attempts: Option<Attempts>,
    ) -> Self {
        let workspace = spec.workspace.canonicalize().unwrap_or_else(|_| spec.workspace.clone());
        let mut found = Found::default();
        for denial in &outcome.denials {
            let inside = denial.path.starts_with(&workspace);
            found.add(denial, inside, spec, outcome.tier, sandbox, &known.vain);
        }
        let enough = outcome.exit == Exit::Code(0);
        let free = |mode: &&Mode| match mode {
            Mode::See => false,
            // Who saw the files before sees no more of them.
            Mode::Change | Mode::Make => spec.filesystem == Filesystem::Read,
            Mode::Loopback => spec.network == Network::None,
        };
        let stopped = matches!(outcome.exit, Exit::Stopped(_));
        let harmless = found.modes.iter().find(free).copied().filter(|_| !enough && !stopped);
        let mut words: Vec<_> = known.given.iter().map(|mode| mode.words()).collect();
        words.extend(more(outcome, spec));
        if !enough {
            words.extend(found.words());
            if !known.hosts.is_empty() {
                // Who asks for hosts needs them, and has a loopback interface with them.
                words.retain(|(option, _)| *option != "--network");
                let hosts = known.listed.iter().chain(&known.hosts).map(String::as_str);
                words.push(("--network", hosts.collect::<Vec<_>>().join(",")));
            }
        }
        Self {
            exit_code: outcome.exit.code(),
            not_again: false,
            stopped,
            denials: outcome.denials.clone(),
            missing: outcome.denials_missing || stopped,
            words,
            never: if enough { BTreeSet::new() } else { found.never },
            elsewhere: spec.filesystem == Filesystem::Deny,
            harmless,
            attempts,
        }
    }

    /// Of the first run only, because another would change something.
    pub(super) fn not_again(self) -> Self {
        Self { not_again: true, harmless: None, ..self }
    }

    /// The code of who was stopped.
    pub(super) fn stopped(&self) -> Option<i32> {
        self.stopped.then_some(self.exit_code)
    }

    pub(super) fn is_enough(&self) -> bool {
        self.exit_code == 0
    }

    /// What can be tried before anybody is asked.
    pub(super) fn harmless(&self) -> Option<Mode> {
        self.harmless
    }

    pub(super) fn say(&self, clean: &dyn Fn(&str) -> String, out: Out) {
        let head = match (self.not_again, self.is_enough()) {
            (true, _) => {
                "explain: not run again, what it writes to `--write` paths cannot be dropped in this tier"
                    .to_owned()
            }
            (_, true) => {
                "explain: run again with everything observed and what follows, it ended well".to_owned()
            }
            _ if self.stopped => "explain: stopped, so what it would need is not known".to_owned(),
            _ => format!("explain: run again with everything observed, code {}", self.exit_code),
        };
        out.say(paint(Tone::Strong, head));
        for denial in &self.denials {
            let path = plain(&clean(&shown(&denial.path)));
            out.say(format!("  refused: {} {path}: {}", denial.operation.as_str(), denial.rule.as_str()));
        }
        let attempts = self.attempts.iter().flat_map(|(events, _)| events);
        let mut other = false;
        for event in attempts.filter(|event| event.denied()) {
            let reason = event.reason.as_ref().map(ToString::to_string).unwrap_or_default();
            out.say(format!("  refused: {}: {}", plain(&clean(&event.attempted())), plain(&clean(&reason))));
            other = true;
        }
        if self.missing && !self.stopped {
            out.say(format!("  {}", paint(Tone::Care, MISSING)));
        } else if self.denials.is_empty()
            && !other
            && self.words.is_empty()
            && !self.not_again
            && !self.stopped
        {
            out.say(match self.elsewhere {
                true => "  nothing was refused, but it does not begin in the workspace: `--filesystem read` shows that",
                false => "  nothing was refused: the sandbox is not why it fails",
            });
        }
        for (option, value) in &self.words {
            out.say(format!(
                "  {} {option} {}",
                paint(Tone::Care, "would need:"),
                plain(&clean(&quoted(value)))
            ));
        }
        for name in &self.never {
            let name = vambrace_core::quote::quoted(name.as_bytes());
            out.say(format!("  {} {}", paint(Tone::Care, "never granted:"), plain(&clean(&name))));
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let words: Vec<String> =
            self.words.iter().map(|(option, value)| format!("{option} {value}")).collect();
        json!({
            "exit_code": self.exit_code, "run_again": !self.not_again,
            "denials": self.denials.iter().map(denial_json).collect::<Vec<_>>(),
            "denials_missing": self.missing, "grants": words, "never": self.never,
            "network": self.attempts.as_ref().map(network::json),
        })
    }
}

/// What was refused, by what would let it through.
#[derive(Debug, Default)]
struct Found {
    look: BTreeSet<PathBuf>,
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
    modes: BTreeSet<Mode>,
    never: BTreeSet<String>,
}

impl Found {
    fn add(
        &mut self,
        denial: &Denial,
        inside: bool,
        spec: &Spec,
        tier: Tier,
        sandbox: &Sandbox,
        vain: &[Mode],
    ) {
        let path = &denial.path;
        let looks = matches!(denial.operation, Operation::Look | Operation::Read | Operation::Execute);
        if looks && !inside && path.symlink_metadata().is_err_and(|error| error.kind() == NotFound) {
            // What is nowhere cannot be shown.
            return;
        }
        let mode = match spec.filesystem {
            Filesystem::Deny if inside && looks => Some(Mode::See),
            // Without namespaces there is no overlay to take what is written.
            _ if inside && tier != Tier::NoUserns => Some(Mode::Change),
            // But a new file may be made in a folder of its own.
            Filesystem::Read
                if inside && denial.operation == Operation::Write && path.symlink_metadata().is_err() =>
            {
                Some(Mode::Make).filter(|mode| !vain.contains(mode))
            }
            _ => None,
        };
        let whole = match denial.operation {
            Operation::Write | Operation::Delete => existing(path),
            _ => path.clone(),
        };
        match (denial.operation, denial.rule) {
            (Operation::Call, _) if is_internet_socket(path) && tier != Tier::NoUserns => {
                self.modes.insert(Mode::Loopback);
            }
            (Operation::Call, _) | (_, Rule::Masked) => {
                self.never.insert(path.display().to_string());
            }
            _ if let Some(mode) = mode => {
                self.modes.insert(mode);
            }
            _ if inside || !sandbox.may_show(&whole) => {
                self.never.insert(path.display().to_string());
            }
            // Whose network leads to a gate is answered without it.
            _ if spec.network == Network::Gated && path == Path::new("/etc/resolv.conf") => {}
            (Operation::Look, _) => {
                self.look.insert(whole);
            }
            (Operation::Write | Operation::Delete, _) => {
                self.write.insert(whole);
            }
            _ => {
                self.read.insert(whole);
            }
        }
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let write = outermost(&self.write);
        let covered = |path: &PathBuf| write.iter().any(|outer| path.starts_with(outer));
        let mut read = outermost(&self.read);
        if self.read.is_empty() && write.is_empty() && self.modes.is_empty() {
            // Who asks about a folder on the way to something finds it where that is shown.
            let on_the_way =
                |path: &PathBuf| self.look.iter().any(|one| one != path && one.starts_with(path));
            read = self.look.iter().filter(|path| !on_the_way(path)).cloned().collect();
        }
        read.retain(|path| !covered(path));
        let mut words: Vec<_> = self.modes.iter().map(|mode| mode.words()).collect();
        words.extend(read.iter().map(|path| ("--read", path.display().to_string())));
        words.extend(write.iter().map(|path| ("--write", path.display().to_string())));
        words
    }
}

/// Twice as much of what ran out: how much it needs is not known before it has enough.
fn more(outcome: &Outcome, spec: &Spec) -> Option<(&'static str, String)> {
    let mebibytes = |bytes: u64| format!("{}M", (bytes >> 20).max(1).saturating_mul(2));
    // With a file system of its own only build folders are watched.
    let disk = if outcome.tier == Tier::NoUserns { spec.limits.disk } else { spec.limits.scratch };
    match outcome.exit {
        Exit::Timeout => Some(("--timeout", (spec.limits.time.as_secs_f64() * 2.0).to_string())),
        Exit::OutOfMemory => Some(("--memory", mebibytes(spec.limits.memory))),
        Exit::OutOfDisk => Some(("--disk", mebibytes(disk))),
        Exit::Code(_) | Exit::Signal(_) | Exit::Stopped(_) => None,
    }
}

/// Other sockets lead nowhere with any network.
fn is_internet_socket(call: &Path) -> bool {
    ["socket (IPv4)", "socket (IPv6)"].iter().any(|socket| call == Path::new(socket))
}

/// As a shell takes it for one word.
fn quoted(value: &str) -> String {
    let simple = |letter: char| letter.is_alphanumeric() || "/._-+=:@%,".contains(letter);
    if value.chars().all(simple) {
        return value.to_owned();
    }
    if !value.contains(char::is_control) {
        return format!("'{}'", value.replace('\'', r"'\''"));
    }
    // One line, whatever it holds.
    let escaped = value.chars().map(|letter| match letter {
        '\'' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => {
            letter.to_string().bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
        letter => letter.to_string(),
    });
    format!("$'{}'", escaped.collect::<String>())
}

/// The nearest folder upwards that is there: only what exists can be granted.
fn existing(path: &Path) -> PathBuf {
    let there = |path: &&Path| path.symlink_metadata().is_ok();
    path.ancestors().find(there).unwrap_or_else(|| Path::new("/")).to_owned()
}

/// Without those that lie in another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let covered = |path: &PathBuf| paths.iter().any(|outer| outer != path && path.starts_with(outer));
    paths.iter().filter(|path| !covered(path)).cloned().collect()
}
