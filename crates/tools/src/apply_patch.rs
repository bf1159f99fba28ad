//! `apply_patch`: a unified diff over one or several files, with one decision, applied all or none (B7).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::risk::RiskLevel;

use crate::arguments;
use crate::change::{output_schema, plan_change};
use crate::secret_exposure;
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolPlan, Weight, write_tool_descriptor,
};

const NAME: &str = "apply_patch";

/// The tool.
pub(crate) struct ApplyPatch(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyPatchArgs {
    patch: String,
}

impl ApplyPatch {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Apply a patch".into(),
            method: "fs.propose_patch".into(),
            description: "Proposes a unified diff over one or several files; it can create, change, rename and delete files. \
                Context must match exactly; a hunk that matches only at another line is applied there and noted. One decision \
                covers all files: either all of them change or none. The change is applied once a user, rule or grant approves \
                it, if the files have not changed since. Until then details.status is hitl_required; repeat the same call to \
                get the outcome."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["patch"],
                "properties": {
                    "patch": {"type": "string", "minLength": 1, "description": "The diff in `diff -u` or `git diff` format; paths relative to the service root."},
                },
            }),
            output: output_schema(),
        };
        Self(ToolDefinition {
            descriptor: write_tool_descriptor(NAME, &["file.patch"], RiskLevel::Medium),
            description,
            planning: Weight::Heavy,
        })
    }
}

impl Tool for ApplyPatch {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: ApplyPatchArgs = arguments::read(NAME, args)?;
        let secrets = secret_exposure::secret_finder(context);
        let draft =
            context.workspace.draft_patch_masked(args.patch.as_bytes(), &context.changes.limits, &secrets)?;
        secret_exposure::check(&draft, &secrets)?;
        plan_change(context, None, draft)
    }
}
