//! Explaining: the first steps of the corridor without the rest. Nothing is performed, nothing recorded.

use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::principal::{Peer, RawCall};
use vambrace_core::settle::{Settlement, settle};
use vambrace_core::verdict::Answer as Verdict;

use crate::admit::{NewSession, admit};
use crate::broker::Broker;
use crate::plan::plan;
use crate::record::violation_type;
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
            Err(error) => match self.redacted(error) {
                Ok(error) => self.refused(&trail, error),
                Err(fault) => Explained::Faulty(fault),
            },
        }
    }

    /// A call that could not be planned: refused by the workspace, or simply wrong.
    fn refused(&self, trail: &Trail, error: CallError) -> Explained {
        if violation_type(error.code).is_none() {
            return Explained::Faulty(error);
        }
        let reason = json!({"layer": "workspace", "rule": error.code.as_str(), "at": "built in", "about": trail.tool,
                            "why": error.message, "code": error.code.as_str(), "verdict": "deny"});
        let told = json!({"verdict": "deny", "tool": trail.tool, "effects": [],
                          "layers": [{"layer": "workspace", "verdict": "deny", "reasons": [reason]}],
                          "causes": [reason], "policy": self.parts.policy.revision.to_string()});
        Explained::Judged { verdict: Verdict::Deny, told }
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
