//! Deduplicates approval requests: a repeated call in the same session attaches to its pending request. It continues
//! to wait, gets the outcome once, or uses the approval. `completion.rs` has the protocol.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::voucher::Voucher;
use vambrace_store::{ApprovalKind, ApprovalRow, ApprovalState, SealedBlob};
use vambrace_tools::Amendment;

use crate::admit::Admitted;
use crate::approval_request::{NeededApproval, PipelineStop, RequestedCall};
use crate::approval_view::read_approval;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::consent::Consent;
use crate::pipeline::Purpose;

/// Maximum age of a request whose outcome is still delivered, in ms.
const MAX_DELIVERY_AGE_MS: i64 = 3_600_000;

pub(crate) async fn attach_pending(
    broker: &Broker,
    admitted: Admitted,
    record: &mut CallRecord,
    purpose: &Purpose,
) -> Result<Admitted, PipelineStop> {
    if *purpose != Purpose::Run || record.resumed || !broker.may_need_approval(&record.tool) {
        return Ok(admitted);
    }
    let found = broker
        .parts
        .store
        .approval_queries()
        .latest_for_call(record.session.as_str(), record.request_digest())
        .await;
    let Some(row) = found.map_err(|error| CallError::from(&error))? else { return Ok(admitted) };
    let now = broker.parts.clock.now();
    if row.delivered || row.created < now.earlier(MAX_DELIVERY_AGE_MS) {
        return Ok(admitted);
    }
    let waits = broker.is_other_waiter(&row);
    if row.state == ApprovalState::Approved && now < row.expires && !waits && broker.can_perform(&row) {
        resume(broker, record, &row).await?;
        return Ok(admitted);
    }
    Err(PipelineStop::Approval(NeededApproval::Open(Box::new(row))))
}

/// Continues the approved call: its start uses the approval.
pub(crate) async fn resume(
    broker: &Broker,
    record: &mut CallRecord,
    row: &ApprovalRow<String>,
) -> Result<(), CallError> {
    let digest = row.decision.as_ref().map_or(row.digest, |decided| decided.digest);
    record.call = row.call.clone();
    record.hitl = Some(row.id.clone());
    record.resumed = true;
    record.requested = Some(row.kind);
    record.held = RequestedCall::of(row, broker.parts.store.approval_queries())?.held;
    record.approval =
        Some(Voucher::Approval { id: row.id.to_string(), digest, expires: row.expires, used: false });
    if row.kind == ApprovalKind::Change {
        let part = broker.approved_part(row)?;
        let proposed = match part {
            Amendment::Whole => None,
            _ => Some(read_approval(broker.parts.store.approval_queries(), row.id.as_str()).await?.diff),
        };
        record.consent = Some(Consent {
            id: row.id.clone(),
            requested: row.digest,
            part,
            shown: Some(digest),
            proposed,
            decision: None,
            undoes: None,
        });
    }
    Ok(())
}

impl Broker {
    /// Whether the caller waits in another process that lives: that one performs.
    pub(crate) fn is_other_waiter(&self, row: &ApprovalRow<String>) -> bool {
        let liveness = self.parts.store.approval_queries().liveness();
        let other = |process: &&Id| *process != liveness.id() && liveness.is_alive(process);
        row.waiter.as_ref().filter(other).is_some()
    }

    /// Seals what was approved instead of the whole, for the process that performs.
    pub(crate) fn seal_amendment(&self, id: &Id, part: &Amendment) -> Result<SealedBlob, CallError> {
        self.seal(&format!("{id}/amendment"), part.to_json().to_string().as_bytes())
    }

    /// What was approved of a change.
    fn approved_part(&self, row: &ApprovalRow<String>) -> Result<Amendment, CallError> {
        let Some(kept) = row.decision.as_ref().and_then(|decided| decided.amendment.as_ref()) else {
            return Ok(Amendment::Whole);
        };
        let sealer = self.parts.store.approval_queries().blob_sealer();
        let bytes = sealer.unseal(&format!("{}/amendment", row.id), kept);
        let part = bytes.and_then(|bytes| Amendment::from_json(&serde_json::from_slice(&bytes).ok()?));
        part.ok_or_else(|| {
            let why = format!("what was approved of `{}` cannot be decrypted", row.id);
            CallError::new(ErrorCode::Internal, why)
        })
    }
}
