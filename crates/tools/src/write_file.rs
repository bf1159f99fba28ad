//! `write_file`: creates a file, or replaces or appends content. It never writes directly: it proposes a change (T7, A2, B2).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_core::risk::RiskLevel;
use vambrace_workspace::WriteMode;

use crate::arguments;
use crate::change::{output_schema, plan_change};
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolPlan, Weight, write_tool_descriptor,
};

const NAME: &str = "write_file";

/// The tool.
pub(crate) struct WriteFile(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFileArgs {
    path: String,
    content: String,
    #[serde(default)]
    mode: WriteModeArg,
    base_hash: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum WriteModeArg {
    #[default]
    Write,
    Append,
}

impl WriteFile {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Write a file".into(),
            method: "fs.propose_patch".into(),
            description: "Proposes to create a text file, to replace its content (mode write) or to append to it (mode append). \
                Pass base_hash from read_file to fail if the file changed since. Prefer edit_file for small changes. The \
                change is applied once a user, rule or grant approves it, if the file has not changed since. Until then \
                details.status is hitl_required; repeat the same call to get the outcome."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path", "content"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the service root."},
                    "content": {"type": "string", "description": "The content, byte for byte; must not contain secrets or placeholders of redacted secrets."},
                    "mode": {"enum": ["write", "append"], "default": "write", "description": "Replace the content or append to it."},
                    "base_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": "base_hash that read_file returned; the call fails if the file changed since."},
                },
            }),
            output: output_schema(),
        };
        Self(ToolDefinition {
            descriptor: write_tool_descriptor(NAME, &["file.write", "tool_write_file"], RiskLevel::Medium),
            description,
            planning: Weight::Heavy,
        })
    }
}

impl Tool for WriteFile {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: WriteFileArgs = arguments::read(NAME, args)?;
        let path = AskedPath::new(args.path).parse()?;
        let mode = match args.mode {
            WriteModeArg::Write => WriteMode::Write,
            WriteModeArg::Append => WriteMode::Append,
        };
        let base = base_hash(args.base_hash.as_deref())?;
        let draft = context.workspace.draft_write(
            &path,
            args.content.as_bytes(),
            mode,
            base,
            &context.changes.limits,
        )?;
        plan_change(context, Some(path), draft)
    }
}

/// Parses the caller's base hash.
pub(crate) fn base_hash(text: Option<&str>) -> Result<Option<Digest>, CallError> {
    text.map(|text| {
        text.parse().map_err(|_| {
            CallError::new(ErrorCode::InvalidArguments, "`base_hash` is not a hash from read_file")
                .suggest("pass base_hash as read_file returned it, or leave it out")
        })
    })
    .transpose()
}
