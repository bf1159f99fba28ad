//! Start: commits the start record before anything happens, and syncs it before anything changes. Only this module
//! builds a [`Started`], from the store's receipt.
//!
//! A call that only reads may start once its record is committed (the record survives a kill, and is synced within
//! 100 ms), because waiting for the disk would take longer than the read. `audit.sync: always` waits nevertheless.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vambrace_core::change::ChangeSet;
use vambrace_core::config::AuditSync;
use vambrace_core::effect::EffectKind;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::settle::Permit;
use vambrace_store::{Batch, StartReceipt, StoreError};
use vambrace_tools::{ToolPlan, Weight};

use crate::admit::{measure_rate, session_closed, session_state};
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::settle::Permitted;

/// A call whose start record is committed, and synced if the call changes anything.
pub(crate) struct Started {
    prepared: ToolPlan,
    permit: Permit,
    receipt: StartReceipt,
}

impl Started {
    pub(crate) fn into_parts(self) -> (ToolPlan, Permit, StartReceipt) {
        (self.prepared, self.permit, self.receipt)
    }
}

pub(crate) async fn start(
    broker: &Broker,
    permitted: Permitted,
    record: &mut CallRecord,
) -> Result<Started, CallError> {
    let (prepared, permit) = permitted.into_parts();
    let (prepared, back) = prepare_change(record, prepared, &permit).await?;
    let only_reads = prepared.effects.iter().all(|effect| effect.kind() == EffectKind::Read);
    // Using up an approval must be durable.
    let approved = record.approval.is_some() || record.consent.is_some();
    let later = only_reads && broker.parts.sync == AuditSync::ReadsLater && !approved;
    record.defer_row = later && record.limit.is_none() && prepared.weight == Weight::Light;
    let (mut entries, mut changes) = broker.consent_changes(record, &permit, &prepared, back)?;
    let (own, further) = broker.start_record(record)?;
    changes.splice(0..0, further);
    entries.extend(own);
    let batch = if later { Batch::lazy(entries, changes) } else { Batch::durable(entries, changes) };
    let committed = match broker.parts.store.commit(batch).await {
        Ok(committed) => committed,
        Err(error) => {
            record.disk_full = matches!(error, StoreError::Full(_));
            return Err(commit_failure(broker, record, &error).await);
        }
    };
    let receipt = if later { committed.into_read_start() } else { committed.into_start() };
    let receipt = receipt.ok_or_else(|| {
        CallError::new(
            ErrorCode::AuditUnavailable,
            "the start record was not stored with the required durability",
        )
    })?;
    record.started = Some(receipt.position().record.clone());
    Ok(Started { prepared, permit, receipt })
}

/// Runs the last checks of a change under locks that are held until the work is done: a recorded start does not fail
/// because another process changed a file.
async fn prepare_change(
    record: &CallRecord,
    mut prepared: ToolPlan,
    permit: &Permit,
) -> Result<(ToolPlan, Option<ChangeSet>), CallError> {
    if prepared.work.change().is_none() {
        return Ok((prepared, None));
    }
    let (context, fence) = (Arc::clone(&record.tool_context), permit.fence().clone());
    let made = tokio::task::spawn_blocking(move || {
        let back = catch_unwind(AssertUnwindSafe(|| prepared.work.ready(&context, &fence)));
        (prepared, back)
    });
    let broken = |_| CallError::new(ErrorCode::Internal, "the change could not be prepared");
    let (prepared, back) = made.await.map_err(broken)?;
    let back =
        back.map_err(|_| CallError::new(ErrorCode::Internal, "the change could not be prepared"))??;
    Ok((prepared, back))
}

/// Explains why a start was not committed: since the checks, the session may have been closed, or another call may
/// have used up the rate limit.
async fn commit_failure(broker: &Broker, record: &CallRecord, error: &StoreError) -> CallError {
    broker.cache_state(&record.session, &record.principal, None);
    if error.concerns_batch_only()
        && let Ok(Some(state)) = session_state(broker, record).await
        && !state.is_open()
    {
        return session_closed(record, state);
    }
    if let (true, Some(limit)) = (error.concerns_batch_only(), record.limit)
        && let Ok(pace) = measure_rate(broker, record, limit).await
        && pace.calls >= limit
    {
        return CallError::new(ErrorCode::RateLimited, pace.denial_message(&record.tool));
    }
    if error.concerns_batch_only() && (record.consent.is_some() || record.approval.is_some()) {
        let why = "it was decided or applied a moment ago by someone else, or it has expired";
        return CallError::new(ErrorCode::ProposalUsed, why);
    }
    CallError::from(error)
}
