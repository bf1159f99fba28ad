//! Starting: the start record is on disk before anything happens. Only here is a [`Started`] made, from the
//! receipt of the store.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::settle::Permit;
use vambrace_store::{Batch, StartReceipt};
use vambrace_tools::Prepared;

use crate::broker::Broker;
use crate::settle::Permitted;
use crate::trail::Trail;

/// A call whose start is on disk.
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
    let (entries, changes) = broker.start_record(trail)?;
    let committed = broker
        .parts
        .store
        .commit(Batch::durable(entries, changes))
        .await
        .map_err(|error| CallError::from(&error))?;
    let receipt = committed
        .into_start()
        .ok_or_else(|| CallError::new(ErrorCode::AuditUnavailable, "the start record is not on disk"))?;
    trail.started = true;
    Ok(Started { prepared, permit, receipt })
}
