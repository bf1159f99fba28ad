//! The command line, in the words that `--help` prints: every command here, the words of each family in a module of its own.

mod approvals;
mod audit;
mod sandbox;
mod settings;
mod witness;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub(crate) use self::approvals::{
    ApprovalsCommand, ApproveWords, GrantsCommand, ProposalsCommand, TokenCommand,
};
pub(crate) use self::audit::{AuditCommand, ExportWords, SessionCommand};
pub(crate) use self::sandbox::{FilesystemMode, ObserveMode, SandboxCommand, SandboxRun};
pub(crate) use self::settings::{ConfigCommand, PolicyCommand, ToolsCommand};
pub(crate) use self::witness::{WitnessCommand, WitnessSeat};

/// Armour for an agent's hands: governed tools for AI agents.
///
/// Every call is planned into effects, decided by policy layers that can only narrow, and written to a ledger
/// that shows tampering.
#[derive(Debug, Parser)]
#[command(name = "vambrace", version, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Go on although the ledger was set back or does not fit its checkpoints; this is put on record.
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) acknowledge_rollback: bool,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success, 2 bad usage, 3 a human must agree, 4 denied, 5 failed, 6 `audit verify` found something.
The state (database, ledger, keys) lives in $VAMBRACE_HOME, else in the XDG state folder.";

/// Which workspace, as whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Seat {
    /// The project; the nearest folder upwards with a `.vambrace` in it when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The role to act in; the configured default when left out.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// The active skill: a folder below `.vambrace/skills`. It can only narrow.
    #[arg(long, value_name = "SKILL")]
    pub(crate) skill: Option<String>,
    /// The session that calls belong to; one per user and project when left out.
    #[arg(long, value_name = "ID", env = "VAMBRACE_SESSION")]
    pub(crate) session: Option<String>,
}

/// A call in words.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CallWords {
    /// The tool's name or alias.
    pub(crate) tool: String,
    /// The arguments: one JSON object, or `key=value` pairs.
    #[arg(value_name = "JSON | key=value")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) seat: Seat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what it does, in a temporary project: a read, refusals, a change that is approved and rolled back, the ledger,
    /// a tampered copy.
    Demo,
    /// Set up a project: write `.vambrace/config.yaml`, trust it, print what to paste into your client.
    Init {
        /// The project; the current folder when left out.
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Write the file anew where there is one already.
        #[arg(long)]
        force: bool,
    },
    /// Trust the project's configuration as it is now; until then it can only narrow.
    Trust {
        /// The project.
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Take the trust back.
        #[arg(long)]
        revoke: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Look at this machine and this project: what works, what is missing, what to do.
    Doctor {
        /// The project.
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
    },
    /// Call a tool.
    #[command(after_help = CALL_EXAMPLES)]
    Call {
        #[command(flatten)]
        words: CallWords,
        /// The caller's own id of this call.
        #[arg(long, value_name = "ID")]
        tool_call_id: Option<String>,
        /// The caller's own id of its context.
        #[arg(long, value_name = "ID")]
        context_id: Option<String>,
        /// Wait while a person decides: so many seconds, or as long as the question stands.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "86400")]
        wait: Option<u64>,
        /// Agree to the question that it asks, if it asks one; takes the approver key or an approver token.
        #[arg(long, conflicts_with = "wait")]
        yes: bool,
    },
    /// Questions to a person: list and show them, say yes or no.
    Approvals {
        #[command(subcommand)]
        what: Option<ApprovalsCommand>,
    },
    /// Standing answers: what was agreed to for a class of calls or a session.
    Grants {
        #[command(subcommand)]
        what: Option<GrantsCommand>,
    },
    /// Changes of files: proposed, applied, rolled back.
    Proposals {
        #[command(subcommand)]
        what: Option<ProposalsCommand>,
    },
    /// Tokens for agents, approvers, runners and administrators.
    Token {
        #[command(subcommand)]
        what: TokenCommand,
    },
    /// Tell what every layer says about a call, without making it. Exits 0 allow, 3 ask, 4 deny.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        #[command(flatten)]
        words: CallWords,
    },
    /// List the tools that this role and skill may use.
    Tools {
        #[command(subcommand)]
        what: Option<ToolsCommand>,
        #[command(flatten)]
        seat: Seat,
    },
    /// Serve the tools to an MCP client over standard input and output.
    Mcp {
        #[command(flatten)]
        seat: Seat,
    },
    /// Read and check the ledger.
    Audit {
        #[command(subcommand)]
        what: AuditCommand,
    },
    /// Tell what happened inside a call; the newest calls when no call is named.
    Timeline {
        /// The call's id.
        call: Option<String>,
        /// How many calls to list.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Sessions: list them, lift a suspension, end one.
    Session {
        #[command(subcommand)]
        what: SessionCommand,
    },
    /// The configuration in force: values with their origin, its schema, older layouts.
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
    /// Check the policy, and run the cases written beside its rules.
    Policy {
        #[command(subcommand)]
        what: PolicyCommand,
    },
    /// Keep the newest checkpoints of other ledgers and sign only what continues them (C2SP tlog-witness).
    #[command(after_help = WITNESS_EXAMPLES)]
    Witness {
        #[command(subcommand)]
        what: Option<WitnessCommand>,
        #[command(flatten)]
        serve: WitnessSeat,
        /// The witness's own folder (key and checkpoints), on another machine or disk than the ledgers.
        #[arg(long, global = true, value_name = "DIR", env = "VAMBRACE_WITNESS_HOME")]
        state: Option<PathBuf>,
    },
    /// Replace the secrets in files or in standard input, or tell where they are. Exits 0 nothing found, 1 found.
    #[command(after_help = REDACT_EXAMPLES)]
    Redact {
        /// What to read; standard input when left out or `-`.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Tell what is found and where instead of printing the text.
        #[arg(long, value_enum)]
        report: Option<ReportForm>,
        /// Rules of gitleaks or betterleaks (TOML) beside the built-in ones.
        #[arg(long, value_name = "FILE")]
        rules: Vec<PathBuf>,
    },
    /// Run any program inside the sandbox: files, environment, time, memory and processes bounded by the kernel.
    Sandbox {
        #[command(subcommand)]
        what: SandboxCommand,
    },
    /// List the error codes with what they mean and what helps.
    Errors {
        /// As a Markdown page.
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
Exit codes: 0 nothing found, 1 found, 2 bad usage, 4 the configuration cannot be used, 5 failed.";

/// How findings are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReportForm {
    /// One JSON object.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  vambrace explain read_file path=.env
  vambrace explain read_file path=src/main.rs --role product_owner --json";
