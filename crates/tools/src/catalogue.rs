//! The catalogue: every tool by its name and aliases.

use std::sync::Arc;

use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::near::nearest;

use crate::apply_patch::ApplyPatch;
use crate::arguments::Arguments;
use crate::delete_file::DeleteFile;
use crate::edit_file::EditFile;
use crate::list_files::ListFiles;
use crate::read_file::ReadFile;
use crate::search::{CountMatches, SearchFile};
use crate::tool::{Prepared, Room, Tool};
use crate::web_fetch::WebFetch;
use crate::web_search::WebSearch;
use crate::write_file::WriteFile;

/// Every tool there is.
pub struct Catalogue {
    shelves: Vec<Shelf>,
}

struct Shelf {
    tool: Arc<dyn Tool>,
    arguments: Arguments,
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tools().map(|tool| &tool.facts().name)).finish()
    }
}

impl Catalogue {
    /// The built-in tools, in the order of the documentation.
    pub fn built_in() -> Result<Self, CallError> {
        Self::new(vec![
            Arc::new(ReadFile::new()),
            Arc::new(ListFiles::new()),
            Arc::new(SearchFile::new()),
            Arc::new(CountMatches::new()),
            Arc::new(WriteFile::new()),
            Arc::new(EditFile::new()),
            Arc::new(ApplyPatch::new()),
            Arc::new(DeleteFile::new()),
            Arc::new(WebFetch::new()),
            Arc::new(WebSearch::new()),
        ])
    }

    /// A catalogue of these tools. Two tools with one name are refused.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, CallError> {
        let fault = |why: String| CallError::new(ErrorCode::Internal, why);
        let mut catalogue = Self { shelves: Vec::new() };
        for tool in tools {
            let name = &tool.facts().name;
            if names(&*tool).any(|name| catalogue.find(name).is_some()) {
                return Err(fault(format!("two tools are called `{name}`")));
            }
            let arguments = Arguments::new(&tool.about().input)
                .map_err(|why| fault(format!("the schema of `{name}`: {why}")))?;
            catalogue.shelves.push(Shelf { tool, arguments });
        }
        Ok(catalogue)
    }

    /// All tools.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.shelves.iter().map(|shelf| &shelf.tool)
    }

    /// The tool of a name or alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.shelf(name).map(|shelf| &shelf.tool)
    }

    /// The tool of a name or alias, or an error with the nearest of the names that may be told.
    pub fn get(&self, name: &str, told: impl Fn(&dyn Tool) -> bool) -> Result<&Arc<dyn Tool>, CallError> {
        self.find(name).ok_or_else(|| {
            let shown: String = name.chars().take(100).collect();
            let offered =
                || self.tools().filter(|tool| told(&***tool)).map(|tool| tool.facts().name.as_str());
            let near = match nearest(&shown, offered()) {
                Some(near) => format!("did you mean `{near}`? "),
                None => String::new(),
            };
            let list: Vec<&str> = offered().collect();
            let offer = if list.is_empty() {
                "no tools are offered".to_owned()
            } else {
                format!("the tools are: {}", list.join(", "))
            };
            CallError::new(ErrorCode::UnknownTool, format!("there is no tool `{shown}`"))
                .suggest(format!("{near}{offer}"))
        })
    }

    /// Checks arguments and lets the tool plan.
    pub fn plan(&self, name: &str, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let shelf = self
            .shelf(name)
            .ok_or_else(|| CallError::new(ErrorCode::UnknownTool, format!("there is no tool `{name}`")))?;
        shelf.arguments.check(shelf.tool.facts().name.as_str(), args)?;
        shelf.tool.plan(args, room)
    }

    fn shelf(&self, name: &str) -> Option<&Shelf> {
        self.shelves.iter().find(|shelf| names(&*shelf.tool).any(|known| known == name))
    }
}

fn names(tool: &dyn Tool) -> impl Iterator<Item = &str> {
    let facts = tool.facts();
    std::iter::once(facts.name.as_str()).chain(facts.aliases.iter().copied())
}
