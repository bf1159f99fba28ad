//! Explain: the first steps of the pipeline. Nothing runs and nothing is recorded.

use serde_json::Value;
use vambrace_core::error::CallError;
use vambrace_core::principal::{Peer, RawCall};
use vambrace_core::settle::{Settlement, settle};
use vambrace_core::verdict::VerdictKind as Verdict;
use vambrace_tools::CallContext;

use crate::approval_request::PipelineStop;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::pipeline::Purpose;

/// What would happen to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Explanation {
    /// Every layer judged it.
    Judged {
        /// The verdict.
        verdict: Verdict,
        /// The explanation that core builds.
        explanation: Value,
    },
    /// The call could not be planned.
    NotPlanned(CallError),
}

impl Broker {
    /// Runs admit, plan and decide, and returns what every layer says.
    pub async fn explain(&self, raw: RawCall, peer: &Peer) -> Explanation {
        let mut record = CallRecord::open(self, &raw, peer, CallContext::default());
        let explanation = self.explained(raw, &mut record).await;
        match explanation {
            Ok((verdict, explanation)) => {
                match vambrace_core::redacted::Redacted::json(explanation, &*self.parts.redactor) {
                    Ok(clean) => Explanation::Judged { verdict, explanation: clean.into_inner() },
                    Err(error) => Explanation::NotPlanned(crate::broker::redactor_failed(error)),
                }
            }
            Err(error) => Explanation::NotPlanned(self.redacted(error).unwrap_or_else(|fault| fault)),
        }
    }

    async fn explained(&self, raw: RawCall, record: &mut CallRecord) -> Result<(Verdict, Value), CallError> {
        let decided = self.judge(raw, record, Purpose::Show).await.map_err(PipelineStop::into_error)?;
        let (plan, _, decision) = decided.into_parts();
        let settlement = settle(&decision, &[], self.parts.clock.now());
        let verdict = match &settlement {
            Settlement::Permitted(_) => Verdict::Allow,
            Settlement::Waiting(_) => Verdict::Ask,
            Settlement::Denied { .. } => Verdict::Deny,
        };
        let revision = self.parts.policy.revision.to_string();
        Ok((verdict, vambrace_core::explain::explain(&plan, &decision, &settlement, &revision)))
    }
}
