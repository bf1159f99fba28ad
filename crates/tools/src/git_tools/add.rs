//! `git_add`: stages files. Directories are expanded to files first, so that each file is checked by itself.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::ScopedPath;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{GitPath, GitStatus, Pathspec, UntrackedFiles, parse_filter_attributes};

use super::plan::{path_argument, payload_schema, writing_plan, writing_tool};
use super::repository_write_back::{GitChanges, write_back};
use super::session::{GitSession, OutputUse, output, unexpected_output};
use crate::arguments::read;
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

const NAME: &str = "git_add";

#[derive(Deserialize)]
struct Arguments {
    files: Vec<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct GitAdd(ToolDefinition);

impl GitAdd {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Stage files".into(),
            method: "git.add".into(),
            description: "Stages changed, new and deleted files for the next commit. A directory stands for the changed files in \
                it that the caller may read; ignored and blocked files are never staged. Only the index changes, so nobody is \
                asked. Files with a git filter, such as those of Git LFS, cannot be staged: filters do not run here."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["files"],
                "properties": {
                    "files": {
                        "type": "array", "minItems": 1, "maxItems": 1000,
                        "items": {"type": "string", "minLength": 1},
                        "description": "Files or directories, relative to the service root.",
                    },
                },
            }),
            output: payload_schema(&[("staged", "array", "The files that were staged.")]),
        };
        Self(writing_tool(NAME, description, RiskLevel::Low))
    }
}

impl Tool for GitAdd {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let paths: Result<Vec<ScopedPath>, CallError> =
            args.files.iter().map(|file| path_argument(context, file)).collect();
        let paths = paths?;
        let words = ["git", "add", "--"].map(str::to_owned).into_iter();
        let argv = words.chain(paths.iter().map(ToString::to_string)).collect();
        let reads = paths.iter().cloned().map(Effect::read_tree).collect();
        let risk = Risk::low("only the index changes");
        Ok(writing_plan(argv, reads, risk, move |git| run(git, &paths)))
    }
}

fn run(git: &GitSession<'_>, paths: &[ScopedPath]) -> Result<ToolOutput, CallError> {
    let listed = git.run(&git.operations().status(UntrackedFiles::All), OutputUse::List)?;
    let status = GitStatus::parse(&listed.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    if status.truncated {
        return Err(CallError::new(ErrorCode::TooLarge, "too many files differ to check each of them"));
    }
    let named: Result<Vec<Option<Pathspec>>, CallError> =
        paths.iter().map(|path| git.pathspec(path)).collect();
    let files = visible_files(git, &status, &named?)?;
    if files.is_empty() {
        let data = json!({"staged": []});
        return Ok(output(data, "Nothing to stage.\n".to_owned(), false, listed.facts));
    }
    deny_filtered(git, &files)?;
    let added = git.run(&git.operations().add(&files), OutputUse::List)?;
    write_back(git, &added, GitChanges::Repository, NAME)?;
    let names: Vec<String> = files.iter().map(ToString::to_string).collect();
    let text = names.iter().map(|name| format!("staged {name}\n")).collect();
    Ok(output(json!({"staged": names}), text, false, added.facts))
}

/// The changed files below the named paths that the caller may read; `None` names the whole working tree.
fn visible_files(
    git: &GitSession<'_>,
    status: &GitStatus,
    named: &[Option<Pathspec>],
) -> Result<Vec<Pathspec>, CallError> {
    let everything =
        || status.entries.iter().filter_map(|entry| Pathspec::try_from(&entry.path).ok()).collect();
    let named: Vec<Pathspec> = match named.iter().cloned().collect::<Option<Vec<_>>>() {
        Some(named) => named,
        None => everything(),
    };
    let shown = |path: &&GitPath| git.visible(path).is_some();
    let files = status.files_below(&named).into_iter().filter(shown).map(Pathspec::try_from).collect();
    let files: Vec<Pathspec> =
        Result::map_err(files, |error| CallError::new(ErrorCode::InvalidArguments, error.to_string()))?;
    Ok(files)
}

/// Filters do not run, so the stored content would not be what the repository's other users store.
fn deny_filtered(git: &GitSession<'_>, files: &[Pathspec]) -> Result<(), CallError> {
    let run = git.run(&git.operations().filter_attributes(files), OutputUse::List)?;
    let filtered = parse_filter_attributes(&run.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    match filtered.first() {
        None => Ok(()),
        Some((path, filter)) => {
            let why = format!(
                "`{path}` has the git filter `{filter}`, and filters do not run here; nothing was staged"
            );
            Err(CallError::new(ErrorCode::PermissionDenied, why).suggest("ask the user to stage this file"))
        }
    }
}
