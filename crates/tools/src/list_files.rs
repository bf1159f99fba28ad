//! `list_files`: names, kinds, sizes and times of what is in a folder (A4, T11).

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::fence::Fence;
use vambrace_core::path::ScopedPath;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{EntryKind, ListRequest, Listing};

use crate::arguments;
use crate::bare::finder;
use crate::tool::{About, Card, Output, Prepared, Room, Tool, Touched, Weight, Work, look, reader, visible};

const NAME: &str = "list_files";

/// The tool.
pub(crate) struct ListFiles(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    pattern: Option<String>,
}

impl ListFiles {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "List files",
            method: "fs.list",
            description: "Lists a folder of the project, sorted by path: name, path, type, size, time of the last change. \
                At most 1000 entries come back; total_count tells how many there are. Hidden names are listed only when \
                the pattern itself begins with a dot. Blocked names are never listed.",
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "path": {"type": "string", "default": ".", "description": "The folder; the service root when left out."},
                    "recursive": {"type": "boolean", "default": false, "description": "Also what is in folders below."},
                    "pattern": {"type": "string", "minLength": 1, "description": "A glob over names (`*.rs`), or with a slash over paths relative to the folder (`src/**/*.rs`)."},
                },
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "files": {"type": "array", "items": {"type": "object", "properties": {
                        "name": {"type": "string"}, "path": {"type": "string"},
                        "type": {"enum": ["file", "directory", "symlink"]}, "size": {"type": "integer"},
                        "modified": {"type": ["string", "null"]},
                    }}},
                    "total_count": {"type": "integer"}, "truncated": {"type": "boolean"},
                },
            }),
        };
        Self(Card { facts: reader(NAME, &["file.list", "list_directory", "tool_list_directory"]), about })
    }
}

impl Tool for ListFiles {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let args: Args = arguments::read(NAME, args)?;
        let (found, effect) = look(room, args.path)?;
        let want = ListRequest {
            recursive: args.recursive,
            pattern: args.pattern,
            max_entries: room.limits.list_entries,
            ..ListRequest::default()
        };
        Ok(Prepared {
            effects: vec![effect],
            risk: Risk::low("it only looks at names"),
            path: Some(found.path.clone()),
            weight: Weight::Heavy,
            work: Box::new(List { path: found.path, want }),
        })
    }
}

/// A folder that is about to be listed.
struct List {
    path: ScopedPath,
    want: ListRequest,
}

impl Work for List {
    fn run(
        self: Box<Self>,
        room: &Room,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<Output, CallError> {
        let want = ListRequest { visible: visible(&fence.read), secrets: Some(finder(room)), ..self.want };
        let listing = room.workspace.list(&self.path, &want)?;
        Ok(output(&listing))
    }
}

fn output(listing: &Listing) -> Output {
    let mut text = String::new();
    let files: Vec<Value> = listing
        .files
        .iter()
        .map(|entry| {
            let mark = if entry.kind == EntryKind::Folder { "/" } else { "" };
            let _ = writeln!(text, "{}{mark}\t{}", entry.path, entry.size);
            json!({"name": entry.name, "path": entry.path, "type": entry.kind.as_str(), "size": entry.size,
                   "modified": entry.modified})
        })
        .collect();
    let _ = write!(text, "{} of {} entries", files.len(), listing.total_count);
    Output {
        data: json!({"files": files, "total_count": listing.total_count, "truncated": listing.truncated}),
        details: json!({}),
        text: Some(text),
        note: None,
        provenance: Provenance::Listing,
        truncated: listing.truncated,
        touched: Touched::default(),
    }
}
