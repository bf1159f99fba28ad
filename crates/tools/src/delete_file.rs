//! `delete_file`: deletes one file, never a directory; always high risk (T11).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::path::AskedPath;
use vambrace_core::risk::RiskLevel;

use crate::arguments;
use crate::change::{output_schema, plan_change};
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolPlan, Weight, write_tool_descriptor,
};
use crate::write_file::base_hash;

const NAME: &str = "delete_file";

/// The tool.
pub(crate) struct DeleteFile(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteFileArgs {
    path: String,
    base_hash: Option<String>,
}

impl DeleteFile {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Delete a file".into(),
            method: "fs.propose_patch".into(),
            description: "Proposes to delete one file; directories cannot be deleted. The file is deleted once a user approves \
                it, if it has not changed since. Until then details.status is hitl_required; repeat the same call to get the \
                outcome."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the service root."},
                    "base_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": "base_hash that read_file returned; the call fails if the file changed since."},
                },
            }),
            output: output_schema(),
        };
        Self(ToolDefinition {
            descriptor: write_tool_descriptor(NAME, &["file.delete"], RiskLevel::High),
            description,
            planning: Weight::Heavy,
        })
    }
}

impl Tool for DeleteFile {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: DeleteFileArgs = arguments::read(NAME, args)?;
        let path = AskedPath::new(args.path).parse()?;
        let base = base_hash(args.base_hash.as_deref())?;
        let draft = context.workspace.draft_delete(&path, base, &context.changes.limits)?;
        plan_change(context, Some(path), draft)
    }
}
