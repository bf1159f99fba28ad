//! The built-in tools. Each turns arguments into effects, and a started plan into a result. No tool checks policy; no tool
//! can run without the receipt of a committed start.

mod amendment;
mod amendment_report;
mod apply_patch;
mod arguments;
mod catalogue;
mod change;
mod delete_file;
mod diff_sections;
mod edit_file;
mod html_text;
mod list_files;
mod new_secrets;
mod read_file;
mod redacted_diff;
mod search;
mod secret_exposure;
mod tool;
mod web;
mod web_fetch;
mod web_search;
mod write_file;

pub use amendment::{Amendment, amend};
pub use catalogue::Catalogue;
pub use change::{change_payload, changed_files, plan_undo};
pub use redacted_diff::redacted_diff;
pub use tool::{
    ChangeContext, Tool, ToolContext, ToolDefinition, ToolDescription, ToolLimits, ToolOutput, ToolPlan,
    ToolWork, TouchedFiles, Weight,
};
pub use web::{SearchEngine, SearchService, SecretSource, WebConfig};
pub use web_search::SCOPE as SEARCH_SCOPE;
