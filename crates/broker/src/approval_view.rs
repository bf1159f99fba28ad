//! Reads approval requests and proposals, and expires overdue ones. Used by every entry point; needs no workspace.

use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_core::risk::RiskLevel;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{
    ApprovalChange, ApprovalQueries, ApprovalRow, ApprovalState, Batch, CallFinish, CallState, Entry,
    OwnerFilter, ProposalRow, StateChange, Store,
};

use crate::broker::redactor_failed;

/// An approval request or a change, with the diff that was shown.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalView {
    /// The request; `None` for a change that a rule or a grant allowed, and for a rollback.
    pub request: Option<ApprovalRow<String>>,
    /// The proposal; `None` for any other call.
    pub change: Option<ProposalRow<String>>,
    /// The approved diff, or the proposed one while it is pending.
    pub diff: String,
    /// The proposed diff, if a part or edited content was approved.
    pub proposed: Option<String>,
    /// Files of the change.
    pub files: Vec<ProposalFile>,
}

/// A file of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalFile {
    /// Path in the workspace.
    pub path: String,
    /// Whether the change creates it.
    pub created: bool,
}

/// Reads the request and the proposal with this id; an error if there is neither.
pub async fn read_approval(queries: &dyn ApprovalQueries, id: &str) -> Result<ApprovalView, CallError> {
    let fault = |error: &vambrace_store::StoreError| CallError::from(error);
    let request = queries.approval(id).await.map_err(|error| fault(&error))?;
    let change = queries.proposal(id).await.map_err(|error| fault(&error))?;
    if request.is_none() && change.is_none() {
        return Err(unknown(id));
    }
    let shown = change.as_ref().map(|change| display_data(change, queries)).transpose()?.unwrap_or_default();
    let file = |file: &Value| {
        Some(ProposalFile {
            path: file.get("path")?.as_str()?.to_owned(),
            created: file.get("created").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    let files = shown.get("files").and_then(Value::as_array).into_iter().flatten().filter_map(file).collect();
    let diff = shown.get("diff").and_then(Value::as_str).unwrap_or_default().to_owned();
    let proposed = shown.get("proposed").and_then(Value::as_str).map(str::to_owned);
    Ok(ApprovalView { request, change, diff, proposed, files })
}

/// Like [`read_approval`], for a reader of some owner's rows; the request of another one does not exist for it (A12).
pub async fn visible(
    queries: &dyn ApprovalQueries,
    id: &str,
    owner: &OwnerFilter,
) -> Result<ApprovalView, CallError> {
    match queries.is_owned(id, owner).await.map_err(|error| CallError::from(&error))? {
        true => read_approval(queries, id).await,
        false => Err(unknown(id)),
    }
}

pub(crate) fn unknown(id: &str) -> CallError {
    let shown: String = id.chars().take(80).collect();
    CallError::new(ErrorCode::ProposalNotFound, format!("there is no approval request or proposal `{shown}`"))
        .suggest("`vambrace approvals list` lists pending approval requests, `vambrace proposals list` the changes")
}

/// The stored display data of a change: diff, files, payload, details.
pub(crate) fn display_data(
    change: &ProposalRow<String>,
    queries: &dyn ApprovalQueries,
) -> Result<Value, CallError> {
    let damaged = || {
        CallError::new(ErrorCode::Internal, format!("the stored data of `{}` cannot be decrypted", change.id))
    };
    let bytes = queries.blob_sealer().unseal(change.id.as_str(), &change.shown).ok_or_else(damaged)?;
    serde_json::from_slice(&bytes).map_err(|_| damaged())
}

/// Fills in what every ledger entry about a request contains.
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
    entry.risk = RiskLevel::parse(&row.risk).map(RiskLevel::as_str);
    Ok(())
}

/// Expires an overdue request and its call, with a ledger record (A6). A decision that was made at the last moment
/// counts.
pub async fn expire(
    store: &dyn Store,
    redactor: &dyn Redact,
    now: Timestamp,
    row: &ApprovalRow<String>,
) -> Result<(), CallError> {
    let over = matches!(row.state, ApprovalState::Pending | ApprovalState::Approved) && now >= row.expires;
    if !over {
        return Ok(());
    }
    let mut entry = Entry::new(Op::ToolApproval, now);
    describe(&mut entry, row, redactor)?;
    entry.event_type = Some("approval.expired");
    entry.status = Some(RecordStatus::Expired);
    entry.message = Some(Redacted::literal("Approval timeout"));
    entry.error_code = Some(ErrorCode::ApprovalTimeout);
    let error = Some(ErrorCode::ApprovalTimeout);
    let finish = CallFinish { id: row.call.clone(), state: CallState::Expired, at: now, error };
    let expire = ApprovalChange::Expire { id: row.id.clone(), at: now };
    let changes = vec![expire.into(), StateChange::FinishCall(finish)];
    match store.commit(Batch::durable(vec![entry], changes)).await {
        Ok(_) => Ok(()),
        Err(error) if error.concerns_batch_only() => Ok(()),
        Err(error) => Err(CallError::from(&error)),
    }
}
