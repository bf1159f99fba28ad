//! `read_file`: lines of a text file with the facts that an agent's next edit needs (T6, A1, B1).

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
use vambrace_workspace::{Content, FileRead, Kind, LineRange, ReadRequest, Resolved};

use crate::arguments;
use crate::bare::finder;
use crate::tool::{About, Card, Output, Prepared, Room, Tool, Touched, Weight, Work, reader, visible};

const NAME: &str = "read_file";
/// Files up to here are read where the call stands; those that are perhaps not given whole, up to there: secrets are
/// looked for around the part.
const LIGHT_BYTES: u64 = 1 << 20;
const LIGHT_PART_BYTES: u64 = 1 << 16;

/// The tool.
pub(crate) struct ReadFile(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
    max_bytes: Option<u64>,
}

impl ReadFile {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "Read a file",
            method: "fs.read",
            description: "Reads lines of a text file of the project. Returns the content, the range of lines it covers, \
                the SHA-256 of the whole file (base_hash, to be given back with an edit), and how the file is written: \
                line endings, byte order mark, indentation. Without end_line at most 200 lines come back; `truncated` \
                says that there is more: ask again with a later start_line. PDF and common image files come back as \
                base64. Paths are relative to the service root; `project:` reaches shared folders. Secrets in the text \
                are replaced by placeholders.",
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["path"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "Path of the file, for example `src/main.rs` or `project:shared/api.md`."},
                    "start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
                    "end_line": {"type": "integer", "minimum": 1, "description": "Last line, inclusive; 200 lines from start_line when left out."},
                    "max_bytes": {"type": "integer", "minimum": 1, "description": "Bytes of content at most; clamped to the configured hard cap."},
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
        Self(Card { facts: reader(NAME, &["file.read", "tool_read_file"]), about })
    }
}

impl Tool for ReadFile {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let args: Args = arguments::read(NAME, args)?;
        let file = room.workspace.resolve(&AskedPath::new(args.path.as_str()).parse()?)?;
        if file.kind == Kind::Folder {
            let why = format!("`{}` is a folder", file.path);
            return Err(CallError::new(ErrorCode::NotAFile, why).suggest("use list_files for folders"));
        }
        let limits = &room.limits;
        let want = ReadRequest {
            start_line: args.start_line,
            end_line: args.end_line,
            max_bytes: clamp(args.max_bytes.unwrap_or(limits.read_bytes).min(limits.read_bytes_hard)),
            hard_cap: clamp(limits.read_bytes_hard),
            ..ReadRequest::default()
        };
        let whole = want.start_line.is_none() && file.size <= want.max_bytes as u64;
        let light = if whole { LIGHT_BYTES } else { LIGHT_PART_BYTES };
        Ok(Prepared {
            effects: vec![Effect::read(file.path.clone())],
            risk: Risk::low("it only reads"),
            path: Some(file.path.clone()),
            weight: if file.size <= light && file.links <= 1 { Weight::Light } else { Weight::Heavy },
            work: Box::new(Reading { file, want }),
        })
    }
}

/// The file that was decided about, still open: what its name means by now does not matter.
struct Reading {
    file: Resolved,
    want: ReadRequest,
}

impl Work for Reading {
    fn run(
        self: Box<Self>,
        room: &Room,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<Output, CallError> {
        if !fence.read.admits(&self.file.path) {
            let why = format!("`{}` is outside what this call may read", self.file.path);
            return Err(CallError::new(ErrorCode::PermissionDenied, why));
        }
        let want = ReadRequest { kin: visible(&fence.kin), secrets: Some(finder(room)), ..self.want };
        let read = room.workspace.read_open(&self.file, &want)?;
        Ok(output(read, want.max_bytes))
    }
}

fn output(read: FileRead, max_bytes: usize) -> Output {
    let base_hash = read.base_hash;
    let note = read.truncated.then(|| {
        let LineRange { start_line, end_line } = read.returned_range;
        let more = if end_line < read.total_lines {
            format!("go on with start_line={}", end_line + 1)
        } else {
            "the last line is cut: ask for more max_bytes".to_owned()
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
    Output {
        data,
        details: json!({"max_bytes": max_bytes}),
        text: None,
        note,
        provenance: Provenance::File,
        truncated: read.truncated,
        touched: Touched {
            lines: Some(lines),
            base_hash: base_hash.parse().ok(),
            masked: read.masked,
            ..Touched::default()
        },
    }
}

pub(crate) fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
