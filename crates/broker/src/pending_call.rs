//! Deduplicates approval requests: a repeated call in the same session attaches to its pending request. It continues
//! to wait, gets the outcome once, or uses the approval.

use vambrace_core::error::CallError;
use vambrace_core::voucher::Voucher;
use vambrace_store::{ApprovalRow, ApprovalState};

use crate::admit::Admitted;
use crate::approval_request::PipelineStop;
use crate::broker::Broker;
use crate::call_record::CallRecord;

/// Maximum age of a request whose outcome is still delivered, in ms.
const MAX_DELIVERY_AGE_MS: i64 = 3_600_000;

pub(crate) async fn attach_pending(
    broker: &Broker,
    admitted: Admitted,
    record: &mut CallRecord,
) -> Result<Admitted, PipelineStop> {
    if record.resumed || !broker.may_need_approval(&record.tool) {
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
    if row.state == ApprovalState::Approved && now < row.expires {
        resume(record, &row);
        return Ok(admitted);
    }
    Err(PipelineStop::AlreadyRequested(Box::new(row)))
}

/// Continues the approved call.
pub(crate) fn resume(record: &mut CallRecord, row: &ApprovalRow<String>) {
    record.call = row.call.clone();
    record.hitl = Some(row.id.clone());
    record.resumed = true;
    record.approval = Some(Voucher::Approval {
        id: row.id.to_string(),
        digest: row.decision.as_ref().map_or(row.digest, |decided| decided.digest),
        expires: row.expires,
        used: false,
    });
}
