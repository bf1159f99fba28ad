//! Runs what `vambrace-toolchains` planned: tests, linters and installs. What they change in the project is discarded; only
//! the sandbox's build directories outlive a run.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_core::effect::{Effect, Extent, PathAccess};
use vambrace_core::error::CallError;
use vambrace_core::id::ToolName;
use vambrace_core::path::{ScopedPath, Zone};
use vambrace_core::principal::Provenance;
use vambrace_core::risk::RiskLevel;
use vambrace_core::tool::{FilesystemPolicy, NamePolicy, ToolDescriptor, ToolGroup, ToolPolicy};
use vambrace_exec::{HostRequest, NetworkRequest, RunRequest};
use vambrace_sandbox::{Exit, Filesystem};
use vambrace_toolchains::{CommandPlan, RunOutput, TruncatedLog, TruncationStrategy};

use crate::program_run::{FinishedRun, programs};
use crate::tool::{ToolContext, ToolOutput, TouchedFiles};
use crate::toolchain_view::ToolchainView;

/// How much of each output stream is kept for the reader of the results, in bytes. Summaries are at the end.
const READ_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of a report file, in bytes.
const MAX_REPORT_BYTES: u64 = 16 * 1024 * 1024;
/// Packages of cargo, relative to the project: in a build directory, because the home directory of a run is private.
pub(crate) const CARGO_PACKAGES: &str = "target/vambrace-packages/cargo";
/// Packages of go, relative to the project.
pub(crate) const GO_PACKAGES: &str = "target/vambrace-packages/go";

/// Configured commands of run_test and run_lint; detected where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolchainCommands {
    /// Program and arguments of run_test.
    pub test: Option<Vec<String>>,
    /// Program and arguments of run_lint.
    pub lint: Option<Vec<String>>,
}

/// Facts of a tool that runs a toolchain.
pub(crate) fn descriptor(name: &str, network: NamePolicy, risk: RiskLevel) -> Arc<ToolDescriptor> {
    Arc::new(ToolDescriptor {
        name: ToolName::new(name),
        aliases: Vec::new(),
        group: ToolGroup::Shell,
        policy: ToolPolicy { network, filesystem: FilesystemPolicy::ReadWrite, secrets: NamePolicy::Deny },
        required_role: None,
        risk,
        read_only: false,
    })
}

/// The effects of running commands over the project.
pub(crate) fn effects<'a>(plans: impl IntoIterator<Item = &'a CommandPlan>) -> Vec<Effect> {
    let tree = ScopedPath::root(Zone::Service);
    plans
        .into_iter()
        .map(|plan| Effect::Execute { argv: plan.argv.clone() })
        .chain([Effect::Path { access: PathAccess::Read, extent: Extent::Tree, path: tree }])
        .collect()
}

/// The request of a planned command: over an overlay that is discarded, with these hosts.
pub(crate) fn run_request(
    context: &ToolContext,
    view: &ToolchainView<'_>,
    plan: &CommandPlan,
    hosts: Vec<String>,
) -> Result<RunRequest, CallError> {
    let limits = &programs(context)?.limits;
    let mut argv = plan.argv.iter();
    let mut request = RunRequest::new(argv.next().map_or("", String::as_str), context.workspace.directory());
    request.arguments = argv.map(Into::into).collect();
    request.cwd = PathBuf::from(view.service_root()).join(&plan.directory);
    request.filesystem = Filesystem::Speculative;
    // Without hosts the gate only reports what the program tries to reach.
    request.network = NetworkRequest::Hosts(HostRequest { hosts, caps: Default::default(), upstream: None });
    request.limits.time = limits.max_time;
    request.limits.output = limits.output_bytes.max(READ_OUTPUT_BYTES);
    request.variables = plan.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Ok(request)
}

/// Lets a run find the packages that install_dependencies put into a build directory.
pub(crate) fn use_installed_packages(request: &mut RunRequest, view: &ToolchainView<'_>) {
    for (name, directory, content) in
        [("CARGO_HOME", CARGO_PACKAGES, "registry"), ("GOMODCACHE", GO_PACKAGES, "cache")]
    {
        // Without packages, those of the home directory are used.
        if view.was_built(&format!("{directory}/{content}")) {
            request.variables.push((name.into(), view.project_directory().join(directory).into()));
        }
    }
}

/// What the readers of results get; `report` comes from [`report_text`].
pub(crate) fn run_output<'a>(run: &'a FinishedRun, report: Option<&'a str>) -> RunOutput<'a> {
    let exit_code = match run.report.outcome.exit {
        Exit::Code(code) => Some(code),
        _ => None,
    };
    RunOutput { stdout: &run.stdout, stderr: &run.stderr, exit_code, report, truncated: run.truncated() }
}

/// The redacted report that a program wrote into the overlay.
pub(crate) fn report_text(
    context: &ToolContext,
    run: &FinishedRun,
    project: &Path,
    file: &str,
) -> Option<String> {
    let relative = Path::new(file).strip_prefix(project).ok()?;
    let changes = run.report.changes()?;
    changes.list.iter().find(|change| change.path == relative && change.after.is_some())?;
    let mut content = Vec::new();
    let read = File::from(changes.open_after(relative).ok()?)
        .take(MAX_REPORT_BYTES + 1)
        .read_to_end(&mut content)
        .ok()?;
    let (clean, _) = programs(context).ok()?.redactor.redact_bytes(&content).ok()?;
    (read as u64 <= MAX_REPORT_BYTES).then(|| String::from_utf8_lossy(&clean).into_owned())
}

/// The strategy of a call.
pub(crate) fn strategy(asked: Option<&str>) -> Result<TruncationStrategy, CallError> {
    asked.map(str::parse).transpose().map(Option::unwrap_or_default).map_err(CallError::from)
}

/// Cuts a log by a strategy, and to the configured maximum of a command's output.
pub(crate) fn cut_log(
    context: &ToolContext,
    strategy: TruncationStrategy,
    log: &str,
) -> Result<TruncatedLog, CallError> {
    let most = programs(context)?.limits.output_bytes;
    let mut cut = strategy.apply(log);
    if cut.text.len() > most {
        let end = (0..=most).rev().find(|end| cut.text.is_char_boundary(*end)).unwrap_or(0);
        cut.text.truncate(end);
        cut.text.push_str("\n[the log is cut here: it is longer than `limits.output_bytes`]\n");
    }
    Ok(cut)
}

/// The schema of what every run of a toolchain returns, with further properties.
pub(crate) fn output_schema(more: Value) -> Value {
    let mut properties = json!({
        "command": {"type": "array", "items": {"type": "string"}}, "directory": {"type": "string"},
        "reason": {"type": "string", "description": "Why this command."},
        "alternatives": {"type": "array", "items": {"type": "string"}}, "notes": {"type": "array", "items": {"type": "string"}},
        "complete": {"type": "boolean", "description": "Whether the summary was found, so that the counts are whole."},
        "log": {"type": "string"}, "log_lines": {"type": "integer"}, "log_lines_left_out": {"type": "integer"},
        "exit_code": {"type": "integer"}, "execution_time": {"type": "number", "description": "Seconds."},
        "ended": {"type": ["string", "null"], "description": "How it ended, if not by itself."},
        "truncated": {"type": "boolean"}, "hosts_denied": {"type": "array", "items": {"type": "string"}},
    });
    merge(&mut properties, more);
    json!({"type": "object", "properties": properties})
}

/// The part of a payload that run_test and run_lint share.
pub(crate) fn payload(plan: &CommandPlan, run: &FinishedRun, log: &TruncatedLog, more: Value) -> Value {
    let outcome = &run.report.outcome;
    let mut data = json!({
        "command": plan.argv, "directory": plan.directory, "log": log.text, "log_lines": log.lines,
        "log_lines_left_out": log.lines_left_out, "exit_code": outcome.exit.code(),
        "execution_time": outcome.duration.as_secs_f64(), "ended": run.end_note(), "truncated": run.truncated(),
        "hosts_denied": run.denied_hosts(),
    });
    merge(&mut data, more);
    data
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

/// The result: a summary, the log and how it ended as text.
pub(crate) fn output(run: FinishedRun, data: Value, summary: &str, log: &TruncatedLog) -> ToolOutput {
    let mut text = format!("{summary}\n{}", log.text);
    let mut line = |more: String| {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&more);
    };
    let end = run.end_note().map(|note| format!("; {note}")).unwrap_or_default();
    line(format!("[exit code {}{end}]", run.report.outcome.exit.code()));
    for host in run.denied_hosts() {
        line(format!("[the network is denied: it tried to reach {host}]"));
    }
    ToolOutput {
        data,
        details: json!({"exit_code": run.facts.exit_code, "sandbox_tier": run.facts.tier}),
        text: Some(text),
        note: None,
        provenance: Provenance::Program,
        truncated: run.truncated() || log.lines_left_out > 0,
        touched: TouchedFiles { run: Some(run.facts), ..TouchedFiles::default() },
    }
}
