//! Prints an approval request: as JSON, as one line, or as its details (`details.rs`) with the diff.

use serde_json::{Value, json};
use vambrace_broker::{ApprovalView, CallResult, ProposalPreview};
use vambrace_core::terminal_escape::one_line;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::DecisionVerb;
use vambrace_store::{ApprovalState, ProposalRow};

use super::RequestRow;
use super::details::{details, diff_lines, risk, seconds};
use super::diff::Diff;
use crate::output::{Out, Tone, paint, render_line};

/// An approval request as JSON.
pub(crate) fn question(row: &RequestRow, now: Timestamp) -> Value {
    let decided = row.decision.as_ref().map(|decided| {
        json!({"decision": decided.verb.as_str(), "scope": decided.reach.as_str(), "at": decided.at.to_string(),
               "by": decided.by, "reason": decided.reason, "digest": decided.digest.to_string()})
    });
    json!({
        "id": row.id.as_str(), "call_id": row.call.as_str(), "session": row.session.as_str(), "user": row.user,
        "agent": row.agent, "project": row.project, "tool": row.tool, "kind": row.kind.as_str(), "risk": row.risk,
        "summary": row.summary, "why": row.why.lines().collect::<Vec<_>>(), "grantable": row.grantable,
        "digest": row.digest.to_string(), "policy": row.revision.to_string(), "state": row.state.as_str(),
        "created": row.created.to_string(), "expires": row.expires.to_string(),
        "seconds_left": if row.state == ApprovalState::Pending { seconds(row, now) } else { 0 }, "decided": decided,
    })
}

/// A change as JSON.
pub(crate) fn change(row: &ProposalRow<String>) -> Value {
    json!({
        "id": row.id.as_str(), "call_id": row.call.as_str(), "session": row.session.as_str(), "user": row.user,
        "project": row.project, "tool": row.tool, "path": row.path, "summary": row.summary, "files": row.files,
        "patch_hash": row.patch_hash.to_string(), "digest": row.digest.to_string(), "state": row.state.as_str(),
        "created": row.created.to_string(), "changed": row.changed.to_string(),
        "undoes": row.undoes.as_ref().map(|id| id.as_str()), "can_roll_back": row.undo.is_some(),
    })
}

/// An approval request as one line.
pub(crate) fn line(row: &RequestRow, now: Timestamp) -> String {
    let state = match row.state {
        ApprovalState::Pending => paint(Tone::Care, format!("{:>4} s left", seconds(row, now))),
        other => paint(Tone::Faint, format!("{:>11}", other.as_str())),
    };
    format!(
        "{}  {state}  {}  {}  {}",
        row.id,
        render_line(&vec![risk(&row.risk)]),
        one_line(&row.summary),
        paint(Tone::Faint, format!("{} in {}", one_line(&row.agent), one_line(&row.project)))
    )
}

/// Prints the change that would be applied instead of the whole proposal.
pub(crate) fn preview(preview: &ProposalPreview, out: Out) {
    out.line(render_line(&vec![(Tone::Care, "\nThis is applied instead of the whole proposal:".to_owned())]));
    out.line(render_line(&vec![(Tone::Strong, one_line(&preview.summary))]));
    for line in diff_lines(&Diff::of(&preview.diff, &[])) {
        out.line(render_line(&line));
    }
}

/// What was applied, for the approver; the agent gets its own message.
pub(crate) fn applied(answer: &CallResult) -> String {
    let envelope = answer.envelope();
    let summary = envelope.pointer("/data/summary").or_else(|| envelope.pointer("/data/changes/summary"));
    match summary.and_then(Value::as_str) {
        Some(summary) => format!("applied: {}", one_line(summary)),
        // Its output is for the caller, not for the terminal of the approver.
        None => "approved: the call ran, and its caller gets the result".to_owned(),
    }
}

/// Whether the approved change is the proposed one; `None` if it was not approved.
pub(crate) fn as_proposed(row: Option<&RequestRow>) -> Option<bool> {
    let row = row?;
    let decided = row.decision.as_ref().filter(|decided| decided.verb == DecisionVerb::Approve)?;
    Some(decided.digest == row.digest)
}

/// Prints all details of a request or a change.
pub(crate) fn show(look: &ApprovalView, now: Timestamp, out: Out) {
    if out.is_json() {
        let mut value = match (&look.request, &look.change) {
            (Some(row), _) => question(row, now),
            (None, Some(row)) => change(row),
            (None, None) => Value::Null,
        };
        if let Some(fields) = value.as_object_mut() {
            fields.insert("as_proposed".to_owned(), as_proposed(look.request.as_ref()).into());
            fields.insert("diff".to_owned(), look.diff.as_str().into());
            fields.insert("proposed_diff".to_owned(), look.proposed.as_deref().into());
            let files = look.files.iter().map(|file| json!({"path": file.path, "created": file.created}));
            fields.insert("paths".to_owned(), files.collect::<Vec<_>>().into());
            fields.insert("change".to_owned(), look.change.as_ref().map_or(Value::Null, change));
        }
        out.value(&value);
        return;
    }
    for line in details(look, now) {
        out.line(render_line(&line));
    }
    let diff = |title: &str, text: &str| {
        if !text.is_empty() {
            out.line(title);
            for line in diff_lines(&Diff::of(text, &look.files)) {
                out.line(render_line(&line));
            }
        }
    };
    match &look.proposed {
        Some(proposed) => {
            diff("\napproved change:", &look.diff);
            diff("\nproposed change, not applied as proposed:", proposed);
        }
        None => diff("", &look.diff),
    }
    if let Some(row) = look.request.as_ref().filter(|row| row.state == ApprovalState::Pending) {
        out.line(format!("\napprove:  vambrace approvals approve {}", row.id));
        out.line(format!("reject:   vambrace approvals reject {} --reason '...'", row.id));
    }
}
