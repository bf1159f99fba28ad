//! `git_diff`: what is not staged, or what a commit would contain. The list of files comes first; the patch is made only of
//! those that the caller may read.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::path::ScopedPath;
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{DiffScope, DiffSummary};

use super::plan::{path_argument, payload_schema, reading_plan, reading_tool};
use super::session::{GitSession, OutputUse, output, patch_paths, unexpected_output};
use crate::arguments::read;
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

const NAME: &str = "git_diff";
/// Lines around each change.
pub(super) const CONTEXT_LINES: u16 = 3;

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    staged: bool,
    path: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct GitDiff(ToolDefinition);

impl GitDiff {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Show changes".into(),
            method: "git.diff".into(),
            description: "The changes of the working tree that are not staged, or with `staged` those that a commit would \
                contain: files with line counts, and a patch. Files that the caller may not read are left out."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "staged": {"type": "boolean", "default": false, "description": "Show what is staged."},
                    "path": {"type": "string", "description": "Only this file or directory, relative to the service root."},
                },
            }),
            output: payload_schema(&[
                ("files", "array", "The files that differ, with line counts."),
                ("patch", "string", "The differences as text."),
                ("truncated", "boolean", "Whether files or part of the patch are missing."),
            ]),
        };
        Self(reading_tool(NAME, description))
    }
}

impl Tool for GitDiff {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let path = args.path.as_deref().map(|path| path_argument(context, path)).transpose()?;
        let scope = if args.staged { DiffScope::Staged } else { DiffScope::Unstaged };
        Ok(reading_plan(path.clone(), move |git| run(git, &scope, path.as_ref())))
    }
}

fn run(git: &GitSession<'_>, scope: &DiffScope, path: Option<&ScopedPath>) -> Result<ToolOutput, CallError> {
    let below: Vec<_> = path.map(|path| git.pathspec(path)).transpose()?.flatten().into_iter().collect();
    let listed = git.run(&git.operations().diff_summary(scope, &below), OutputUse::List)?;
    let mut summary = DiffSummary::parse(&listed.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    git.retain_visible(&mut summary);
    let (paths, cut) = patch_paths(&summary.files);
    let mut truncated = summary.truncated || cut;
    let (mut patch, mut facts) = (String::new(), listed.facts);
    // Without a path git would show the whole tree.
    if !paths.is_empty() {
        let run = git.run(&git.operations().diff_patch(scope, &paths, CONTEXT_LINES), OutputUse::Text)?;
        truncated |= run.truncated();
        (patch, facts) = (git.visible_patch(&run)?, run.facts);
    }
    let text = if patch.is_empty() { "Nothing differs.\n".to_owned() } else { patch.clone() };
    let mut data = summary.to_json();
    if let Some(data) = data.as_object_mut() {
        data.insert("patch".to_owned(), patch.into());
        data.insert("truncated".to_owned(), truncated.into());
    }
    Ok(output(data, text, truncated, facts))
}
