//! What is told of a question: who asks, what, on which files, how risky and why, until when, and what happens after yes.
//! Everything an agent wrote is drawn harmless.

use serde_json::{Value, json};
use vambrace_broker::Look;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{ApprovalRow, AskKind, AskState, ProposalRow};

use crate::command::audit::one_line;
use crate::out::{Out, Tone, lookalikes, paint, plain};

type Row = ApprovalRow<String>;

/// Seconds until a question runs out.
pub(crate) fn seconds(row: &Row, now: Timestamp) -> i64 {
    (row.expires.millis() - now.millis()).max(0).div_euclid(1000)
}

/// A question as JSON.
pub(crate) fn question(row: &Row, now: Timestamp) -> Value {
    let decided = row.decided.as_ref().map(|decided| {
        json!({"decision": decided.verb.as_str(), "scope": decided.reach.as_str(), "at": decided.at.to_string(),
               "by": decided.by, "reason": decided.reason, "digest": decided.digest.to_string()})
    });
    json!({
        "id": row.id.as_str(), "call_id": row.call.as_str(), "session": row.session.as_str(), "user": row.user,
        "agent": row.agent, "project": row.project, "tool": row.tool, "kind": row.kind.as_str(), "risk": row.risk,
        "summary": row.summary, "why": row.why.lines().collect::<Vec<_>>(), "grantable": row.grantable,
        "digest": row.digest.to_string(), "policy": row.revision.to_string(), "state": row.state.as_str(),
        "created": row.created.to_string(), "expires": row.expires.to_string(),
        "seconds_left": if row.state == AskState::Pending { seconds(row, now) } else { 0 }, "decided": decided,
    })
}

/// A change as JSON.
pub(crate) fn change(row: &ProposalRow<String>) -> Value {
    json!({
        "id": row.id.as_str(), "call_id": row.call.as_str(), "session": row.session.as_str(), "user": row.user,
        "project": row.project, "tool": row.tool, "path": row.path, "summary": row.summary, "files": row.files,
        "patch_hash": row.patch_hash.to_string(), "digest": row.digest.to_string(), "state": row.state.as_str(),
        "created": row.created.to_string(), "changed": row.changed.to_string(),
        "undoes": row.undoes.as_ref().map(|id| id.as_str()), "can_roll_back": row.back.is_some(),
    })
}

/// A question in one line.
pub(crate) fn line(row: &Row, now: Timestamp) -> String {
    let state = match row.state {
        AskState::Pending => paint(Tone::Care, format!("{:>4} s left", seconds(row, now))),
        other => paint(Tone::Faint, format!("{:>11}", other.as_str())),
    };
    format!(
        "{}  {state}  {}  {}  {}",
        row.id,
        risk(&row.risk),
        one_line(&row.summary),
        paint(Tone::Faint, format!("{} in {}", one_line(&row.agent), one_line(&row.project)))
    )
}

fn risk(word: &str) -> String {
    let tone = if word == "HIGH" { Tone::Bad } else { Tone::Care };
    paint(tone, format!("{word:<6}"))
}

/// Everything about a question or a change.
pub(crate) fn show(look: &Look, now: Timestamp, out: Out) {
    if out.is_json() {
        let mut told = match (&look.question, &look.change) {
            (Some(row), _) => question(row, now),
            (None, Some(row)) => change(row),
            (None, None) => Value::Null,
        };
        if let Some(fields) = told.as_object_mut() {
            fields.insert("diff".to_owned(), look.diff.as_str().into());
            let files = look.files.iter().map(|file| json!({"path": file.path, "created": file.created}));
            fields.insert("paths".to_owned(), files.collect::<Vec<_>>().into());
            fields.insert("change".to_owned(), look.change.as_ref().map_or(Value::Null, change));
        }
        out.value(&told);
        return;
    }
    if let Some(row) = &look.question {
        card(row, now, out);
    } else if let Some(row) = &look.change {
        out.line(format!("{}  {}", paint(Tone::Strong, one_line(&row.summary)), row.id));
        out.line(format!("  state    {} ({})", row.state, row.changed));
    }
    if !look.diff.is_empty() {
        out.line("");
        diff(&look.diff, out);
    }
    let shown = look.question.as_ref().map(|row| row.summary.clone()).unwrap_or_default() + &look.diff;
    if let Some(words) = lookalikes(&shown) {
        out.line(format!("{} letters that look like others: {words}", paint(Tone::Bad, "careful:")));
    }
    if let Some(row) = look.question.as_ref().filter(|row| row.state == AskState::Pending) {
        out.line(format!("\nyes:  vambrace approvals approve {}", row.id));
        out.line(format!("no:   vambrace approvals reject {} --reason '...'", row.id));
    }
}

fn card(row: &Row, now: Timestamp, out: Out) {
    out.line(format!("{}  {}", paint(Tone::Strong, one_line(&row.summary)), risk(&row.risk)));
    out.line(format!("  id       {}", row.id));
    out.line(format!(
        "  who      {} for {}, session {}",
        one_line(&row.agent),
        one_line(&row.user),
        row.session
    ));
    out.line(format!("  where    {}", one_line(&row.project)));
    out.line(format!("  tool     {}", one_line(&row.tool)));
    for why in row.why.lines() {
        out.line(format!("  why      {}", one_line(why)));
    }
    let hex: String = row.digest.to_string().chars().skip(7).take(8).collect();
    out.line(format!("  plan     {hex}"));
    match (&row.decided, row.state) {
        (_, AskState::Pending) => {
            out.line(format!(
                "  until    {} ({} s left; then it is refused)",
                row.expires,
                seconds(row, now)
            ));
            let after = match row.kind {
                AskKind::Change => "the change is applied at once, if the files are still the same",
                AskKind::Call => "the agent's call is carried out, once",
            };
            out.line(format!("  on yes   {after}"));
        }
        (Some(decided), state) => {
            let reason = decided.reason.as_deref().map(|reason| format!(": {}", one_line(reason)));
            let reason = reason.unwrap_or_default();
            out.line(format!("  state    {state} by {} at {}{reason}", one_line(&decided.by), decided.at));
        }
        (None, state) => out.line(format!("  state    {state}")),
    }
}

/// A diff with colour and numbered hunks.
fn diff(text: &str, out: Out) {
    let mut number = 0;
    for line in text.lines() {
        let shown = plain(line);
        out.line(match line.chars().next() {
            Some('+') => paint(Tone::Good, shown),
            Some('-') if line.starts_with("--- ") => {
                number = 0;
                paint(Tone::Strong, shown)
            }
            Some('-') => paint(Tone::Bad, shown),
            Some('@') => {
                number += 1;
                format!("{} {}", paint(Tone::Care, shown), paint(Tone::Faint, format!("(hunk {number})")))
            }
            _ => shown,
        });
    }
}
