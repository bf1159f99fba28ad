//! The details of an approval request or a change: caller, action, files, risk and reasons, deadline, what happens on
//! approval. `approvals show` prints them, `approvals watch` draws them. All text of an agent in them is sanitized.

use vambrace_broker::ApprovalView;
use vambrace_core::terminal_escape::{lookalike_names, mixed_script_words, one_line};
use vambrace_core::timestamp::Timestamp;
use vambrace_host::short_digest;
use vambrace_store::{ApprovalKind, ApprovalState};

use super::RequestRow;
use super::diff::{Diff, DiffRow};
use crate::output::{StyledLine, Tone};

/// Seconds until a request expires.
pub(crate) fn seconds(row: &RequestRow, now: Timestamp) -> i64 {
    (row.expires.millis() - now.millis()).max(0).div_euclid(1000)
}

pub(crate) fn risk(word: &str) -> (Tone, String) {
    (if word == "HIGH" { Tone::Bad } else { Tone::Care }, format!("{word:<6}"))
}

/// All details except the diff.
pub(crate) fn details(look: &ApprovalView, now: Timestamp) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    if let Some(row) = &look.request {
        lines.push(vec![strong(&row.summary), (Tone::Plain, "  ".to_owned()), risk(&row.risk)]);
        lines.extend(warnings(look));
        about(row, now, &mut lines);
    } else if let Some(row) = &look.change {
        lines.push(vec![strong(&row.summary), (Tone::Plain, format!("  {}", row.id))]);
        lines.extend(warnings(look));
        lines.push(fact("state", format!("{} ({})", row.state, row.changed)));
    }
    lines
}

fn about(row: &RequestRow, now: Timestamp, lines: &mut Vec<StyledLine>) {
    let who = format!("{} for {}, session {}", one_line(&row.agent), one_line(&row.user), row.session);
    lines.push(fact("who", who));
    lines.extend(row.why.lines().map(|why| fact("why", one_line(why))));
    match (&row.decision, row.state) {
        (_, ApprovalState::Pending) => {
            let after = match row.kind {
                ApprovalKind::Change => "the change is applied at once if its files have not changed",
                ApprovalKind::Call => "the agent's call runs once",
            };
            lines.push(fact("approve", after.to_owned()));
            let until = format!("{} ({} s left; then it is denied)", row.expires, seconds(row, now));
            lines.push(fact("until", until));
        }
        (Some(decided), state) => {
            let reason = decided.reason.as_deref().map(|reason| format!(": {}", one_line(reason)));
            let by = format!("{state} by {} at {}", one_line(&decided.by), decided.at);
            lines.push(fact("state", by + &reason.unwrap_or_default()));
            if decided.digest != row.digest {
                let words = format!(
                    "{}, not the proposed {}",
                    short_digest(decided.digest),
                    short_digest(row.digest)
                );
                lines.push(fact("approved", words));
            }
        }
        (None, state) => lines.push(fact("state", state.to_string())),
    }
    lines.push(fact("where", one_line(&row.project)));
    lines.push(fact("tool", format!("{}, plan {}", one_line(&row.tool), short_digest(row.digest))));
    lines.push(fact("id", row.id.to_string()));
}

/// Warnings about what a reader could overlook: lookalike names and letters, hunks that are not shown.
fn warnings(look: &ApprovalView) -> Vec<StyledLine> {
    let mut names: String = look.files.iter().map(|file| format!("{}\n", file.path)).collect();
    if let Some(row) = &look.request {
        names += &format!("{}\n{}", row.summary, row.tool);
    }
    let mut lines = Vec::new();
    let mut warn =
        |words: String| lines.push(vec![(Tone::Bad, "  warning  ".to_owned()), (Tone::Plain, words)]);
    let unseen = vambrace_workspace::diff::omitted_hunks(&look.diff);
    if unseen > 0 {
        warn(format!("the diff is too long: {unseen} of its hunks are not shown"));
    }
    if let Some(words) = lookalike_names(&names) {
        warn(format!("lookalike name: {words}"));
    }
    if let Some(words) = mixed_script_words(&look.diff) {
        warn(format!("lookalike letters: {words}"));
    }
    lines
}

fn strong(words: &str) -> (Tone, String) {
    (Tone::Strong, one_line(words))
}

fn fact(label: &str, words: String) -> StyledLine {
    vec![(Tone::Faint, format!("  {label:<9}")), (Tone::Plain, words)]
}

/// The lines of a diff with numbered hunks.
pub(crate) fn diff_lines(diff: &Diff) -> Vec<StyledLine> {
    let line = |row: &DiffRow| {
        let mut line = vec![(row.tone, row.text.clone())];
        if row.starts_hunk {
            line.push((Tone::Faint, format!(" (hunk {})", row.at.1)));
        }
        line
    };
    diff.rows.iter().map(line).collect()
}
