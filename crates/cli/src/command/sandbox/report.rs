//! Reports the outcome of a run, as text or JSON.

use serde_json::{Value, json};
use vambrace_core::terminal_escape::sanitize;
use vambrace_exec::{NeededGrants, RunReport, WriteBackFailure};
use vambrace_sandbox::{
    Captured, ChangeKind, ChangeListing, EntryChange, EntryMetadata, Exit, FileKind, MemoryEnforcement,
    RunChanges, RunOutcome,
};

use super::{DENIALS_INCOMPLETE, WriteBackResult, denial_json, faint, needed_grants, network, shown};
use crate::output::{Out, Tone, paint};

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();
/// Hint about unlisted changes.
const EVERY_CHANGE: &str = "`--every-change` lists everything";

/// The listed changes and their diffs.
pub(super) struct ChangeReport<'a> {
    listing: ChangeListing<'a>,
    /// The listed changes, each with its diff.
    differences: Option<&'a [(EntryChange, String)]>,
}

impl<'a> ChangeReport<'a> {
    pub(super) fn of(
        changes: &'a RunChanges,
        every_change: bool,
        differences: Option<&'a [(EntryChange, String)]>,
    ) -> Self {
        let listing = if every_change { ChangeListing::all(changes) } else { changes.listing() };
        Self { listing, differences }
    }
}

/// Prints the report on standard error, after the program's output.
pub(super) fn print(
    outcome: &RunOutcome,
    report: Option<&ChangeReport<'_>>,
    promoted: &WriteBackResult,
    clean: &dyn Fn(&str) -> String,
    out: Out,
) {
    for (name, stream) in [("standard output", &outcome.stdout), ("standard error", &outcome.stderr)] {
        if stream.truncated() {
            let (kept, total) = (stream.bytes.len(), stream.total);
            out.message(paint(Tone::Care, format!("[{name} truncated: {kept} of {total} bytes]")));
        }
    }
    match outcome.exit {
        Exit::Timeout => out.message(paint(Tone::Bad, "timed out (--timeout); all processes were killed")),
        Exit::Stopped(_) => out.message(paint(Tone::Bad, "stopped; all processes were killed")),
        Exit::OutOfMemory => out.message(paint(Tone::Bad, "killed: out of memory (--memory)")),
        Exit::OutOfDisk => {
            out.message(paint(Tone::Bad, "killed: it wrote more than its disk limit (--disk)"))
        }
        // SIGPIPE needs no message: it is normal for a program whose reader is gone.
        Exit::Code(_) | Exit::Signal(SIGPIPE) => {}
        Exit::Signal(number) => out.message(paint(Tone::Bad, format!("killed by signal {number}"))),
    }
    for denial in &outcome.denials {
        out.message(format!(
            "{} {} {}: {}{} {}",
            paint(Tone::Bad, "denied:"),
            denial.operation.as_str(),
            sanitize(&clean(&shown(&denial.path))),
            denial.rule.as_str(),
            denial.right.map(|right| format!(" ({right})")).unwrap_or_default(),
            faint(format!("[{}, {}]", denial.source.as_str(), denial.certainty.as_str())),
        ));
    }
    if outcome.denials_missing {
        out.message(paint(Tone::Care, DENIALS_INCOMPLETE));
    }
    if let Some(ChangeReport { listing, differences }) = report {
        match differences {
            Some(differences) => {
                for (_, diff) in *differences {
                    // Makes carriage returns visible.
                    out.message(sanitize(clean(diff).replace("\r\n", "\u{240d}\n").trim_end_matches('\n')));
                }
            }
            None => {
                for change in &listing.changes {
                    out.message(format!(
                        "{} {}",
                        paint(Tone::Good, change.kind.as_str()),
                        clean(&path(change))
                    ));
                }
            }
        }
        for one in &listing.withheld {
            let why = one.why.as_str();
            let name = sanitize(&clean(&shown(&one.path)));
            out.message(format!("{} {name}: {why}", paint(Tone::Care, "not written back:")));
        }
        if !listing.is_complete() {
            out.message(paint(Tone::Care, unlisted(listing)));
        }
    }
    if let Err(fault) = promoted {
        out.message(format!(
            "{} {}",
            paint(Tone::Bad, "changes not written back:"),
            sanitize(&clean(&fault.to_string()))
        ));
    }
    let memory = match outcome.memory_bound {
        MemoryEnforcement::Kernel => "",
        MemoryEnforcement::Watched => "; memory is polled, not limited by the kernel",
        MemoryEnforcement::EachProcess => "; memory is limited per process only",
    };
    out.message(faint(format!("[tier {}{memory}]", outcome.tier)));
}

/// Counts the changes that are not listed.
fn unlisted(listing: &ChangeListing<'_>) -> String {
    let more = listing.omitted.iter().map(|(kind, count)| format!("{count} {kind}"));
    let withheld = Some(listing.withheld_omitted).filter(|count| *count > 0);
    let more: Vec<_> = more.chain(withheld.map(|count| format!("{count} not written back"))).collect();
    format!("further changes are not listed: {}; {EVERY_CHANGE}", more.join(", "))
}

fn path(change: &EntryChange) -> String {
    let path = sanitize(&shown(&change.path));
    match &change.kind {
        ChangeKind::Renamed { from } => format!("{} -> {path}", sanitize(&shown(from))),
        _ => path,
    }
}

pub(super) fn json(
    ran: &RunReport,
    report: Option<&ChangeReport<'_>>,
    promoted: &WriteBackResult,
    grants: Option<&NeededGrants>,
) -> Value {
    let outcome = &ran.outcome;
    let (exit, signal) = match outcome.exit {
        Exit::Code(_) => ("code", None),
        Exit::Signal(number) => ("signal", Some(number)),
        Exit::Timeout => ("timeout", None),
        Exit::Stopped(number) => ("stopped", Some(number)),
        Exit::OutOfMemory => ("out_of_memory", None),
        Exit::OutOfDisk => ("out_of_disk", None),
    };
    let text = |stream: &Captured| String::from_utf8_lossy(&stream.bytes).into_owned();
    let bound = match outcome.memory_bound {
        MemoryEnforcement::Kernel => "kernel",
        MemoryEnforcement::Watched => "watched",
        MemoryEnforcement::EachProcess => "each_process",
    };
    let mut value = json!({
        "exit_code": outcome.exit.code(), "ended_by": exit, "signal": signal, "sandbox_tier": outcome.tier.as_str(),
        "stdout": text(&outcome.stdout), "stderr": text(&outcome.stderr),
        "stdout_bytes": outcome.stdout.total, "stderr_bytes": outcome.stderr.total,
        "truncated": outcome.stdout.truncated() || outcome.stderr.truncated(),
        "duration_ms": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        "peak_memory": outcome.peak_memory, "memory_bound": bound,
        "denials": outcome.denials.iter().map(denial_json).collect::<Vec<_>>(),
        "denials_missing": outcome.denials_missing,
    });
    if let Some(map) = value.as_object_mut() {
        if let Some(ChangeReport { listing, differences }) = report {
            let list = differences.iter().copied().flatten().map(|(change, diff)| change_json(change, diff));
            let list: Vec<Value> = list.collect();
            let withheld = listing.withheld.iter();
            let withheld: Vec<Value> = withheld
                .map(|one| {
                    let path = one.path.display().to_string();
                    json!({"path": path, "why": one.why.as_str(), "code": one.why.code()})
                })
                .collect();
            let unlisted = (!listing.is_complete()).then(
                || json!({"changes": listing.omitted, "withheld": listing.withheld_omitted, "hint": EVERY_CHANGE}),
            );
            map.insert("changes".to_owned(), list.into());
            map.insert("withheld".to_owned(), withheld.into());
            map.insert("unlisted".to_owned(), unlisted.into());
            let (count, fault) = match promoted {
                Ok(count) => (*count, None),
                Err(fault) => (0, Some(fault)),
            };
            let (code, fault) = (fault.map(WriteBackFailure::code), fault.map(ToString::to_string));
            map.insert("promoted".to_owned(), json!({"changes": count, "fault": fault, "code": code}));
        }
        if let Some(attempts) = &ran.attempts {
            map.insert("network".to_owned(), network::json(attempts));
        }
        if let Some(grants) = grants {
            map.insert("explain".to_owned(), needed_grants::json(grants));
        }
    }
    value
}

fn change_json(change: &EntryChange, diff: &str) -> Value {
    let from = match &change.kind {
        ChangeKind::Renamed { from } => Some(from.display().to_string()),
        _ => None,
    };
    json!({
        "path": change.path.display().to_string(), "kind": change.kind.as_str(), "from": from,
        "before": change.before.as_ref().map(facts), "after": change.after.as_ref().map(facts),
        "diff": diff,
    })
}

fn facts(facts: &EntryMetadata) -> Value {
    let kind = match facts.kind {
        FileKind::File => "file",
        FileKind::Directory => "folder",
        FileKind::Symlink => "link",
        FileKind::Special => "special",
    };
    let hash = facts.hash.map(|hash| {
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hash}")
    });
    json!({
        "type": kind, "size": facts.size, "mode": format!("{:03o}", facts.mode), "hash": hash,
        "target": facts.target.as_ref().map(|target| target.display().to_string()),
    })
}
