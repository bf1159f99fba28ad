//! The built-in tools. Each turns arguments into effects, and a started plan into a result. No tool checks policy; no tool
//! can run without the receipt of a committed start.

mod amendment;
mod amendment_report;
mod apply_patch;
mod arguments;
mod call_context;
mod catalogue;
mod change;
mod delete_file;
mod diff_sections;
mod edit_file;
mod execute_command;
mod git_tools;
mod held_changes;
mod html_text;
mod install_dependencies;
mod list_files;
mod new_secrets;
mod program_context;
mod program_run;
mod read_file;
mod redacted_diff;
mod run_lint;
mod run_test;
mod search;
mod secret_exposure;
mod shell_exec;
mod tool;
mod toolchain_run;
mod toolchain_view;
mod user_run;
mod web;
mod web_fetch;
mod web_search;
mod write_file;

pub use amendment::{Amendment, amend};
pub use call_context::{
    CallContext, CallProgress, CallStream, CancelToken, OutputSink, ProgressSink, cancelled_error,
};
pub use catalogue::{Catalogue, OptionalTools};
pub use change::{change_payload, changed_files, plan_held_change, plan_undo};
pub use program_context::ProgramContext;
pub use program_run::CommandLimits;
pub use redacted_diff::redacted_diff;
pub use tool::{
    ChangeContext, RunFacts, Tool, ToolContext, ToolDefinition, ToolDescription, ToolLimits, ToolOutput,
    ToolPlan, ToolWork, TouchedFiles, Weight,
};
pub use toolchain_run::ToolchainCommands;
pub use user_run::{ListedChanges, USER_RUN_TOOL, UserRun, UserRunEnd, UserRunJob, UserRunResult};
pub use web::{SearchEngine, SearchService, SecretSource, WebConfig};
pub use web_search::SCOPE as SEARCH_SCOPE;
