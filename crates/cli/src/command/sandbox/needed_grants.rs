//! Computes the smallest set of options that a failed program would need, from its denials.
//!
//! Denied lookups count only if no other denial can be granted: programs look up many files that they do not need. What would be
//! denied next is unknown until a denial is granted; grants that give no access to the machine are tried, others are not.

use std::collections::BTreeSet;
use std::io::ErrorKind::NotFound;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serde_json::{Value, json};
use vambrace_sandbox::{
    DenialRule, DenialSource, DeniedOperation, Exit, Filesystem, NetworkMode, RunOutcome, Sandbox,
    SandboxDenial, Spec, Tier,
};

use super::network::{self, NetworkAttempts};
use super::{DENIALS_INCOMPLETE, denial_json, shown};
use crate::output::{Out, Tone, paint};
use crate::terminal_escape::sanitize;

/// The kernel's limit (MAXSYMLINKS).
const MAX_SYMLINKS: usize = 40;

/// An option value without a path that would permit the denied action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OptionGrant {
    Read,
    ReadWrite,
    /// Without namespaces: only new files, in a directory that is empty at the start.
    Write,
    Loopback,
}

/// What is known in addition to the outcome of the run.
#[derive(Debug, Default)]
pub(super) struct ExplainContext {
    /// Grants that the run had in addition to the user's options.
    pub(super) given: Vec<OptionGrant>,
    /// Grants that were tried and did not help.
    pub(super) useless: Vec<OptionGrant>,
    /// The host list of `--network`.
    pub(super) listed: Option<String>,
    /// Denied hosts.
    pub(super) hosts: BTreeSet<String>,
}

impl OptionGrant {
    fn words(self) -> (&'static str, String) {
        let (option, value) = match self {
            Self::Read => ("--filesystem", "read"),
            Self::ReadWrite => ("--filesystem", "readwrite"),
            Self::Write => ("--filesystem", "write"),
            Self::Loopback => ("--network", "loopback"),
        };
        (option, value.to_owned())
    }

    /// Adds the grant to a run whose changes are discarded.
    pub(super) fn apply_to(self, spec: &mut Spec) {
        match self {
            Self::Read => spec.filesystem = Filesystem::Read,
            Self::ReadWrite => spec.filesystem = Filesystem::Speculative,
            Self::Write => spec.filesystem = Filesystem::Write,
            Self::Loopback => spec.network = NetworkMode::Loopback,
        }
    }
}

/// The denials of the observed run, and the options that would permit them.
#[derive(Debug)]
pub(super) struct NeededGrants {
    exit_code: i32,
    /// Whether the program could not be run again.
    not_rerun: bool,
    /// Whether the user stopped it.
    stopped: bool,
    denials: Vec<SandboxDenial>,
    /// Whether the list of denials may be incomplete.
    missing: bool,
    words: Vec<(&'static str, String)>,
    /// What no option permits.
    never: BTreeSet<String>,
    /// What the user may not access either.
    foreign: BTreeSet<String>,
    /// Granted paths that prevent a rename or removal; their parent must be granted instead.
    instead: BTreeSet<String>,
    /// A file of the workspace that cannot be changed because of its group.
    foreign_group: Option<ForeignGroup>,
    /// Whether it did not start in the workspace.
    elsewhere: bool,
    free_grant: Option<OptionGrant>,
    /// Connection attempts seen by a gate that only observes.
    attempts: Option<NetworkAttempts>,
}

impl NeededGrants {
    pub(super) fn of(
        outcome: &RunOutcome,
        spec: &Spec,
        sandbox: &Sandbox,
        known: &ExplainContext,
        attempts: Option<NetworkAttempts>,
    ) -> Self {
        let workspace = spec.workspace.canonicalize().unwrap_or_else(|_| spec.workspace.clone());
        let mut found = GrantCandidates::default();
        for denial in &outcome.denials {
            // A visible path may be a symlink to the outside.
            let real = match denial.rule {
                DenialRule::NotGranted => denial.path.canonicalize().ok(),
                _ => None,
            };
            let inside = real.as_ref().unwrap_or(&denial.path).starts_with(&workspace);
            found.add(denial, inside, spec, outcome.tier, sandbox, &known.useless);
        }
        let enough = outcome.exit == Exit::Code(0);
        let free = |mode: &&OptionGrant| match mode {
            OptionGrant::Read => false,
            // The program could read the files already.
            OptionGrant::ReadWrite | OptionGrant::Write => spec.filesystem == Filesystem::Read,
            OptionGrant::Loopback => spec.network == NetworkMode::None,
        };
        let stopped = matches!(outcome.exit, Exit::Stopped(_));
        let free_grant = found.modes.iter().find(free).copied().filter(|_| !enough && !stopped);
        let mut words: Vec<_> = known.given.iter().map(|mode| mode.words()).collect();
        match exhausted_limit(outcome, spec) {
            Some(ExhaustedLimit::Grant(option, value)) => words.push((option, value)),
            Some(ExhaustedLimit::Fixed(what)) => _ = found.never.insert(what),
            None => {}
        }
        if !enough {
            words.extend(found.words());
            if !known.hosts.is_empty() {
                // The denied hosts are needed; a host list includes a loopback interface.
                words.retain(|(option, _)| *option != "--network");
                let hosts = known.listed.iter().chain(&known.hosts).map(String::as_str);
                words.push(("--network", hosts.collect::<Vec<_>>().join(",")));
            }
        }
        Self {
            exit_code: outcome.exit.code(),
            not_rerun: false,
            stopped,
            denials: outcome.denials.clone(),
            missing: outcome.denials_missing || stopped,
            words,
            never: if enough { BTreeSet::new() } else { found.never },
            foreign: if enough { BTreeSet::new() } else { found.foreign },
            instead: if enough { BTreeSet::new() } else { found.instead },
            foreign_group: None,
            elsewhere: spec.filesystem == Filesystem::Deny,
            free_grant,
            attempts,
        }
    }

    /// Adds a file whose group prevents changes.
    pub(super) fn with_foreign_group(self, foreign_group: Option<ForeignGroup>) -> Self {
        let foreign_group = foreign_group.filter(|_| !self.is_enough() && !self.stopped);
        Self { foreign_group, ..self }
    }

    /// For the first run only: a second run would change files.
    pub(super) fn not_rerun(self) -> Self {
        Self { not_rerun: true, free_grant: None, ..self }
    }

    /// The exit code, if the user stopped the run.
    pub(super) fn stopped(&self) -> Option<i32> {
        self.stopped.then_some(self.exit_code)
    }

    pub(super) fn is_enough(&self) -> bool {
        self.exit_code == 0
    }

    /// A grant that can be tried without asking the user.
    pub(super) fn free_grant(&self) -> Option<OptionGrant> {
        self.free_grant
    }

    pub(super) fn print(&self, clean: &dyn Fn(&str) -> String, out: Out) {
        let head = match (self.not_rerun, self.is_enough()) {
            (true, _) => {
                "explain: not run again: in this tier, writes to `--write` paths cannot be discarded"
                    .to_owned()
            }
            (_, true) => "explain: run again with the following options, it succeeded".to_owned(),
            _ if self.stopped => "explain: stopped before the needed options were known".to_owned(),
            _ => format!("explain: run again with everything observed, exit code {}", self.exit_code),
        };
        out.message(paint(Tone::Strong, head));
        for denial in &self.denials {
            let path = sanitize(&clean(&shown(&denial.path)));
            out.message(format!("  denied: {} {path}: {}", denial.operation.as_str(), denial.rule.as_str()));
        }
        let attempts = self.attempts.iter().flat_map(|(events, _)| events);
        let mut other = false;
        for event in attempts.filter(|event| event.denied()) {
            let reason = event.reason.as_ref().map(ToString::to_string).unwrap_or_default();
            out.message(format!(
                "  denied: {}: {}",
                sanitize(&clean(&event.attempted())),
                sanitize(&clean(&reason))
            ));
            other = true;
        }
        if self.missing && !self.stopped {
            out.message(format!("  {}", paint(Tone::Care, DENIALS_INCOMPLETE)));
        } else if self.denials.is_empty()
            && !other
            && self.words.is_empty()
            && self.never.is_empty()
            && self.foreign_group.is_none()
            && !self.not_rerun
            && !self.stopped
        {
            out.message(match (self.elsewhere, self.is_enough()) {
                (true, _) => "  no denials, but the program does not start in the workspace: `--filesystem read` makes it visible",
                (_, true) => "  no denials",
                _ => "  no denials; reaching `--processes` or filling `--disk` is not detected",
            });
        }
        if let Some(foreign_group) = &self.foreign_group {
            out.message(format!(
                "  {} {}",
                paint(Tone::Care, "cannot change:"),
                sanitize(&clean(&foreign_group.to_string()))
            ));
        }
        for (option, value) in &self.words {
            out.message(format!(
                "  {} {option} {}",
                paint(Tone::Care, "would need:"),
                sanitize(&clean(&quoted(value)))
            ));
        }
        for name in &self.instead {
            let name = sanitize(&clean(&quoted(name)));
            out.message(format!("  {} {name}", paint(Tone::Care, "in place of:")));
        }
        for name in &self.never {
            let name = vambrace_core::quote::quoted(name.as_bytes());
            out.message(format!("  {} {}", paint(Tone::Care, "never granted:"), sanitize(&clean(&name))));
        }
        for name in &self.foreign {
            let name = sanitize(&clean(&vambrace_core::quote::quoted(name.as_bytes())));
            out.message(format!(
                "  {} {name}: you have no access yourself",
                paint(Tone::Care, "never granted:")
            ));
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let words: Vec<String> =
            self.words.iter().map(|(option, value)| format!("{option} {value}")).collect();
        json!({
            "exit_code": self.exit_code, "run_again": !self.not_rerun,
            "denials": self.denials.iter().map(denial_json).collect::<Vec<_>>(),
            "denials_missing": self.missing, "grants": words,
            "never": self.never.union(&self.foreign).collect::<Vec<_>>(),
            "in_place_of": self.instead, "of_other_group": self.foreign_group.as_ref().map(|one| one.path.display().to_string()),
            "network": self.attempts.as_ref().map(network::json),
        })
    }
}

/// The denials, sorted by the option that would permit them.
#[derive(Debug, Default)]
struct GrantCandidates {
    look: BTreeSet<PathBuf>,
    /// Directories of symlinks that were looked up.
    look_links: BTreeSet<PathBuf>,
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
    modes: BTreeSet<OptionGrant>,
    never: BTreeSet<String>,
    foreign: BTreeSet<String>,
    instead: BTreeSet<String>,
}

impl GrantCandidates {
    fn add(
        &mut self,
        denial: &SandboxDenial,
        inside: bool,
        spec: &Spec,
        tier: Tier,
        sandbox: &Sandbox,
        useless: &[OptionGrant],
    ) {
        let path = &denial.path;
        let looks = matches!(
            denial.operation,
            DeniedOperation::Look | DeniedOperation::Read | DeniedOperation::Execute
        );
        if looks && !inside && path.symlink_metadata().is_err_and(|error| error.kind() == NotFound) {
            // A path that does not exist cannot be granted.
            return;
        }
        let mode = match spec.filesystem {
            Filesystem::Deny if inside && looks => Some(OptionGrant::Read),
            // Without namespaces there is no overlay for writes.
            _ if inside && tier != Tier::NoUserns => Some(OptionGrant::ReadWrite),
            // But a new file can be created in an empty directory.
            Filesystem::Read
                if inside
                    && denial.operation == DeniedOperation::Write
                    && path.symlink_metadata().is_err() =>
            {
                Some(OptionGrant::Write).filter(|mode| !useless.contains(mode))
            }
            _ => None,
        };
        let whole = match denial.operation {
            DeniedOperation::MoveTo if path.is_dir() => path.clone(),
            // Landlock reports the directory itself.
            operation if operation.changes_directory() && denial.source != DenialSource::Landlock => {
                existing(path.parent().unwrap_or(path))
            }
            operation if operation.changes() => existing(path),
            _ => path.clone(),
        };
        // The target of a symlink is granted; the symlink itself becomes visible with its directory.
        let (links, real) = follow_symlinks(&whole);
        let whole = real.unwrap_or(whole);
        let links = if denial.rule == DenialRule::NotShown { links } else { BTreeSet::new() };
        match (denial.operation, denial.rule) {
            (DeniedOperation::Call, _) if is_internet_socket(path) && tier != Tier::NoUserns => {
                self.modes.insert(OptionGrant::Loopback);
            }
            (DeniedOperation::Call, _) | (_, DenialRule::Masked) => {
                self.never.insert(path.display().to_string());
            }
            _ if let Some(mode) = mode => {
                self.modes.insert(mode);
            }
            _ if inside || links.iter().chain([&whole]).any(|path| !sandbox.may_show(path)) => {
                self.never.insert(path.display().to_string());
            }
            (operation, _) if !is_accessible(&whole, operation) => {
                self.foreign.insert(path.display().to_string());
            }
            // The gate answers DNS without this file.
            _ if spec.network == NetworkMode::Gated && path == Path::new("/etc/resolv.conf") => {}
            (DeniedOperation::Look, _) => {
                self.look_links.extend(links);
                self.look.insert(whole);
            }
            (operation, _) if operation.changes() => {
                let is_granted = |granted: &PathBuf| granted.canonicalize().is_ok_and(|real| real == *path);
                if operation.changes_directory() && spec.write.iter().chain(&spec.read).any(is_granted) {
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
            // A parent directory becomes visible with the path below it.
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

/// A limit that the program reached.
enum ExhaustedLimit {
    Grant(&'static str, String),
    /// No option changes it.
    Fixed(String),
}

/// The limit that was reached, doubled: how much the program needs is unknown.
fn exhausted_limit(outcome: &RunOutcome, spec: &Spec) -> Option<ExhaustedLimit> {
    const TOO_LARGE: i32 = 25;
    const REPORTED_BY_SHELL: i32 = 128 + TOO_LARGE;
    let mebibytes = |bytes: u64| format!("{}M", (bytes >> 20).max(1).saturating_mul(2));
    let limits = &spec.limits;
    // With a private file system, only build directories are watched.
    let disk = if outcome.tier == Tier::NoUserns { limits.disk } else { limits.scratch };
    Some(match outcome.exit {
        Exit::Timeout => ExhaustedLimit::Grant("--timeout", (limits.time.as_secs_f64() * 2.0).to_string()),
        Exit::OutOfMemory => ExhaustedLimit::Grant("--memory", mebibytes(limits.memory)),
        Exit::OutOfDisk => ExhaustedLimit::Grant("--disk", mebibytes(disk)),
        Exit::Signal(TOO_LARGE) | Exit::Code(REPORTED_BY_SHELL) => match outcome.tier {
            Tier::NoUserns if disk < limits.file_size => ExhaustedLimit::Grant("--disk", mebibytes(disk)),
            _ => ExhaustedLimit::Fixed(format!("a file of more than {}M", limits.file_size >> 20)),
        },
        Exit::Code(_) | Exit::Signal(_) | Exit::Stopped(_) => return None,
    })
}

/// A file of the workspace with a group that is not mapped in the user namespace: overlayfs cannot copy it up (EOVERFLOW).
#[derive(Debug)]
pub(super) struct ForeignGroup {
    path: PathBuf,
    group: u32,
}

impl ForeignGroup {
    /// Looks at the top level of the workspace, for a run of an unprivileged user with an overlay.
    pub(super) fn find(spec: &Spec, tier: Tier) -> Option<Self> {
        let layered = matches!(spec.filesystem, Filesystem::ReadWrite | Filesystem::Speculative);
        if !layered || tier == Tier::NoUserns || rustix::process::geteuid().is_root() {
            return None;
        }
        let own = rustix::process::getegid().as_raw();
        let dir = spec.workspace.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(spec.workspace.clone()).chain(dir).find_map(|path| {
            let group = path.symlink_metadata().ok()?.gid();
            (group != own).then_some(Self { path, group })
        })
    }
}

impl std::fmt::Display for ForeignGroup {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, group } = self;
        let way = "`chgrp` it, or use `newgrp` if all files have that group";
        write!(to, "{} has group {group}, which is not your current group (EOVERFLOW): {way}", shown(path))
    }
}

/// Sockets of other families do not work with any `--network`.
fn is_internet_socket(call: &Path) -> bool {
    ["socket (IPv4)", "socket (IPv6)"].iter().any(|socket| call == Path::new(socket))
}

/// Quotes a word for a shell.
fn quoted(value: &str) -> String {
    let simple = |letter: char| letter.is_alphanumeric() || "/._-+=:@%,".contains(letter);
    if value.chars().all(simple) {
        return value.to_owned();
    }
    if !value.contains(char::is_control) {
        return format!("'{}'", value.replace('\'', r"'\''"));
    }
    // Always one line.
    let escaped = value.chars().map(|letter| match letter {
        '\'' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => {
            letter.to_string().bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
        letter => letter.to_string(),
    });
    format!("$'{}'", escaped.collect::<String>())
}

/// The path, or its nearest existing parent: only existing paths can be granted.
fn existing(path: &Path) -> PathBuf {
    let there = |path: &&Path| path.symlink_metadata().is_ok();
    path.ancestors().find(there).unwrap_or_else(|| Path::new("/")).to_owned()
}

/// Whether the user has this access.
fn is_accessible(path: &Path, operation: DeniedOperation) -> bool {
    let access = match operation {
        DeniedOperation::Read => Access::READ_OK,
        DeniedOperation::Execute => Access::EXEC_OK,
        operation if operation.changes() => Access::WRITE_OK,
        _ => Access::EXISTS,
    };
    rustix::fs::access(path, access).is_ok()
}

/// The directories of all symlinks in a path, and its target if that exists.
fn follow_symlinks(path: &Path) -> (BTreeSet<PathBuf>, Option<PathBuf>) {
    let mut dirs = BTreeSet::new();
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let link = |path: &Path| Some((path.to_owned(), path.read_link().ok()?));
        let mut ways: Vec<&Path> = path.ancestors().collect();
        ways.reverse();
        let Some((link, target)) = ways.into_iter().find_map(link) else { break };
        let dir = link.parent().and_then(|dir| dir.canonicalize().ok());
        let (Some(dir), Ok(rest)) = (dir, path.strip_prefix(&link)) else { break };
        path = match rest.as_os_str().is_empty() {
            true => dir.join(target),
            false => dir.join(target).join(rest),
        };
        dirs.insert(dir);
    }
    (dirs, path.canonicalize().ok())
}

/// Removes paths that are inside another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let covered = |path: &PathBuf| paths.iter().any(|outer| outer != path && path.starts_with(outer));
    paths.iter().filter(|path| !covered(path)).cloned().collect()
}
