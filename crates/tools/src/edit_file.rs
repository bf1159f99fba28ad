//! `edit_file`: a list of edits, all or none, each found exactly as often as it says (T8, T9).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::path::AskedPath;
use vambrace_core::risk::Level;
use vambrace_workspace::{EditRequest, MatchMode, Operation};

use crate::arguments;
use crate::bare;
use crate::change::{output_schema, planned};
use crate::tool::{About, Card, Prepared, Room, Tool, writer};
use crate::write_file::base_hash;

const NAME: &str = "edit_file";

/// The tool.
pub(crate) struct EditFile(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: String,
    edits: Vec<Edit>,
    base_hash: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    #[serde(default)]
    operation: Verb,
    #[serde(default)]
    match_mode: Mode,
    spec: String,
    #[serde(default)]
    content: String,
    #[serde(default = "one")]
    count: usize,
    language: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Verb {
    #[default]
    Replace,
    AppendAfter,
    PrependBefore,
    Delete,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Exact,
    Regex,
    Ast,
}

fn one() -> usize {
    1
}

impl From<Edit> for EditRequest {
    fn from(edit: Edit) -> Self {
        Self {
            operation: match edit.operation {
                Verb::Replace => Operation::Replace,
                Verb::AppendAfter => Operation::AppendAfter,
                Verb::PrependBefore => Operation::PrependBefore,
                Verb::Delete => Operation::Delete,
            },
            match_mode: match edit.match_mode {
                Mode::Exact => MatchMode::Exact,
                Mode::Regex => MatchMode::Regex,
                Mode::Ast => MatchMode::Ast,
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
        let about = About {
            title: "Edit a file",
            method: "fs.propose_patch",
            description: "Proposes edits of one text file: each finds `spec` exactly `count` times (default 1) and replaces it, \
                puts content after or before it, or deletes it. match_mode exact takes the text as it stands (line endings do \
                not matter), regex the syntax of ripgrep with `$1` in content, ast a pattern of ast-grep with `$NAME`. All \
                edits see the file as it is now; overlapping ones and wrong counts abort everything, and the answer says \
                what is near. Nothing is written at once: the change is proposed, and applied when a person, a rule or a \
                grant agrees and the file is still the one it was made from. While nobody has decided, details.status is \
                hitl_required; repeat the same call to hear the outcome.",
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path", "edits"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the service root."},
                    "edits": {"type": "array", "minItems": 1, "maxItems": 1000, "description": "Each with operation, match_mode, spec, content, count.", "items": {
                        "type": "object", "additionalProperties": false, "required": ["spec"],
                        "properties": {
                            "operation": {"enum": ["replace", "append_after", "prepend_before", "delete"], "default": "replace"},
                            "match_mode": {"enum": ["exact", "regex", "ast"], "default": "exact"},
                            "spec": {"type": "string", "minLength": 1, "description": "What to find."},
                            "content": {"type": "string", "default": "", "description": "What to put in; not used by delete."},
                            "count": {"type": "integer", "minimum": 1, "default": 1, "description": "How many matches there must be."},
                            "language": {"type": "string", "description": "Of an ast pattern; that of the file's extension when left out."},
                        },
                    }},
                    "base_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": "What read_file returned for the file."},
                },
            }),
            output: output_schema(),
        };
        Self(Card { facts: writer(NAME, &["file.edit"], Level::Medium), about })
    }
}

impl Tool for EditFile {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let args: Args = arguments::read(NAME, args)?;
        let path = AskedPath::new(args.path).parse()?;
        let edits: Vec<EditRequest> = args.edits.into_iter().map(EditRequest::from).collect();
        let base = base_hash(args.base_hash.as_deref())?;
        let secrets = |bytes: &[u8]| bare::spans(bytes, &*room.changes.redactor);
        let drafted = |edits: &[EditRequest], base| {
            room.workspace.draft_edit_veiled(&path, edits, base, &room.changes.limits, &secrets)
        };
        let draft = drafted(&edits, base).map_err(|fault| bare::told(fault, room))?;
        bare::check(&draft, &*room.changes.redactor)?;
        if let (Some(file), Some(base)) = (draft.changes.files().first(), draft.bases.first()) {
            let hash = file.before().map(|before| before.hash);
            let matched = |edit: &EditRequest| {
                let removal = EditRequest { operation: Operation::Delete, ..edit.clone() };
                drafted(&[removal], hash)
            };
            bare::check_copies(base, &edits, matched, &*room.changes.redactor)?;
        }
        planned(room, Some(path), draft)
    }
}
