//! `list_files`: names, kinds, sizes and modification times of directory entries (A4, T11).

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::fence::Fence;
use vambrace_core::path::ScopedPath;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{DirectoryListing, ListEntryKind, ListRequest};

use crate::arguments;
use crate::secret_exposure::secret_finder;
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, TouchedFiles, Weight,
    path_filter, read_tool_descriptor, resolve_for_reading,
};

const NAME: &str = "list_files";

/// The tool.
pub(crate) struct ListFiles(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFilesArgs {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    pattern: Option<String>,
}

impl ListFiles {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "List files".into(),
            method: "fs.list".into(),
            description: "Lists a directory of the project, sorted by path: name, path, type, size, modification time. \
                Returns at most 1000 entries; total_count is the number of all. Hidden names are listed only when the \
                pattern itself begins with a dot. Blocked names are never listed."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "path": {"type": "string", "default": ".", "description": "The directory; the service root when left out."},
                    "recursive": {"type": "boolean", "default": false, "description": "Also list subdirectories."},
                    "pattern": {"type": "string", "minLength": 1, "description": "A glob over names (`*.rs`), or with a slash over paths relative to the directory (`src/**/*.rs`)."},
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
        Self(ToolDefinition {
            descriptor: read_tool_descriptor(NAME, &["file.list", "list_directory", "tool_list_directory"]),
            description,
            planning: Weight::Light,
        })
    }
}

impl Tool for ListFiles {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: ListFilesArgs = arguments::read(NAME, args)?;
        let (found, effect) = resolve_for_reading(context, args.path)?;
        let request = ListRequest {
            recursive: args.recursive,
            pattern: args.pattern,
            max_entries: context.limits.list_entries,
            ..ListRequest::default()
        };
        Ok(ToolPlan {
            effects: vec![effect],
            risk: Risk::low("only lists names"),
            path: Some(found.path.clone()),
            weight: Weight::Heavy,
            work: Box::new(ListWork { path: found.path, request }),
        })
    }
}

/// A planned listing.
struct ListWork {
    path: ScopedPath,
    request: ListRequest,
}

impl ToolWork for ListWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let request = ListRequest {
            path_filter: path_filter(&fence.read),
            secrets: Some(secret_finder(context)),
            ..self.request
        };
        let listing = context.workspace.list(&self.path, &request)?;
        Ok(output(&listing))
    }
}

fn output(listing: &DirectoryListing) -> ToolOutput {
    let mut text = String::new();
    let files: Vec<Value> = listing
        .files
        .iter()
        .map(|entry| {
            let mark = if entry.kind == ListEntryKind::Directory { "/" } else { "" };
            let _ = writeln!(text, "{}{mark}\t{}", entry.path, entry.size);
            json!({"name": entry.name, "path": entry.path, "type": entry.kind.as_str(), "size": entry.size,
                   "modified": entry.modified})
        })
        .collect();
    let _ = write!(text, "{} of {} entries", files.len(), listing.total_count);
    ToolOutput {
        data: json!({"files": files, "total_count": listing.total_count, "truncated": listing.truncated}),
        details: json!({}),
        text: Some(text),
        note: None,
        provenance: Provenance::Listing,
        truncated: listing.truncated,
        touched: TouchedFiles::default(),
    }
}
