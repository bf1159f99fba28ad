//! `search_file` and `count_matches`: a regular expression over a file or a folder (T10, T11).

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::fence::Fence;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{LineMatch, Resolved, SearchMode, SearchRequest, SearchResult};

use crate::arguments;
use crate::bare::finder;
use crate::tool::{About, Card, Output, Prepared, Room, Tool, Touched, Weight, Work, look, reader, visible};

const SEARCH: &str = "search_file";
const COUNT: &str = "count_matches";

/// The tool that shows matching lines.
pub(crate) struct SearchFile(Card);

/// The tool that counts matches.
pub(crate) struct CountMatches(Card);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    #[serde(default)]
    path: String,
    regex: String,
    #[serde(default = "yes")]
    recursive: bool,
    context_lines: Option<usize>,
    max_matches: Option<usize>,
}

fn yes() -> bool {
    true
}

impl SearchFile {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "Search files",
            method: "fs.search",
            description: "Searches a file or a folder of the project with a regular expression, line by line, and returns \
                the matching lines with their numbers and a few lines around them, sorted by path. Files that ignore \
                files name, hidden files, binary files and blocked names are left out. When there is too much, details \
                are given up step by step (`detail` says which); narrow the path or the pattern then. The syntax is \
                that of ripgrep: no look-around, no back-references. What touches a masked secret is no match.",
            input: input_schema(Some(json!({
                "context_lines": {"type": "integer", "minimum": 0, "maximum": 20, "default": 2, "description": "Lines before and after each match."},
                "max_matches": {"type": "integer", "minimum": 1, "maximum": 2000, "default": 200, "description": "Matching lines returned at most; all are counted."},
            }))),
            output: json!({
                "type": "object",
                "properties": {
                    "matches": {"type": "array", "items": {"type": "object", "properties": {
                        "path": {"type": "string"}, "line": {"type": "integer"}, "column": {"type": "integer"},
                        "text": {"type": "string"}, "before": {"type": "array", "items": {"type": "string"}},
                        "after": {"type": "array", "items": {"type": "string"}},
                    }}},
                    "total": {"type": "integer"}, "files": {"type": "integer"}, "truncated": {"type": "boolean"},
                    "detail": {"enum": ["full", "no_context", "short", "counts"]},
                    "per_file": {"type": "array", "items": {"type": "object", "properties": {
                        "path": {"type": "string"}, "count": {"type": "integer"},
                    }}},
                    "complete": {"type": "boolean"}, "skipped": {"type": "integer"},
                },
            }),
        };
        Self(Card { facts: reader(SEARCH, &[]), about })
    }
}

impl CountMatches {
    pub(crate) fn new() -> Self {
        let about = About {
            title: "Count matches",
            method: "fs.search",
            description: "Counts the matches of a regular expression in a file or a folder of the project: single matches, \
                not lines, so that a count of 1 means that an edit of this pattern is unambiguous. The same files and \
                syntax as search_file.",
            input: input_schema(None),
            output: json!({
                "type": "object",
                "properties": {"count": {"type": "integer"}, "files": {"type": "integer"}, "complete": {"type": "boolean"}},
            }),
        };
        Self(Card { facts: reader(COUNT, &[]), about })
    }
}

fn input_schema(further: Option<Value>) -> Value {
    let mut schema = json!({
        "type": "object", "additionalProperties": false, "required": ["regex"],
        "properties": {
            "path": {"type": "string", "default": ".", "description": "A file or a folder; the service root when left out."},
            "regex": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "The pattern, for example `fn\\s+\\w+_test`."},
            "recursive": {"type": "boolean", "default": true, "description": "Also in folders below."},
        },
    });
    if let (Some(properties), Some(Value::Object(further))) =
        (schema.get_mut("properties").and_then(Value::as_object_mut), further)
    {
        properties.extend(further);
    }
    schema
}

impl Tool for SearchFile {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        plan(SEARCH, SearchMode::Lines, args, room)
    }
}

impl Tool for CountMatches {
    fn card(&self) -> &Card {
        &self.0
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        plan(COUNT, SearchMode::Count, args, room)
    }
}

fn plan(tool: &str, mode: SearchMode, args: &Value, room: &Room) -> Result<Prepared, CallError> {
    let args: Args = arguments::read(tool, args)?;
    let (found, effect) = look(room, args.path)?;
    let usual = SearchRequest::default();
    let want = SearchRequest {
        regex: args.regex,
        recursive: args.recursive,
        max_matches: args.max_matches.unwrap_or(usual.max_matches),
        context_lines: args.context_lines.unwrap_or(usual.context_lines),
        max_output_bytes: usual.max_output_bytes.min(room.limits.output_bytes),
        regex_budget: room.limits.regex,
        total_deadline: room.limits.search,
        mode,
        ..usual
    };
    Ok(Prepared {
        effects: vec![effect],
        risk: Risk::low("it only reads"),
        path: Some(found.path.clone()),
        weight: Weight::Heavy,
        work: Box::new(Search { start: found, want }),
    })
}

/// A search that is about to begin.
struct Search {
    /// The file or folder that was decided about, still open.
    start: Resolved,
    want: SearchRequest,
}

impl Work for Search {
    fn run(
        self: Box<Self>,
        room: &Room,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<Output, CallError> {
        let want = SearchRequest {
            visible: visible(&fence.read),
            kin: visible(&fence.kin),
            secrets: Some(finder(room)),
            ..self.want
        };
        let found = room.workspace.search_open(self.start, &want)?;
        Ok(match want.mode {
            SearchMode::Lines => lines(found),
            SearchMode::Count => count(&found),
        })
    }
}

fn lines(found: SearchResult) -> Output {
    let (text, masked) = (told(&found), found.matches.iter().map(|hit| hit.masked).sum());
    let matches: Vec<Value> = found
        .matches
        .into_iter()
        .map(|hit| {
            json!({"path": hit.path, "line": hit.line, "column": hit.column, "text": hit.text,
                   "before": hit.before, "after": hit.after})
        })
        .collect();
    let per_file: Vec<Value> =
        found.per_file.into_iter().map(|file| json!({"path": file.path, "count": file.count})).collect();
    let data = json!({
        "matches": matches, "total": found.total, "files": found.files, "truncated": found.truncated,
        "detail": found.detail.as_str(), "per_file": per_file, "complete": found.complete, "skipped": found.skipped,
    });
    output(data, text, found.truncated, masked)
}

fn count(found: &SearchResult) -> Output {
    let data = json!({"count": found.total, "files": found.files, "complete": found.complete});
    output(data, format!("{} matches in {} files", found.total, found.files), !found.complete, 0)
}

fn output(data: Value, text: String, truncated: bool, masked: u32) -> Output {
    let touched = Touched { masked, ..Touched::default() };
    let (details, provenance) = (json!({}), Provenance::File);
    Output { data, details, text: Some(text), note: None, provenance, truncated, touched }
}

/// As grep would print it.
fn told(found: &SearchResult) -> String {
    let mut text = String::new();
    for LineMatch { path, line, text: hit, before, after, .. } in &found.matches {
        let first = line.saturating_sub(before.len() as u64);
        for (number, around) in (first..).zip(before) {
            let _ = writeln!(text, "{path}-{number}-{around}");
        }
        let _ = writeln!(text, "{path}:{line}:{hit}");
        for (number, around) in (line + 1..).zip(after) {
            let _ = writeln!(text, "{path}-{number}-{around}");
        }
    }
    for file in &found.per_file {
        let _ = writeln!(text, "{}: {}", file.path, file.count);
    }
    let _ = write!(text, "{} matching lines in {} files", found.total, found.files);
    if found.truncated {
        text.push_str("; not all are shown, narrow the path or the pattern");
    }
    text
}
