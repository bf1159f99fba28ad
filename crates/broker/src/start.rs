//! Starting: the start record is written before anything happens, and on disk before anything changes. Only here is a
//! [`Started`] made, from the receipt of the store.
//!
//! A call that only reads may start once its record is committed (it survives a kill; the disk has it within 100 ms),
//! because waiting for the disk would cost more than the read. `audit.sync: always` waits all the same.

use std::panic::{AssertUnwindSafe, catch_unwind};

use vambrace_core::change::ChangeSet;
use vambrace_core::config::AuditSync;
use vambrace_core::effect::EffectKind;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::settle::Permit;
use vambrace_store::{Batch, StartReceipt, StoreError};
use vambrace_tools::{Prepared, Weight};

use crate::admit::{closed, pace, session_state};
use crate::broker::Broker;
use crate::settle::Permitted;
use crate::trail::Trail;

/// A call whose start is committed, and on disk where it changes anything.
pub(crate) struct Started {
    prepared: Prepared,
    permit: Permit,
    receipt: StartReceipt,
}

impl Started {
    pub(crate) fn into_parts(self) -> (Prepared, Permit, StartReceipt) {
        (self.prepared, self.permit, self.receipt)
    }
}

pub(crate) async fn start(
    broker: &Broker,
    permitted: Permitted,
    trail: &mut Trail,
) -> Result<Started, CallError> {
    let (prepared, permit) = permitted.into_parts();
    let (prepared, back) = ready(broker, prepared, &permit).await?;
    let only_reads = prepared.effects.iter().all(|effect| effect.kind() == EffectKind::Read);
    // A yes that is used is used for good.
    let later = only_reads && broker.parts.sync == AuditSync::ReadsLater && trail.yes.is_none();
    trail.row_later = later && trail.limit.is_none() && prepared.weight == Weight::Light;
    let (mut entries, mut changes) = broker.agreements(trail, &permit, &prepared, back)?;
    let (own, further) = broker.start_record(trail)?;
    changes.splice(0..0, further);
    entries.extend(own);
    let batch = if later { Batch::lazy(entries, changes) } else { Batch::durable(entries, changes) };
    let committed = match broker.parts.store.commit(batch).await {
        Ok(committed) => committed,
        Err(error) => {
            trail.disk_full = matches!(error, StoreError::Full(_));
            return Err(refused(broker, trail, &error).await);
        }
    };
    let receipt = if later { committed.into_read_start() } else { committed.into_start() };
    let receipt = receipt.ok_or_else(|| {
        CallError::new(ErrorCode::AuditUnavailable, "the start record was not kept as it must be")
    })?;
    trail.started = Some(receipt.sealed().seq);
    Ok(Started { prepared, permit, receipt })
}

/// The last checks, under locks that hold until the work is done: a start that is recorded does not fail for a file that
/// somebody else changed.
async fn ready(
    broker: &Broker,
    mut prepared: Prepared,
    permit: &Permit,
) -> Result<(Prepared, Option<ChangeSet>), CallError> {
    if prepared.work.change().is_none() {
        return Ok((prepared, None));
    }
    let (room, fence) = (broker.parts.room.clone(), permit.fence().clone());
    let made = tokio::task::spawn_blocking(move || {
        let back = catch_unwind(AssertUnwindSafe(|| prepared.work.ready(&room, &fence)));
        (prepared, back)
    });
    let broken = |_| CallError::new(ErrorCode::Internal, "the change could not be made ready");
    let (prepared, back) = made.await.map_err(broken)?;
    let back =
        back.map_err(|_| CallError::new(ErrorCode::Internal, "the change could not be made ready"))??;
    Ok((prepared, back))
}

/// Why a start was not committed: since they were looked at, somebody may have closed the session, or another call may
/// have been the last one of this minute.
async fn refused(broker: &Broker, trail: &Trail, error: &StoreError) -> CallError {
    broker.remember(&trail.session, None);
    if error.concerns_batch_only()
        && let Ok(Some(state)) = session_state(broker, trail).await
        && !state.is_open()
    {
        return closed(trail, state);
    }
    if let (true, Some(limit)) = (error.concerns_batch_only(), trail.limit)
        && let Ok(pace) = pace(broker, trail, limit).await
        && pace.calls >= limit
    {
        return CallError::new(ErrorCode::RateLimited, pace.refusal(&trail.tool));
    }
    if error.concerns_batch_only() && (trail.consent.is_some() || trail.yes.is_some()) {
        let why = "somebody else decided or applied it a moment ago, or its time is over";
        return CallError::new(ErrorCode::ProposalUsed, why);
    }
    CallError::from(error)
}
