//! Perform: the only step with side effects. It takes a [`Started`] and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_tools::{ToolOutput, Weight};

use crate::call_record::CallRecord;
use crate::start::Started;

/// A call that ran; its output is not redacted yet.
pub(crate) struct Performed {
    output: ToolOutput,
}

impl Performed {
    pub(crate) fn into_output(self) -> ToolOutput {
        self.output
    }
}

pub(crate) async fn perform(started: Started, record: &mut CallRecord) -> Result<Performed, CallError> {
    let (prepared, permit, receipt) = started.into_parts();
    let context = Arc::clone(&record.tool_context);
    let tool = record.tool.clone();
    let broken = || CallError::new(ErrorCode::Internal, format!("`{tool}` failed internally"));
    let (weight, work) = (prepared.weight, prepared.work);
    let attempts = work.attempts();
    let run = move || catch_unwind(AssertUnwindSafe(|| work.run(&context, permit.fence(), &receipt)));
    let output = match weight {
        Weight::Light => Ok(run()),
        Weight::Heavy => tokio::task::spawn_blocking(run).await,
    };
    // The record includes network attempts however the call ended.
    record.egress_attempts = attempts.map(|log| log.read()).unwrap_or_default();
    let mut output = output.map_err(|_| broken())?.map_err(|_| broken())??;
    if let Some(mut run) = output.touched.run.take() {
        record.egress_attempts = std::mem::take(&mut run.attempts);
        record.run = Some(run);
    }
    Ok(Performed { output })
}
