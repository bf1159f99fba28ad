//! `apply_patch`: a unified diff over one or several files, one decision, all or nothing (B7).

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::risk::Level;

use crate::arguments;
use crate::bare;
use crate::change::{output_schema, planned};
use crate::tool::{About, Card, Prepared, Room, Tool, writer};

const NAME: &str = "apply_patch";

/// The tool.
pub(crate) struct ApplyPatch(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    patch: String,
}

impl ApplyPatch {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "Apply a patch",
            method: "fs.propose_patch",
            description: "Proposes a unified diff over one or several files: it may create, change, rename and delete. Context \
                must match exactly; a hunk that is found elsewhere than it says is applied there and noted, nothing is \
                guessed. One decision covers all files, and either all of them change or none. Nothing is written at once: \
                the change is proposed, and applied when a person, a rule or a grant agrees and the files are still those \
                it was made from. While nobody has decided, details.status is hitl_required; repeat the same call to hear \
                the outcome.",
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["patch"],
                "properties": {
                    "patch": {"type": "string", "minLength": 1, "description": "The diff, as `diff -u` or `git diff` prints it; paths relative to the service root."},
                },
            }),
            output: output_schema(),
        };
        Self(Card { facts: writer(NAME, &["file.patch"], Level::Medium), about })
    }
}

impl Tool for ApplyPatch {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let args: Args = arguments::read(NAME, args)?;
        let secrets = |bytes: &[u8]| bare::spans(bytes, &*room.changes.redactor);
        let draft =
            room.workspace.draft_patch_veiled(args.patch.as_bytes(), &room.changes.limits, &secrets)?;
        bare::check(&draft, &*room.changes.redactor)?;
        planned(room, None, draft)
    }
}
