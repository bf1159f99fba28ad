//! Words about the ledger and sessions.

use std::path::PathBuf;

use clap::Subcommand;

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
        /// Compute every record's own hash as well, also under a signed root that fits.
        #[arg(long)]
        thorough: bool,
    },
    /// Sign what is there and print the newest checkpoint, to be kept elsewhere.
    Checkpoint,
    /// Prove that a record is in the ledger: a file that others can check offline.
    Prove {
        /// The number of the record, or its `event_hash` as an answer tells it.
        record: String,
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
    /// jsonl (the ledger's own lines, byte for byte), ocsf, cef or otlp; `audit.export.format` of the configuration when left out,
    /// else jsonl.
    #[arg(long)]
    pub(crate) format: Option<String>,
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
    /// Append to a file; one that is there already is continued behind its last record. `audit.export.output` of the configuration
    /// when left out; `-` is standard output all the same.
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
