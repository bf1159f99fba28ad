//! `shell_exec`: runs a text in a shell, in the sandbox. It exists only where `tools.shell_exec` is set, and a person approves
//! each call. The text is parsed so that rules about commands see every program in it, and so that one that only reads gets
//! a read-only project; what cannot be parsed counts as modifying.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_commands::{Classification, CommandClass};
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{ExecutionEnvironment, ToolDescriptor};
use vambrace_exec::RunRequest;

use crate::arguments::read;
use crate::execute_command::{RunMode, descriptor, not_allowed, output_schema, plan_run};
use crate::program_run::{programs, working_directory};
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolPlan, Weight};

pub(crate) const NAME: &str = "shell_exec";
/// The shell whose syntax the parser knows.
const SHELL: &str = "bash";

#[derive(Deserialize)]
struct Arguments {
    command: String,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct ShellExec(ToolDefinition);

impl ShellExec {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Run a shell text".into(),
            method: "shell.exec".into(),
            description: "Runs a text in bash, in a sandbox over the project. A person approves each call, so prefer execute_command, \
                which runs one program without a shell. A text that only reads gets a read-only project. There is no network unless policy \
                allows hosts. A non-zero exit code is a normal result."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["command"],
                "properties": {
                    "command": {"type": "string", "minLength": 1, "maxLength": 65536, "description": "The text for the shell."},
                },
            }),
            output: output_schema(),
        };
        let facts = descriptor(NAME, &["shell.exec"]);
        let descriptor = Arc::new(ToolDescriptor { risk: RiskLevel::High, ..(*facts).clone() });
        Self(ToolDefinition { descriptor, description, planning: Weight::Light })
    }
}

impl Tool for ShellExec {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let Arguments { command } = read(NAME, args)?;
        let programs = programs(context)?;
        if command.contains('\0') {
            return Err(CallError::new(ErrorCode::InvalidArguments, "the text contains a NUL byte"));
        }
        let classified = programs.commands.classify_shell(&command);
        if classified.is_refused() {
            return Err(not_allowed(&classified));
        }
        let mut request = RunRequest::new(SHELL, context.workspace.directory());
        request.arguments = vec!["-c".into(), command.clone().into()];
        request.cwd = working_directory(context, None)?;
        request.limits.time = programs.limits.time;
        request.limits.output = programs.limits.output_bytes;
        let argv = vec![SHELL.to_owned(), "-c".to_owned(), command];
        let mut plan = plan_run(request, argv, mode(&classified), &classified);
        plan.risk = Risk::high(reason(&classified));
        // Rules about commands judge every program in the text, as if each were called alone.
        let inner = classified.programs.into_iter().map(|program| Effect::Execute { argv: program.argv });
        plan.effects.extend(inner);
        Ok(plan)
    }
}

/// Only a text whose every part only reads gets a read-only project.
fn mode(classified: &Classification) -> RunMode {
    match classified.class {
        CommandClass::ReadOnly if !classified.unparsed => RunMode::Read,
        _ => RunMode::AskFirst,
    }
}

fn reason(classified: &Classification) -> String {
    match classified.why.first() {
        Some(why) => format!("it runs a text in a shell: {why}"),
        None => "it runs a text in a shell".to_owned(),
    }
}
