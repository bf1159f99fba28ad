//! `git_checkout`: checks out a branch, or creates it. The files of the working tree and the repository's own change in one
//! step: either all of it is written back or nothing is.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::effect::{Effect, Extent, PathAccess};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::{ScopedPath, Zone};
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_git::{BranchName, LogQuery, Revision, RevisionRange};

use super::plan::{payload_schema, writing_plan, writing_tool};
use super::repository_write_back::{GitChanges, write_back};
use super::session::{GitSession, OutputUse, output};
use crate::arguments::read;
use crate::tool::{Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan};

const NAME: &str = "git_checkout";

#[derive(Deserialize)]
struct Arguments {
    branch: String,
    #[serde(default)]
    create_if_missing: bool,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct GitCheckout(ToolDefinition);

impl GitCheckout {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Check out a branch".into(),
            method: "git.checkout".into(),
            description: "Checks out a branch of the repository, after approval where policy asks (MEDIUM). Changes that are not \
                committed are kept, or git denies the checkout. If a file would change that the caller may not change, nothing \
                happens. Hooks and filters of the repository do not run."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false, "required": ["branch"],
                "properties": {
                    "branch": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The name of the branch."},
                    "create_if_missing": {"type": "boolean", "default": false, "description": "Create it at the current commit if it does not exist."},
                },
            }),
            output: payload_schema(&[
                ("branch", "string", "The branch that is checked out."),
                ("created", "boolean", "Whether it is new."),
                ("files", "array", "The files that changed."),
                ("hooks_not_run", "array", "Hooks of the repository, which did not run."),
            ]),
        };
        Self(writing_tool(NAME, description, RiskLevel::Medium))
    }
}

impl Tool for GitCheckout {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, _context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let branch = BranchName::new(&args.branch)
            .map_err(|error| CallError::new(ErrorCode::InvalidArguments, format!("`branch`: {error}")))?;
        let create = args.create_if_missing;
        let mut argv: Vec<String> = ["git", "switch"].map(str::to_owned).into();
        argv.extend(create.then(|| "--create-if-missing".to_owned()));
        argv.push(branch.to_string());
        let tree = |access| {
            let path = ScopedPath::root(Zone::Service);
            Effect::Path { access, extent: Extent::Tree, path }
        };
        let effects = [PathAccess::Read, PathAccess::Modify].map(tree).into();
        let risk = Risk::medium(format!("it checks out the branch `{branch}`, which changes files"));
        Ok(writing_plan(argv, effects, risk, move |git| run(git, &branch, create)))
    }
}

fn run(git: &GitSession<'_>, branch: &BranchName, create: bool) -> Result<ToolOutput, CallError> {
    let operations = git.operations();
    let created = create && !exists(git, branch)?;
    let invocation = if created { operations.create_branch(branch) } else { operations.switch(branch) };
    let run = git.run(&invocation, OutputUse::List)?;
    let files = write_back(git, &run, GitChanges::WorkTree, NAME)?;
    let hooks = git.hooks();
    let mut text =
        format!("{} {branch}; {} files changed\n", if created { "created" } else { "on" }, files.len());
    if !hooks.is_empty() {
        text.push_str(&format!("[hooks of the repository did not run: {}]\n", hooks.join(", ")));
    }
    let names: Vec<String> = files.iter().map(|file| file.path.to_string()).collect();
    let data = json!({"branch": branch.as_str(), "created": created, "files": names, "hooks_not_run": hooks});
    let mut result = output(data, text, false, run.facts);
    result.touched.files = files;
    Ok(result)
}

fn exists(git: &GitSession<'_>, branch: &BranchName) -> Result<bool, CallError> {
    let revision = Revision::new(&branch.full_ref())
        .map_err(|error| CallError::new(ErrorCode::InvalidArguments, error.to_string()))?;
    let range = Some(RevisionRange::from(&revision));
    let query = LogQuery { range, paths: Vec::new(), max_count: 1, skip: 0, files: false };
    match git.run(&git.operations().log(&query), OutputUse::List) {
        Ok(_) => Ok(true),
        Err(error) if error.code == ErrorCode::InvalidArguments => Ok(false),
        Err(error) => Err(error),
    }
}
