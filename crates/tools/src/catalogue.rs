//! The catalogue: finds tools by name or alias and checks their arguments.

use std::sync::Arc;

use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::suggest::nearest;
use vambrace_core::tool::ToolDescriptor;

use crate::apply_patch::ApplyPatch;
use crate::arguments::ArgumentSchema;
use crate::delete_file::DeleteFile;
use crate::edit_file::EditFile;
use crate::execute_command::ExecuteCommand;
use crate::git_tools::{GitAdd, GitCheckout, GitCommitTool, GitDiff, GitLog, GitShow, GitStatusTool};
use crate::install_dependencies::InstallDependencies;
use crate::list_files::ListFiles;
use crate::read_file::ReadFile;
use crate::run_lint::RunLint;
use crate::run_test::RunTest;
use crate::search::{CountMatches, SearchFile};
use crate::shell_exec::{self, ShellExec};
use crate::tool::{Tool, ToolContext, ToolPlan};
use crate::web_fetch::WebFetch;
use crate::web_search::WebSearch;
use crate::write_file::WriteFile;

/// All tools.
pub struct Catalogue {
    entries: Vec<CatalogueEntry>,
}

/// Which of the tools exist that a configuration must ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptionalTools {
    /// `tools.shell_exec`.
    pub shell_exec: bool,
}

struct CatalogueEntry {
    tool: Arc<dyn Tool>,
    arguments: ArgumentSchema,
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tools().map(|tool| &tool.descriptor().name)).finish()
    }
}

impl Catalogue {
    /// The built-in tools, in the order of the documentation.
    pub fn built_in() -> Result<Self, CallError> {
        Self::new(built_in_tools())
    }

    /// The built-in tools that exist under a configuration.
    pub fn configured(optional: OptionalTools) -> Result<Self, CallError> {
        let mut tools = built_in_tools();
        tools.retain(|tool| optional.shell_exec || tool.descriptor().name.as_str() != shell_exec::NAME);
        Self::new(tools)
    }

    /// The facts about the built-in tools, without compiling their schemas.
    #[must_use]
    pub fn built_in_descriptors() -> Vec<Arc<ToolDescriptor>> {
        built_in_tools().iter().map(|tool| Arc::clone(tool.descriptor())).collect()
    }

    /// A catalogue of these tools. Duplicate names are an error.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, CallError> {
        let fault = |why: String| CallError::new(ErrorCode::Internal, why);
        let mut catalogue = Self { entries: Vec::new() };
        for tool in tools {
            let name = &tool.descriptor().name;
            if names(&*tool).any(|name| catalogue.find(name).is_some()) {
                return Err(fault(format!("two tools are called `{name}`")));
            }
            let arguments = ArgumentSchema::new(&tool.description().input)
                .map_err(|why| fault(format!("the schema of `{name}`: {why}")))?;
            catalogue.entries.push(CatalogueEntry { tool, arguments });
        }
        Ok(catalogue)
    }

    /// All tools.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.entries.iter().map(|entry| &entry.tool)
    }

    /// The tool with a name or alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.entry(name).map(|entry| &entry.tool)
    }

    /// The tool with a name or alias, or an error that suggests the nearest tool that the caller may see.
    pub fn get(&self, name: &str, visible: impl Fn(&dyn Tool) -> bool) -> Result<&Arc<dyn Tool>, CallError> {
        self.find(name).ok_or_else(|| {
            let shown: String = name.chars().take(100).collect();
            let offered =
                || self.tools().filter(|tool| visible(&***tool)).map(|tool| tool.descriptor().name.as_str());
            let near = match nearest(&shown, offered()) {
                Some(near) => format!("did you mean `{near}`? "),
                None => String::new(),
            };
            let list: Vec<&str> = offered().collect();
            let offer = if list.is_empty() {
                "no tools are available".to_owned()
            } else {
                format!("the tools are: {}", list.join(", "))
            };
            CallError::new(ErrorCode::UnknownTool, format!("there is no tool `{shown}`"))
                .suggest(format!("{near}{offer}"))
        })
    }

    /// Checks the arguments and plans the call.
    pub fn plan(&self, name: &str, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let entry = self
            .entry(name)
            .ok_or_else(|| CallError::new(ErrorCode::UnknownTool, format!("there is no tool `{name}`")))?;
        entry.arguments.check(entry.tool.descriptor().name.as_str(), args)?;
        entry.tool.plan(args, context)
    }

    fn entry(&self, name: &str) -> Option<&CatalogueEntry> {
        self.entries.iter().find(|entry| names(&*entry.tool).any(|known| known == name))
    }
}

fn built_in_tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ReadFile::new()),
        Arc::new(ListFiles::new()),
        Arc::new(SearchFile::new()),
        Arc::new(CountMatches::new()),
        Arc::new(WriteFile::new()),
        Arc::new(EditFile::new()),
        Arc::new(ApplyPatch::new()),
        Arc::new(DeleteFile::new()),
        Arc::new(ExecuteCommand::new()),
        Arc::new(ShellExec::new()),
        Arc::new(RunTest::new()),
        Arc::new(RunLint::new()),
        Arc::new(InstallDependencies::new()),
        Arc::new(GitStatusTool::new()),
        Arc::new(GitDiff::new()),
        Arc::new(GitLog::new()),
        Arc::new(GitShow::new()),
        Arc::new(GitAdd::new()),
        Arc::new(GitCommitTool::new()),
        Arc::new(GitCheckout::new()),
        Arc::new(WebFetch::new()),
        Arc::new(WebSearch::new()),
    ]
}

fn names(tool: &dyn Tool) -> impl Iterator<Item = &str> {
    tool.descriptor().names()
}
