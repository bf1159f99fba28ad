//! `vambrace sandbox run`: runs a program in the sandbox; reports its output, exit code, denials and changes.

mod needed_grants;
mod network;
mod output_printer;
mod report;
mod signals;

use std::env;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use vambrace_broker::{ApprovalChoice, ApproverAvailability, CallContext, CallResult};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::terminal_escape::sanitize;
use vambrace_egress::{TrafficCaps, UpstreamProxy};
use vambrace_exec::{ExecErrorKind, HostRequest, NetworkRequest, RunRequest, WriteBackFailure};
use vambrace_host::{HostError, HostErrorKind, PassphraseSource as _, Paths, UserRunContext, approver};
use vambrace_sandbox::{Exit, Filesystem, Observe, RunChanges, RunLimits, Tier};
use vambrace_tools::{ListedChanges, OutputSink, ProgressSink, UserRunEnd, UserRunJob, UserRunResult};

use crate::args::{FilesystemMode, ObserveMode, SandboxCommand, SandboxRun};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;
use output_printer::TerminalOutput;
use report::ChangeReport;
use signals::Interrupt;

/// Minimum for `--memory` and `--disk`.
const MIN_BYTES: u64 = 4 << 20;

pub(crate) async fn run(what: SandboxCommand, out: &Out) -> Result<ExitCode, Failure> {
    let SandboxCommand::Run(wish) = what;
    let paths = Paths::from_environment()?;
    let workspace = UserRunContext::workspace(&paths, wish.workspace.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let job = job(&wish, &workspace, &interrupt, *out)?;
    let approver = match can_ask(*out) {
        true => ApproverAvailability::Available,
        false => ApproverAvailability::Unavailable,
    };
    let context = UserRunContext::open(paths, job, approver).await.map_err(not_opened)?;
    let printer = Arc::new(TerminalOutput::new(interrupt.stop(), *out));
    let answer = call(&context, &printer, *out).await?;
    let result = context.job().result.lock().unwrap_or_else(PoisonError::into_inner).take();
    let end = match (answer.error(), result) {
        (None, Some(UserRunResult::Ended(end))) => end,
        (error, result) => return Err(not_run(error.cloned(), result)),
    };
    interrupt.only_reporting();
    report(&context, &wish, &end, *out)?;
    // Lost output does not matter after an interrupt.
    let stopped = matches!(end.report.outcome.exit, Exit::Stopped(_));
    if let Some(lost) = printer.lost_output().filter(|_| !stopped) {
        return Err(lost);
    }
    Ok(ExitCode::from(u8::try_from(exit_code(&end)).unwrap_or(u8::MAX)))
}

/// Whether a person can answer at this terminal.
fn can_ask(out: Out) -> bool {
    TerminalPassphrase(out).can_ask()
}

fn job(wish: &SandboxRun, workspace: &Path, interrupt: &Interrupt, out: Out) -> Result<UserRunJob, Failure> {
    let request = request(wish, workspace)?;
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let input = input.map_err(|error| Failure::failed(format!("standard input: {error}")))?;
    let listed = if wish.every_change { ListedChanges::All } else { ListedChanges::First };
    let diffs = out.is_json() || request.filesystem == Filesystem::Speculative;
    Ok(UserRunJob {
        request,
        input,
        stop: interrupt.stop(),
        diffs: diffs.then_some(listed),
        explain: wish.explain,
        result: Mutex::new(None),
    })
}

/// Runs the program; a rule that asks is answered here.
async fn call(
    context: &UserRunContext,
    printer: &Arc<TerminalOutput>,
    out: Out,
) -> Result<CallResult, Failure> {
    let listen = || CallContext {
        progress: Some(Arc::clone(printer) as Arc<dyn ProgressSink>),
        output: (!out.is_json()).then(|| Arc::clone(printer) as Arc<dyn OutputSink>),
        ..CallContext::default()
    };
    let answer = context.call(listen()).await;
    let Some((id, summary, _)) = answer.pending_request() else { return Ok(answer) };
    let id = id.to_string();
    out.message(format!("{} {}", paint(Tone::Care, "approval required:"), sanitize(summary)));
    let approver = approver(context.host(), &TerminalPassphrase(out)).await?;
    if !out.confirm("Run it?")? {
        context.broker().reject(&id, None, &approver).await.map_err(Failure::of)?;
        let error = CallError::new(ErrorCode::ApprovalRejected, "you did not approve the run");
        return Err(Failure { error, exit: exit::NOT_STARTED });
    }
    context
        .broker()
        .approve(&id, ApprovalChoice::once_for_own_call(), &approver)
        .await
        .map_err(Failure::of)?;
    // The repeated call uses the approval.
    Ok(context.call(listen()).await)
}

fn report(context: &UserRunContext, wish: &SandboxRun, end: &UserRunEnd, out: Out) -> Result<(), Failure> {
    let (ran, redactor) = (&end.report, context.redactor());
    let changes =
        ran.changes().map(|changes| ChangeReport::of(changes, wish.every_change, end.diffs.as_deref()));
    if out.is_json() {
        let report = report::json(ran, changes.as_ref(), &end.written, end.grants.as_ref());
        out.value(&output_printer::clean_value(report, redactor)?);
        return Ok(());
    }
    let clean = |text: &str| output_printer::clean(text, redactor);
    report::print(&ran.outcome, changes.as_ref(), &end.written, &clean, out);
    if let Some(attempts) = &ran.attempts {
        network::print(attempts, &clean, out);
    }
    if let Some(grants) = &end.grants {
        needed_grants::print(grants, &clean, out);
    }
    Ok(())
}

fn exit_code(end: &UserRunEnd) -> i32 {
    let succeeded = end.report.outcome.exit == Exit::Code(0);
    let stale = || end.writes_back && end.report.changes().is_some_and(RunChanges::is_stale);
    match &end.grants {
        Some(grants) if grants.stopped => grants.exit_code,
        // Files that changed in the workspace during the run were not overwritten.
        _ if succeeded && (end.written.is_err() || stale()) => i32::from(exit::FAILED),
        _ => end.report.outcome.exit.code(),
    }
}

/// The number of changes that were written back, or the error.
type WriteBackResult = Result<usize, WriteBackFailure>;

/// Why a project could not be opened for a run. A denied run is one that did not start.
fn not_opened(error: HostError) -> Failure {
    let denied = error.kind == HostErrorKind::Denied;
    let failure = Failure::from(error);
    if denied { Failure { exit: exit::NOT_STARTED, ..failure } } else { failure }
}

/// Why a program was not run, with the exit code.
fn not_run(error: Option<CallError>, result: Option<UserRunResult>) -> Failure {
    let error = error.unwrap_or_else(|| CallError::new(ErrorCode::Internal, "the run has no result"));
    let exit = match result {
        Some(UserRunResult::NotRun(ExecErrorKind::Invalid)) => exit::BAD_USAGE,
        Some(UserRunResult::NotRun(ExecErrorKind::Failed) | UserRunResult::Ended(_)) => exit::FAILED,
        Some(UserRunResult::NotRun(ExecErrorKind::NotStarted)) | None => exit::NOT_STARTED,
    };
    Failure { error, exit }
}

fn request(wish: &SandboxRun, workspace: &Path) -> Result<RunRequest, Failure> {
    let mut words = wish.command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let mut request = RunRequest::new(program, workspace);
    request.arguments = words.cloned().collect();
    request.digest = wish.sha256;
    request.filesystem = match (wish.speculative, wish.filesystem) {
        (true, _) => Filesystem::Speculative,
        (_, FilesystemMode::Deny) => Filesystem::Deny,
        (_, FilesystemMode::Read) => Filesystem::Read,
        (_, FilesystemMode::Write) => Filesystem::Write,
        (_, FilesystemMode::ReadWrite) => Filesystem::ReadWrite,
    };
    request.environment = wish.env.clone();
    request.network = network_request(wish)?;
    request.limits = limits(wish)?;
    request.read = wish.read.clone();
    request.write = wish.write.clone();
    if !wish.scratch.is_empty() {
        request.scratch = wish.scratch.clone();
    }
    request.min_tier = Tier::parse(&wish.tier).ok_or_else(|| {
        Failure::usage(format!("there is no tier `{}`", wish.tier), "use full, full-no-proc or no-userns")
    })?;
    request.observe = match wish.observe {
        ObserveMode::Off => Observe::Off,
        ObserveMode::Writes => Observe::Writes,
        ObserveMode::All => Observe::All,
    };
    // The current directory, if it is in the workspace.
    if let Ok(here) = env::current_dir().and_then(|here| here.canonicalize())
        && let Ok(below) = here.strip_prefix(workspace)
    {
        request.cwd = below.to_owned();
    }
    Ok(request)
}

fn limits(wish: &SandboxRun) -> Result<RunLimits, Failure> {
    let time = Duration::try_from_secs_f64(wish.timeout).ok().filter(|time| !time.is_zero());
    let time = time.ok_or_else(|| {
        Failure::usage(format!("invalid timeout: {} seconds", wish.timeout), "use a number above 0")
    })?;
    for (option, given) in [("--memory", Some(wish.memory)), ("--disk", wish.disk)] {
        if given.is_some_and(|given| given < MIN_BYTES) {
            return Err(Failure::usage(format!("`{option}` is too small"), "use at least 4M"));
        }
    }
    let usual = RunLimits::default();
    Ok(RunLimits {
        time,
        memory: wish.memory,
        processes: wish.processes,
        output: usize::try_from(wish.output).unwrap_or(usize::MAX),
        disk: wish.disk.unwrap_or(usual.disk),
        scratch: wish.disk.unwrap_or(usual.scratch),
        ..usual
    })
}

fn network_request(wish: &SandboxRun) -> Result<NetworkRequest, Failure> {
    match wish.network.as_str() {
        "deny" => return Ok(NetworkRequest::None),
        "loopback" => return Ok(NetworkRequest::Loopback),
        _ => {}
    }
    let upstream = wish.upstream_proxy.as_deref().map(UpstreamProxy::parse).transpose();
    let upstream = upstream.map_err(|bad| {
        Failure::usage(bad.to_string(), "for example `--upstream-proxy http://proxy.corp:3128`")
    })?;
    let caps = TrafficCaps {
        connections: wish.network_connections,
        bytes: wish.network_bytes,
        rate: wish.network_rate,
    };
    let hosts = wish.network.split(',').map(str::to_owned).collect();
    Ok(NetworkRequest::Hosts(HostRequest { hosts, caps, upstream }))
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
