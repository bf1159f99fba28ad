//! Arguments of `tools`, `config` and `policy`.

use std::path::PathBuf;

use clap::Subcommand;

use super::CallerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List the tools.
    List {
        /// Print a Markdown page of all tools, for any role.
        #[arg(long)]
        markdown: bool,
    },
    /// Show a tool with its schemas.
    Show {
        /// Name or alias of the tool.
        tool: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every effective value and its origin.
    Show {
        #[command(flatten)]
        caller: CallerArgs,
        /// Only keys with this prefix.
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Print a JSON Schema for editors.
    Schema,
    /// Print the reference of all keys as a Markdown page.
    Reference,
    /// Convert an older file (`.flow/config.json`, `file_broker:`) to the current layout and print it.
    Migrate {
        /// File to convert.
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Load every file and report all errors and notes.
    Check {
        #[command(flatten)]
        caller: CallerArgs,
    },
    /// Run the test cases of the rules (`match`, `not_match`).
    Test {
        #[command(flatten)]
        caller: CallerArgs,
    },
    /// Classify commands: one per line of standard input, as text for a shell, `{"argv": [...]}` or `{"shell": "..."}`. Prints
    /// one JSON object per line: class (readonly, modifying, deny), risk and reasons.
    Classify,
}
