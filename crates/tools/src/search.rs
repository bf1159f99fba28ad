//! `search_file` and `count_matches`: a regular expression over a file or a directory (T10, T11).

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
use crate::secret_exposure::secret_finder;
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, TouchedFiles, Weight,
    path_filter, read_tool_descriptor, resolve_for_reading,
};

const SEARCH: &str = "search_file";
const COUNT: &str = "count_matches";

/// The tool that returns matching lines.
pub(crate) struct SearchFile(ToolDefinition);

/// The tool that counts matches.
pub(crate) struct CountMatches(ToolDefinition);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    #[serde(default)]
    path: String,
    regex: String,
    #[serde(default = "default_true")]
    recursive: bool,
    context_lines: Option<usize>,
    max_matches: Option<usize>,
}

fn default_true() -> bool {
    true
}

impl SearchFile {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Search files".into(),
            method: "fs.search".into(),
            description: "Searches a file or a directory of the project with a regular expression, line by line. Returns \
                matching lines with line numbers and context, sorted by path. Ignored, hidden, binary and blocked files are \
                skipped. A result that is too large loses detail step by step (see `detail`); then narrow the path or the \
                pattern. Ripgrep syntax: no look-around, no backreferences. A match that touches a redacted secret is not \
                reported."
                .into(),
            input: input_schema(Some(json!({
                "context_lines": {"type": "integer", "minimum": 0, "maximum": 20, "default": 2, "description": "Lines before and after each match."},
                "max_matches": {"type": "integer", "minimum": 1, "maximum": 2000, "default": 200, "description": "Maximum matching lines returned; all are counted."},
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
        Self(ToolDefinition {
            descriptor: read_tool_descriptor(SEARCH, &[]),
            description,
            planning: Weight::Light,
        })
    }
}

impl CountMatches {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Count matches".into(),
            method: "fs.search".into(),
            description: "Counts the matches of a regular expression in a file or a directory of the project: single \
                matches, not lines. A count of 1 means that an edit with this pattern is unambiguous. Same files and syntax \
                as search_file."
                .into(),
            input: input_schema(None),
            output: json!({
                "type": "object",
                "properties": {"count": {"type": "integer"}, "files": {"type": "integer"}, "complete": {"type": "boolean"}},
            }),
        };
        Self(ToolDefinition {
            descriptor: read_tool_descriptor(COUNT, &[]),
            description,
            planning: Weight::Light,
        })
    }
}

fn input_schema(further: Option<Value>) -> Value {
    let mut schema = json!({
        "type": "object", "additionalProperties": false, "required": ["regex"],
        "properties": {
            "path": {"type": "string", "default": ".", "description": "A file or a directory; the service root when left out."},
            "regex": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "The pattern, for example `fn\\s+\\w+_test`."},
            "recursive": {"type": "boolean", "default": true, "description": "Also search subdirectories."},
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
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        plan(SEARCH, SearchMode::Lines, args, context)
    }
}

impl Tool for CountMatches {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        plan(COUNT, SearchMode::Count, args, context)
    }
}

fn plan(tool: &str, mode: SearchMode, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
    let args: SearchArgs = arguments::read(tool, args)?;
    let (found, effect) = resolve_for_reading(context, args.path)?;
    let usual = SearchRequest::default();
    let request = SearchRequest {
        regex: args.regex,
        recursive: args.recursive,
        max_matches: args.max_matches.unwrap_or(usual.max_matches),
        context_lines: args.context_lines.unwrap_or(usual.context_lines),
        max_output_bytes: usual.max_output_bytes.min(context.limits.output_bytes),
        regex_budget: context.limits.regex,
        total_deadline: context.limits.search,
        mode,
        ..usual
    };
    Ok(ToolPlan {
        effects: vec![effect],
        risk: Risk::low("only reads"),
        path: Some(found.path.clone()),
        weight: Weight::Heavy,
        work: Box::new(SearchWork { start: found, request }),
    })
}

/// A planned search.
struct SearchWork {
    /// The file or directory that policy decided about, still open.
    start: Resolved,
    request: SearchRequest,
}

impl ToolWork for SearchWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let request = SearchRequest {
            path_filter: path_filter(&fence.read),
            hard_link_filter: path_filter(&fence.hard_links),
            secrets: Some(secret_finder(context)),
            ..self.request
        };
        let found = context.workspace.search_open(self.start, &request)?;
        Ok(match request.mode {
            SearchMode::Lines => lines(found),
            SearchMode::Count => count(&found),
        })
    }
}

fn lines(found: SearchResult) -> ToolOutput {
    let (text, masked) = (grep_text(&found), found.matches.iter().map(|hit| hit.masked).sum());
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

fn count(found: &SearchResult) -> ToolOutput {
    let data = json!({"count": found.total, "files": found.files, "complete": found.complete});
    output(data, format!("{} matches in {} files", found.total, found.files), !found.complete, 0)
}

fn output(data: Value, text: String, truncated: bool, masked: u32) -> ToolOutput {
    let touched = TouchedFiles { masked, ..TouchedFiles::default() };
    let (details, provenance) = (json!({}), Provenance::File);
    ToolOutput { data, details, text: Some(text), note: None, provenance, truncated, touched }
}

/// The result in grep's output format.
fn grep_text(found: &SearchResult) -> String {
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
