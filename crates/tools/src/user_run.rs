//! `sandbox_run`: the program that the user starts with `vambrace sandbox run`. It goes through the pipeline like every
//! call. It is in a catalogue of its own, which only the user's own command builds: no agent can call it.
//!
//! The typed request comes from the command line; the arguments of the call are its description for the record.

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use vambrace_core::effect::{Effect, Extent, PathAccess};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::id::ToolName;
use vambrace_core::path::{ScopedPath, Zone};
use vambrace_core::principal::Provenance;
use vambrace_core::quote::quoted;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{
    ExecutionEnvironment, FilesystemPolicy, NamePolicy, ToolDescriptor, ToolGroup, ToolPolicy,
};
use vambrace_exec::{
    ExecError, ExecErrorKind, NeededGrants, NetworkRequest, PreparedRun, RunIo, RunReport, RunRequest,
    WriteBackFailure, WrittenBack,
};
use vambrace_sandbox::{EntryChange, Exit, Filesystem, Input, OutputStream, StopHandle};
use vambrace_store::StartReceipt;

use crate::call_context::{CallContext, CallProgress, CallStream};
use crate::program_context::ProgramContext;
use crate::program_run::run_facts;
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, TouchedFiles, Weight,
};

/// The tool's name in records. A rule about `execute_command` applies to it too.
pub const USER_RUN_TOOL: &str = "sandbox_run";

/// Maximum directories, symlinks and files of bulk changes with a record of their own.
const MAX_RECORDED_ENTRIES: usize = 1000;

/// One run of the user: what to run, and where its result goes.
#[derive(Debug)]
pub struct UserRunJob {
    /// The program and what it asks for.
    pub request: RunRequest,
    /// Its standard input.
    pub input: OwnedFd,
    /// Stops it.
    pub stop: StopHandle,
    /// Whether to compute the diffs of its changes, and of how many.
    pub diffs: Option<ListedChanges>,
    /// Whether a failed program is run again to find what it needs.
    pub explain: bool,
    /// How the run ended; set by the call.
    pub result: Mutex<Option<UserRunResult>>,
}

/// Which changes of a run are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedChanges {
    /// The first ones.
    First,
    /// All.
    All,
}

/// How a run of the user ended.
#[derive(Debug)]
pub enum UserRunResult {
    /// The program ran.
    Ended(Box<UserRunEnd>),
    /// It did not run, or its outcome is unknown; the call's error says why.
    NotRun(ExecErrorKind),
}

/// A program that ran.
#[derive(Debug)]
pub struct UserRunEnd {
    /// Its outcome. The output in it is not redacted.
    pub report: RunReport,
    /// The listed changes with their diffs, if asked for.
    pub diffs: Option<Vec<(EntryChange, String)>>,
    /// The number of changes that were written back, or why none were.
    pub written: Result<usize, WriteBackFailure>,
    /// Whether changes are meant for the workspace.
    pub writes_back: bool,
    /// What a failed program would need.
    pub grants: Option<NeededGrants>,
}

/// The tool of one run.
#[derive(Debug)]
pub struct UserRun {
    definition: ToolDefinition,
    job: Arc<UserRunJob>,
}

impl UserRun {
    /// The facts for policy.
    #[must_use]
    pub fn descriptor() -> Arc<ToolDescriptor> {
        Arc::new(ToolDescriptor {
            name: ToolName::new(USER_RUN_TOOL),
            // Rules about commands apply to it.
            aliases: vec!["execute_command".to_owned(), "tool_execute_command".to_owned()],
            group: ToolGroup::Shell,
            policy: ToolPolicy {
                network: NamePolicy::Allow,
                filesystem: FilesystemPolicy::ReadWrite,
                secrets: NamePolicy::Allow,
            },
            required_role: None,
            risk: RiskLevel::Low,
            read_only: false,
        })
    }

    /// The tool of one run.
    #[must_use]
    pub fn new(job: Arc<UserRunJob>) -> Self {
        let definition = ToolDefinition {
            descriptor: Self::descriptor(),
            description: ToolDescription {
                title: "Run a program in the sandbox".into(),
                method: "sandbox.run".into(),
                description: "The user's own `vambrace sandbox run`.".into(),
                input: json!({"type": "object", "properties": {
                    "command": {"type": "string"}, "args": {"type": "array"}, "cwd": {"type": "string"},
                    "filesystem": {"type": "string"}, "network": {}, "env": {"type": "array"},
                    "read": {"type": "array"}, "write": {"type": "array"}, "timeout_sec": {"type": "number"},
                }}),
                output: json!({"type": "object"}),
            },
            planning: Weight::Light,
        };
        Self { definition, job }
    }

    /// The arguments of the call: the request as the record shows it.
    #[must_use]
    pub fn arguments(request: &RunRequest) -> Value {
        let network = match &request.network {
            NetworkRequest::None => json!("deny"),
            NetworkRequest::Loopback => json!("loopback"),
            NetworkRequest::Hosts(hosts) => json!(hosts.hosts),
        };
        json!({
            "command": request.program.to_string_lossy(),
            "args": request.arguments.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "cwd": request.cwd.to_string_lossy(),
            "filesystem": request.filesystem.as_str(),
            "network": network,
            "env": request.environment,
            "read": request.read.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "write": request.write.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "timeout_sec": request.limits.time.as_secs_f64(),
        })
    }
}

impl Tool for UserRun {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, _args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let request = &self.job.request;
        let words = std::iter::once(&request.program).chain(&request.arguments);
        let mut effects = vec![Effect::Execute { argv: words.map(|word| quoted_word(word)).collect() }];
        let root = || ScopedPath::root(Zone::Service);
        let tree = |access| Effect::Path { access, extent: Extent::Tree, path: root() };
        match request.filesystem {
            Filesystem::Deny => {}
            Filesystem::Read | Filesystem::Speculative => effects.push(tree(PathAccess::Read)),
            Filesystem::Write | Filesystem::ReadWrite => {
                effects.extend([PathAccess::Read, PathAccess::Modify].map(tree));
            }
        }
        if let (NetworkRequest::Hosts(_), Some(programs)) = (&request.network, &context.programs) {
            let credentials =
                programs.settings.terminate.iter().filter_map(|entry| entry.credential.as_ref());
            effects.extend(credentials.map(|(scope, ..)| Effect::Secret { scope: scope.clone() }));
        }
        Ok(ToolPlan {
            effects,
            risk: Risk::low("the user started it, and the sandbox confines it"),
            path: None,
            weight: Weight::Heavy,
            work: Box::new(UserRunWork(Arc::clone(&self.job))),
        })
    }
}

fn quoted_word(word: &std::ffi::OsStr) -> String {
    match word.to_str() {
        Some(word) => word.to_owned(),
        None => quoted(word.as_encoded_bytes()),
    }
}

struct UserRunWork(Arc<UserRunJob>);

impl ToolWork for UserRunWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let Self(job) = *self;
        let programs = context.programs.as_deref().ok_or_else(no_programs)?;
        let result = run(&job, programs, context, fence);
        let (result, output) = match result {
            Ok((end, files)) => {
                let output = output(&end, files);
                (UserRunResult::Ended(Box::new(end)), Ok(output))
            }
            Err(error) => (UserRunResult::NotRun(error.kind()), Err(CallError::from(error))),
        };
        *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        output
    }
}

fn no_programs() -> CallError {
    CallError::new(ErrorCode::SandboxUnavailable, "no program can run here")
}

fn run(
    job: &UserRunJob,
    programs: &ProgramContext,
    context: &ToolContext,
    fence: &Fence,
) -> Result<(UserRunEnd, Option<WrittenBack>), ExecError> {
    let prepared = programs.prepare(&job.request, fence)?;
    report_warnings(&prepared, &context.call);
    let stop = job.stop.clone();
    context.call.cancel.on_cancel(move || stop.terminate());
    let sandbox = programs.sandbox.get()?;
    let report = run_prepared(job, &prepared, programs, &sandbox, &context.call)?;
    // Before the write-back: diffs need the old content of the workspace.
    let diffs = job.diffs.zip(report.changes()).map(|(listed, changes)| {
        let listing = match listed {
            ListedChanges::All => vambrace_sandbox::ChangeListing::all(changes),
            ListedChanges::First => changes.listing(),
        };
        let mut diffs = changes.diffs();
        listing.changes.iter().map(|change| diffs.next(change)).collect()
    });
    let written = write_back(&prepared, &report, programs, context);
    let failed = report.outcome.exit != Exit::Code(0);
    let grants = match job.explain && failed && !matches!(report.outcome.exit, Exit::Stopped(_)) {
        // The run is over and written back: an error of the explanation does not change that.
        true => match prepared.explain(&sandbox, &report, Some(job.stop.clone())) {
            Ok(grants) => Some(grants),
            Err(error) => {
                report_warning(&context.call, format!("no explanation: {error}"));
                None
            }
        },
        false => None,
    };
    let (written, files) = match written {
        Ok(written) => (Ok(written.as_ref().map_or(0, |written| written.changes)), written),
        Err(failure) => (Err(failure), None),
    };
    let writes_back = prepared.writes_back();
    Ok((UserRunEnd { report, diffs, written, writes_back, grants }, files))
}

fn report_warnings(prepared: &PreparedRun, call: &CallContext) {
    prepared.warnings().iter().for_each(|warning| report_warning(call, warning.clone()));
}

fn report_warning(call: &CallContext, warning: String) {
    if let Some(progress) = &call.progress {
        progress.report(CallProgress { done: 0.0, total: None, message: Some(warning) });
    }
}

fn run_prepared(
    job: &UserRunJob,
    prepared: &PreparedRun,
    programs: &ProgramContext,
    sandbox: &vambrace_sandbox::Sandbox,
    call: &CallContext,
) -> Result<RunReport, ExecError> {
    let sink = call.output.clone();
    let mut pass = |stream, bytes: &[u8]| {
        let stream = match stream {
            OutputStream::Out => CallStream::Out,
            OutputStream::Err => CallStream::Err,
        };
        let read = sink.as_ref().is_none_or(|sink| sink.write(stream, bytes));
        if read { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    prepared.run(
        sandbox,
        RunIo {
            input: Input::From(job.input.as_fd()),
            output: call.output.is_some().then_some(&mut pass),
            redactor: &programs.redactor,
            stop: Some(job.stop.clone()),
        },
    )
}

fn write_back(
    prepared: &PreparedRun,
    report: &RunReport,
    programs: &ProgramContext,
    context: &ToolContext,
) -> Result<Option<WrittenBack>, WriteBackFailure> {
    let (Some(changes), Some(applier), true) =
        (report.changes(), &context.changes.applier, prepared.writes_back())
    else {
        return Ok(None);
    };
    let (places, umask) = (programs.sandbox.places(), programs.inherited.umask);
    vambrace_exec::prepare_write_back(changes, applier, places, umask)?.commit("sandbox run").map(Some)
}

/// The result for the record; the command reads [`UserRunEnd`].
fn output(end: &UserRunEnd, written: Option<WrittenBack>) -> ToolOutput {
    let outcome = &end.report.outcome;
    let mut facts = run_facts(&end.report);
    if let Some(written) = &written {
        facts.written = written.changes;
        let others = written.others.iter().take(MAX_RECORDED_ENTRIES);
        facts.other_entries = others.map(|path| quoted(path.as_os_str().as_encoded_bytes())).collect();
    }
    let warnings = end.written.as_ref().err().map(|failure| format!("the write-back failed: {failure}"));
    ToolOutput {
        data: json!({"exit_code": facts.exit_code, "sandbox_tier": facts.tier}),
        details: json!({"exit_code": facts.exit_code, "sandbox_tier": facts.tier}),
        text: None,
        note: None,
        provenance: Provenance::Broker,
        truncated: outcome.stdout.truncated() || outcome.stderr.truncated(),
        touched: TouchedFiles {
            files: written.map(|written| written.files).unwrap_or_default(),
            warnings: warnings.into_iter().collect(),
            run: Some(facts),
            ..TouchedFiles::default()
        },
    }
}
