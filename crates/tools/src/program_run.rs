//! Runs a program for an agent: in the decided fence, with the output redacted as it arrives, until it ends, its time is
//! over, or the call is cancelled. Every tool that starts programs uses this.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vambrace_core::config::CommandApproval;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::path::{AskedPath, ScopedPath, Zone};
use vambrace_core::quote::quoted;
use vambrace_exec::{ExecError, RunIo, RunReport, RunRequest};
use vambrace_sandbox::{Exit, Input, OutputStream, StopHandle};
use vambrace_workspace::ResolvedKind;

use crate::call_context::{CallContext, CallProgress, CallStream};
use crate::program_context::ProgramContext;
use crate::tool::{RunFacts, ToolContext};

/// Maximum denials of the sandbox in one record.
const MAX_RECORDED_DENIALS: usize = 100;
/// Shortest time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Longest line of a progress message, in characters.
const PROGRESS_CHARS: usize = 200;

/// Limits of the programs that agents start.
#[derive(Debug, Clone)]
pub struct CommandLimits {
    /// Time limit by default.
    pub time: Duration,
    /// The longest time limit that a call can request.
    pub max_time: Duration,
    /// How much of each output stream is kept, in bytes.
    pub output_bytes: usize,
    /// When a MEDIUM command is asked about.
    pub approval: CommandApproval,
}

/// A program that ended.
pub(crate) struct FinishedRun {
    pub(crate) report: RunReport,
    /// Redacted.
    pub(crate) stdout: String,
    /// Redacted.
    pub(crate) stderr: String,
    pub(crate) facts: RunFacts,
}

impl FinishedRun {
    /// How it ended, if not by itself.
    pub(crate) fn end_note(&self) -> Option<String> {
        match self.report.outcome.exit {
            Exit::Code(_) => None,
            Exit::Signal(number) => Some(format!("killed by signal {number}")),
            Exit::Timeout => Some("timed out; all its processes were killed".to_owned()),
            Exit::Stopped(_) => Some("stopped; all its processes were killed".to_owned()),
            Exit::OutOfMemory => Some("killed: it used more memory than allowed".to_owned()),
            Exit::OutOfDisk => Some("killed: it wrote more than its disk limit".to_owned()),
        }
    }

    /// Whether part of the output is missing.
    pub(crate) fn truncated(&self) -> bool {
        let outcome = &self.report.outcome;
        outcome.stdout.truncated() || outcome.stderr.truncated()
    }

    /// The part of a payload that every run has (A3).
    pub(crate) fn payload(&self) -> Value {
        let outcome = &self.report.outcome;
        json!({
            "stdout": self.stdout, "stderr": self.stderr, "exit_code": outcome.exit.code(),
            "execution_time": outcome.duration.as_secs_f64(), "truncated": self.truncated(),
            "ended": self.end_note(),
            "denied": self.facts.denials, "hosts_denied": self.denied_hosts(),
        })
    }

    /// Hosts that it tried to reach and may not.
    pub(crate) fn denied_hosts(&self) -> Vec<String> {
        let (attempts, _) = &self.facts.attempts;
        let mut hosts: Vec<String> =
            attempts.iter().filter(|event| event.denied()).map(|event| event.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// The output as text for a model.
    pub(crate) fn text(&self) -> String {
        let mut text = self.stdout.clone();
        let part = |text: &mut String, more: &str| {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(more);
        };
        if !self.stderr.is_empty() {
            part(&mut text, &format!("[stderr]\n{}", self.stderr));
        }
        if self.truncated() {
            let outcome = &self.report.outcome;
            let total = outcome.stdout.total + outcome.stderr.total;
            part(&mut text, &format!("[output truncated: {total} bytes in total]\n"));
        }
        let end = self.end_note().map(|note| format!("; {note}")).unwrap_or_default();
        part(&mut text, &format!("[exit code {}{end}]", self.report.outcome.exit.code()));
        for host in self.denied_hosts() {
            part(&mut text, &format!("[the network is denied: {host} is not in `network.allow`]"));
        }
        text
    }
}

/// The time limit of a call: the requested one, or the default; never more than the maximum.
pub(crate) fn time_limit(limits: &CommandLimits, requested: Option<u64>) -> Result<Duration, CallError> {
    match requested.map(Duration::from_secs) {
        Some(time) if time > limits.max_time => {
            let most = limits.max_time.as_secs();
            let why = format!("the timeout is above the maximum of {most} seconds");
            Err(CallError::new(ErrorCode::InvalidArguments, why)
                .suggest(format!("use at most {most}, or divide the work")))
        }
        Some(time) => Ok(time),
        None => Ok(limits.time),
    }
}

/// The working directory of a program, relative to the project: a directory that the caller may read.
pub(crate) fn working_directory(context: &ToolContext, asked: Option<&str>) -> Result<PathBuf, CallError> {
    let service_root = &programs(context)?.settings.service_root;
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(PathBuf::from(service_root)) };
    let found = context.workspace.resolve(&AskedPath::new(asked).parse()?)?;
    if found.kind != ResolvedKind::Directory {
        return Err(CallError::new(
            ErrorCode::InvalidArguments,
            format!("`{}` is not a directory", found.path),
        ));
    }
    Ok(project_path(&found.path, service_root))
}

/// A path relative to the project directory.
pub(crate) fn project_path(path: &ScopedPath, service_root: &str) -> PathBuf {
    match path.zone() {
        Zone::Service => PathBuf::from(service_root).join(path.relative()),
        Zone::Project => PathBuf::from(path.relative()),
    }
}

/// What programs need; an error where none may run.
pub(crate) fn programs(context: &ToolContext) -> Result<&ProgramContext, CallError> {
    context
        .programs
        .as_deref()
        .ok_or_else(|| CallError::new(ErrorCode::SandboxUnavailable, "no program can run here"))
}

/// Runs a program and waits for its end.
pub(crate) fn run_program(
    context: &ToolContext,
    fence: &Fence,
    request: &RunRequest,
) -> Result<FinishedRun, CallError> {
    run_with_input(context, fence, request, Input::Nothing, context.call.listens())
}

/// The same with standard input. Without `streams` nobody receives the output while the program runs: for output that a
/// tool filters first.
pub(crate) fn run_with_input(
    context: &ToolContext,
    fence: &Fence,
    request: &RunRequest,
    input: Input<'_>,
    streams: bool,
) -> Result<FinishedRun, CallError> {
    let programs = programs(context)?;
    let stop = StopHandle::new().map_err(|error| {
        CallError::new(ErrorCode::Internal, format!("cannot make a stop handle: {error}"))
    })?;
    let cancel = stop.clone();
    context.call.cancel.on_cancel(move || cancel.terminate());
    let fence = scoped_fence(context, fence);
    let prepared = programs.prepare(request, &fence).map_err(CallError::from)?;
    let sandbox = programs.sandbox.get().map_err(CallError::from)?;
    let mut listener = OutputListener::new(&context.call);
    let mut pass = |stream, bytes: &[u8]| listener.pass(stream, bytes);
    let io =
        RunIo { input, output: streams.then_some(&mut pass), redactor: &programs.redactor, stop: Some(stop) };
    let report = prepared.run(&sandbox, io).map_err(CallError::from)?;
    context.call.cancel.check()?;
    finished(report, programs)
}

fn finished(report: RunReport, programs: &ProgramContext) -> Result<FinishedRun, CallError> {
    let text = |stream| {
        report.text(stream, &programs.redactor).map_err(|error| CallError::from(ExecError::from(error)))
    };
    let (stdout, stderr) = (text(OutputStream::Out)?, text(OutputStream::Err)?);
    let facts = run_facts(&report);
    Ok(FinishedRun { report, stdout, stderr, facts })
}

/// What the ledger and the timeline say about a run.
pub(crate) fn run_facts(report: &RunReport) -> RunFacts {
    let outcome = &report.outcome;
    let denials = outcome.denials.iter().take(MAX_RECORDED_DENIALS).map(|denial| {
        let path = quoted(denial.path.as_os_str().as_encoded_bytes());
        format!("{} {path}: {}", denial.operation.as_str(), denial.rule.as_str())
    });
    let attempts = report.attempts.clone().unwrap_or_default();
    RunFacts {
        tier: outcome.tier.as_str(),
        exit_code: outcome.exit.code(),
        denials: denials.collect(),
        attempts: (attempts.events, attempts.left_off),
        written: 0,
        other_entries: Vec::new(),
    }
}

/// The fence of a program: what policy decided, and of the project only what the workspace's scope has.
fn scoped_fence(context: &ToolContext, fence: &Fence) -> Fence {
    let mut fence = fence.clone();
    if let Some(scope) = context.workspace.program_scope() {
        fence.read.meet(&scope.read);
        fence.write.meet(&scope.write);
    }
    fence
}

/// Passes redacted output to the caller: as it is, and its last line as progress.
struct OutputListener<'a> {
    call: &'a CallContext,
    line: Vec<u8>,
    lines: u64,
    reported: Option<Instant>,
}

impl<'a> OutputListener<'a> {
    fn new(call: &'a CallContext) -> Self {
        Self { call, line: Vec::new(), lines: 0, reported: None }
    }

    fn pass(&mut self, stream: OutputStream, bytes: &[u8]) -> ControlFlow<()> {
        let stream = match stream {
            OutputStream::Out => CallStream::Out,
            OutputStream::Err => CallStream::Err,
        };
        self.report_progress(bytes);
        let wanted = self.call.output.as_ref().is_none_or(|sink| sink.write(stream, bytes));
        if wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn report_progress(&mut self, bytes: &[u8]) {
        let Some(progress) = &self.call.progress else { return };
        self.line.extend_from_slice(bytes);
        let Some(end) = memchr::memrchr(b'\n', &self.line) else {
            self.line.truncate(PROGRESS_CHARS * 4);
            return;
        };
        let complete: Vec<u8> = self.line.drain(..=end).collect();
        self.lines += memchr::memchr_iter(b'\n', &complete).count() as u64;
        if self.reported.is_some_and(|reported| reported.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.reported = Some(Instant::now());
        let text = String::from_utf8_lossy(&complete);
        let last = text.lines().next_back().unwrap_or_default();
        let message = last.chars().filter(|letter| !letter.is_control()).take(PROGRESS_CHARS).collect();
        progress.report(CallProgress { done: self.lines as f64, total: None, message: Some(message) });
    }
}
