//! What stands behind a start: who agreed, what is used up by it, and the change with its way back; and how such a change
//! ended. Committed together with the start or the end that it belongs to.

use serde_json::json;
use vambrace_core::change::ChangeSet;
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::settle::Permit;
use vambrace_ledger::{Level, Op, Reach, Status, Verb};
use vambrace_store::{
    AskChange, Batch, CallFinish, CallState, Change, Entry, EventStatus, Kept, Phase, ProposalState, Sealed,
};
use vambrace_tools::{Part, Prepared};

use crate::answer::Outcome;
use crate::broker::Broker;
use crate::cleanse::Clean;
use crate::decider::Decider;
use crate::grants::{self, Granted};
use crate::trail::Trail;

/// A decision that is made is used within this time, or not at all.
const AT_ONCE_MS: i64 = 60_000;

/// Somebody's yes, on the way to its start.
#[derive(Debug, Clone)]
pub(crate) struct Consent {
    pub(crate) id: Id,
    /// The plan that was asked about: whatever is agreed to of it, it must still be that one.
    pub(crate) asked: Digest,
    pub(crate) part: Part,
    /// What was shown; `None` for a part that nobody looked at before: it is agreed to as it is planned.
    pub(crate) shown: Option<Digest>,
    /// The diff of the whole, where a part or another content is agreed to.
    pub(crate) proposed: Option<String>,
    pub(crate) verb: Verb,
    pub(crate) reach: Reach,
    pub(crate) decider: Decider,
    /// The applied change that is undone.
    pub(crate) undoes: Option<Id>,
}

impl Broker {
    /// What is committed together with a start: who agreed, what is used up, and the change with its way back.
    pub(crate) fn agreements(
        &self,
        trail: &mut Trail,
        permit: &Permit,
        prepared: &Prepared,
        back: Option<ChangeSet>,
    ) -> Result<(Vec<Entry>, Vec<Change>), CallError> {
        let now = self.parts.clock.now();
        let (mut entries, mut changes): (Vec<Entry>, Vec<Change>) = Default::default();
        for voucher in permit.vouchers() {
            let id = Id::new(voucher).ok();
            if let Some(id) = id.filter(|_| voucher.starts_with(grants::PREFIX)) {
                changes.push(AskChange::UseGrant { id, at: now }.into());
            } else if let Some(id) =
                trail.hitl.clone().filter(|id| trail.yes.is_some() && id.as_str() == voucher)
            {
                changes.push(AskChange::Use { id: id.clone(), at: now }.into());
                // Its caller hears the outcome as the answer of this very call.
                changes.push(AskChange::Deliver { id }.into());
            }
        }
        let (Some(draft), Some(change)) = (prepared.work.change(), trail.change.clone()) else {
            return Ok((entries, changes));
        };
        let hitl = trail.hitl.clone().unwrap_or_else(|| self.new_id("hitl-"));
        trail.hitl = Some(hitl.clone());
        let kept = || self.keep(&format!("{hitl}/changes"), &draft.changes.to_bytes());
        let back = back.map(|back| self.keep(&format!("{hitl}/back"), &back.to_bytes())).transpose()?;
        let Some(consent) = trail.consent.clone() else {
            entries.extend(self.propose_records(trail, &change, &hitl, Status::Allowed)?);
            changes.push(self.proposal_row(trail, &change, &hitl, Some((Some(kept()?), back)), None)?);
            return Ok((entries, changes));
        };
        let digest = trail.plan_digest.unwrap_or(Digest::ZERO);
        let decision = self.decision(&hitl, digest, consent.verb, consent.reach, now.later(AT_ONCE_MS));
        let note = consent.decider.sign(&decision)?;
        let mut entry = self.entry(Op::ToolApproval, trail)?;
        self.decided_entry(&mut entry, &decision, &note, &consent.decider, None)?;
        entries.push(entry);
        if consent.undoes.is_some() {
            entries.extend(self.propose_records(trail, &change, &hitl, Status::Approved)?);
            // What it takes is the way back of what it undoes, and kept as that.
            changes.push(self.proposal_row(trail, &change, &hitl, Some((None, back)), consent.undoes)?);
            return Ok((entries, changes));
        }
        let mut shown = None;
        if consent.part != Part::Whole {
            // What is applied is not what was proposed: the record has both, and both are kept to be shown.
            for mut entry in self.propose_records(trail, &change, &hitl, Status::Approved)? {
                entry.event_type = Some("proposal.amended");
                entries.push(entry);
            }
            shown = Some(self.keep(hitl.as_str(), &self.shown(&change, consent.proposed.as_deref())?)?);
        }
        let decided = self.decided(&decision, &consent.decider, None)?;
        changes.push(AskChange::Decide { id: hitl.clone(), decided, note }.into());
        changes.push(AskChange::Use { id: hitl.clone(), at: now }.into());
        let life = self.parts.store.questions().life().clone();
        changes
            .push(AskChange::Begin { id: hitl.clone(), changes: kept()?, back, shown, life, at: now }.into());
        if consent.reach != Reach::Once {
            let asked = Granted { id: &hitl, session: &trail.session, principal: &trail.principal };
            let (entry, change) = self.grant_of(&asked, consent.reach, &trail.class, &consent.decider)?;
            entries.push(entry);
            changes.push(change);
        }
        Ok((entries, changes))
    }

    /// The end of a change that was applied: a record for each file, and what its caller is told.
    pub(crate) async fn record_applied(
        &self,
        trail: &Trail,
        mut clean: Clean,
    ) -> Result<(Outcome, Option<Sealed>, bool), CallError> {
        let now = self.parts.clock.now();
        let hitl = trail
            .hitl
            .clone()
            .ok_or_else(|| CallError::new(ErrorCode::Internal, "a change without its id"))?;
        if let Some(details) = clean.done.details.as_object_mut() {
            details.insert("hitl_id".to_owned(), hitl.as_str().into());
        }
        let mut entries = Vec::with_capacity(clean.touched.files.len());
        for file in &clean.touched.files {
            let mut entry = self.entry(Op::WriteFileApply, trail)?;
            entry.ts = now;
            entry.status = Some(Status::Success);
            entry.path = Some(self.text(&file.path.to_string())?);
            entry.created = Some(file.before_hash.is_none());
            entry.before_hash = file.before_hash;
            entry.after_hash = file.after_hash;
            entry.patch_hash = trail.change.as_ref().map(|change| change.patch_hash);
            entry.duration_ms = Some(trail.elapsed_ms());
            if entries.is_empty() && !clean.touched.warnings.is_empty() {
                entry.level = Level::Warn;
                entry.message = Some(self.text(&clean.touched.warnings.join("; "))?);
            }
            entries.push(entry);
        }
        let outcome = json!({
            "data": clean.done.data.get(), "details": clean.done.details,
            "text": clean.done.text.as_ref().map(|text| text.get()),
        });
        let outcome = Some(self.keep(hitl.as_str(), outcome.to_string().as_bytes())?);
        let finish = CallFinish { id: trail.call.clone(), state: CallState::Completed, at: now, error: None };
        let mut event = self.event(trail, Phase::Call, "call", EventStatus::Ok)?;
        event.attempt = Some(1);
        let events = vec![self.check_event(trail, EventStatus::Ok)?, event];
        let mut changes = self.end(trail, finish, events)?;
        changes.push(AskChange::Settle { id: hitl, state: ProposalState::Applied, outcome, at: now }.into());
        if let Some(id) = trail.consent.as_ref().and_then(|consent| consent.undoes.clone()) {
            changes.push(AskChange::RolledBack { id, at: now }.into());
        }
        // File and folder are synced, and so is the start: after a power cut the next start finds by the file's hash that it
        // was made, and records it.
        let batch = Batch::with_next(entries, changes).from_reserve();
        let committed = self.parts.store.commit(batch).await;
        let committed = committed.map_err(|error| CallError::from(&error))?;
        Ok((Outcome::Done(Box::new(clean.done)), committed.last(), committed.is_durable()))
    }

    /// What becomes of the question and the proposal of a call that failed.
    pub(crate) fn failed_asks(&self, trail: &Trail, error: &CallError) -> Result<Vec<Change>, CallError> {
        let (now, mut changes) = (self.parts.clock.now(), Vec::new());
        let Some(id) = trail.hitl.clone() else { return Ok(changes) };
        let rollback = trail.consent.as_ref().is_some_and(|consent| consent.undoes.is_some());
        if trail.started.is_none() && !rollback && (trail.yes.is_some() || trail.consent.is_some()) {
            changes.push(AskChange::Stale { id: id.clone() }.into());
            if trail.yes.is_some() {
                changes.push(AskChange::Deliver { id: id.clone() }.into());
            }
        }
        let begun = trail.started.is_some() && trail.change.is_some();
        if begun || (trail.consent.is_some() && !rollback) {
            let state = match error.code {
                ErrorCode::OutcomeUnknown => ProposalState::Unknown,
                _ => ProposalState::Failed,
            };
            let told = json!({"error": {
                "code": error.code.as_str(), "message": error.message, "suggestion": error.suggestion,
            }});
            let outcome = Some(self.keep(id.as_str(), told.to_string().as_bytes())?);
            changes.push(AskChange::Settle { id, state, outcome, at: now }.into());
        }
        Ok(changes)
    }

    pub(crate) fn keep(&self, place: &str, bytes: &[u8]) -> Result<Kept, CallError> {
        let kept = self.parts.store.questions().vault().seal(place, bytes);
        kept.map_err(|error| CallError::from(&error))
    }
}
