//! Explaining: the first steps of the corridor without the rest. Nothing is performed, nothing recorded.

use serde_json::Value;
use vambrace_core::error::CallError;
use vambrace_core::principal::{Peer, RawCall};
use vambrace_core::settle::{Settlement, settle};
use vambrace_core::verdict::Answer as Verdict;

use crate::admit::{NewSession, admit};
use crate::broker::Broker;
use crate::plan::plan;
use crate::trail::Trail;

/// What would happen.
#[derive(Debug, Clone, PartialEq)]
pub enum Explained {
    /// Every layer was asked.
    Judged {
        /// The outcome.
        verdict: Verdict,
        /// The explanation, as in `core`.
        told: Value,
    },
    /// The call could not even be planned.
    Faulty(CallError),
}

impl Broker {
    /// Runs admit, plan and decide, and tells what every layer says.
    pub async fn explain(&self, raw: RawCall, peer: &Peer) -> Explained {
        let mut trail = Trail::open(self, &raw, peer);
        let told = self.judged(raw, &mut trail).await;
        match told {
            Ok((verdict, told)) => match vambrace_core::redacted::Redacted::json(told, &*self.parts.redactor)
            {
                Ok(clean) => Explained::Judged { verdict, told: clean.into_inner() },
                Err(error) => Explained::Faulty(crate::broker::redactor_failed(error)),
            },
            Err(error) => Explained::Faulty(self.redacted(error).unwrap_or_else(|fault| fault)),
        }
    }

    async fn judged(&self, raw: RawCall, trail: &mut Trail) -> Result<(Verdict, Value), CallError> {
        let admitted = admit(self, raw, trail, NewSession::Imagine).await?;
        let (planned, _, session) = plan(self, admitted, trail)?.into_parts();
        let decision = self.parts.policy.decide(&planned, &session);
        let settlement = settle(&decision, &[], self.parts.clock.now());
        let verdict = match &settlement {
            Settlement::Permitted(_) => Verdict::Allow,
            Settlement::Waiting(_) => Verdict::Ask,
            Settlement::Refused { .. } => Verdict::Deny,
        };
        let revision = self.parts.policy.revision.to_string();
        Ok((verdict, vambrace_core::explain::explain(&planned, &decision, &settlement, &revision)))
    }
}
