//! Words about tools, configuration and policy.

use std::path::PathBuf;

use clap::Subcommand;

use super::Seat;

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List them.
    List {
        /// As a Markdown page, whatever the role.
        #[arg(long)]
        markdown: bool,
    },
    /// Show one with its schemas.
    Show {
        /// The tool's name or alias.
        tool: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Every value in force and where it comes from.
    Show {
        #[command(flatten)]
        seat: Seat,
        /// Only keys that begin so.
        #[arg(default_value = "")]
        prefix: String,
    },
    /// A JSON Schema for editors.
    Schema,
    /// The reference of all keys as a Markdown page.
    Reference,
    /// Print an older file (`.flow/config.json`, `file_broker:`) in the present layout.
    Migrate {
        /// The file.
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Load every file and tell every fault and note.
    Check {
        #[command(flatten)]
        seat: Seat,
    },
    /// Run the cases written beside the rules (`match`, `not_match`).
    Test {
        #[command(flatten)]
        seat: Seat,
    },
}
