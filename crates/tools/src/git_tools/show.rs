//! `git_show`: one commit, its files and its patch, of those files that the caller may read.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::ScopedPath;
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{GitCommit, GitCommits, GitFileDiff, Pathspec, Revision};

use super::diff::CONTEXT_LINES;
use super::plan::{path_argument, payload_schema, reading_plan, reading_tool};
use super::session::{GitSession, OutputUse, output, patch_paths, unexpected_output};
use crate::arguments::read;
use crate::tool::{RunFacts, Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

const NAME: &str = "git_show";

#[derive(Deserialize)]
struct Arguments {
    revision: String,
    path: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct GitShow(ToolDefinition);

impl GitShow {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Show a commit".into(),
            method: "git.show".into(),
            description: "One commit: author, message, changed files and a patch; a merge is compared with its first parent. \
                Files that the caller may not read are left out."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["revision"],
                "properties": {
                    "revision": {"type": "string", "minLength": 1, "maxLength": 300, "description": "A commit: a hash, a branch or tag, HEAD~2."},
                    "path": {"type": "string", "description": "Only this file or directory, relative to the service root."},
                },
            }),
            output: payload_schema(&[
                ("commit", "object", "The commit with its files."),
                ("patch", "string", "What it changed, as text."),
                ("truncated", "boolean", "Whether files or part of the patch are missing."),
            ]),
        };
        Self(reading_tool(NAME, description))
    }
}

impl Tool for GitShow {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let revision = Revision::new(&args.revision)
            .map_err(|error| CallError::new(ErrorCode::InvalidArguments, error.to_string()))?;
        let path = args.path.as_deref().map(|path| path_argument(context, path)).transpose()?;
        Ok(reading_plan(path.clone(), move |git| run(git, &revision, path.as_ref())))
    }
}

fn run(
    git: &GitSession<'_>,
    revision: &Revision,
    path: Option<&ScopedPath>,
) -> Result<ToolOutput, CallError> {
    let below = path.map(|path| git.pathspec(path)).transpose()?.flatten();
    let (mut commit, mut truncated, mut facts) = commit(git, revision)?;
    if let Some(below) = &below {
        commit.files.files.retain(|file| is_below(file, below));
    }
    let (paths, cut) = patch_paths(&commit.files.files);
    truncated |= cut;
    let mut patch = String::new();
    // Without a path git would show the whole commit.
    if !paths.is_empty() {
        // The hash: a branch may move between the two runs.
        let found = Revision::new(&commit.id)
            .map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))?;
        let run = git.run(&git.operations().show_patch(&found, &paths, CONTEXT_LINES), OutputUse::Text)?;
        truncated |= run.truncated();
        (patch, facts) = (git.visible_patch(&run)?, run.facts);
    }
    let author = &commit.author;
    let text = format!(
        "commit {}\nAuthor: {} <{}>\nDate: {}\n\n{}\n{patch}",
        commit.id, author.name, author.email, author.time, commit.message
    );
    let data = json!({"commit": commit.to_json(), "patch": patch, "truncated": truncated});
    Ok(output(data, text, truncated, facts))
}

/// A commit with the files that the caller may see, and whether files are missing.
pub(super) fn commit(
    git: &GitSession<'_>,
    revision: &Revision,
) -> Result<(GitCommit, bool, RunFacts), CallError> {
    let run = git.run(&git.operations().show_commit(revision), OutputUse::List)?;
    let list = GitCommits::parse(&run.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    let truncated = list.truncated;
    let Some(mut commit) = list.commits.into_iter().next() else {
        return Err(CallError::new(ErrorCode::TooLarge, "the commit is too large to be shown"));
    };
    git.retain_visible(&mut commit.files);
    Ok((commit, truncated, run.facts))
}

fn is_below(file: &GitFileDiff, path: &Pathspec) -> bool {
    let rest = file.path.as_bytes().strip_prefix(path.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
