//! `git_log`: commits, newest first.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::path::ScopedPath;
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{GitCommit, GitCommits, LogQuery};

use super::plan::{path_argument, payload_schema, reading_plan, reading_tool};
use super::session::{GitSession, OutputUse, output, unexpected_output};
use crate::arguments::read;
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

const NAME: &str = "git_log";
const DEFAULT_LIMIT: u32 = 20;

#[derive(Deserialize)]
struct Arguments {
    limit: Option<u32>,
    path: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct GitLog(ToolDefinition);

impl GitLog {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "List commits".into(),
            method: "git.log".into(),
            description: "Commits from what is checked out, newest first: hash, parents, author, time and message. git_show \
                shows what one of them changed."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": DEFAULT_LIMIT, "description": "Maximum number of commits."},
                    "path": {"type": "string", "description": "Only commits that change this file or directory, relative to the service root."},
                },
            }),
            output: payload_schema(&[
                ("commits", "array", "The commits."),
                ("truncated", "boolean", "Whether the list was cut."),
            ]),
        };
        Self(reading_tool(NAME, description))
    }
}

impl Tool for GitLog {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let path = args.path.as_deref().map(|path| path_argument(context, path)).transpose()?;
        let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
        Ok(reading_plan(path.clone(), move |git| run(git, limit, path.as_ref())))
    }
}

fn run(git: &GitSession<'_>, limit: u32, path: Option<&ScopedPath>) -> Result<ToolOutput, CallError> {
    let paths = path.map(|path| git.pathspec(path)).transpose()?.flatten().into_iter().collect();
    let query = LogQuery { range: None, paths, max_count: limit, skip: 0, files: false };
    let run = git.run(&git.operations().log(&query), OutputUse::List)?;
    let list = GitCommits::parse(&run.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    let text = list.commits.iter().map(line).collect();
    Ok(output(list.to_json(), text, list.truncated, run.facts))
}

fn line(commit: &GitCommit) -> String {
    let short = commit.id.get(..12).unwrap_or(&commit.id);
    format!("{short} {} {}: {}\n", commit.author.time, commit.author.name, commit.subject())
}
