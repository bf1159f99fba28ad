//! What a run came to, for people and for programs.

use serde_json::{Value, json};
use vambrace_sandbox::{
    Captured, Change, ChangeKind, Changes, EntryKind, Exit, Facts, Listing, MemoryBound, Outcome,
    PromoteFault,
};

use super::grants::Grants;
use super::{MISSING, Promoted, denial_json, faint, network, shown};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// SIGPIPE.
const PIPE: i32 = rustix::process::Signal::PIPE.as_raw();
/// How the rest is seen.
const EVERY_CHANGE: &str = "`--every-change` lists everything";

/// What is told of the changes.
pub(super) struct Told<'a> {
    listing: Listing<'a>,
    /// Those that are listed, each in words.
    differences: Option<Vec<(Change, String)>>,
}

impl<'a> Told<'a> {
    pub(super) fn of(changes: &'a Changes, every_change: bool, differences: bool) -> Self {
        let listing = if every_change { Listing::whole(changes) } else { changes.listing() };
        let mut diffs = changes.diffs();
        let differences =
            differences.then(|| listing.changes.iter().map(|change| diffs.next(change)).collect());
        Self { listing, differences }
    }
}

/// On standard error, after the program's own words.
pub(super) fn say(
    outcome: &Outcome,
    told: Option<&Told<'_>>,
    promoted: &Promoted,
    clean: &dyn Fn(&str) -> String,
    out: Out,
) {
    for (name, stream) in [("standard output", &outcome.stdout), ("standard error", &outcome.stderr)] {
        if stream.truncated() {
            let (kept, total) = (stream.bytes.len(), stream.total);
            out.say(paint(Tone::Care, format!("[{name} cut: {kept} of {total} bytes]")));
        }
    }
    match outcome.exit {
        Exit::Timeout => out.say(paint(Tone::Bad, "ended at its deadline, with everything it started")),
        Exit::Stopped(_) => out.say(paint(Tone::Bad, "stopped, with everything it started")),
        Exit::OutOfMemory => out.say(paint(Tone::Bad, "ended: out of memory")),
        Exit::OutOfDisk => out.say(paint(Tone::Bad, "ended: it wrote more than it may")),
        // As from any program whose reader is gone.
        Exit::Code(_) | Exit::Signal(PIPE) => {}
        Exit::Signal(number) => out.say(paint(Tone::Bad, format!("ended by signal {number}"))),
    }
    for denial in &outcome.denials {
        out.say(format!(
            "{} {} {}: {}{} {}",
            paint(Tone::Bad, "denied:"),
            denial.operation.as_str(),
            plain(&clean(&shown(&denial.path))),
            denial.rule.as_str(),
            denial.right.map(|right| format!(" ({right})")).unwrap_or_default(),
            faint(format!("[{}, {}]", denial.source.as_str(), denial.certainty.as_str())),
        ));
    }
    if outcome.denials_missing {
        out.say(paint(Tone::Care, MISSING));
    }
    if let Some(Told { listing, differences }) = told {
        match differences {
            Some(differences) => {
                for (_, diff) in differences {
                    // A carriage return is one to be seen.
                    out.say(plain(clean(diff).replace("\r\n", "\u{240d}\n").trim_end_matches('\n')));
                }
            }
            None => {
                for change in &listing.changes {
                    out.say(format!("{} {}", paint(Tone::Good, change.kind.as_str()), clean(&path(change))));
                }
            }
        }
        for one in &listing.withheld {
            let why = one.why.as_str();
            let name = plain(&clean(&shown(&one.path)));
            out.say(format!("{} {name}: {why}", paint(Tone::Care, "not taken over:")));
        }
        if !listing.is_whole() {
            out.say(paint(Tone::Care, unlisted(listing)));
        }
    }
    if let Err(fault) = promoted {
        out.say(format!(
            "{} {}",
            paint(Tone::Bad, "changes not taken over:"),
            plain(&clean(&fault.to_string()))
        ));
    }
    let memory = match outcome.memory_bound {
        MemoryBound::Kernel => "",
        MemoryBound::Watched => "; memory is watched, not bounded by the kernel",
        MemoryBound::EachProcess => "; memory is bounded for each process only",
    };
    out.say(faint(format!("[tier {}{memory}]", outcome.tier)));
}

/// What is there besides what is listed.
fn unlisted(listing: &Listing<'_>) -> String {
    let more = listing.more.iter().map(|(kind, count)| format!("{count} {kind}"));
    let withheld = Some(listing.withheld_more).filter(|count| *count > 0);
    let more: Vec<_> = more.chain(withheld.map(|count| format!("{count} not taken over"))).collect();
    format!("there is more that is not listed: {}; {EVERY_CHANGE}", more.join(", "))
}

fn path(change: &Change) -> String {
    let path = plain(&shown(&change.path));
    match &change.kind {
        ChangeKind::Renamed { from } => format!("{} -> {path}", plain(&shown(from))),
        _ => path,
    }
}

pub(super) fn json(
    outcome: &Outcome,
    told: Option<&Told<'_>>,
    promoted: &Promoted,
    grants: Option<&Grants>,
    attempts: Option<&network::Attempts>,
) -> Value {
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
        MemoryBound::Kernel => "kernel",
        MemoryBound::Watched => "watched",
        MemoryBound::EachProcess => "each_process",
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
        if let Some(Told { listing, differences }) = told {
            let list = differences.iter().flatten().map(|(change, diff)| change_json(change, diff));
            let list: Vec<Value> = list.collect();
            let withheld = listing.withheld.iter();
            let withheld: Vec<Value> = withheld
                .map(|one| {
                    let path = one.path.display().to_string();
                    json!({"path": path, "why": one.why.as_str(), "code": one.why.code()})
                })
                .collect();
            let unlisted = (!listing.is_whole()).then(
                || json!({"changes": listing.more, "withheld": listing.withheld_more, "hint": EVERY_CHANGE}),
            );
            map.insert("changes".to_owned(), list.into());
            map.insert("withheld".to_owned(), withheld.into());
            map.insert("unlisted".to_owned(), unlisted.into());
            let (count, fault) = match promoted {
                Ok(count) => (*count, None),
                Err(fault) => (0, Some(fault)),
            };
            let (code, fault) = (fault.map(PromoteFault::code), fault.map(ToString::to_string));
            map.insert("promoted".to_owned(), json!({"changes": count, "fault": fault, "code": code}));
        }
        if let Some(attempts) = attempts {
            map.insert("network".to_owned(), network::json(attempts));
        }
        if let Some(grants) = grants {
            map.insert("explain".to_owned(), grants.as_json());
        }
    }
    value
}

fn change_json(change: &Change, diff: &str) -> Value {
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

fn facts(facts: &Facts) -> Value {
    let kind = match facts.kind {
        EntryKind::File => "file",
        EntryKind::Folder => "folder",
        EntryKind::Link => "link",
        EntryKind::Special => "special",
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
