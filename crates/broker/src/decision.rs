//! Decisions: whom an approver decides for, the signed decision, its row and its ledger record, and its commit. The store
//! checks the owner and the state of the request in the transaction of the decision.

use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::redacted::Redacted;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, Op, RecordStatus, SignedNote};
use vambrace_store::{ApprovalRow, Batch, DecisionRow, Entry, OwnerFilter, StateChange, StoreError};

use crate::approval_view::{ApprovalView, read_approval, unknown};
use crate::approver::Approver;
use crate::broker::Broker;

impl Broker {
    /// The request or change with this id, if the approver decides about it.
    pub(crate) async fn decidable(&self, id: &str, approver: &Approver) -> Result<ApprovalView, CallError> {
        let queries = self.parts.store.approval_queries();
        let owned = queries.is_owned(id, &self.decides_for(approver)?).await;
        if owned.map_err(|error| CallError::from(&error))? {
            return read_approval(queries, id).await;
        }
        // Only an administrator learns that it exists: it may read everything.
        match approver.administers() && read_approval(queries, id).await.is_ok() {
            true => Err(foreign()),
            false => Err(unknown(id)),
        }
    }

    /// Whose requests an approver decides.
    pub(crate) fn decides_for(&self, approver: &Approver) -> Result<OwnerFilter, CallError> {
        approver.decides_for(|text| self.text(text).map(Redacted::into_inner))
    }

    pub(crate) fn decision(
        &self,
        about: &Id,
        plan: Digest,
        verb: DecisionVerb,
        reach: DecisionReach,
        expires: Timestamp,
    ) -> Decision {
        Decision { about: about.clone(), plan, verb, reach, at: self.parts.clock.now(), expires }
    }

    pub(crate) fn decided(
        &self,
        decision: &Decision,
        approver: &Approver,
        reason: Option<&str>,
    ) -> Result<DecisionRow<vambrace_store::RedactedText>, CallError> {
        Ok(DecisionRow {
            verb: decision.verb,
            reach: decision.reach,
            digest: decision.plan,
            at: decision.at,
            expires: decision.expires,
            by: self.text(approver.by())?,
            reason: reason.map(|reason| self.text(reason)).transpose()?,
            amendment: None,
        })
    }

    pub(crate) fn decision_record(
        &self,
        row: &ApprovalRow<String>,
        decision: &Decision,
        note: &SignedNote,
        approver: &Approver,
        reason: Option<&str>,
    ) -> Result<Entry, CallError> {
        let mut entry = Entry::new(Op::ToolApproval, decision.at);
        self.describe(&mut entry, row)?;
        self.decided_entry(&mut entry, decision, note, approver, reason)?;
        Ok(entry)
    }

    pub(crate) fn decided_entry(
        &self,
        entry: &mut Entry,
        decision: &Decision,
        note: &SignedNote,
        approver: &Approver,
        reason: Option<&str>,
    ) -> Result<(), CallError> {
        entry.ts = decision.at;
        (entry.event_type, entry.status) = match decision.verb {
            DecisionVerb::Reject => (Some("approval.rejected"), Some(RecordStatus::Rejected)),
            DecisionVerb::Rollback => (Some("approval.rollback"), Some(RecordStatus::Approved)),
            _ => (Some("approval.approved"), Some(RecordStatus::Approved)),
        };
        entry.hitl_id = Some(decision.about.clone());
        entry.plan_digest = Some(decision.plan);
        entry.message = Some(match reason {
            Some(reason) => self.text(&format!("by {}: {reason}", approver.by()))?,
            None => self.text(&format!("by {}, {}", approver.by(), decision.reach))?,
        });
        entry.note = Some(note.clone());
        Ok(())
    }

    pub(crate) async fn decide_commit(
        &self,
        id: &Id,
        entries: Vec<Entry>,
        changes: Vec<StateChange>,
    ) -> Result<(), CallError> {
        match self.parts.store.commit(Batch::durable(entries, changes)).await {
            Ok(_) => Ok(()),
            Err(StoreError::ForeignSession(_)) => Err(unknown(id.as_str())),
            Err(error) if error.concerns_batch_only() => {
                Err(used("it was decided a moment ago by someone else, or it has expired"))
            }
            Err(error) => Err(CallError::from(&error)),
        }
    }
}

fn foreign() -> CallError {
    let why = "it belongs to another user: an administrator reads it, and does not decide about it";
    CallError::new(ErrorCode::PermissionDenied, why)
        .suggest("its user decides, or the owner of the approver key")
}

pub(crate) fn used(why: &str) -> CallError {
    CallError::new(ErrorCode::ProposalUsed, why)
}
