//! Finds the test runners and linters of a project, best first, with the reason for each.
//!
//! The search begins in the directory of the target and goes up to the service root; the first directory that has
//! something decides. Without a target it is the root, or the only directory below it that has something. Among several
//! the language of the target comes first, then the order of the list; runners with structured results come before
//! make and just.

pub(crate) mod cargo_workspace;
pub(crate) mod linters;
pub(crate) mod package_json;
pub(crate) mod recipes;
pub(crate) mod test_runners;

pub use linters::detect_linters;
pub use test_runners::detect_test_runners;

use crate::command_plan::ToolCandidate;
use crate::project_view::{ProjectView, ancestors, join};
use crate::target::ToolTarget;

/// Maximum number of directories below the root that are looked at.
const MAX_SUBDIRECTORIES: usize = 200;

/// Language of a file or a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeLanguage {
    Rust,
    Python,
    JavaScript,
    Go,
    Java,
    Shell,
}

impl CodeLanguage {
    /// The language of a file, by its suffix.
    pub(crate) fn of_file(name: &str) -> Option<Self> {
        Some(match name.rsplit_once('.')?.1 {
            "rs" => Self::Rust,
            "py" | "pyi" => Self::Python,
            "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" | "vue" | "svelte" => {
                Self::JavaScript
            }
            "go" => Self::Go,
            "java" | "kt" | "kts" | "groovy" | "scala" => Self::Java,
            "sh" | "bash" => Self::Shell,
            _ => return None,
        })
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection<T> {
    /// Candidates, best first.
    pub candidates: Vec<ToolCandidate<T>>,
    /// Directories that have something, if there are several and no target says which.
    pub directories: Vec<String>,
}

/// Searches the directories for a target.
fn search<T>(
    view: &dyn ProjectView,
    target: &ToolTarget,
    language_of: impl Fn(&T) -> Option<CodeLanguage>,
    find: impl Fn(&str) -> Vec<ToolCandidate<T>>,
) -> Detection<T> {
    let wanted = target.file_name().and_then(CodeLanguage::of_file);
    let fits = |candidate: &ToolCandidate<T>| wanted.is_none() || language_of(&candidate.tool) == wanted;
    let mut fallback = Vec::new();
    for directory in ancestors(target.directory(view)) {
        let mut found = find(directory);
        if found.iter().any(&fits) {
            found.sort_by_key(|candidate| !fits(candidate));
            return Detection { candidates: found, directories: Vec::new() };
        }
        if fallback.is_empty() {
            fallback = found;
        }
    }
    if !fallback.is_empty() || !matches!(target, ToolTarget::All | ToolTarget::Name(_)) {
        return Detection { candidates: fallback, directories: Vec::new() };
    }
    let mut below: Vec<(String, Vec<ToolCandidate<T>>)> = Vec::new();
    for name in view.list("").into_iter().filter(|name| !name.starts_with('.')).take(MAX_SUBDIRECTORIES) {
        let directory = join("", &name);
        if view.is_directory(&directory) && name != "node_modules" && name != "target" {
            let found = find(&directory);
            if !found.is_empty() {
                below.push((directory, found));
            }
        }
    }
    let directories = below.iter().map(|(directory, _)| directory.clone()).collect();
    match below.pop() {
        Some((_, candidates)) if below.is_empty() => Detection { candidates, directories: Vec::new() },
        _ => Detection { candidates: Vec::new(), directories },
    }
}
