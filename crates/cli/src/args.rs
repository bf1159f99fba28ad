//! The command line, in the words that `--help` prints.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

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
    /// Show what it does, in a temporary project: a read, two refusals, the ledger, a tampered copy.
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
  vambrace call list_files pattern='*.md' recursive=true";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  vambrace explain read_file path=.env
  vambrace explain read_file path=src/main.rs --role product_owner --json";

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
pub(crate) enum AuditCommand {
    /// Print the newest records.
    Tail {
        /// How many.
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
        /// Go on printing records as they come.
        #[arg(short, long)]
        follow: bool,
    },
    /// Find records.
    Query {
        /// What happened: read_file, tool.start, violation ...
        #[arg(long)]
        op: Option<String>,
        /// Which tool.
        #[arg(long)]
        tool: Option<String>,
        /// Which session.
        #[arg(long)]
        session: Option<String>,
        /// Which call.
        #[arg(long)]
        call: Option<String>,
        /// How it ended: success, denied, error ...
        #[arg(long)]
        status: Option<String>,
        /// The path as recorded, or a folder above it.
        #[arg(long)]
        path: Option<String>,
        /// Not before this time, for example 2026-01-31T12:00:00.000Z or 2026-01-31.
        #[arg(long)]
        since: Option<String>,
        /// Only what was refused: the security stream.
        #[arg(long)]
        violations: bool,
        /// At most so many, newest first.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Check the chain, the segments and the head. Exits 6 when something is found.
    Verify {
        /// A state folder other than the current one, for example a copy.
        #[arg(long, value_name = "DIR")]
        home: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// The newest sessions with their state.
    List {
        /// At most so many.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Lift an alert or a suspension.
    Resume {
        /// The session.
        id: String,
    },
    /// End it: no further calls.
    End {
        /// The session.
        id: String,
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
pub(crate) enum SandboxCommand {
    /// Run a program. Exits with its code, 124 after the deadline, 125 when it could not be started.
    #[command(after_help = SANDBOX_EXAMPLES)]
    Run(Box<SandboxRun>),
}

const SANDBOX_EXAMPLES: &str = "\
What a program sees: the system read-only, a private /tmp and home folder, the toolchains of your home folder without
their credentials, and the workspace as --filesystem says, without secret names (.env, secrets/, *.pem, private keys).
No network. Names that run or configure something (.git/hooks, .git/config, editor settings ...) are never changed.

Examples:
  vambrace sandbox run -- cargo test --offline
  vambrace sandbox run --filesystem readwrite -- ./fix-everything.sh
  vambrace sandbox run --speculative --json -- make format
  vambrace sandbox run --explain --timeout 10 -- ./installer";

/// A program and its walls.
#[derive(Debug, clap::Args)]
pub(crate) struct SandboxRun {
    /// What of the workspace the program sees, and what becomes of what it writes there: `deny` shows nothing, `read`
    /// shows it unchangeable, `write` shows an empty folder whose new files are moved in, `readwrite` takes every
    /// change over at the end.
    #[arg(long, value_enum, default_value_t = FilesystemMode::Read)]
    pub(crate) filesystem: FilesystemMode,
    /// Show the workspace and take changes like `readwrite`, but only tell them.
    #[arg(long, conflicts_with = "filesystem")]
    pub(crate) speculative: bool,
    /// The network: `deny` has not even sockets, `loopback` a loopback interface of its own.
    #[arg(long, value_name = "deny|loopback", default_value = "deny")]
    pub(crate) network: String,
    /// Variables of your environment that the program gets; `*` stands for any letters.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) env: Vec<String>,
    /// Seconds until the program and everything it started is ended.
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Memory of everything together, for example 512M or 2G.
    #[arg(long, value_name = "M", default_value = "2G", value_parser = size)]
    pub(crate) memory: u64,
    /// Processes and threads.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) processes: u64,
    /// What /tmp, the home folder and changed files may take together.
    #[arg(long, value_name = "M", default_value = "1G", value_parser = size)]
    pub(crate) disk: u64,
    /// A further path that may be read and executed.
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// A further path that may be changed, directly.
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// A build folder of the workspace that is kept apart and never taken over; target, node_modules and .venv when
    /// left out.
    #[arg(long, value_name = "NAME")]
    pub(crate) scratch: Vec<String>,
    /// The weakest tier that will do: full, full-no-proc, no-userns.
    #[arg(long, value_name = "TIER", default_value = "no-userns")]
    pub(crate) tier: String,
    /// Which refusals are told: `off` none, `writes` those of changes and starts of programs, `all` reads as well.
    #[arg(long, value_enum, default_value_t = ObserveMode::Writes)]
    pub(crate) observe: ObserveMode,
    /// When the program fails, run it once more with everything observed, change nothing, and tell which further
    /// grants it would need.
    #[arg(long)]
    pub(crate) explain: bool,
    /// The workspace; the nearest folder upwards with a `.vambrace` in it, else the current folder, when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum FilesystemMode {
    Deny,
    Read,
    Write,
    ReadWrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum ObserveMode {
    Off,
    Writes,
    All,
}

/// Bytes, with K, M or G.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) =
        match text.trim_end_matches(['B', 'b', 'i']).split_at_checked(text.len().saturating_sub(1)) {
            Some((number, unit)) if unit.eq_ignore_ascii_case("k") => (number, 1 << 10),
            Some((number, unit)) if unit.eq_ignore_ascii_case("m") => (number, 1 << 20),
            Some((number, unit)) if unit.eq_ignore_ascii_case("g") => (number, 1 << 30),
            _ => (text, 1),
        };
    let number: u64 = number.trim().parse().map_err(|_| "a number, with K, M or G after it".to_owned())?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".to_owned())
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
