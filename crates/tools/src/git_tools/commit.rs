//! `git_commit`: commits what is staged. The plan has the message and the digest of the index, so an approval is for exactly
//! this commit.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::{ScopedPath, Zone};
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{CommitMessage, CommitMessageError, CommitMessageRules, DiffScope, DiffSummary, Revision};

use super::plan::{payload_schema, writing_plan, writing_tool};
use super::repository_write_back::{GitChanges, write_back};
use super::session::{GitSession, OutputUse, output, unexpected_output};
use super::show;
use crate::arguments::read;
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

const NAME: &str = "git_commit";

#[derive(Deserialize)]
struct Arguments {
    message: String,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct GitCommitTool(ToolDefinition);

impl GitCommitTool {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Commit what is staged".into(),
            method: "git.commit".into(),
            description: "Commits what is staged, after approval where policy asks (MEDIUM). The message has a subject of at most \
                100 characters, then an empty line, then text; it must not contain secrets. The hooks of the repository do not \
                run; the answer names those that exist."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["message"],
                "properties": {"message": {"type": "string", "minLength": 1, "maxLength": 10000, "description": "The commit message."}},
            }),
            output: payload_schema(&[
                ("commit", "object", "The commit with its files."),
                ("hooks_not_run", "array", "Hooks of the repository, which did not run."),
            ]),
        };
        Self(writing_tool(NAME, description, RiskLevel::Medium))
    }
}

impl Tool for GitCommitTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let message = checked_message(context, &args.message)?;
        let no_fence = vambrace_core::fence::Fence::default();
        let git = GitSession::open(context, &no_fence)?;
        let Some(index) = git.files.borrow_mut().index_digest(&git.repository)? else {
            return Err(nothing_staged());
        };
        let argv = ["git", "commit", "--message", message.as_str().trim_end()].map(str::to_owned);
        let argv = argv.into_iter().chain([format!("index={index}")]).collect();
        let reads = vec![Effect::read_tree(ScopedPath::root(Zone::Service))];
        let risk = Risk::medium(format!("it commits what is staged: \"{}\"", message.subject()));
        Ok(writing_plan(argv, reads, risk, move |git| run(git, &message, index)))
    }
}

fn checked_message(context: &ToolContext, text: &str) -> Result<CommitMessage, CallError> {
    let redactor = &context.changes.redactor;
    let find_secret = |text: &str| match redactor.secrets(text) {
        Ok(secrets) => secrets.into_iter().next().map(|secret| secret.placeholder),
        Err(error) => Some(error.to_string()),
    };
    CommitMessageRules::default().check(text, &find_secret).map_err(|error| {
        let code = match error {
            CommitMessageError::Secret(_) => ErrorCode::SecretInContent,
            _ => ErrorCode::InvalidArguments,
        };
        CallError::new(code, error.to_string())
    })
}

fn run(git: &GitSession<'_>, message: &CommitMessage, index: Digest) -> Result<ToolOutput, CallError> {
    check_staged(git)?;
    if git.files.borrow_mut().index_digest(&git.repository)? != Some(index) {
        let why = "what is staged changed since the commit was asked for; nothing was committed";
        return Err(CallError::new(ErrorCode::StaleBase, why)
            .suggest("look at git_diff with `staged` and commit again"));
    }
    let identity = git.files.borrow_mut().identity(&git.repository)?;
    let committed = git.run(&git.operations().commit(message, &identity), OutputUse::List)?;
    write_back(git, &committed, GitChanges::Repository, NAME)?;
    let (commit, truncated, facts) = show::commit(git, &Revision::head())?;
    let hooks = git.hooks();
    let mut text = format!("committed {}: {}\n", commit.id, commit.subject());
    if !hooks.is_empty() {
        text.push_str(&format!("[hooks of the repository did not run: {}]\n", hooks.join(", ")));
    }
    let data = json!({"commit": commit.to_json(), "hooks_not_run": hooks});
    Ok(output(data, text, truncated, facts))
}

/// A commit has only files that the caller may see; what else is staged was staged by a person.
fn check_staged(git: &GitSession<'_>) -> Result<(), CallError> {
    let run = git.run(&git.operations().diff_summary(&DiffScope::Staged, &[]), OutputUse::List)?;
    let summary = DiffSummary::parse(&run.report.outcome.stdout.bytes).map_err(unexpected_output)?;
    if summary.truncated {
        return Err(CallError::new(ErrorCode::TooLarge, "too many files are staged to check each of them"));
    }
    if summary.files.is_empty() {
        return Err(nothing_staged());
    }
    if summary.files.iter().all(|file| git.shows(&file.path, file.original.as_ref())) {
        return Ok(());
    }
    let why =
        "files are staged that this caller may not read, so it cannot commit them; nothing was committed";
    Err(CallError::new(ErrorCode::PermissionDenied, why).suggest("ask the user to commit or to unstage them"))
}

fn nothing_staged() -> CallError {
    CallError::new(ErrorCode::InvalidArguments, "nothing is staged").suggest("stage files with git_add first")
}
