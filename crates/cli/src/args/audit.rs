//! Arguments of `audit` and `session`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Print the newest records.
    Tail {
        /// Number of records.
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
        /// Keep printing new records.
        #[arg(short, long)]
        follow: bool,
    },
    /// Search the records.
    Query {
        /// Operation: read_file, tool.start, violation ...
        #[arg(long)]
        op: Option<String>,
        /// Name of the tool.
        #[arg(long)]
        tool: Option<String>,
        /// Id of the session.
        #[arg(long)]
        session: Option<String>,
        /// Id of the call.
        #[arg(long)]
        call: Option<String>,
        /// Status: success, denied, error ...
        #[arg(long)]
        status: Option<String>,
        /// Recorded path, or a directory above it.
        #[arg(long)]
        path: Option<String>,
        /// Not before this time, for example 2026-01-31T12:00:00.000Z or 2026-01-31.
        #[arg(long)]
        since: Option<String>,
        /// Only denials: the security stream.
        #[arg(long)]
        violations: bool,
        /// Maximum number of records, newest first.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Verify records, segments, tree, keys and checkpoints. Exits with 6 if there are findings.
    Verify {
        /// Verify another state directory, for example a copy.
        #[arg(long, value_name = "DIR")]
        home: Option<PathBuf>,
        /// Verify only the records after the last checkpoint before this time.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Compare with a checkpoint that was kept elsewhere; repeatable.
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
        /// Require a key of this ledger, as printed by `audit checkpoint`.
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Number of cores to use [default: all].
        #[arg(long, short, value_name = "N")]
        jobs: Option<usize>,
        /// Hash every record, even where its signed tree root matches.
        #[arg(long)]
        thorough: bool,
    },
    /// Sign the ledger and print the newest checkpoint; keep it elsewhere.
    Checkpoint,
    /// Print a proof that a record is in the ledger; it can be checked offline.
    Prove {
        /// Number of the record, or its `event_hash`.
        record: String,
        /// Use this checkpoint instead of the newest.
        #[arg(long, value_name = "FILE")]
        checkpoint: Option<PathBuf>,
    },
    /// Prove that the ledger at one checkpoint is a prefix of the ledger at another.
    Consistency {
        /// Older ledger: a number of records, or a checkpoint file.
        #[arg(value_name = "OLD")]
        old: String,
        /// Newer ledger [default: the newest checkpoint].
        #[arg(value_name = "NEW")]
        new: Option<String>,
    },
    /// Replace the signing key; the old key signs the new one.
    RotateKey,
    /// Export records: as they are, or as OCSF, CEF or OpenTelemetry logs.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Print arguments that were too large for their record (redacted).
    #[command(after_help = PAYLOAD_EXAMPLES)]
    Payload {
        /// Number of the record, or the commitment (`sha256:...`) in its `payloads`.
        #[arg(value_name = "SEQ | HASH")]
        which: String,
        /// Field to print, if the record has several: tool_args, command_args.
        #[arg(long)]
        field: Option<String>,
    },
    /// Delete arguments that were too large for their record, permanently. The ledger records who did so, and still verifies.
    #[command(after_help = FORGET_EXAMPLES)]
    Forget {
        /// Numbers of records, or commitments.
        #[arg(value_name = "SEQ | HASH", required_unless_present = "before")]
        which: Vec<String>,
        /// Delete all that were recorded before this time, for example 2026-01-31.
        #[arg(long, value_name = "TIME", conflicts_with = "which")]
        before: Option<String>,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

/// Which records to export, in which format, to which file.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ExportArgs {
    /// Format: jsonl (the ledger's lines, byte for byte), ocsf, cef or otlp [default: `audit.export.format` of the
    /// configuration, or jsonl].
    #[arg(long)]
    pub(crate) format: Option<String>,
    /// Not before this time, for example 2026-01-31T12:00:00.000Z or 2026-01-31.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Before this time.
    #[arg(long, value_name = "TIME", conflicts_with = "follow")]
    pub(crate) until: Option<String>,
    /// Only this operation: read_file, tool.start, violation ...; repeatable.
    #[arg(long)]
    pub(crate) op: Vec<String>,
    /// Only records after this one.
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
    /// File to append to; an existing file is continued after its last record; `-` is standard output [default:
    /// `audit.export.output` of the configuration, or `-`].
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Keep exporting new records.
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
The content of the records themselves (paths, messages, arguments up to 16 KiB) is part of the hash chain and stays. Copies
of the state directory and exports are not changed.";

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the newest sessions with their state.
    List {
        /// Maximum number to list.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Resume a session after an alert or a suspension.
    Resume {
        /// Id of the session.
        id: String,
    },
    /// End a session: it can make no further calls.
    End {
        /// Id of the session.
        id: String,
    },
}
