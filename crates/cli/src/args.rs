//! The command line (clap); the doc comments are the text of `--help`. All commands are listed here; the arguments of larger
//! groups of commands have their own modules.

mod approvals;
mod audit;
mod config;
mod sandbox;
mod witness;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use vambrace_host::CallerOptions;

pub(crate) use self::approvals::{
    ApprovalsCommand, ApproveArgs, GrantsCommand, ProposalsCommand, TokenCommand,
};
pub(crate) use self::audit::{AuditCommand, ExportArgs, SessionCommand};
pub(crate) use self::config::{ConfigCommand, PolicyCommand, ToolsCommand};
pub(crate) use self::sandbox::{FilesystemMode, ObserveMode, SandboxCommand, SandboxRun};
pub(crate) use self::witness::{WitnessCommand, WitnessServeArgs};

/// Armour for an agent's hands: governed tools for AI agents.
///
/// Every call is planned into effects, decided by policy layers that can only narrow, and recorded in a tamper-evident
/// ledger.
#[derive(Debug, Parser)]
#[command(name = "vambrace", version, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Continue although the ledger was rolled back or contradicts its checkpoints; this is recorded.
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) acknowledge_rollback: bool,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success, 2 bad usage, 3 approval required, 4 denied, 5 failed, 6 `audit verify` reported findings.
State (database, ledger, keys) is stored in $VAMBRACE_HOME, by default in the XDG state directory.";

/// The project, role, skill and session of a call.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CallerArgs {
    /// Project directory [default: the nearest parent directory with `.vambrace`].
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Role of the caller [default: `roles.default` of the configuration].
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// Active skill: a directory in `.vambrace/skills`. A skill can only narrow.
    #[arg(long, value_name = "SKILL")]
    pub(crate) skill: Option<String>,
    /// Session of the call [default: one session per user and project].
    #[arg(long, value_name = "ID", env = "VAMBRACE_SESSION")]
    pub(crate) session: Option<String>,
}

impl CallerArgs {
    pub(crate) fn options(&self) -> CallerOptions {
        let Self { workspace, role, skill, session } = self.clone();
        CallerOptions { workspace, role, skill, session }
    }
}

/// A tool and its arguments.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CallArgs {
    /// Name or alias of the tool.
    pub(crate) tool: String,
    /// Arguments: one JSON object, `-` to read it from standard input, or `key=value` pairs.
    #[arg(value_name = "JSON | - | key=value")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) caller: CallerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a demo in a temporary project: a read, denials, a change that is approved and rolled back, the ledger, a tampered
    /// copy.
    Demo,
    /// Set up a project: write `.vambrace/config.yaml`, trust it, print the configuration for your MCP client.
    Init {
        /// Project directory [default: the current directory].
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Overwrite an existing configuration.
        #[arg(long)]
        force: bool,
    },
    /// Trust the project's current configuration; an untrusted configuration can only narrow.
    Trust {
        /// Project directory.
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Revoke the trust.
        #[arg(long)]
        revoke: bool,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Check this machine and this project, and report how to fix problems.
    Doctor {
        /// Project directory.
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
    },
    /// Call a tool.
    #[command(after_help = CALL_EXAMPLES)]
    Call {
        #[command(flatten)]
        call: CallArgs,
        /// The caller's id for this call.
        #[arg(long, value_name = "ID")]
        tool_call_id: Option<String>,
        /// The caller's id for its context.
        #[arg(long, value_name = "ID")]
        context_id: Option<String>,
        /// Wait for the decision of an approver: this many seconds, or until the approval request expires.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "86400")]
        wait: Option<u64>,
        /// Approve the call if it requires approval; needs the approver key or an approver token.
        #[arg(long, conflicts_with = "wait")]
        yes: bool,
    },
    /// List, show, approve and reject approval requests.
    Approvals {
        #[command(subcommand)]
        what: Option<ApprovalsCommand>,
    },
    /// List and revoke grants: standing approvals for a class of calls or a session.
    Grants {
        #[command(subcommand)]
        what: Option<GrantsCommand>,
    },
    /// List, apply, reject and roll back file changes.
    Proposals {
        #[command(subcommand)]
        what: Option<ProposalsCommand>,
    },
    /// Create, list and revoke tokens for agents, approvers, runners and administrators.
    Token {
        #[command(subcommand)]
        what: TokenCommand,
    },
    /// Show the verdict of every policy layer about a call, without running it. Exit codes: 0 allow, 3 ask, 4 deny.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        #[command(flatten)]
        call: CallArgs,
    },
    /// List the tools that the role and skill may use.
    Tools {
        #[command(subcommand)]
        what: Option<ToolsCommand>,
        #[command(flatten)]
        caller: CallerArgs,
    },
    /// Run the MCP server on standard input and output.
    Mcp {
        #[command(flatten)]
        caller: CallerArgs,
    },
    /// Read, verify and export the ledger.
    Audit {
        #[command(subcommand)]
        what: AuditCommand,
    },
    /// Show the steps of a call, or list the newest calls.
    Timeline {
        /// Id of the call, or its beginning.
        call: Option<String>,
        /// Maximum number of calls to list.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// List, resume and end sessions.
    Session {
        #[command(subcommand)]
        what: SessionCommand,
    },
    /// Show the effective configuration, print its schema, migrate older layouts.
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
    /// Check the policy, and run the test cases of its rules.
    Policy {
        #[command(subcommand)]
        what: PolicyCommand,
    },
    /// Run a witness: keep the newest checkpoints of other ledgers, and sign only consistent ones (C2SP tlog-witness).
    #[command(after_help = WITNESS_EXAMPLES)]
    Witness {
        #[command(subcommand)]
        what: Option<WitnessCommand>,
        #[command(flatten)]
        serve: WitnessServeArgs,
        /// State directory of the witness (key and checkpoints), on another machine or disk than the ledgers.
        #[arg(long, global = true, value_name = "DIR", env = "VAMBRACE_WITNESS_HOME")]
        state: Option<PathBuf>,
    },
    /// Redact secrets in files or standard input, or report their locations. Exit codes: 0 none found, 1 found.
    #[command(after_help = REDACT_EXAMPLES)]
    Redact {
        /// Files to read; `-` is standard input [default: `-`].
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Report the findings instead of printing the redacted text.
        #[arg(long, value_enum)]
        report: Option<ReportFormat>,
        /// Additional rules in gitleaks or betterleaks format (TOML).
        #[arg(long, value_name = "FILE")]
        rules: Vec<PathBuf>,
    },
    /// Run a program in the sandbox: the kernel limits its files, environment, time, memory and processes.
    Sandbox {
        #[command(subcommand)]
        what: SandboxCommand,
    },
    /// List the error codes with their meaning and a suggestion.
    Errors {
        /// Print a Markdown page.
        #[arg(long)]
        markdown: bool,
    },
}

const CALL_EXAMPLES: &str = "\
Examples:
  vambrace call read_file path=src/main.rs end_line=40
  vambrace call search_file '{\"regex\": \"fn \\\\w+\", \"path\": \"src\"}' --json
  vambrace call list_files pattern='*.md' recursive=true
  vambrace call write_file path=docs/note.md content='# Note' --wait";

const WITNESS_EXAMPLES: &str = "\
Examples:
  vambrace witness key --state /var/lib/vambrace-witness
  vambrace witness --state /var/lib/vambrace-witness --logs logs.txt --listen 127.0.0.1:7380
  vambrace witness list --state /var/lib/vambrace-witness";

const REDACT_EXAMPLES: &str = "\
Examples:
  kubectl logs pod | vambrace redact
  vambrace redact --report sarif src/*.py > secrets.sarif
Exit codes: 0 none found, 1 found, 2 bad usage, 4 invalid configuration, 5 failed.";

/// Format of a report of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReportFormat {
    /// One JSON object.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  vambrace explain read_file path=.env
  vambrace explain read_file path=src/main.rs --role product_owner --json";
