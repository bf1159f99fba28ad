//! `vambrace sandbox run`: any program inside the walls, with its own output, code and changes.

mod grants;
mod inside;
mod interrupt;
mod network;
mod screen;
mod told;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vambrace_core::config::{Effective, Sandbox as Configured, Tier as DemandedTier};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_redact::Redactor;
use vambrace_sandbox::{
    Changes, Exit, Filesystem, Input, Journaled, Network, Observe, Outcome, Places, Promote as _,
    PromoteFault, SCRATCH, Sandbox, SandboxFault, Spec, Stream, Tier,
};

use crate::args::{FilesystemMode, ObserveMode, SandboxCommand, SandboxRun};
use crate::failure::{Failure, exit};
use crate::found;
use crate::out::{Out, Tone, paint};
use crate::places;
use crate::project::ProjectFiles;
use crate::vault::Vault;
use grants::{Grants, Known, Mode, OfGroup};
use interrupt::Interrupt;
use screen::Screen;
use told::Told;

/// Of memory and of room for files.
const LEAST: u64 = 4 << 20;

pub(crate) fn run(what: SandboxCommand, out: &Out) -> Result<ExitCode, Failure> {
    let SandboxCommand::Run(wish) = what;
    let (settings, hosts) = settings(&wish)?;
    let mut spec = bounded(spec(&wish)?, &settings.sandbox);
    let vault = Vault::open(&settings.secrets)?;
    let redactor = vault.redactor().clone();
    let gates = network::gates(&wish, &hosts, &mut spec, *out)?;
    let inside = match &gates {
        Some(gates) if !gates.only_tells() => inside::inside(&settings, &vault, &mut spec)?,
        _ => None,
    };
    let ends = inside.as_ref().map(|inside| Arc::clone(&inside.termination));
    let gates = gates.map(|gates| gates.ending(ends));
    let sandbox = start()?;
    let interrupt = Interrupt::heed()?;
    spec.stop = Some(interrupt.stop());
    let (outcome, attempts, lost) = perform(&sandbox, &spec, gates.as_ref(), &redactor, *out)?;
    let differences = out.is_json() || spec.filesystem == Filesystem::Speculative;
    // As long as the workspace has the old content.
    let told = outcome.changes.as_ref().map(|changes| Told::of(changes, wish.every_change, differences));
    let promoted = promote(&sandbox, &spec, &outcome);
    let failed = outcome.exit != Exit::Code(0);
    let grants = match wish.explain && failed && !matches!(outcome.exit, Exit::Stopped(_)) {
        true => Some(explain(&sandbox, &spec, &outcome, gates.as_ref(), &wish.network)?),
        false => None,
    };
    interrupt.only_telling();
    if out.is_json() {
        let told = told::json(&outcome, told.as_ref(), &promoted, grants.as_ref(), attempts.as_ref());
        out.value(&screen::clean_value(told, &redactor)?);
    } else {
        let clean = |text: &str| screen::clean(text, &redactor);
        told::say(&outcome, told.as_ref(), &promoted, &clean, *out);
        if let Some(attempts) = &attempts {
            network::say(attempts, &clean, *out);
        }
        if let Some(grants) = &grants {
            grants.say(&clean, *out);
        }
    }
    // Who wanted no more of it does not miss the rest.
    if let Some(lost) = lost.filter(|_| !matches!(outcome.exit, Exit::Stopped(_))) {
        return Err(lost);
    }
    let code = match (promoted, grants.and_then(|grants| grants.stopped())) {
        (_, Some(stopped)) => stopped,
        (Err(_), _) if !failed => i32::from(exit::FAILED),
        // What somebody else changed won.
        _ if !failed && takes_over(&spec) && outcome.changes.as_ref().is_some_and(Changes::is_stale) => {
            i32::from(exit::FAILED)
        }
        _ => outcome.exit.code(),
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// A sandbox whose launcher is this program.
pub(crate) fn start() -> Result<Sandbox, Failure> {
    let program = env::current_exe().map_err(|error| Failure::failed(format!("this program: {error}")))?;
    let places = Places::below(&places::state()?);
    // What a crash left half taken over.
    Journaled::recover(&places);
    Sandbox::start(&program, places).map_err(|fault| not_started(&fault))
}

fn not_started(fault: &SandboxFault) -> Failure {
    let code = match fault {
        SandboxFault::Unavailable { .. } | SandboxFault::Mounted(_) => ErrorCode::SandboxUnavailable,
        SandboxFault::Refused(_) | SandboxFault::CouldNotStart { .. } => ErrorCode::InvalidArguments,
        SandboxFault::Replaced { .. } => ErrorCode::PermissionDenied,
        SandboxFault::ShowsState { .. } => ErrorCode::ScopeViolation,
        SandboxFault::LauncherGone | SandboxFault::System { .. } => ErrorCode::Internal,
    };
    let exit = if code == ErrorCode::ScopeViolation { exit::DENIED } else { exit::NOT_STARTED };
    let error = CallError::new(code, fault.to_string()).suggest(fault.suggestion());
    Failure { error, exit }
}

/// The configuration as it is: a project that is not trusted only narrows.
fn settings(wish: &SandboxRun) -> Result<(Effective, network::Hosts), Failure> {
    let files = ProjectFiles::open(&places::project(wish.workspace.as_deref())?)?;
    let found = found::find(&files, false)?;
    let combined = found::settled(&found)?;
    let hosts = network::Hosts::of(&found, &combined);
    Ok((combined, hosts))
}

/// What the configuration bounds is bounded, whatever was asked for.
fn bounded(mut spec: Spec, configured: &Configured) -> Spec {
    let least = |asked: u64, most: Option<u64>| most.map_or(asked, |most| asked.min(most));
    spec.limits.memory = least(spec.limits.memory, configured.memory);
    spec.limits.processes = least(spec.limits.processes, configured.pids);
    spec.limits.cpu_percent = least(spec.limits.cpu_percent, configured.cpu);
    spec.limits.disk = least(spec.limits.disk, configured.tmp);
    if configured.tier == DemandedTier::Namespaces {
        spec.least = spec.least.max(Tier::FullNoProc);
    }
    spec
}

fn spec(wish: &SandboxRun) -> Result<Spec, Failure> {
    let workspace = places::project(wish.workspace.as_deref())?;
    let mut words = wish.command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let mut spec = Spec::new(program, &workspace);
    spec.arguments = words.cloned().collect();
    spec.digest = wish.sha256;
    spec.filesystem = match (wish.speculative, wish.filesystem) {
        (true, _) => Filesystem::Speculative,
        (_, FilesystemMode::Deny) => Filesystem::Deny,
        (_, FilesystemMode::Read) => Filesystem::Read,
        (_, FilesystemMode::Write) => Filesystem::Write,
        (_, FilesystemMode::ReadWrite) => Filesystem::ReadWrite,
    };
    spec.environment = environment(&wish.env);
    spec.umask = umask();
    let time = Duration::try_from_secs_f64(wish.timeout).ok().filter(|time| !time.is_zero());
    spec.limits.time = time.ok_or_else(|| {
        Failure::usage(format!("a timeout of {} seconds", wish.timeout), "a number of seconds above 0")
    })?;
    for (option, given) in [("--memory", Some(wish.memory)), ("--disk", wish.disk)] {
        if given.is_some_and(|given| given < LEAST) {
            return Err(Failure::usage(format!("{option} is too little to start anything"), "4M or more"));
        }
    }
    spec.limits.memory = wish.memory;
    spec.limits.processes = wish.processes;
    spec.limits.output = usize::try_from(wish.output).unwrap_or(usize::MAX);
    if let Some(disk) = wish.disk {
        (spec.limits.disk, spec.limits.scratch) = (disk, disk);
    }
    spec.read = wish.read.clone();
    spec.write = wish.write.clone();
    spec.scratch = match wish.scratch.as_slice() {
        [] => SCRATCH.iter().map(|name| (*name).to_owned()).collect(),
        named => named.to_vec(),
    };
    spec.least = Tier::parse(&wish.tier).ok_or_else(|| {
        Failure::usage(format!("there is no tier `{}`", wish.tier), "full, full-no-proc or no-userns")
    })?;
    spec.observe = match wish.observe {
        ObserveMode::Off => Observe::Off,
        ObserveMode::Writes => Observe::Writes,
        ObserveMode::All => Observe::All,
    };
    spec.home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    spec.path = env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    // Where the person stands, when that is in the workspace.
    if let Ok(here) = env::current_dir().and_then(|here| here.canonicalize())
        && let Ok(below) = here.strip_prefix(&workspace)
    {
        spec.cwd = below.to_owned();
    }
    Ok(spec)
}

/// Ours. It is told only to who sets it: to something strict, should another thread make a file meanwhile.
fn umask() -> u32 {
    let own = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(own);
    own.as_raw_mode()
}

/// What of our own environment was asked for by name.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment is read once, here, for the names that were allowed"
)]
fn environment(patterns: &[String]) -> Vec<(OsString, OsString)> {
    let named = |name: &OsStr| {
        name.to_str()
            .is_some_and(|name| patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes())))
    };
    env::vars_os().filter(|(name, _)| named(name)).collect()
}

/// Whether a name is meant by a pattern in which `*` stands for any letters. Linear for one star after another.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let pieces: Vec<&[u8]> = pieces.collect();
    let Some((last, between)) = pieces.split_last() else { return rest.is_empty() };
    for piece in between {
        let found = (0..=rest.len()).find(|at| rest.get(*at..).is_some_and(|tail| tail.starts_with(piece)));
        match found.and_then(|at| rest.get(at + piece.len()..)) {
            Some(tail) => rest = tail,
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn perform(
    sandbox: &Sandbox,
    spec: &Spec,
    gates: Option<&network::Gates>,
    redactor: &Redactor,
    out: Out,
) -> Result<(Outcome, Option<network::Attempts>, Option<Failure>), Failure> {
    let stdin = std::io::stdin();
    let mut screen = Screen::new(redactor, !out.is_json(), spec.stop.clone());
    let mut show = |stream: Stream, bytes: &[u8]| screen.show(stream, bytes);
    let done = gated(gates, spec, &mut |spec| sandbox.run_while(spec, Input::From(stdin.as_fd()), &mut show));
    // What it said is shown whatever became of the rest.
    let lost = screen.finish();
    let (outcome, attempts) = done?;
    Ok((outcome, attempts, lost?))
}

/// A run, behind a gate where there is one.
fn gated(
    gates: Option<&network::Gates>,
    spec: &Spec,
    run: &mut dyn FnMut(&Spec) -> Result<Outcome, SandboxFault>,
) -> Result<(Outcome, Option<network::Attempts>), Failure> {
    let done = match gates {
        Some(gates) => gates.around(spec, run),
        None => run(spec).map(|outcome| (outcome, None)),
    };
    done.map_err(|fault| not_started(&fault))
}

/// What became of the changes: how many were taken over, or why none.
type Promoted = Result<usize, PromoteFault>;

fn takes_over(spec: &Spec) -> bool {
    matches!(spec.filesystem, Filesystem::Write | Filesystem::ReadWrite)
}

fn promote(sandbox: &Sandbox, spec: &Spec, outcome: &Outcome) -> Promoted {
    match &outcome.changes {
        Some(changes) if takes_over(spec) => {
            let fault = |why| PromoteFault::Write { path: spec.workspace.clone(), why, written: 0 };
            Journaled::over(changes, sandbox.places())
                .map_err(fault)?
                .promote(changes)
                .map(|done| done.changes)
        }
        _ => Ok(0),
    }
}

/// Runs it once more with everything observed, and takes nothing over; what it writes to further paths is dropped. Where it
/// fails for want of something that gives it nothing of the machine (a layer to write to that is dropped, a network of its own
/// that leads nowhere), it gets that and runs again: then it is known whether that is enough, or what lies behind.
fn explain(
    sandbox: &Sandbox,
    spec: &Spec,
    first: &Outcome,
    gates: Option<&network::Gates>,
    typed: &str,
) -> Result<Grants, Failure> {
    let mut spec = spec.clone();
    let listed = gates.is_some_and(|gates| !gates.only_tells()).then(|| typed.to_owned());
    let mut known = Known { listed, ..Known::default() };
    if first.tier == Tier::NoUserns && !spec.write.is_empty() {
        // What it writes there cannot be dropped.
        return Ok(Grants::of(first, &spec, sandbox, &known, None).not_again());
    }
    spec.observe = Observe::All;
    spec.drops_writes = true;
    if spec.filesystem == Filesystem::ReadWrite {
        spec.filesystem = Filesystem::Speculative;
    }
    let mut telling = None;
    loop {
        let gates = telling.as_ref().or(gates);
        let run = &mut |spec: &Spec| sandbox.run(spec, Input::Nothing, &mut |_, _| {});
        let (outcome, attempts) = gated(gates, &spec, run)?;
        known.hosts = attempts.as_ref().map(network::wanted).unwrap_or_default();
        // What a list left out was told of the run before.
        let attempts = attempts.filter(|_| gates.is_some_and(network::Gates::only_tells));
        let grants = Grants::of(&outcome, &spec, sandbox, &known, attempts);
        if !grants.is_enough() && grants.stopped().is_none() && known.given.last() == Some(&Mode::Make) {
            // An empty folder is not what it needs.
            known.given.pop();
            known.vain.push(Mode::Make);
            spec.filesystem = Filesystem::Read;
            continue;
        }
        let Some(mode) = grants.harmless() else {
            return Ok(grants.in_group(OfGroup::find(&spec, outcome.tier)));
        };
        mode.give(&mut spec);
        known.given.push(mode);
        if spec.network == Network::Loopback {
            telling = Some(network::Gates::telling(&mut spec)?);
        }
    }
}

/// A name that the program chose, on one line.
fn shown(path: &Path) -> String {
    vambrace_core::quote::quoted(path.as_os_str().as_bytes())
}

/// The list of refusals is not whole.
const MISSING: &str = "some denials may be missing: there were more than are kept, or nobody could look what the program asked for";

fn denial_json(denial: &vambrace_sandbox::Denial) -> Value {
    json!({
        "operation": denial.operation.as_str(), "path": denial.path.display().to_string(),
        "rule": denial.rule.as_str(), "right": denial.right, "source": denial.source.as_str(), "certainty": denial.certainty.as_str(),
    })
}

fn faint(words: impl std::fmt::Display) -> String {
    paint(Tone::Faint, words)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_any_letters() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        };
        check("AWS_*", "AWS_REGION", true);
        check("AWS_*", "XAWS_REGION", false);
        check("*_TOKEN", "GH_TOKEN", true);
        check("*_TOKEN", "GH_TOKENS", false);
        check("A*B*C", "AxxByyC", true);
        check("A*B*C", "AxxCyyB", false);
        check("PATH", "PATH", true);
        check("PATH", "PATHS", false);
        check("*", "", true);
    }
}
