//! `execute_command`: runs one program with arguments, without a shell, in the sandbox (A3). The class of the command
//! decides whether a person is asked first; what it changed in the workspace comes back as one change.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_commands::{Classification, CommandClass};
use vambrace_core::config::CommandApproval;
use vambrace_core::effect::{Effect, Extent, PathAccess};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::id::ToolName;
use vambrace_core::path::{ScopedPath, Zone};
use vambrace_core::principal::Provenance;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{
    ExecutionEnvironment, FilesystemPolicy, NamePolicy, ToolDescriptor, ToolGroup, ToolPolicy,
};
use vambrace_exec::{HostRequest, NetworkRequest, RunRequest};
use vambrace_sandbox::Filesystem;
use vambrace_store::StartReceipt;

use crate::arguments::read;
use crate::held_changes::{self, HeldChanges};
use crate::program_run::{CommandLimits, FinishedRun, programs, run_program, time_limit, working_directory};
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, TouchedFiles, Weight,
};

const NAME: &str = "execute_command";

#[derive(Deserialize)]
struct Arguments {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    timeout: Option<u64>,
    cwd: Option<String>,
    #[serde(default)]
    speculative: bool,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct ExecuteCommand(ToolDefinition);

impl ExecuteCommand {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Run a command".into(),
            method: "shell.execute".into(),
            description: "Runs one program with its arguments in a sandbox over the project; no shell, so no pipes, globs or variables. \
                Commands that only read run at once. What a command changes in the project is returned as a diff and, where policy asks, waits \
                for approval. There is no network unless policy allows hosts. A non-zero exit code is a normal result."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["command"],
                "properties": {
                    "command": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "The program: a name, or a path in the project."},
                    "args": {"type": "array", "maxItems": 4096, "items": {"type": "string"}, "description": "Its arguments, one word each."},
                    "timeout": {"type": "integer", "minimum": 1, "description": "Seconds; 30 by default, at most 300."},
                    "cwd": {"type": "string", "description": "Working directory; the service root by default."},
                    "speculative": {"type": "boolean", "description": "Run it over a copy without asking first; its changes are proposed."},
                },
            }),
            output: output_schema(),
        };
        Self(ToolDefinition {
            descriptor: descriptor(NAME, &["tool_execute_command"]),
            description,
            planning: Weight::Light,
        })
    }
}

/// The payload of a tool that runs a program.
pub(crate) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "stdout": {"type": "string"}, "stderr": {"type": "string"}, "exit_code": {"type": "integer"},
            "execution_time": {"type": "number", "description": "Seconds."}, "truncated": {"type": "boolean"},
            "ended": {"type": ["string", "null"], "description": "How it ended, if not by itself."},
            "denied": {"type": "array", "items": {"type": "string"}},
            "hosts_denied": {"type": "array", "items": {"type": "string"}},
            "changes": {"type": "object", "description": "What it changed in the project."},
        },
    })
}

/// Facts of a tool that runs programs.
pub(crate) fn descriptor(name: &str, aliases: &[&str]) -> Arc<ToolDescriptor> {
    Arc::new(ToolDescriptor {
        name: ToolName::new(name),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        group: ToolGroup::Shell,
        policy: ToolPolicy {
            network: NamePolicy::Allow,
            filesystem: FilesystemPolicy::ReadWrite,
            secrets: NamePolicy::Allow,
        },
        required_role: None,
        risk: RiskLevel::Medium,
        read_only: false,
    })
}

impl Tool for ExecuteCommand {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let programs = programs(context)?;
        let mut argv = vec![args.command.clone()];
        argv.extend(args.args.iter().cloned());
        if let Some(word) = argv.iter().find(|word| word.contains('\0')) {
            let why = format!("an argument contains a NUL byte: `{}`", word.escape_default());
            return Err(CallError::new(ErrorCode::InvalidArguments, why));
        }
        let classified = programs.commands.classify_argv(&argv);
        let mode = RunMode::of(&classified, &programs.limits, args.speculative)?;
        let mut request = RunRequest::new(&args.command, context.workspace.directory());
        request.arguments = args.args.iter().map(Into::into).collect();
        request.cwd = working_directory(context, args.cwd.as_deref())?;
        request.limits.time = time_limit(&programs.limits, args.timeout)?;
        request.limits.output = programs.limits.output_bytes;
        Ok(plan_run(request, argv, mode, &classified))
    }
}

/// How a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// It only reads: the project is read-only.
    Read,
    /// Over an overlay, without network; its changes are proposed.
    EffectsFirst,
    /// After a person approved the command.
    AskFirst,
}

impl RunMode {
    /// The mode for a class of command, or its denial.
    pub(crate) fn of(
        classified: &Classification,
        limits: &CommandLimits,
        speculative: bool,
    ) -> Result<Self, CallError> {
        if classified.is_refused() {
            return Err(not_allowed(classified));
        }
        Ok(match (classified.class, classified.risk) {
            (CommandClass::ReadOnly, _) => Self::Read,
            (_, RiskLevel::High) => Self::AskFirst,
            _ if speculative || limits.approval == CommandApproval::EffectsFirst => Self::EffectsFirst,
            _ => Self::AskFirst,
        })
    }
}

/// The error of a command that is not allowed.
pub(crate) fn not_allowed(classified: &Classification) -> CallError {
    let why =
        classified.why.first().map(String::as_str).unwrap_or("it is not in the list of allowed commands");
    let error = CallError::new(ErrorCode::CommandNotAllowed, format!("Command not allowed: {why}"));
    match (&classified.suggestion, classified.typed_tool) {
        (Some(suggestion), _) => error.suggest(suggestion.clone()),
        (None, Some(tool)) => error.suggest(format!("use the tool `{tool}`")),
        (None, None) => error,
    }
}

/// The plan of a run.
pub(crate) fn plan_run(
    mut request: RunRequest,
    argv: Vec<String>,
    mode: RunMode,
    classified: &Classification,
) -> ToolPlan {
    let tree = |access| Effect::Path { access, extent: Extent::Tree, path: ScopedPath::root(Zone::Service) };
    let effects = vec![Effect::Execute { argv }, tree(PathAccess::Read)];
    let reasons = || classified.why.first().cloned().unwrap_or_default();
    let risk = match mode {
        RunMode::Read => Risk::low("it only reads"),
        RunMode::EffectsFirst => Risk::low("it runs over a copy, and its changes are proposed"),
        RunMode::AskFirst if classified.risk == RiskLevel::High => Risk::high(reasons()),
        RunMode::AskFirst => Risk::medium(reasons()),
    };
    request.filesystem = match mode {
        RunMode::Read => Filesystem::Read,
        RunMode::EffectsFirst | RunMode::AskFirst => Filesystem::ReadWrite,
    };
    request.network = match mode {
        RunMode::Read => NetworkRequest::None,
        // Nothing is allowed; the gate reports what it tries to reach.
        RunMode::EffectsFirst => {
            NetworkRequest::Hosts(HostRequest { hosts: Vec::new(), caps: Default::default(), upstream: None })
        }
        RunMode::AskFirst => NetworkRequest::Hosts(HostRequest {
            hosts: vec!["allow".to_owned()],
            caps: Default::default(),
            upstream: None,
        }),
    };
    // Python would leave compiled files beside every module that it imports.
    request.variables.push(("PYTHONDONTWRITEBYTECODE".into(), "1".into()));
    ToolPlan {
        effects,
        risk,
        path: None,
        weight: Weight::Heavy,
        work: Box::new(CommandWork { request, mode }),
    }
}

struct CommandWork {
    request: RunRequest,
    mode: RunMode,
}

impl ToolWork for CommandWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let run = run_program(context, fence, &self.request)?;
        let held = match self.mode {
            RunMode::Read => None,
            RunMode::EffectsFirst | RunMode::AskFirst => held_changes::of_run(context, &run, self.mode)?,
        };
        Ok(output(run, held))
    }
}

/// The result of a run.
pub(crate) fn output(run: FinishedRun, held: Option<HeldChanges>) -> ToolOutput {
    let mut data = run.payload();
    let mut text = run.text();
    if let (Some(held), Some(data)) = (&held, data.as_object_mut()) {
        data.insert("changes".to_owned(), held.payload());
        text.push_str(&held.text());
    }
    ToolOutput {
        data,
        details: json!({"exit_code": run.facts.exit_code, "sandbox_tier": run.facts.tier}),
        text: Some(text),
        note: None,
        provenance: Provenance::Program,
        truncated: run.truncated(),
        touched: TouchedFiles {
            run: Some(run.facts),
            held: held.and_then(HeldChanges::into_change),
            ..TouchedFiles::default()
        },
    }
}
