//! The card of a question or a change: who asks, what, on which files, how risky and why, until when, and what happens after
//! yes. `approvals show` prints it, `approvals watch` draws it. Everything an agent wrote is harmless in it.

use vambrace_broker::Look;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{ApprovalRow, AskKind, AskState};

use super::diff::Diff;
use crate::command::audit::one_line;
use crate::harmless::{impostors, lookalikes};
use crate::out::{Line, Tone};

type Row = ApprovalRow<String>;

/// Seconds until a question runs out.
pub(crate) fn seconds(row: &Row, now: Timestamp) -> i64 {
    (row.expires.millis() - now.millis()).max(0).div_euclid(1000)
}

/// The plan in eight digits.
pub(crate) fn short(digest: impl std::fmt::Display) -> String {
    digest.to_string().chars().skip("sha256:".len()).take(8).collect()
}

/// What must be typed to agree to a HIGH question: the name of what it is about, or of the plan where nobody could type that
/// name.
pub(crate) fn name(look: &Look) -> String {
    let row = look.question.as_ref();
    let path = look.files.first().map(|file| file.path.as_str());
    let name = path.and_then(|path| path.rsplit('/').next()).or(row.map(|row| row.tool.as_str()));
    let typable = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic());
    match (name.filter(typable), row) {
        (Some(name), _) => name.to_owned(),
        (None, Some(row)) => short(row.digest),
        (None, None) => String::new(),
    }
}

pub(crate) fn risk(word: &str) -> (Tone, String) {
    (if word == "HIGH" { Tone::Bad } else { Tone::Care }, format!("{word:<6}"))
}

/// Everything but the diff.
pub(crate) fn card(look: &Look, now: Timestamp) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(row) = &look.question {
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

fn about(row: &Row, now: Timestamp, lines: &mut Vec<Line>) {
    let who = format!("{} for {}, session {}", one_line(&row.agent), one_line(&row.user), row.session);
    lines.push(fact("who", who));
    lines.extend(row.why.lines().map(|why| fact("why", one_line(why))));
    match (&row.decided, row.state) {
        (_, AskState::Pending) => {
            let after = match row.kind {
                AskKind::Change => "the change is applied at once, if the files are still the same",
                AskKind::Call => "the agent's call is carried out, once",
            };
            lines.push(fact("on yes", after.to_owned()));
            let until = format!("{} ({} s left; then it is refused)", row.expires, seconds(row, now));
            lines.push(fact("until", until));
        }
        (Some(decided), state) => {
            let reason = decided.reason.as_deref().map(|reason| format!(": {}", one_line(reason)));
            let by = format!("{state} by {} at {}", one_line(&decided.by), decided.at);
            lines.push(fact("state", by + &reason.unwrap_or_default()));
            if decided.digest != row.digest {
                let words = format!("{}, not the proposed {}", short(decided.digest), short(row.digest));
                lines.push(fact("agreed", words));
            }
        }
        (None, state) => lines.push(fact("state", state.to_string())),
    }
    lines.push(fact("where", one_line(&row.project)));
    lines.push(fact("tool", format!("{}, plan {}", one_line(&row.tool), short(row.digest))));
    lines.push(fact("id", row.id.to_string()));
}

/// What a reader could overlook: names and letters that look like others.
fn warnings(look: &Look) -> Vec<Line> {
    let mut names: String = look.files.iter().map(|file| format!("{}\n", file.path)).collect();
    if let Some(row) = &look.question {
        names += &format!("{}\n{}", row.summary, row.tool);
    }
    let mut lines = Vec::new();
    let mut warn =
        |words: String| lines.push(vec![(Tone::Bad, "  careful  ".to_owned()), (Tone::Plain, words)]);
    let unseen = vambrace_workspace::diff::unseen_hunks(&look.diff);
    if unseen > 0 {
        warn(format!("the diff is too long: {unseen} hunks of it, and what comes in them, are not shown"));
    }
    if let Some(words) = impostors(&names) {
        warn(format!("a name that is not what it looks like: {words}"));
    }
    if let Some(words) = lookalikes(&look.diff) {
        warn(format!("letters that look like others: {words}"));
    }
    lines
}

fn strong(words: &str) -> (Tone, String) {
    (Tone::Strong, one_line(words))
}

fn fact(label: &str, words: String) -> Line {
    vec![(Tone::Faint, format!("  {label:<9}")), (Tone::Plain, words)]
}

/// The lines of a diff, its hunks numbered.
pub(crate) fn diff_lines(diff: &Diff) -> Vec<Line> {
    let line = |row: &super::diff::Row| {
        let mut line = vec![(row.tone, row.text.clone())];
        if row.starts_hunk {
            line.push((Tone::Faint, format!(" (hunk {})", row.at.1)));
        }
        line
    };
    diff.rows.iter().map(line).collect()
}
