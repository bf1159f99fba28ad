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
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, Note, Op, Reach, Status, Verb};
use vambrace_store::{
    ApprovalRow, AskChange, AskKind, AskState, Batch, CallFinish, CallState, Change, Decided, Entry,
    ProposalState, Sealed,
};
use vambrace_tools::Part;

use crate::admit::{NewSession, admit};
use crate::agreement::Consent;
use crate::answer::{Answer, Audit, Outcome};
use crate::asking::{AskedCall, Stop};
use crate::broker::Broker;
use crate::cleanse::{Clean, cleanse};
use crate::decide::decide;
use crate::decider::Decider;
use crate::look::{look, unknown, visible};
use crate::perform::perform;
use crate::plan::plan_back;
use crate::settle::settle;
use crate::start::start;
use crate::trail::Trail;

/// What somebody says yes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// All of it, or a part, or with edits.
    pub part: Part,
    /// How far the yes reaches.
    pub reach: Reach,
    /// The path that is meant, when it is named: it must be one of the proposal's (B3).
    pub path: Option<String>,
    /// The plan that was shown of a part or an edited change, as [`Broker::preview`] told it: another one is not applied.
    pub shown: Option<Digest>,
}

impl Choice {
    /// Yes, to all of it, once.
    #[must_use]
    pub fn once() -> Self {
        Self { part: Part::Whole, reach: Reach::Once, path: None, shown: None }
    }
}

impl Broker {
    /// Says yes. The answer is that of the applied change; `None` for a call that its caller carries out.
    pub async fn approve(
        &self,
        id: &str,
        choice: Choice,
        decider: &Decider,
    ) -> Result<Option<Answer>, CallError> {
        let row = self.open_question(id, choice.path.as_deref(), decider).await?;
        if choice.reach != Reach::Once && !row.grantable {
            let why =
                "this question can only be answered for this one call: it is HIGH, or the organisation asks";
            return Err(CallError::new(ErrorCode::InvalidArguments, why).suggest("approve it once"));
        }
        match row.kind {
            AskKind::Call if choice.part != Part::Whole => Err(CallError::new(
                ErrorCode::InvalidArguments,
                "only a change of files can be agreed to in part",
            )),
            AskKind::Call => self.agree(&row, choice.reach, decider).await.map(|()| None),
            AskKind::Change => self.apply(&row, choice, decider).await.map(Some),
        }
    }

    /// Says no, with words for the agent.
    pub async fn reject(&self, id: &str, reason: Option<&str>, decider: &Decider) -> Result<(), CallError> {
        let row = self.open_question(id, None, decider).await?;
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
        let back = self.way_back(&change.id).await?.ok_or_else(|| {
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
            asked: Digest::ZERO,
            part: Part::Whole,
            shown: None,
            proposed: None,
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
    pub(crate) async fn open_question(
        &self,
        id: &str,
        path: Option<&str>,
        decider: &Decider,
    ) -> Result<ApprovalRow<String>, CallError> {
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
        Ok(row)
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
        choice: Choice,
        decider: &Decider,
    ) -> Result<Answer, CallError> {
        let call = AskedCall::of(row, self.parts.store.questions())?;
        let mut trail = Trail::reopen(self, &call, row);
        let proposed = if choice.part == Part::Whole {
            None
        } else {
            Some(look(self.parts.store.questions(), row.id.as_str()).await?.diff)
        };
        trail.consent = Some(Consent {
            id: row.id.clone(),
            asked: row.digest,
            proposed,
            shown: if choice.part == Part::Whole { Some(row.digest) } else { choice.shown },
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

    pub(crate) fn decision(
        &self,
        about: &Id,
        plan: Digest,
        verb: Verb,
        reach: Reach,
        expires: Timestamp,
    ) -> Decision {
        Decision { about: about.clone(), plan, verb, reach, at: self.parts.clock.now(), expires }
    }

    pub(crate) fn decided(
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

    pub(crate) fn decided_entry(
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

    async fn decide_commit(&self, entries: Vec<Entry>, changes: Vec<Change>) -> Result<(), CallError> {
        match self.parts.store.commit(Batch::durable(entries, changes)).await {
            Ok(_) => Ok(()),
            Err(error) if error.concerns_batch_only() => {
                Err(used("somebody else decided a moment ago, or its time is over"))
            }
            Err(error) => Err(CallError::from(&error)),
        }
    }
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
