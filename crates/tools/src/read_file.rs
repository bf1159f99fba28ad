//! `read_file`: lines of a text file, with the metadata that an agent needs for its next edit (T6, A1, B1).

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::path::AskedPath;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{Content, FileRead, LineRange, ReadRequest, Resolved, ResolvedKind};

use crate::arguments;
use crate::secret_exposure::secret_finder;
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, TouchedFiles, Weight,
    path_filter, read_tool_descriptor,
};

const NAME: &str = "read_file";
/// Files up to this size are read on the caller's thread.
const LIGHT_BYTES: u64 = 1 << 20;
/// The same for partial reads, which also scan for secrets around the part.
const LIGHT_PART_BYTES: u64 = 1 << 16;

/// The tool.
pub(crate) struct ReadFile(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFileArgs {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
    max_bytes: Option<u64>,
}

impl ReadFile {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Read a file".into(),
            method: "fs.read".into(),
            description: "Reads lines of a text file of the project. Returns the content, its line range, the SHA-256 of the \
                whole file (base_hash, to pass with an edit), and the line endings, byte order mark and indentation of the \
                file. Without end_line at most 200 lines are returned; if `truncated` is true, call again with a later \
                start_line. PDF and common image files are returned as base64. Paths are relative to the service root; \
                `project:` refers to shared directories. Secrets in the text are replaced by placeholders."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, for example `src/main.rs` or `project:shared/api.md`."},
                    "start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
                    "end_line": {"type": "integer", "minimum": 1, "description": "Last line, inclusive; 200 lines from start_line when left out."},
                    "max_bytes": {"type": "integer", "minimum": 1, "description": "Maximum bytes of content; clamped to the configured hard cap."},
                },
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "content": {"type": "string"}, "encoding": {"enum": ["utf-8", "base64"]}, "size": {"type": "integer"},
                    "returned_range": {"type": "object", "properties": {"start_line": {"type": "integer"}, "end_line": {"type": "integer"}}},
                    "total_lines": {"type": "integer"}, "base_hash": {"type": "string"}, "truncated": {"type": "boolean"},
                    "eol": {"type": "string"}, "bom": {"type": ["string", "null"]}, "indent": {"type": "string"},
                },
            }),
        };
        Self(ToolDefinition {
            descriptor: read_tool_descriptor(NAME, &["file.read", "tool_read_file"]),
            description,
            planning: Weight::Light,
        })
    }
}

impl Tool for ReadFile {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: ReadFileArgs = arguments::read(NAME, args)?;
        let file = context.workspace.resolve(&AskedPath::new(args.path.as_str()).parse()?)?;
        if file.kind == ResolvedKind::Directory {
            let why = format!("`{}` is a directory", file.path);
            return Err(CallError::new(ErrorCode::NotAFile, why).suggest("use list_files for directories"));
        }
        let limits = &context.limits;
        let request = ReadRequest {
            start_line: args.start_line,
            end_line: args.end_line,
            max_bytes: clamp(args.max_bytes.unwrap_or(limits.read_bytes).min(limits.read_bytes_hard)),
            hard_cap: clamp(limits.read_bytes_hard),
            ..ReadRequest::default()
        };
        let whole = request.start_line.is_none() && file.size <= request.max_bytes as u64;
        let light = if whole { LIGHT_BYTES } else { LIGHT_PART_BYTES };
        Ok(ToolPlan {
            effects: vec![Effect::read(file.path.clone())],
            risk: Risk::low("only reads"),
            path: Some(file.path.clone()),
            weight: if file.size <= light && file.links <= 1 { Weight::Light } else { Weight::Heavy },
            work: Box::new(ReadWork { file, request }),
        })
    }
}

/// A planned read. The file that policy decided about stays open; what its path names by now does not matter.
struct ReadWork {
    file: Resolved,
    request: ReadRequest,
}

impl ToolWork for ReadWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        if !fence.read.admits(&self.file.path) {
            let why = format!("this call is not allowed to read `{}`", self.file.path);
            return Err(CallError::new(ErrorCode::PermissionDenied, why));
        }
        let request = ReadRequest {
            hard_link_filter: path_filter(&fence.hard_links),
            secrets: Some(secret_finder(context)),
            ..self.request
        };
        let read = context.workspace.read_open(&self.file, &request)?;
        Ok(output(read, request.max_bytes))
    }
}

fn output(read: FileRead, max_bytes: usize) -> ToolOutput {
    let base_hash = read.base_hash;
    let note = read.truncated.then(|| {
        let LineRange { start_line, end_line } = read.returned_range;
        let more = if end_line < read.total_lines {
            format!("continue with start_line={}", end_line + 1)
        } else {
            "the last line is cut: increase max_bytes".to_owned()
        };
        format!("[truncated: lines {start_line} to {end_line} of {}; {more}]", read.total_lines)
    });
    let lines = (read.returned_range.start_line, read.returned_range.end_line);
    let (content, encoding) = match read.content {
        Content::Text(text) => (text, "utf-8"),
        Content::Binary(bytes) => (base64::engine::general_purpose::STANDARD.encode(bytes), "base64"),
    };
    let data = json!({
        "content": content, "encoding": encoding, "size": read.size,
        "returned_range": {"start_line": lines.0, "end_line": lines.1}, "total_lines": read.total_lines,
        "base_hash": base_hash, "truncated": read.truncated, "eol": read.eol.as_str(),
        "bom": read.bom.map(|bom| bom.as_str()), "indent": read.indent.to_string(),
    });
    ToolOutput {
        data,
        details: json!({"max_bytes": max_bytes}),
        text: None,
        note,
        provenance: Provenance::File,
        truncated: read.truncated,
        touched: TouchedFiles {
            lines: Some(lines),
            base_hash: base_hash.parse().ok(),
            masked: read.masked,
            ..TouchedFiles::default()
        },
    }
}

pub(crate) fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
