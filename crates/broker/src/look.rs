//! Looking at questions and proposals, and letting those end whose time is over. For every door: no workspace is needed.

use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_core::risk::Level;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Op, Status};
use vambrace_store::{
    ApprovalRow, AskChange, AskState, Batch, CallFinish, CallState, Change, Entry, ProposalRow, Questions,
    Store,
};

use crate::broker::redactor_failed;

/// A question or a change, with what was shown of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// The question; `None` for a change that a rule or a grant agreed to, and for a rollback.
    pub question: Option<ApprovalRow<String>>,
    /// The change; `None` for any other call.
    pub change: Option<ProposalRow<String>>,
    /// The diff: of what was agreed to, or while nobody has, of what is proposed.
    pub diff: String,
    /// The diff that was proposed, where a part or another content was agreed to.
    pub proposed: Option<String>,
    /// Its files.
    pub files: Vec<LookedFile>,
}

/// A file of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedFile {
    /// Where.
    pub path: String,
    /// Whether it is new.
    pub created: bool,
}

/// Everything about an id, or that there is no such thing.
pub async fn look(questions: &dyn Questions, id: &str) -> Result<Look, CallError> {
    let fault = |error: &vambrace_store::StoreError| CallError::from(error);
    let question = questions.approval(id).await.map_err(|error| fault(&error))?;
    let change = questions.proposal(id).await.map_err(|error| fault(&error))?;
    if question.is_none() && change.is_none() {
        return Err(unknown(id));
    }
    let shown = change.as_ref().map(|change| shown(change, questions)).transpose()?.unwrap_or_default();
    let file = |file: &Value| {
        Some(LookedFile {
            path: file.get("path")?.as_str()?.to_owned(),
            created: file.get("created").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    let files = shown.get("files").and_then(Value::as_array).into_iter().flatten().filter_map(file).collect();
    let diff = shown.get("diff").and_then(Value::as_str).unwrap_or_default().to_owned();
    let proposed = shown.get("proposed").and_then(Value::as_str).map(str::to_owned);
    Ok(Look { question, change, diff, proposed, files })
}

/// A question that a user may see; another user's is not there (A12).
pub async fn visible(
    questions: &dyn Questions,
    id: &str,
    sees: impl Fn(&str) -> bool,
) -> Result<Look, CallError> {
    let found = look(questions, id).await?;
    let owner = found.question.as_ref().map(|row| &row.user).or(found.change.as_ref().map(|row| &row.user));
    if owner.is_some_and(|user| sees(user)) { Ok(found) } else { Err(unknown(id)) }
}

pub(crate) fn unknown(id: &str) -> CallError {
    let shown: String = id.chars().take(80).collect();
    CallError::new(ErrorCode::ProposalNotFound, format!("there is no question or proposal `{shown}`"))
        .suggest("`vambrace approvals list` lists the open questions, `vambrace proposals list` the changes")
}

/// What was shown of a change.
pub(crate) fn shown(change: &ProposalRow<String>, questions: &dyn Questions) -> Result<Value, CallError> {
    let damaged =
        || CallError::new(ErrorCode::Internal, format!("what was stored of `{}` does not open", change.id));
    let bytes = questions.vault().open_kept(change.id.as_str(), &change.shown).ok_or_else(damaged)?;
    serde_json::from_slice(&bytes).map_err(|_| damaged())
}

/// What every record about a question says.
pub(crate) fn describe(
    entry: &mut Entry,
    row: &ApprovalRow<String>,
    redactor: &dyn Redact,
) -> Result<(), CallError> {
    let text = |words: &str| Redacted::text(words, redactor).map_err(redactor_failed);
    entry.user = Some(text(&row.user)?);
    entry.agent_id = Some(text(&row.agent)?);
    entry.session = Some(row.session.clone());
    entry.execution_id = Some(row.call.clone());
    entry.tool_name = Some(text(&row.tool)?);
    entry.hitl_id = Some(row.id.clone());
    entry.plan_digest = Some(row.digest);
    entry.risk = Level::parse(&row.risk).map(Level::as_str);
    Ok(())
}

/// Lets a question end whose time is over, with its call, on record (A6). Somebody may have decided at the last moment:
/// then that counts.
pub async fn expire(
    store: &dyn Store,
    redactor: &dyn Redact,
    now: Timestamp,
    row: &ApprovalRow<String>,
) -> Result<(), CallError> {
    let over = matches!(row.state, AskState::Pending | AskState::Approved) && now >= row.expires;
    if !over {
        return Ok(());
    }
    let mut entry = Entry::new(Op::ToolApproval, now);
    describe(&mut entry, row, redactor)?;
    entry.event_type = Some("approval.expired");
    entry.status = Some(Status::Expired);
    entry.message = Some(Redacted::literal("Approval timeout"));
    entry.error_code = Some(ErrorCode::ApprovalTimeout);
    let error = Some(ErrorCode::ApprovalTimeout);
    let finish = CallFinish { id: row.call.clone(), state: CallState::Expired, at: now, error };
    let expire = AskChange::Expire { id: row.id.clone(), at: now };
    let changes = vec![expire.into(), Change::FinishCall(finish)];
    match store.commit(Batch::durable(vec![entry], changes)).await {
        Ok(_) => Ok(()),
        Err(error) if error.concerns_batch_only() => Ok(()),
        Err(error) => Err(CallError::from(&error)),
    }
}
