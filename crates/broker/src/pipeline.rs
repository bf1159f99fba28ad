//! The pipeline: the path of a call on one screen. Every entry point (command line, MCP, REST) starts at
//! [`Broker::call`], and every exit is recorded.

use vambrace_core::principal::{Peer, RawCall};

use crate::admit::{NewSession, admit};
use crate::approval_request::{DecisionWait, PipelineStop};
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::call_result::CallResult;
use crate::cleanse::{Clean, cleanse};
use crate::{
    decide::decide, pending_call::attach_pending, perform::perform, plan::plan, settle::settle, start::start,
};

impl Broker {
    /// Runs a call through the whole pipeline. Whatever happens inside, the result reports it and the ledger records
    /// it.
    pub async fn call(&self, raw: RawCall, peer: &Peer) -> CallResult {
        self.call_and_wait(raw, peer, &DecisionWait::default()).await
    }

    /// Like [`Self::call`], for a caller that waits while a person decides.
    pub async fn call_and_wait(&self, raw: RawCall, peer: &Peer, wait: &DecisionWait<'_>) -> CallResult {
        let mut record = CallRecord::open(self, &raw, peer);
        record.caller_waits = wait.max_wait.is_some();
        let result = self.run_steps(raw, &mut record).await;
        self.await_decision(result, record, wait).await // waits for a decision if one is needed, and records the end
    }

    /// The steps of the pipeline.
    pub(crate) async fn run_steps(
        &self,
        raw: RawCall,
        record: &mut CallRecord,
    ) -> Result<Clean, PipelineStop> {
        let admitted = admit(self, raw, record, NewSession::Open).await?; // session is open, tool is known
        let admitted = attach_pending(self, admitted, record).await?; //     a repeated call attaches to its pending request
        let planned = plan(self, admitted, record)?; //                      arguments -> effects
        let decided = decide(self, planned, record); //                      every policy layer judges every effect
        let permitted = settle(self, decided, record).await?; //             an `ask` needs a voucher, a denial is final
        let started = start(self, permitted, record).await?; //              the start record is committed
        let performed = perform(self, started, record).await?; //            the only step with side effects
        Ok(cleanse(self, performed, record)?) //                             redacted, provenance marked
    }
}
