//! `git_status`: the branch, and which files differ.

use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{FileState, GitStatus, StatusEntry, StatusKind, UntrackedFiles};

use super::plan::{payload_schema, reading_plan, reading_tool};
use super::session::{GitSession, OutputUse, output, unexpected_output};
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

/// The tool.
#[derive(Debug)]
pub(crate) struct GitStatusTool(ToolDefinition);

impl GitStatusTool {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Show the state of the repository".into(),
            method: "git.status".into(),
            description: "The branch of the repository and the files that are staged, changed or untracked. Files that the \
                caller may not read are not listed."
                .into(),
            input: json!({"type": "object", "additionalProperties": false, "properties": {}}),
            output: payload_schema(&[
                ("branch", "object", "Name, commit, upstream, and commits ahead and behind."),
                ("stashes", "integer", "How many stashes there are."),
                ("entries", "array", "The files that differ."),
                ("truncated", "boolean", "Whether files are missing."),
            ]),
        };
        Self(reading_tool("git_status", description))
    }
}

impl Tool for GitStatusTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, _args: &Value, _context: &ToolContext) -> Result<ToolPlan, CallError> {
        Ok(reading_plan(None, run))
    }
}

fn run(git: &GitSession<'_>) -> Result<ToolOutput, CallError> {
    let run = git.run(&git.operations().status(UntrackedFiles::All), OutputUse::List)?;
    let mut status = GitStatus::parse(&run.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    status.entries.retain(|entry| git.shows(&entry.path, entry.original.as_ref()));
    Ok(output(status.to_json(), text(&status), status.truncated, run.facts))
}

fn text(status: &GitStatus) -> String {
    let name = status.branch.name.as_deref().unwrap_or("no branch");
    let commit = status.branch.commit.as_deref().unwrap_or("no commit yet");
    let mut text = format!("On {name} ({commit})\n");
    for entry in &status.entries {
        text.push_str(&format!("{}: {}\n", state(entry), entry.path));
    }
    if status.entries.is_empty() {
        text.push_str("Nothing differs.\n");
    }
    text
}

fn state(entry: &StatusEntry) -> String {
    match (entry.kind, entry.staged, entry.unstaged) {
        (StatusKind::Tracked, staged, FileState::Unmodified) => format!("staged, {}", staged.as_str()),
        (StatusKind::Tracked, FileState::Unmodified, unstaged) => {
            format!("not staged, {}", unstaged.as_str())
        }
        (StatusKind::Tracked, staged, unstaged) => {
            format!("staged, {}, and not staged, {}", staged.as_str(), unstaged.as_str())
        }
        (kind, ..) => kind.as_str().to_owned(),
    }
}
