//! The pipeline: the path of a call on one screen. Every entry point (command line, MCP, REST) starts at
//! [`Broker::call`], and every exit is recorded. Explain, preview and rollback are the same walk with another
//! [`Purpose`].

use std::sync::Arc;

use vambrace_core::change::ChangeSet;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::{Peer, RawCall};
use vambrace_tools::CallContext;

use crate::admit::admit;
use crate::approval_request::{DecisionWait, PipelineStop};
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::call_result::CallResult;
use crate::cleanse::{Clean, cleanse};
use crate::decide::{Decided, decide};
use crate::{pending_call::attach_pending, perform::perform, plan::plan, settle::settle, start::start};

/// Why a call is walked through the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    /// To run it.
    Run,
    /// To show what would happen; opens no session and asks nobody.
    Show,
    /// To undo an applied change: the change is planned instead of the arguments.
    Rollback(ChangeSet),
}

impl Broker {
    /// Runs a call through the whole pipeline. Whatever happens inside, the result reports it and the ledger records
    /// it.
    pub async fn call(self: &Arc<Self>, raw: RawCall, peer: &Peer) -> CallResult {
        self.call_and_wait(raw, peer, DecisionWait::default(), CallContext::default()).await
    }

    /// Like [`Self::call`], for a caller that waits while a person decides, or listens while the call runs. The call is
    /// a task of its own: a caller that goes away loses the result, not the record.
    pub async fn call_and_wait(
        self: &Arc<Self>,
        raw: RawCall,
        peer: &Peer,
        wait: DecisionWait,
        context: CallContext,
    ) -> CallResult {
        let (broker, peer, tool) = (Arc::clone(self), peer.clone(), raw.tool.clone());
        let task = tokio::spawn(async move {
            let mut record = CallRecord::open(&broker, &raw, &peer, context);
            record.caller_waits = wait.max_wait.is_some();
            let stop = match broker.run_steps(raw, &mut record, Purpose::Run).await {
                Ok(clean) => return broker.record_result(record, Ok(clean)).await,
                Err(stop) => stop,
            };
            match broker.unless_lost(&record, stop).await {
                PipelineStop::Failed(error) => broker.record_result(record, Err(error)).await,
                PipelineStop::Approval(needed) => broker.await_decision(needed, record, &wait).await,
            }
        });
        // Steps catch the panics of tools; any other one answers this call and no other.
        task.await.unwrap_or_else(|_| {
            CallResult::unrecorded(&tool, CallError::new(ErrorCode::Internal, "the call failed internally"))
        })
    }

    /// The steps of the pipeline.
    pub(crate) async fn run_steps(
        &self,
        raw: RawCall,
        record: &mut CallRecord,
        purpose: Purpose,
    ) -> Result<Clean, PipelineStop> {
        let decided = self.judge(raw, record, purpose).await?; //    who calls what, its effects, every layer's verdict
        let permitted = settle(self, decided, record).await?; //     an `ask` needs a voucher, a denial is final
        let started = start(self, permitted, record).await?; //      the start record is committed
        let performed = perform(started, record).await?; //          the only step with side effects
        let clean = cleanse(self, performed, record)?; //            redacted, provenance marked
        self.settle_held(clean, record).await //                     what a program changed is judged like an edit
    }

    /// The steps before anything is settled; explain and preview stop here.
    pub(crate) async fn judge(
        &self,
        raw: RawCall,
        record: &mut CallRecord,
        purpose: Purpose,
    ) -> Result<Decided, PipelineStop> {
        let admitted = admit(self, raw, record, &purpose).await?; //            session is open, tool is known
        let admitted = attach_pending(self, admitted, record, &purpose).await?; // a repeated call attaches to its request
        let planned = plan(self, admitted, record, purpose).await?; //          arguments -> effects
        Ok(decide(self, planned, record)) //                                    every policy layer judges every effect
    }
}
