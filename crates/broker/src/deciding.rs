//! Deciding: a person says yes or no. A yes to a change walks the corridor again, under today's policy and files, and applies
//! it: the decision, the use of it and the start are one commit. A yes to any other call is a voucher for its caller.

use serde_json::json;
use vambrace_core::change::ChangeSet;
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::path::AskedPath;
use vambrace_core::principal::{Peer, Principal, RawCall};
use vambrace_core::risk::Level;
use vambrace_core::settle::Permit;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, Note, Op, Reach, Status, Verb};
use vambrace_store::{
    ApprovalRow, AskChange, AskKind, AskState, Batch, CallFinish, CallState, Change, Decided, Entry,
    GrantRow, Kept, ProposalState, Sealed,
};
use vambrace_tools::{Part, Prepared};

use crate::admit::{NewSession, admit};
use crate::answer::{Answer, Audit, Outcome};
use crate::asking::{AskedCall, Stop};
use crate::broker::Broker;
use crate::cleanse::{Clean, cleanse};
use crate::decide::decide;
use crate::decider::Decider;
use crate::grants;
use crate::look::{Look, unknown, visible};
use crate::perform::perform;
use crate::plan::plan_back;
use crate::settle::settle;
use crate::start::start;
use crate::trail::Trail;

/// A decision that is made is used within this time, or not at all.
const AT_ONCE_MS: i64 = 60_000;

/// What somebody says yes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// All of it, or a part, or with edits.
    pub part: Part,
    /// How far the yes reaches.
    pub reach: Reach,
    /// The path that is meant, when it is named: it must be one of the proposal's (B3).
    pub path: Option<String>,
}

impl Choice {
    /// Yes, to all of it, once.
    #[must_use]
    pub fn once() -> Self {
        Self { part: Part::Whole, reach: Reach::Once, path: None }
    }
}

/// Somebody's yes, on the way to its start.
#[derive(Debug, Clone)]
pub(crate) struct Consent {
    pub(crate) id: Id,
    pub(crate) part: Part,
    /// What was shown; `None` for a part, which is agreed to as it is planned.
    pub(crate) shown: Option<Digest>,
    verb: Verb,
    reach: Reach,
    decider: Decider,
    /// The applied change that is undone.
    undoes: Option<Id>,
}

impl Broker {
    /// Says yes. The answer is that of the applied change; `None` for a call that its caller carries out.
    pub async fn approve(
        &self,
        id: &str,
        choice: Choice,
        decider: &Decider,
    ) -> Result<Option<Answer>, CallError> {
        let (row, found) = self.open_question(id, choice.path.as_deref(), decider).await?;
        if choice.reach != Reach::Once && !row.grantable {
            let why =
                "this question can only be answered for this one call: it is HIGH, or a rule asks each time";
            return Err(CallError::new(ErrorCode::InvalidArguments, why).suggest("approve it once"));
        }
        match row.kind {
            AskKind::Call if choice.part != Part::Whole => Err(CallError::new(
                ErrorCode::InvalidArguments,
                "only a change of files can be agreed to in part",
            )),
            AskKind::Call => self.agree(&row, choice.reach, decider).await.map(|()| None),
            AskKind::Change => self.apply(&row, &found, choice, decider).await.map(Some),
        }
    }

    /// Says no, with words for the agent.
    pub async fn reject(&self, id: &str, reason: Option<&str>, decider: &Decider) -> Result<(), CallError> {
        let (row, _) = self.open_question(id, None, decider).await?;
        let now = self.parts.clock.now();
        let decision = self.decision(&row.id, row.digest, Verb::Reject, Reach::Once, row.expires);
        let note = decider.sign(&decision)?;
        let reason: Option<String> = reason.map(|reason| reason.chars().take(2000).collect());
        let entry = self.decision_record(&row, &decision, &note, decider, reason.as_deref())?;
        let error = Some(ErrorCode::ApprovalRejected);
        let finish = CallFinish { id: row.call.clone(), state: CallState::Rejected, at: now, error };
        let decided = self.decided(&decision, decider, reason.as_deref())?;
        let changes =
            vec![AskChange::Decide { id: row.id.clone(), decided, note }.into(), Change::FinishCall(finish)];
        self.decide_commit(vec![entry], changes).await
    }

    /// Undoes an applied change, if nothing changed since. It is a change of its own, with its records.
    pub async fn rollback(&self, id: &str, decider: &Decider) -> Result<Answer, CallError> {
        let questions = self.parts.store.questions();
        let found = visible(questions, id, |user| decider.decides_for(user)).await?;
        let change = found.change.ok_or_else(|| unknown(id))?;
        if change.state != ProposalState::Applied {
            let why = format!("`{id}` is {}, and only an applied change can be rolled back", change.state);
            return Err(CallError::new(ErrorCode::ProposalUsed, why));
        }
        let place = format!("{id}/back");
        let back = change.back.as_ref().and_then(|kept| questions.vault().open_kept(&place, kept));
        let back = back.and_then(|bytes| ChangeSet::from_bytes(&bytes).ok()).ok_or_else(|| {
            CallError::new(
                ErrorCode::TooLarge,
                "what was there before was too large to keep, so there is no way back",
            )
        })?;
        let raw = RawCall {
            tool: "apply_patch".to_owned(),
            args: json!({"rollback": id}),
            tool_call_id: None,
            context_id: None,
        };
        let principal = Principal {
            tenant: "default".to_owned(),
            user: decider.user().to_owned(),
            agent: "rollback".to_owned(),
            sub_agent: None,
            skill: None,
        };
        let peer = Peer { principal, session: change.session.clone(), door: "cli" };
        let mut trail = Trail::open(self, &raw, &peer);
        trail.hitl = Some(self.new_id("hitl-"));
        trail.consent = Some(Consent {
            id: trail.hitl.clone().unwrap_or_else(|| change.id.clone()),
            part: Part::Whole,
            shown: None,
            verb: Verb::Rollback,
            reach: Reach::Once,
            decider: decider.clone(),
            undoes: Some(change.id.clone()),
        });
        let walked = self.walk_back(raw, back, &mut trail).await;
        match walked {
            Ok(clean) => Ok(self.record(trail, Ok(clean)).await),
            Err(error) => {
                self.record(trail, Err(error.clone())).await;
                Err(error)
            }
        }
    }

    /// The corridor of a rollback: the same steps, for a change that is known already.
    async fn walk_back(&self, raw: RawCall, back: ChangeSet, trail: &mut Trail) -> Result<Clean, CallError> {
        let refused = |stop: Stop| match stop {
            Stop::Refused(error) => error,
            Stop::Ask(_) | Stop::Known(_) => {
                CallError::new(ErrorCode::Internal, "a rollback is not asked about")
            }
        };
        let admitted = admit(self, raw, trail, NewSession::Open).await?;
        let planned = plan_back(self, admitted, back, trail)?;
        let decided = decide(self, planned, trail);
        let permitted = settle(self, decided, trail).await.map_err(refused)?;
        let started = start(self, permitted, trail).await?;
        let performed = perform(self, started, trail).await?;
        cleanse(self, performed, trail)
    }

    /// The checks 1 to 3 of applying, in their order: it exists and is unused, the path is its own, its time is not over.
    async fn open_question(
        &self,
        id: &str,
        path: Option<&str>,
        decider: &Decider,
    ) -> Result<(ApprovalRow<String>, Look), CallError> {
        let questions = self.parts.store.questions();
        let mut found = visible(questions, id, |user| decider.decides_for(user)).await?;
        let row = found.question.take().ok_or_else(|| used("it needed no decision"))?;
        let now = self.parts.clock.now();
        match row.state {
            AskState::Pending => {}
            AskState::Expired => return Err(expired()),
            AskState::Approved | AskState::Used => return Err(used("somebody agreed to it already")),
            AskState::Rejected => return Err(used("it was rejected already")),
            AskState::Stale => return Err(used("the files changed, so it cannot be applied any more")),
        }
        if let Some(path) = path {
            let asked = AskedPath::new(path).parse().ok().map(|path| path.to_string());
            if !found.files.iter().any(|file| Some(&file.path) == asked.as_ref()) {
                let why = format!("`{path}` is not the path of this proposal");
                return Err(CallError::new(ErrorCode::PathMismatch, why));
            }
        }
        if now >= row.expires {
            self.expire(&row).await?;
            return Err(expired());
        }
        Ok((row, found))
    }

    /// A voucher for the caller.
    async fn agree(
        &self,
        row: &ApprovalRow<String>,
        reach: Reach,
        decider: &Decider,
    ) -> Result<(), CallError> {
        let now = self.parts.clock.now();
        let risk = Level::parse(&row.risk).unwrap_or(Level::Medium);
        let expires = now.later(self.parts.asking.deadline_ms(risk));
        let decision = self.decision(&row.id, row.digest, Verb::Approve, reach, expires);
        let note = decider.sign(&decision)?;
        let mut entries = vec![self.decision_record(row, &decision, &note, decider, None)?];
        let decided = self.decided(&decision, decider, None)?;
        let mut changes = vec![
            AskChange::Decide { id: row.id.clone(), decided, note }.into(),
            Change::SetCall { id: row.call.clone(), state: CallState::Approved },
        ];
        let call = AskedCall::of(row, self.parts.store.questions())?;
        if let Some((entry, change)) = self.grant(row, reach, &call.class, decider)? {
            entries.push(entry);
            changes.push(change);
        }
        self.decide_commit(entries, changes).await
    }

    /// Applies a change that somebody agrees to.
    async fn apply(
        &self,
        row: &ApprovalRow<String>,
        _found: &Look,
        choice: Choice,
        decider: &Decider,
    ) -> Result<Answer, CallError> {
        let call = AskedCall::of(row, self.parts.store.questions())?;
        let mut trail = Trail::reopen(self, &call, row);
        trail.consent = Some(Consent {
            id: row.id.clone(),
            shown: (choice.part == Part::Whole).then_some(row.digest),
            part: choice.part,
            verb: Verb::Approve,
            reach: choice.reach,
            decider: decider.clone(),
            undoes: None,
        });
        let error = match self.walk(call.raw, &mut trail).await {
            Ok(clean) => return Ok(self.record(trail, Ok(clean)).await),
            Err(Stop::Refused(error)) => error,
            Err(Stop::Ask(_) | Stop::Known(_)) => {
                CallError::new(ErrorCode::StaleBase, "it would be asked about again")
            }
        };
        if trail.started.is_some() || closes(error.code) {
            self.record(trail, Err(error.clone())).await;
        }
        Err(error)
    }

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
        let kept = self.keep(&format!("{hitl}/changes"), &draft.changes.to_bytes())?;
        let back = back.map(|back| self.keep(&format!("{hitl}/back"), &back.to_bytes())).transpose()?;
        let Some(consent) = trail.consent.clone() else {
            entries.extend(self.propose_records(trail, &change, &hitl, Status::Allowed)?);
            changes.push(self.proposal_row(trail, &change, &hitl, Some((kept, back)), None)?);
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
            changes.push(self.proposal_row(trail, &change, &hitl, Some((kept, back)), consent.undoes)?);
            return Ok((entries, changes));
        }
        if consent.part != Part::Whole {
            // What is applied is not what was proposed: the record has both.
            for mut entry in self.propose_records(trail, &change, &hitl, Status::Approved)? {
                entry.event_type = Some("proposal.amended");
                entries.push(entry);
            }
        }
        let decided = self.decided(&decision, &consent.decider, None)?;
        changes.push(AskChange::Decide { id: hitl.clone(), decided, note }.into());
        changes.push(AskChange::Use { id: hitl.clone(), at: now }.into());
        let life = self.parts.store.questions().life().clone();
        changes.push(AskChange::Begin { id: hitl.clone(), changes: kept, back, life, at: now }.into());
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
            entries.push(entry);
        }
        let outcome = json!({
            "data": clean.done.data.get(), "details": clean.done.details,
            "text": clean.done.text.as_ref().map(|text| text.get()),
        });
        let outcome = Some(self.keep(hitl.as_str(), outcome.to_string().as_bytes())?);
        let finish = CallFinish { id: trail.call.clone(), state: CallState::Completed, at: now, error: None };
        let mut changes = self.end(trail, finish)?;
        changes.push(Change::Event(self.check_event(trail, vambrace_store::EventStatus::Ok)?));
        let mut event =
            self.event(trail, vambrace_store::Phase::Call, "call", vambrace_store::EventStatus::Ok)?;
        event.attempt = Some(1);
        changes.push(Change::Event(event));
        changes.push(AskChange::Settle { id: hitl, state: ProposalState::Applied, outcome, at: now }.into());
        if let Some(id) = trail.consent.as_ref().and_then(|consent| consent.undoes.clone()) {
            changes.push(AskChange::RolledBack { id, at: now }.into());
        }
        let committed = self.parts.store.commit(Batch::lazy(entries, changes)).await;
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

    /// The answer about a question.
    pub(crate) fn answer_about(
        &self,
        trail: Trail,
        row: &ApprovalRow<String>,
        outcome: Outcome,
        audit: Option<(Sealed, bool)>,
    ) -> Answer {
        let (tool, mut operation) = self.names(&trail).unwrap_or_else(|_| ("unknown".to_owned(), None));
        if let (Outcome::Done(_), Some((method, _))) = (&outcome, operation.as_mut()) {
            *method = "fs.apply_patch";
        }
        Answer {
            tool,
            duration_ms: trail.elapsed_ms(),
            tool_call_id: trail.tool_call_id,
            call: Some(row.call.clone()),
            outcome,
            operation,
            checks: "asked",
            risk: Level::parse(&row.risk).map(Level::as_str),
            audit: audit.map(|(sealed, durable)| Audit {
                prev_hash: sealed.prev_hash.to_string(),
                event_hash: sealed.event_hash.to_string(),
                durable,
            }),
        }
    }

    fn decision(&self, about: &Id, plan: Digest, verb: Verb, reach: Reach, expires: Timestamp) -> Decision {
        Decision { about: about.clone(), plan, verb, reach, at: self.parts.clock.now(), expires }
    }

    fn decided(
        &self,
        decision: &Decision,
        decider: &Decider,
        reason: Option<&str>,
    ) -> Result<Decided<vambrace_store::Text>, CallError> {
        Ok(Decided {
            verb: decision.verb,
            reach: decision.reach,
            digest: decision.plan,
            at: decision.at,
            expires: decision.expires,
            by: self.text(decider.by())?,
            reason: reason.map(|reason| self.text(reason)).transpose()?,
        })
    }

    fn decision_record(
        &self,
        row: &ApprovalRow<String>,
        decision: &Decision,
        note: &Note,
        decider: &Decider,
        reason: Option<&str>,
    ) -> Result<Entry, CallError> {
        let mut entry = Entry::new(Op::ToolApproval, decision.at);
        self.describe(&mut entry, row)?;
        self.decided_entry(&mut entry, decision, note, decider, reason)?;
        Ok(entry)
    }

    fn decided_entry(
        &self,
        entry: &mut Entry,
        decision: &Decision,
        note: &Note,
        decider: &Decider,
        reason: Option<&str>,
    ) -> Result<(), CallError> {
        entry.ts = decision.at;
        (entry.event_type, entry.status) = match decision.verb {
            Verb::Reject => (Some("approval.rejected"), Some(Status::Rejected)),
            Verb::Rollback => (Some("approval.rollback"), Some(Status::Approved)),
            _ => (Some("approval.approved"), Some(Status::Approved)),
        };
        entry.hitl_id = Some(decision.about.clone());
        entry.plan_digest = Some(decision.plan);
        entry.message = Some(match reason {
            Some(reason) => self.text(&format!("by {}: {reason}", decider.by()))?,
            None => self.text(&format!("by {}, {}", decider.by(), decision.reach))?,
        });
        entry.note = Some(note.clone());
        Ok(())
    }

    fn grant(
        &self,
        row: &ApprovalRow<String>,
        reach: Reach,
        class: &str,
        decider: &Decider,
    ) -> Result<Option<(Entry, Change)>, CallError> {
        if reach == Reach::Once {
            return Ok(None);
        }
        let principal = Principal {
            tenant: "default".to_owned(),
            user: row.user.clone(),
            agent: row.agent.clone(),
            sub_agent: None,
            skill: None,
        };
        let asked = Granted { id: &row.id, session: &row.session, principal: &principal };
        self.grant_of(&asked, reach, class, decider).map(Some)
    }

    fn grant_of(
        &self,
        asked: &Granted<'_>,
        reach: Reach,
        class: &str,
        decider: &Decider,
    ) -> Result<(Entry, Change), CallError> {
        let now = self.parts.clock.now();
        let shape = if reach == Reach::Class { class } else { "*" };
        let grant = GrantRow {
            id: self.new_id(grants::PREFIX),
            session: asked.session.clone(),
            user: self.text(&asked.principal.user)?,
            agent: self.text(&asked.principal.agent)?,
            reach,
            shape: self.text(shape)?,
            by: self.text(decider.by())?,
            approval: asked.id.clone(),
            created: now,
            expires: now.later(self.parts.asking.grant_ms),
            revoked: None,
            uses: 0,
        };
        let mut entry = Entry::new(Op::Grant, now);
        entry.event_type = Some("grant.given");
        entry.status = Some(Status::Approved);
        entry.user = Some(grant.user.clone());
        entry.agent_id = Some(grant.agent.clone());
        entry.session = Some(asked.session.clone());
        entry.hitl_id = Some(asked.id.clone());
        entry.rule = Some(self.text(grant.id.as_str())?);
        let words = match reach {
            Reach::Session => "everything of this agent in this session that may be granted".to_owned(),
            _ => format!("calls of the class `{class}` in this session"),
        };
        entry.message = Some(self.text(&format!("{words}, until {}", grant.expires))?);
        Ok((entry, AskChange::Grant(grant).into()))
    }

    async fn decide_commit(&self, entries: Vec<Entry>, changes: Vec<Change>) -> Result<(), CallError> {
        match self.parts.store.commit(Batch::durable(entries, changes)).await {
            Ok(_) => Ok(()),
            Err(error) if error.concerns_batch_only() => {
                Err(used("somebody else decided a moment ago, or its time is over"))
            }
            Err(error) => Err(CallError::from(&error)),
        }
    }

    pub(crate) fn keep(&self, place: &str, bytes: &[u8]) -> Result<Kept, CallError> {
        let kept = self.parts.store.questions().vault().seal(place, bytes);
        kept.map_err(|error| CallError::from(&error))
    }

    /// What a file of a proposal would hold, for whoever edits it before agreeing.
    pub async fn proposed_content(
        &self,
        id: &str,
        path: &str,
        decider: &Decider,
    ) -> Result<Vec<u8>, CallError> {
        let (row, _) = self.open_question(id, Some(path), decider).await?;
        let call = AskedCall::of(&row, self.parts.store.questions())?;
        let room = &self.parts.room;
        let prepared = self.parts.catalogue.plan(&call.raw.tool, &call.raw.args, room)?;
        let gone = || CallError::new(ErrorCode::InvalidArguments, format!("`{path}` gets no new content"));
        let draft = prepared.work.change().ok_or_else(gone)?;
        let asked = AskedPath::new(path).parse()?;
        let file = draft
            .changes
            .files()
            .iter()
            .find(|file| file.after().is_some_and(|after| after.path == asked))
            .ok_or_else(gone)?;
        let base = match file.before() {
            Some(_) => room.workspace.content(file.path(), &room.changes.limits)?,
            None => Default::default(),
        };
        let after = file.after().ok_or_else(gone)?;
        vambrace_core::change::spliced(&base, &after.splices)
            .map_err(|bad| CallError::new(ErrorCode::StaleBase, bad.to_string()))
    }
}

/// What a grant is given for.
struct Granted<'a> {
    id: &'a Id,
    session: &'a Id,
    principal: &'a Principal,
}

/// Whether a proposal that met this cannot be applied any more.
fn closes(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::InvalidArguments
            | ErrorCode::ResourceBusy
            | ErrorCode::AuditUnavailable
            | ErrorCode::Internal
            | ErrorCode::SessionSuspended
            | ErrorCode::RateLimited
            | ErrorCode::ProposalUsed
            | ErrorCode::SecretInContent
            | ErrorCode::TooLarge
    )
}

fn used(why: &str) -> CallError {
    CallError::new(ErrorCode::ProposalUsed, why)
}

fn expired() -> CallError {
    CallError::new(ErrorCode::ProposalExpired, "the proposal is past its deadline")
}
