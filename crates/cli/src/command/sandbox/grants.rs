//! The smallest set of further grants that a failed program would need, from what was refused to it.
//!
//! What it only looked at counts where nothing else was refused that can be granted: programs ask for much that they can
//! do without. What lies behind a refusal is not known before that is granted; what gives a program nothing of the machine
//! is granted for a try, anything else is not.

use std::collections::BTreeSet;
use std::io::ErrorKind::NotFound;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serde_json::{Value, json};
use vambrace_sandbox::{
    Denial, Exit, Filesystem, Network, Operation, Outcome, Rule, Sandbox, Source, Spec, Tier,
};

use super::network::{self, Attempts};
use super::{MISSING, denial_json, shown};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

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
    /// What only somebody else could grant.
    foreign: BTreeSet<String>,
    /// Grants that keep in its place what is to go.
    instead: BTreeSet<String>,
    /// What of the workspace cannot be changed for its group's sake.
    of_group: Option<OfGroup>,
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
            // What is shown may lead out by a link.
            let real = match denial.rule {
                Rule::NotGranted => denial.path.canonicalize().ok(),
                _ => None,
            };
            let inside = real.as_ref().unwrap_or(&denial.path).starts_with(&workspace);
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
        match more(outcome, spec) {
            Some(Bound::Grant(option, value)) => words.push((option, value)),
            Some(Bound::Fixed(what)) => _ = found.never.insert(what),
            None => {}
        }
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
            foreign: if enough { BTreeSet::new() } else { found.foreign },
            instead: if enough { BTreeSet::new() } else { found.instead },
            of_group: None,
            elsewhere: spec.filesystem == Filesystem::Deny,
            harmless,
            attempts,
        }
    }

    /// With what is known of the workspace's groups.
    pub(super) fn in_group(self, of_group: Option<OfGroup>) -> Self {
        let of_group = of_group.filter(|_| !self.is_enough() && !self.stopped);
        Self { of_group, ..self }
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
            && self.never.is_empty()
            && self.of_group.is_none()
            && !self.not_again
            && !self.stopped
        {
            out.say(match (self.elsewhere, self.is_enough()) {
                (true, _) => "  nothing was refused, but it does not begin in the workspace: `--filesystem read` shows that",
                (_, true) => "  nothing was seen to be refused",
                _ => "  nothing was seen to be refused; whether it reached `--processes` or filled `--disk` is not seen",
            });
        }
        if let Some(of_group) = &self.of_group {
            out.say(format!(
                "  {} {}",
                paint(Tone::Care, "cannot change:"),
                plain(&clean(&of_group.to_string()))
            ));
        }
        for (option, value) in &self.words {
            out.say(format!(
                "  {} {option} {}",
                paint(Tone::Care, "would need:"),
                plain(&clean(&quoted(value)))
            ));
        }
        for name in &self.instead {
            let name = plain(&clean(&quoted(name)));
            out.say(format!("  {} {name}", paint(Tone::Care, "in place of:")));
        }
        for name in &self.never {
            let name = vambrace_core::quote::quoted(name.as_bytes());
            out.say(format!("  {} {}", paint(Tone::Care, "never granted:"), plain(&clean(&name))));
        }
        for name in &self.foreign {
            let name = plain(&clean(&vambrace_core::quote::quoted(name.as_bytes())));
            out.say(format!("  {} {name}: not yours to give", paint(Tone::Care, "never granted:")));
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let words: Vec<String> =
            self.words.iter().map(|(option, value)| format!("{option} {value}")).collect();
        json!({
            "exit_code": self.exit_code, "run_again": !self.not_again,
            "denials": self.denials.iter().map(denial_json).collect::<Vec<_>>(),
            "denials_missing": self.missing, "grants": words,
            "never": self.never.union(&self.foreign).collect::<Vec<_>>(),
            "in_place_of": self.instead, "of_other_group": self.of_group.as_ref().map(|one| one.path.display().to_string()),
            "network": self.attempts.as_ref().map(network::json),
        })
    }
}

/// What was refused, by what would let it through.
#[derive(Debug, Default)]
struct Found {
    look: BTreeSet<PathBuf>,
    /// Folders of links that were looked at.
    look_links: BTreeSet<PathBuf>,
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
    modes: BTreeSet<Mode>,
    never: BTreeSet<String>,
    foreign: BTreeSet<String>,
    instead: BTreeSet<String>,
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
            Operation::MoveTo if path.is_dir() => path.clone(),
            // The kernel names the folder itself.
            operation if operation.changes_folder() && denial.source != Source::Landlock => {
                existing(path.parent().unwrap_or(path))
            }
            operation if operation.changes() => existing(path),
            _ => path.clone(),
        };
        // What a link leads to, which is what can be granted; the link itself is shown with its folder.
        let (links, real) = way(&whole);
        let whole = real.unwrap_or(whole);
        let links = if denial.rule == Rule::NotShown { links } else { BTreeSet::new() };
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
            _ if inside || links.iter().chain([&whole]).any(|path| !sandbox.may_show(path)) => {
                self.never.insert(path.display().to_string());
            }
            (operation, _) if !is_ours(&whole, operation) => {
                self.foreign.insert(path.display().to_string());
            }
            // Whose network leads to a gate is answered without it.
            _ if spec.network == Network::Gated && path == Path::new("/etc/resolv.conf") => {}
            (Operation::Look, _) => {
                self.look_links.extend(links);
                self.look.insert(whole);
            }
            (operation, _) if operation.changes() => {
                let is_granted = |granted: &PathBuf| granted.canonicalize().is_ok_and(|real| real == *path);
                if operation.changes_folder() && spec.write.iter().chain(&spec.read).any(is_granted) {
                    self.instead.insert(path.display().to_string());
                }
                self.read.extend(links);
                self.write.insert(whole);
            }
            _ => {
                self.read.extend(links);
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
            let met = self.look.iter().filter(|path| !on_the_way(path));
            read = outermost(&met.chain(&self.look_links).cloned().collect());
        }
        read.retain(|path| !covered(path));
        let mut words: Vec<_> = self.modes.iter().map(|mode| mode.words()).collect();
        words.extend(read.iter().map(|path| ("--read", path.display().to_string())));
        words.extend(write.iter().map(|path| ("--write", path.display().to_string())));
        words
    }
}

/// What it came to the end of.
enum Bound {
    Grant(&'static str, String),
    /// No option says another.
    Fixed(String),
}

/// Twice as much of what ran out: how much it needs is not known before it has enough.
fn more(outcome: &Outcome, spec: &Spec) -> Option<Bound> {
    const TOO_LARGE: i32 = 25;
    const TOLD_BY_SHELL: i32 = 128 + TOO_LARGE;
    let mebibytes = |bytes: u64| format!("{}M", (bytes >> 20).max(1).saturating_mul(2));
    let limits = &spec.limits;
    // With a file system of its own only build folders are watched.
    let disk = if outcome.tier == Tier::NoUserns { limits.disk } else { limits.scratch };
    Some(match outcome.exit {
        Exit::Timeout => Bound::Grant("--timeout", (limits.time.as_secs_f64() * 2.0).to_string()),
        Exit::OutOfMemory => Bound::Grant("--memory", mebibytes(limits.memory)),
        Exit::OutOfDisk => Bound::Grant("--disk", mebibytes(disk)),
        Exit::Signal(TOO_LARGE) | Exit::Code(TOLD_BY_SHELL) => match outcome.tier {
            Tier::NoUserns if disk < limits.file_size => Bound::Grant("--disk", mebibytes(disk)),
            _ => Bound::Fixed(format!("a file of more than {}M", limits.file_size >> 20)),
        },
        Exit::Code(_) | Exit::Signal(_) | Exit::Stopped(_) => return None,
    })
}

/// Something of a workspace whose group is none of the program's: what is changed cannot be given it in the layer above.
#[derive(Debug)]
pub(super) struct OfGroup {
    path: PathBuf,
    group: u32,
}

impl OfGroup {
    /// At the top of the workspace, where an ordinary user's program would change it.
    pub(super) fn find(spec: &Spec, tier: Tier) -> Option<Self> {
        let layered = matches!(spec.filesystem, Filesystem::ReadWrite | Filesystem::Speculative);
        if !layered || tier == Tier::NoUserns || rustix::process::geteuid().is_root() {
            return None;
        }
        let own = rustix::process::getegid().as_raw();
        let folder = spec.workspace.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(spec.workspace.clone()).chain(folder).find_map(|path| {
            let group = path.symlink_metadata().ok()?.gid();
            (group != own).then_some(Self { path, group })
        })
    }
}

impl std::fmt::Display for OfGroup {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, group } = self;
        let way = "`chgrp` it, or start this under `newgrp` where all of it has that group";
        write!(to, "{} has group {group}, not the one that you run with (EOVERFLOW): {way}", shown(path))
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

/// Whether we may do it ourselves.
fn is_ours(path: &Path, operation: Operation) -> bool {
    let access = match operation {
        Operation::Read => Access::READ_OK,
        Operation::Execute => Access::EXEC_OK,
        operation if operation.changes() => Access::WRITE_OK,
        _ => Access::EXISTS,
    };
    rustix::fs::access(path, access).is_ok()
}

/// The folders of the links on the way to something, and what it leads to if that is there.
fn way(path: &Path) -> (BTreeSet<PathBuf>, Option<PathBuf>) {
    let mut folders = BTreeSet::new();
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let link = |path: &Path| Some((path.to_owned(), path.read_link().ok()?));
        let mut ways: Vec<&Path> = path.ancestors().collect();
        ways.reverse();
        let Some((link, target)) = ways.into_iter().find_map(link) else { break };
        let folder = link.parent().and_then(|folder| folder.canonicalize().ok());
        let (Some(folder), Ok(rest)) = (folder, path.strip_prefix(&link)) else { break };
        path = match rest.as_os_str().is_empty() {
            true => folder.join(target),
            false => folder.join(target).join(rest),
        };
        folders.insert(folder);
    }
    (folders, path.canonicalize().ok())
}

/// Without those that lie in another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let covered = |path: &PathBuf| paths.iter().any(|outer| outer != path && path.starts_with(outer));
    paths.iter().filter(|path| !covered(path)).cloned().collect()
}
