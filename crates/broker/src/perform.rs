//! Performing: the only step that touches anything. It takes a [`Started`] and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_tools::{Output, Weight};

use crate::broker::Broker;
use crate::start::Started;
use crate::trail::Trail;

/// A call that was carried out; its output has not been looked at yet.
pub(crate) struct Performed {
    output: Output,
}

impl Performed {
    pub(crate) fn into_output(self) -> Output {
        self.output
    }
}

pub(crate) async fn perform(
    broker: &Broker,
    started: Started,
    trail: &mut Trail,
) -> Result<Performed, CallError> {
    let (prepared, permit, receipt) = started.into_parts();
    let room = broker.parts.room.clone();
    let tool = trail.tool.clone();
    let broken = || CallError::new(ErrorCode::Internal, format!("`{tool}` failed inside"));
    let (weight, work) = (prepared.weight, prepared.work);
    let attempts = work.attempts();
    let run = move || catch_unwind(AssertUnwindSafe(|| work.run(&room, permit.fence(), &receipt)));
    let output = match weight {
        Weight::Light => Ok(run()),
        Weight::Heavy => tokio::task::spawn_blocking(run).await,
    };
    // However it ended: what it attempted is part of the record.
    trail.attempts = attempts.map(|log| log.read()).unwrap_or_default();
    let output = output.map_err(|_| broken())?;
    Ok(Performed { output: output.map_err(|_| broken())?? })
}
