//! `vambrace sandbox run`: runs a program in the sandbox; reports its output, exit code, denials and changes.

mod needed_grants;
mod network;
mod redacted_output;
mod report;
mod signals;
mod tls_termination;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vambrace_core::config::{EffectiveConfig, SandboxSettings as Configured, Tier as DemandedTier};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_redact::Redactor;
use vambrace_sandbox::{
    Exit, Filesystem, Input, JournaledWriteBack, NetworkMode, Observe, OutputStream, RunChanges, RunOutcome,
    SCRATCH, Sandbox, SandboxError, Spec, StateDirs, Tier, WriteBack as _, WriteBackError,
};

use crate::args::{FilesystemMode, ObserveMode, SandboxCommand, SandboxRun};
use crate::config_files;
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::paths;
use crate::project_files::ProjectFiles;
use crate::secrets::SecretStore;
use needed_grants::{ExplainContext, ForeignGroup, NeededGrants, OptionGrant};
use redacted_output::RedactedOutput;
use report::ChangeReport;
use signals::Interrupt;

/// Minimum for `--memory` and `--disk`.
const MIN_BYTES: u64 = 4 << 20;

pub(crate) fn run(what: SandboxCommand, out: &Out) -> Result<ExitCode, Failure> {
    let SandboxCommand::Run(wish) = what;
    let (settings, hosts) = settings(&wish)?;
    let mut spec = bounded(spec(&wish)?, &settings.sandbox);
    let secrets = SecretStore::open(&settings.secrets)?;
    let redactor = secrets.redactor().clone();
    let gates = network::gates(&wish, &hosts, &mut spec, *out)?;
    let inside = match &gates {
        Some(gates) if !gates.only_observes() => tls_termination::set_up(&settings, &secrets, &mut spec)?,
        _ => None,
    };
    let ends = inside.as_ref().map(|inside| Arc::clone(&inside.termination));
    let gates = gates.map(|gates| gates.with_termination(ends));
    let sandbox = start()?;
    let interrupt = Interrupt::listen()?;
    spec.stop = Some(interrupt.stop());
    let (outcome, attempts, lost) = perform(&sandbox, &spec, gates.as_ref(), &redactor, *out)?;
    let differences = out.is_json() || spec.filesystem == Filesystem::Speculative;
    // Before the write-back: diffs need the old content of the workspace.
    let report =
        outcome.changes.as_ref().map(|changes| ChangeReport::of(changes, wish.every_change, differences));
    let promoted = write_back(&sandbox, &spec, &outcome);
    let failed = outcome.exit != Exit::Code(0);
    let grants = match wish.explain && failed && !matches!(outcome.exit, Exit::Stopped(_)) {
        true => Some(explain(&sandbox, &spec, &outcome, gates.as_ref(), &wish.network)?),
        false => None,
    };
    interrupt.only_reporting();
    if out.is_json() {
        let report = report::json(&outcome, report.as_ref(), &promoted, grants.as_ref(), attempts.as_ref());
        out.value(&redacted_output::clean_value(report, &redactor)?);
    } else {
        let clean = |text: &str| redacted_output::clean(text, &redactor);
        report::print(&outcome, report.as_ref(), &promoted, &clean, *out);
        if let Some(attempts) = &attempts {
            network::print(attempts, &clean, *out);
        }
        if let Some(grants) = &grants {
            grants.print(&clean, *out);
        }
    }
    // Lost output does not matter after an interrupt.
    if let Some(lost) = lost.filter(|_| !matches!(outcome.exit, Exit::Stopped(_))) {
        return Err(lost);
    }
    let code = match (promoted, grants.and_then(|grants| grants.stopped())) {
        (_, Some(stopped)) => stopped,
        (Err(_), _) if !failed => i32::from(exit::FAILED),
        // Files that changed in the workspace during the run were not overwritten.
        _ if !failed && writes_back(&spec) && outcome.changes.as_ref().is_some_and(RunChanges::is_stale) => {
            i32::from(exit::FAILED)
        }
        _ => outcome.exit.code(),
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Starts a sandbox with this program as its launcher.
pub(crate) fn start() -> Result<Sandbox, Failure> {
    let program =
        env::current_exe().map_err(|error| Failure::failed(format!("path of this program: {error}")))?;
    let places = StateDirs::below(&paths::state()?);
    // Completes or undoes a write-back that a crash interrupted.
    JournaledWriteBack::recover(&places);
    Sandbox::start(&program, places).map_err(|fault| not_started(&fault))
}

fn not_started(fault: &SandboxError) -> Failure {
    let code = match fault {
        SandboxError::Unavailable { .. } | SandboxError::Mounted(_) => ErrorCode::SandboxUnavailable,
        SandboxError::Refused(_) | SandboxError::CouldNotStart { .. } => ErrorCode::InvalidArguments,
        SandboxError::Replaced { .. } => ErrorCode::PermissionDenied,
        SandboxError::ShowsState { .. } => ErrorCode::ScopeViolation,
        SandboxError::LauncherGone | SandboxError::System { .. } => ErrorCode::Internal,
    };
    let exit = if code == ErrorCode::ScopeViolation { exit::DENIED } else { exit::NOT_STARTED };
    let error = CallError::new(code, fault.to_string()).suggest(fault.suggestion());
    Failure { error, exit }
}

/// The configuration without trust: the project can only narrow.
fn settings(wish: &SandboxRun) -> Result<(EffectiveConfig, network::HostLists), Failure> {
    let files = ProjectFiles::open(&paths::project(wish.workspace.as_deref())?)?;
    let found = config_files::find(&files, false)?;
    let combined = config_files::combine_or_fail(&found)?;
    let hosts = network::HostLists::of(&found, &combined);
    Ok((combined, hosts))
}

/// Lowers the requested limits to those of the configuration.
fn bounded(mut spec: Spec, configured: &Configured) -> Spec {
    let least = |asked: u64, most: Option<u64>| most.map_or(asked, |most| asked.min(most));
    spec.limits.memory = least(spec.limits.memory, configured.memory);
    spec.limits.processes = least(spec.limits.processes, configured.pids);
    spec.limits.cpu_percent = least(spec.limits.cpu_percent, configured.cpu);
    spec.limits.disk = least(spec.limits.disk, configured.tmp);
    if configured.tier == DemandedTier::Namespaces {
        spec.min_tier = spec.min_tier.max(Tier::FullNoProc);
    }
    spec
}

fn spec(wish: &SandboxRun) -> Result<Spec, Failure> {
    let workspace = paths::project(wish.workspace.as_deref())?;
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
        Failure::usage(format!("invalid timeout: {} seconds", wish.timeout), "use a number above 0")
    })?;
    for (option, given) in [("--memory", Some(wish.memory)), ("--disk", wish.disk)] {
        if given.is_some_and(|given| given < MIN_BYTES) {
            return Err(Failure::usage(format!("`{option}` is too small"), "use at least 4M"));
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
    spec.min_tier = Tier::parse(&wish.tier).ok_or_else(|| {
        Failure::usage(format!("there is no tier `{}`", wish.tier), "use full, full-no-proc or no-userns")
    })?;
    spec.observe = match wish.observe {
        ObserveMode::Off => Observe::Off,
        ObserveMode::Writes => Observe::Writes,
        ObserveMode::All => Observe::All,
    };
    spec.home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    spec.path = env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    // The current directory, if it is in the workspace.
    if let Ok(here) = env::current_dir().and_then(|here| here.canonicalize())
        && let Ok(below) = here.strip_prefix(&workspace)
    {
        spec.cwd = below.to_owned();
    }
    Ok(spec)
}

/// The umask of this process. It can only be read by setting it: to a strict value, in case another thread creates a file.
fn umask() -> u32 {
    let own = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(own);
    own.as_raw_mode()
}

/// The environment variables selected by `--env`.
#[expect(clippy::disallowed_methods, reason = "reads the variables that the user selected")]
fn environment(patterns: &[String]) -> Vec<(OsString, OsString)> {
    let named = |name: &OsStr| {
        name.to_str()
            .is_some_and(|name| patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes())))
    };
    env::vars_os().filter(|(name, _)| named(name)).collect()
}

/// Whether a name matches a pattern in which `*` matches any characters. Does not backtrack.
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
    gates: Option<&network::GateSetup>,
    redactor: &Redactor,
    out: Out,
) -> Result<(RunOutcome, Option<network::NetworkAttempts>, Option<Failure>), Failure> {
    let stdin = std::io::stdin();
    let mut screen = RedactedOutput::new(redactor, !out.is_json(), spec.stop.clone());
    let mut show = |stream: OutputStream, bytes: &[u8]| screen.show(stream, bytes);
    let done = gated(gates, spec, &mut |spec| sandbox.run_while(spec, Input::From(stdin.as_fd()), &mut show));
    // The output is shown even if the run failed.
    let lost = screen.finish();
    let (outcome, attempts) = done?;
    Ok((outcome, attempts, lost?))
}

/// Runs a program, behind an egress gate if there is one.
fn gated(
    gates: Option<&network::GateSetup>,
    spec: &Spec,
    run: &mut dyn FnMut(&Spec) -> Result<RunOutcome, SandboxError>,
) -> Result<(RunOutcome, Option<network::NetworkAttempts>), Failure> {
    let done = match gates {
        Some(gates) => gates.run_behind(spec, run),
        None => run(spec).map(|outcome| (outcome, None)),
    };
    done.map_err(|fault| not_started(&fault))
}

/// Number of changes written back, or the error.
type WriteBackResult = Result<usize, WriteBackError>;

fn writes_back(spec: &Spec) -> bool {
    matches!(spec.filesystem, Filesystem::Write | Filesystem::ReadWrite)
}

fn write_back(sandbox: &Sandbox, spec: &Spec, outcome: &RunOutcome) -> WriteBackResult {
    match &outcome.changes {
        Some(changes) if writes_back(spec) => {
            let fault = |why| WriteBackError::Write { path: spec.workspace.clone(), why, written: 0 };
            JournaledWriteBack::new(changes, sandbox.places())
                .map_err(fault)?
                .write_back(changes)
                .map(|done| done.changes)
        }
        _ => Ok(0),
    }
}

/// Runs the program again with everything observed and all writes discarded, and computes the options it would need. Grants that
/// give no access to the machine (a discarded write layer, a private network without routes) are tried: the program runs
/// again with them, which shows whether they suffice or what is denied next.
fn explain(
    sandbox: &Sandbox,
    spec: &Spec,
    first: &RunOutcome,
    gates: Option<&network::GateSetup>,
    typed: &str,
) -> Result<NeededGrants, Failure> {
    let mut spec = spec.clone();
    let listed = gates.is_some_and(|gates| !gates.only_observes()).then(|| typed.to_owned());
    let mut known = ExplainContext { listed, ..ExplainContext::default() };
    if first.tier == Tier::NoUserns && !spec.write.is_empty() {
        // In this tier, writes to `--write` paths cannot be discarded.
        return Ok(NeededGrants::of(first, &spec, sandbox, &known, None).not_rerun());
    }
    spec.observe = Observe::All;
    spec.drops_writes = true;
    if spec.filesystem == Filesystem::ReadWrite {
        spec.filesystem = Filesystem::Speculative;
    }
    let mut observing = None;
    loop {
        let gates = observing.as_ref().or(gates);
        let run = &mut |spec: &Spec| sandbox.run(spec, Input::Nothing, &mut |_, _| {});
        let (outcome, attempts) = gated(gates, &spec, run)?;
        known.hosts = attempts.as_ref().map(network::wanted).unwrap_or_default();
        // Attempts that a host list denied were reported for the first run.
        let attempts = attempts.filter(|_| gates.is_some_and(network::GateSetup::only_observes));
        let grants = NeededGrants::of(&outcome, &spec, sandbox, &known, attempts);
        if !grants.is_enough()
            && grants.stopped().is_none()
            && known.given.last() == Some(&OptionGrant::Write)
        {
            // An empty directory does not help.
            known.given.pop();
            known.useless.push(OptionGrant::Write);
            spec.filesystem = Filesystem::Read;
            continue;
        }
        let Some(mode) = grants.free_grant() else {
            return Ok(grants.with_foreign_group(ForeignGroup::find(&spec, outcome.tier)));
        };
        mode.apply_to(&mut spec);
        known.given.push(mode);
        if spec.network == NetworkMode::Loopback {
            observing = Some(network::GateSetup::observing(&mut spec)?);
        }
    }
}

/// A path that the program chose, quoted on one line.
fn shown(path: &Path) -> String {
    vambrace_core::quote::quoted(path.as_os_str().as_bytes())
}

/// Warning: the list of denials is incomplete.
const DENIALS_INCOMPLETE: &str =
    "some denials may be missing: there were too many, or the arguments of a system call could not be read";

fn denial_json(denial: &vambrace_sandbox::SandboxDenial) -> Value {
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
    fn stars_match_any_characters() {
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
