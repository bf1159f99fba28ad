//! `edit_file`: a list of edits, applied all or none, each with an exact number of matches (T8, T9).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::path::AskedPath;
use vambrace_core::risk::RiskLevel;
use vambrace_workspace::{EditOperation, EditRequest, MatchMode};

use crate::arguments;
use crate::change::{output_schema, plan_change};
use crate::secret_exposure;
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolPlan, Weight, write_tool_descriptor,
};
use crate::write_file::base_hash;

const NAME: &str = "edit_file";

/// The tool.
pub(crate) struct EditFile(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditFileArgs {
    path: String,
    edits: Vec<EditArg>,
    base_hash: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArg {
    #[serde(default)]
    operation: OperationArg,
    #[serde(default)]
    match_mode: MatchModeArg,
    spec: String,
    #[serde(default)]
    content: String,
    #[serde(default = "default_count")]
    count: usize,
    language: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum OperationArg {
    #[default]
    Replace,
    AppendAfter,
    PrependBefore,
    Delete,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum MatchModeArg {
    #[default]
    Exact,
    Regex,
    Ast,
}

fn default_count() -> usize {
    1
}

impl From<EditArg> for EditRequest {
    fn from(edit: EditArg) -> Self {
        Self {
            operation: match edit.operation {
                OperationArg::Replace => EditOperation::Replace,
                OperationArg::AppendAfter => EditOperation::AppendAfter,
                OperationArg::PrependBefore => EditOperation::PrependBefore,
                OperationArg::Delete => EditOperation::Delete,
            },
            match_mode: match edit.match_mode {
                MatchModeArg::Exact => MatchMode::Exact,
                MatchModeArg::Regex => MatchMode::Regex,
                MatchModeArg::Ast => MatchMode::Ast,
            },
            spec: edit.spec,
            content: edit.content,
            count: edit.count,
            language: edit.language,
        }
    }
}

impl EditFile {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Edit a file".into(),
            method: "fs.propose_patch".into(),
            description: "Proposes edits of one text file. Each edit must match `spec` exactly `count` times (default 1) and \
                replaces the match, inserts content after or before it, or deletes it. match_mode: exact is literal text (line \
                ending styles are ignored), regex has ripgrep syntax with `$1` in content, ast is an ast-grep pattern with \
                `$NAME`. All edits match the current file; overlapping edits or a wrong count fail the whole call, and the \
                error shows similar text. The change is applied once a user, rule or grant approves it, if the file has not \
                changed since. Until then details.status is hitl_required; repeat the same call to get the outcome."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path", "edits"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the service root."},
                    "edits": {"type": "array", "minItems": 1, "maxItems": 1000, "description": "Each with operation, match_mode, spec, content, count.", "items": {
                        "type": "object", "additionalProperties": false, "required": ["spec"],
                        "properties": {
                            "operation": {"enum": ["replace", "append_after", "prepend_before", "delete"], "default": "replace"},
                            "match_mode": {"enum": ["exact", "regex", "ast"], "default": "exact"},
                            "spec": {"type": "string", "minLength": 1, "description": "Text or pattern to find."},
                            "content": {"type": "string", "default": "", "description": "New text; not used by delete."},
                            "count": {"type": "integer", "minimum": 1, "default": 1, "description": "Required number of matches."},
                            "language": {"type": "string", "description": "Language of an ast pattern; taken from the file extension when left out."},
                        },
                    }},
                    "base_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": "base_hash that read_file returned; the call fails if the file changed since."},
                },
            }),
            output: output_schema(),
        };
        Self(ToolDefinition {
            descriptor: write_tool_descriptor(NAME, &["file.edit"], RiskLevel::Medium),
            description,
            planning: Weight::Heavy,
        })
    }
}

impl Tool for EditFile {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: EditFileArgs = arguments::read(NAME, args)?;
        let path = AskedPath::new(args.path).parse()?;
        let edits: Vec<EditRequest> = args.edits.into_iter().map(EditRequest::from).collect();
        let base = base_hash(args.base_hash.as_deref())?;
        let secrets = secret_exposure::secret_finder(context);
        let drafted = |edits: &[EditRequest], base| {
            context.workspace.draft_edit_masked(&path, edits, base, &context.changes.limits, &secrets)
        };
        let draft =
            drafted(&edits, base).map_err(|fault| secret_exposure::without_secret_lines(fault, context))?;
        secret_exposure::check(&draft, &secrets)?;
        if let (Some(file), Some(base)) = (draft.changes.files().first(), draft.bases.first()) {
            let hash = file.before().map(|before| before.hash);
            let matched = |edit: &EditRequest| {
                let removal = EditRequest { operation: EditOperation::Delete, ..edit.clone() };
                drafted(&[removal], hash)
            };
            secret_exposure::check_copies(base, &edits, matched, &secrets)?;
        }
        plan_change(context, Some(path), draft)
    }
}
