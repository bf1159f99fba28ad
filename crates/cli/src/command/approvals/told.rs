//! What is told of a question on standard output: as JSON, in one line, or as its card (`card.rs`) with the diff.

use serde_json::{Value, json};
use vambrace_broker::{Answer, Look, Preview};
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::Verb;
use vambrace_store::{ApprovalRow, AskState, ProposalRow};

use super::card::{card, diff_lines, risk, seconds};
use super::diff::Diff;
use crate::command::audit::one_line;
use crate::harmless::plain;
use crate::out::{Out, Tone, paint, painted};

type Row = ApprovalRow<String>;

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
        painted(&vec![risk(&row.risk)]),
        one_line(&row.summary),
        paint(Tone::Faint, format!("{} in {}", one_line(&row.agent), one_line(&row.project)))
    )
}

/// What would be applied instead of the whole.
pub(crate) fn preview(preview: &Preview, out: Out) {
    out.line(painted(&vec![(Tone::Care, "\nWhat would be applied instead of the proposal:".to_owned())]));
    out.line(painted(&vec![(Tone::Strong, one_line(&preview.summary))]));
    for line in diff_lines(&Diff::of(&preview.diff, &[])) {
        out.line(painted(&line));
    }
}

/// What was applied, for whoever agreed to it; the agent gets words of its own.
pub(crate) fn applied(answer: &Answer) -> String {
    let envelope = answer.envelope();
    match envelope.pointer("/data/summary").and_then(Value::as_str) {
        Some(summary) => format!("applied: {}", one_line(summary)),
        None => plain(answer.plain_text().unwrap_or("applied")),
    }
}

/// Whether what was agreed to is what was proposed; `None` while nobody agreed.
pub(crate) fn as_proposed(row: Option<&Row>) -> Option<bool> {
    let row = row?;
    let decided = row.decided.as_ref().filter(|decided| decided.verb == Verb::Approve)?;
    Some(decided.digest == row.digest)
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
            fields.insert("as_proposed".to_owned(), as_proposed(look.question.as_ref()).into());
            fields.insert("diff".to_owned(), look.diff.as_str().into());
            fields.insert("proposed_diff".to_owned(), look.proposed.as_deref().into());
            let files = look.files.iter().map(|file| json!({"path": file.path, "created": file.created}));
            fields.insert("paths".to_owned(), files.collect::<Vec<_>>().into());
            fields.insert("change".to_owned(), look.change.as_ref().map_or(Value::Null, change));
        }
        out.value(&told);
        return;
    }
    for line in card(look, now) {
        out.line(painted(&line));
    }
    let diff = |title: &str, text: &str| {
        if !text.is_empty() {
            out.line(title);
            for line in diff_lines(&Diff::of(text, &look.files)) {
                out.line(painted(&line));
            }
        }
    };
    match &look.proposed {
        Some(proposed) => {
            diff("\nwhat was agreed to:", &look.diff);
            diff("\nwhat had been proposed, and was not applied so:", proposed);
        }
        None => diff("", &look.diff),
    }
    if let Some(row) = look.question.as_ref().filter(|row| row.state == AskState::Pending) {
        out.line(format!("\nyes:  vambrace approvals approve {}", row.id));
        out.line(format!("no:   vambrace approvals reject {} --reason '...'", row.id));
    }
}
