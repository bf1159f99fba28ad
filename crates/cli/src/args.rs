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
    /// Check records, segments, tree, keys and checkpoints. Exits 6 when something is found.
    Verify {
        /// A state folder other than the current one, for example a copy.
        #[arg(long, value_name = "DIR")]
        home: Option<PathBuf>,
        /// Only what came after the last checkpoint before this time.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// A checkpoint that was kept elsewhere; may be given several times.
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
        /// A key that this ledger must have had, as `audit checkpoint` prints it.
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// How many cores to use; all of them when left out.
        #[arg(long, short, value_name = "N")]
        jobs: Option<usize>,
    },
    /// Sign what is there and print the newest checkpoint, to be kept elsewhere.
    Checkpoint,
    /// Prove that a record is in the ledger: a file that others can check offline.
    Prove {
        /// The number of the record.
        record: u64,
        /// Prove it against this checkpoint instead of the newest.
        #[arg(long, value_name = "FILE")]
        checkpoint: Option<PathBuf>,
    },
    /// Prove that the ledger at one checkpoint is the beginning of the ledger at another.
    Consistency {
        /// The older: a number of records, or a checkpoint file.
        #[arg(value_name = "OLD")]
        old: String,
        /// The newer; the newest checkpoint when left out.
        #[arg(value_name = "NEW")]
        new: Option<String>,
    },
    /// Let a new key sign from now on; the old one signs it.
    RotateKey,
    /// Hand records to another system: as they are, or as OCSF, CEF or OpenTelemetry logs.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportWords),
    /// Print arguments that were too large for their record, as they were recorded (redacted).
    #[command(after_help = PAYLOAD_EXAMPLES)]
    Payload {
        /// The number of the record, or the commitment (`sha256:...`) that its `payloads` name.
        #[arg(value_name = "SEQ | HASH")]
        which: String,
        /// Which of them, where a record has several: tool_args, command_args.
        #[arg(long)]
        field: Option<String>,
    },
    /// Delete arguments that were too large for their record, for good. The ledger says who did so, and still verifies.
    #[command(after_help = FORGET_EXAMPLES)]
    Forget {
        /// Records, or commitments.
        #[arg(value_name = "SEQ | HASH", required_unless_present = "before")]
        which: Vec<String>,
        /// All that were recorded before this time, for example 2026-01-31.
        #[arg(long, value_name = "TIME", conflicts_with = "which")]
        before: Option<String>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

/// What to export, in which form, whereto.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ExportWords {
    /// jsonl (the ledger's own lines, byte for byte), ocsf, cef or otlp.
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: String,
    /// Not before this time, for example 2026-01-31T12:00:00.000Z or 2026-01-31.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only before this time.
    #[arg(long, value_name = "TIME", conflicts_with = "follow")]
    pub(crate) until: Option<String>,
    /// Only what is about this: read_file, tool.start, violation ... Can be given several times.
    #[arg(long)]
    pub(crate) op: Vec<String>,
    /// Only records behind this one.
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
    /// Append to a file; one that is there already is continued behind its last record.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Go on with records as they come.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  vambrace audit export --format ocsf --op violation --since 2026-01-31
  vambrace audit export --format otlp --output /var/log/vambrace/otlp.jsonl --follow
  vambrace audit export --format cef --follow | logger --tcp --server siem.example";

const PAYLOAD_EXAMPLES: &str = "\
Examples:
  vambrace audit payload 1042
  vambrace audit payload 1042 | python3 -m json.tool";

const FORGET_EXAMPLES: &str = "\
Examples:
  vambrace audit forget 1042 1043
  vambrace audit forget --before 2026-01-31 --yes
What stands in the records themselves (paths, messages, arguments up to 16 KiB) is part of the chain and stays. Copies of
the state folder and exports are not reached.";

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// The open questions, oldest first.
    List {
        /// Also those that are settled, newest first.
        #[arg(long)]
        all: bool,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// One question: who, what, risk and why, the diff, what happens after yes.
    Show {
        /// Its id, or the end of it.
        id: String,
    },
    /// Say yes. A change is applied at once; any other call is carried out by its caller.
    Approve(ApproveWords),
    /// Say no.
    Reject {
        /// The question's id, or the end of it.
        id: String,
        /// Why: the agent hears it.
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Seal the approver key with another passphrase.
    Passphrase,
}

/// What is agreed to.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ApproveWords {
    /// The question's id, or the end of it.
    pub(crate) id: String,
    /// How far the yes reaches: this once, calls of this class in this session, or everything of this agent in this
    /// session that may be granted.
    #[arg(long, value_parser = ["once", "class", "session"], default_value = "once")]
    pub(crate) scope: String,
    /// The file that is meant; refused when the proposal is about another one.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only this file of the proposal; may be given several times.
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Only these hunks of a file, for example `src/a.rs:1,3`; may be given several times.
    #[arg(long, value_name = "PATH:N,N", conflicts_with = "files")]
    pub(crate) hunks: Vec<String>,
    /// Other content for a file of the proposal, from a file: `src/a.rs=/tmp/mine`; may be given several times.
    #[arg(long, value_name = "PATH=FILE", conflicts_with_all = ["files", "hunks"])]
    pub(crate) edited: Vec<String>,
    /// Do not ask again.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Grants that count; with `--all` the others too.
    List {
        /// Also those that were revoked or ran out.
        #[arg(long)]
        all: bool,
    },
    /// Take a grant back.
    Revoke {
        /// Its id, or the end of it.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProposalsCommand {
    /// The newest changes.
    List {
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// One change with its diff.
    Show {
        /// Its id, or the end of it.
        id: String,
    },
    /// Agree to a proposed change, which applies it.
    Apply(ApproveWords),
    /// Do not agree to it.
    Reject {
        /// Its id, or the end of it.
        id: String,
        /// Why: the agent hears it.
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Undo an applied change, if nothing changed since.
    Rollback {
        /// Its id, or the end of it.
        id: String,
        /// Do not ask again.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make one; it is printed once.
    Create {
        /// What for: agent, approver, runner, admin.
        #[arg(value_parser = ["agent", "approver", "runner", "admin"])]
        kind: String,
        /// A name to know it by.
        #[arg(long, default_value = "")]
        name: String,
        /// The user it is for; yourself when left out.
        #[arg(long)]
        user: Option<String>,
        /// Days until it ends; never when left out.
        #[arg(long, value_name = "DAYS")]
        days: Option<u32>,
    },
    /// Every token, without its secret.
    List,
    /// Take one back.
    Revoke {
        /// Its id.
        id: String,
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
No network unless --network says so. Names that run or configure something (.git/hooks, .git/config, editor settings ...) are never changed.

Examples:
  vambrace sandbox run -- cargo test --offline
  vambrace sandbox run --filesystem readwrite -- ./fix-everything.sh
  vambrace sandbox run --speculative --json -- make format
  vambrace sandbox run --network 'crates.io,*.crates.io' -- cargo fetch
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
    /// The network: `deny` has not even sockets, `loopback` a loopback interface of its own, `allow` everything but
    /// this machine and metadata addresses; or what may be reached: names (`example.com`, `*.example.com`, ports 80 and
    /// 443), addresses and networks (`10.1.0.0/16`), each with or without `:PORT`; `!` before one refuses it.
    #[arg(long, value_name = "deny|loopback|allow|HOST,...", default_value = "deny")]
    pub(crate) network: String,
    /// Open connections at the same time.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) network_connections: usize,
    /// Bytes over the network, in both directions together.
    #[arg(long, value_name = "M", default_value = "16G", value_parser = size)]
    pub(crate) network_bytes: u64,
    /// Bytes a second over the network, in both directions together.
    #[arg(long, value_name = "M", value_parser = size)]
    pub(crate) network_rate: Option<u64>,
    /// A proxy that connections go through; it resolves the names.
    #[arg(long, value_name = "URL")]
    pub(crate) upstream_proxy: Option<String>,
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

/// Where a witness listens, and for whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WitnessSeat {
    /// Address and port; plain HTTP, TLS is the work of a reverse proxy in front of it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7380")]
    pub(crate) listen: std::net::SocketAddr,
    /// A log to sign for: its verifier key, and its origin where that is not the key's name. Several times for
    /// several logs, or several keys of one.
    #[arg(long, value_name = "VKEY [ORIGIN]")]
    pub(crate) log: Vec<String>,
    /// A file with one log a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) logs: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessCommand {
    /// Print the witness's verifier key, made on first use.
    Key {
        /// What the key is called when it is made, for example `witness.example.com/w1`.
        #[arg(long)]
        name: Option<String>,
    },
    /// The logs that were signed for, each with the checkpoint that was signed last.
    List,
    /// Forget a log: its next checkpoint is signed whatever it says. Only while no witness runs.
    Forget {
        /// The log.
        origin: String,
    },
}
