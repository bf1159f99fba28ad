//! `delete_file`: one file, never a folder, always HIGH (T11).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::path::AskedPath;
use vambrace_core::risk::Level;

use crate::arguments;
use crate::change::{output_schema, planned};
use crate::tool::{About, Card, Prepared, Room, Tool, writer};
use crate::write_file::base_hash;

const NAME: &str = "delete_file";

/// The tool.
pub(crate) struct DeleteFile(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: String,
    base_hash: Option<String>,
}

impl DeleteFile {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "Delete a file",
            method: "fs.propose_patch",
            description: "Proposes that one file goes; never a folder. Nothing is deleted at once: a person decides, and the \
                file must then still be the one that was looked at. While nobody has decided, details.status is \
                hitl_required; repeat the same call to hear the outcome.",
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the service root."},
                    "base_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": "What read_file returned for the file."},
                },
            }),
            output: output_schema(),
        };
        Self(Card { facts: writer(NAME, &["file.delete"], Level::High), about })
    }
}

impl Tool for DeleteFile {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let args: Args = arguments::read(NAME, args)?;
        let path = AskedPath::new(args.path).parse()?;
        let base = base_hash(args.base_hash.as_deref())?;
        let draft = room.workspace.draft_delete(&path, base, &room.changes.limits)?;
        planned(room, Some(path), draft)
    }
}
