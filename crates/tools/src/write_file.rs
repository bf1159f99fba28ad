//! `write_file`: a new file, or new or more content for one. It never writes by itself: it proposes (T7, A2, B2).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_core::risk::Level;
use vambrace_workspace::WriteMode;

use crate::arguments;
use crate::change::{output_schema, planned};
use crate::tool::{About, Card, Prepared, Room, Tool, writer};

const NAME: &str = "write_file";

/// The tool.
pub(crate) struct WriteFile(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: String,
    content: String,
    #[serde(default)]
    mode: Mode,
    base_hash: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Write,
    Append,
}

impl WriteFile {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "Write a file",
            method: "fs.propose_patch",
            description: "Proposes a new text file, new content for one (mode write), or more content at its end (mode \
                append). Give base_hash of read_file to make sure that nothing changed since. Prefer edit_file for small \
                changes. Nothing is written at once: the change is proposed, and applied when a person, a rule or a \
                grant agrees and the file is still the one it was made from. While nobody has decided, details.status is \
                hitl_required; repeat the same call to hear the outcome.",
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path", "content"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the service root."},
                    "content": {"type": "string", "description": "The content, byte for byte; no secrets, no placeholders of redacted ones."},
                    "mode": {"enum": ["write", "append"], "default": "write", "description": "Instead of what is there, or behind it."},
                    "base_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": "What read_file returned for the file."},
                },
            }),
            output: output_schema(),
        };
        Self(Card { facts: writer(NAME, &["file.write", "tool_write_file"], Level::Medium), about })
    }
}

impl Tool for WriteFile {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let args: Args = arguments::read(NAME, args)?;
        let path = AskedPath::new(args.path).parse()?;
        let mode = match args.mode {
            Mode::Write => WriteMode::Write,
            Mode::Append => WriteMode::Append,
        };
        let base = base_hash(args.base_hash.as_deref())?;
        let draft =
            room.workspace.draft_write(&path, args.content.as_bytes(), mode, base, &room.changes.limits)?;
        planned(room, Some(path), draft)
    }
}

/// What the caller says the file was.
pub(crate) fn base_hash(said: Option<&str>) -> Result<Option<Digest>, CallError> {
    said.map(|said| {
        said.parse().map_err(|_| {
            CallError::new(ErrorCode::InvalidArguments, "`base_hash` is not a hash of read_file")
                .suggest("give base_hash as read_file returned it, or leave it out")
        })
    })
    .transpose()
}
