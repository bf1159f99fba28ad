//! Hearing the answer to a question: it is put, on record; then the caller waits as long as it wants, or takes the id and
//! comes back. Whichever way it comes back, it hears about the same record.

use std::time::{Duration, Instant};

use serde_json::Value;
use vambrace_core::config::AuditSync;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::{Peer, Provenance, RawCall};
use vambrace_core::redacted::Redacted;
use vambrace_core::risk::Level;
use vambrace_ledger::{Op, Status};
use vambrace_store::{
    ApprovalRow, AskChange, AskKind, AskState, Batch, CallState, Change, EventStatus, Phase, ProposalRow,
    ProposalState, Sealed, Watch,
};
use vambrace_workspace::diff::unseen_hunks;

use crate::answer::{Answer, Asked, Done, Outcome, Standing};
use crate::asking::{AskedCall, Patience, Person, Question, Stop, Waiting, seconds_left};
use crate::broker::{Broker, redactor_failed};
use crate::cleanse::Clean;
use crate::look::{describe, expire, shown};
use crate::recall::resume;
use crate::trail::Trail;

type Row = ApprovalRow<String>;
/// Where the record of a new question is, and whether it is on the disk.
type Put = Option<(Sealed, bool)>;

impl Broker {
    /// Records how a walk ended; a question is put and waited for.
    pub(crate) async fn hear(
        &self,
        walked: Result<Clean, Stop>,
        mut trail: Trail,
        patience: &Patience<'_>,
    ) -> Answer {
        let row = match walked {
            Ok(clean) => return self.record(trail, Ok(clean)).await,
            Err(Stop::Refused(error)) => return self.record(trail, Err(error)).await,
            Err(Stop::Known(row)) => Ok((*row, None)),
            Err(Stop::Ask(_)) if self.parts.asking.person == Person::Nowhere => Err(nobody()),
            Err(Stop::Ask(question)) => self.put(&trail, *question).await,
        };
        let (row, put) = match row {
            Ok(row) => row,
            Err(error) => return self.record(trail, Err(error)).await,
        };
        trail.call = row.call.clone();
        trail.hitl = Some(row.id.clone());
        match self.outlast(&row, &mut trail, patience).await {
            // Its own record says that it was asked.
            Ok(Heard::Told(outcome)) if put.is_some() && matches!(*outcome, Outcome::Asked(_)) => {
                self.answer_about(trail, &row, *outcome, put)
            }
            Ok(Heard::Told(outcome)) => self.tell(trail, &row, *outcome).await,
            Ok(Heard::Resumed(walked)) => match *walked {
                Ok(clean) => self.record(trail, Ok(clean)).await,
                Err(Stop::Refused(error)) => self.record(trail, Err(error)).await,
                Err(Stop::Ask(_) | Stop::Known(_)) => {
                    let error =
                        CallError::new(ErrorCode::StaleBase, "what was agreed to is asked about again");
                    self.record(trail, Err(error)).await
                }
            },
            Err(error) => self.tell(trail, &row, Outcome::Failed { error, standing: Standing::Error }).await,
        }
    }

    /// Puts a question, on record. The same call may have been asked about a moment ago: then that is the question.
    async fn put(&self, trail: &Trail, question: Question) -> Result<(Row, Put), CallError> {
        if trail.change.as_ref().is_some_and(|change| unseen_hunks(&change.diff) > 0) {
            let why = "the diff of this change is too long to be shown, so nobody can agree to it";
            return Err(CallError::new(ErrorCode::TooLarge, why).suggest("change the files in smaller parts"));
        }
        let store = &self.parts.store;
        let (id, now) = (self.new_id("hitl-"), self.parts.clock.now());
        let kind = if trail.change.is_some() { AskKind::Change } else { AskKind::Call };
        let stands = match (kind, trail.waits) {
            (AskKind::Change, false) => self.parts.asking.proposal_ms,
            _ => self.parts.asking.deadline_ms(question.level),
        };
        let summary = match &trail.change {
            Some(change) => change.summary.clone(),
            None => match trail.operation.as_ref().and_then(|(_, path)| path.as_ref()) {
                Some(path) => format!("{} {path}", trail.tool),
                None => trail.class.clone(),
            },
        };
        let call = AskedCall {
            raw: RawCall {
                tool: trail.tool.clone(),
                args: trail.args.clone(),
                tool_call_id: trail.tool_call_id.clone(),
                context_id: trail.context_id.clone(),
            },
            peer: Peer {
                principal: trail.principal.clone(),
                session: trail.session.clone(),
                door: trail.door,
            },
            role: self.parts.asked_role.clone(),
            project: self.parts.project.clone(),
            class: trail.class.clone(),
        };
        let row = ApprovalRow {
            id: id.clone(),
            call: trail.call.clone(),
            session: trail.session.clone(),
            user: self.text(&trail.principal.user)?,
            agent: self.text(&trail.principal.agent)?,
            project: self.text(&self.parts.project)?,
            tool: self.text(&trail.tool)?,
            kind,
            risk: self.text(question.level.as_str())?,
            summary: self.text(&summary)?,
            why: self.text(&question.why.join("\n"))?,
            grantable: question.grantable,
            asked: trail.asked(),
            digest: question.digest,
            revision: self.parts.policy.revision,
            sealed: call.seal(&id, store.questions())?,
            created: now,
            expires: now.later(stands),
            state: AskState::Pending,
            delivered: false,
            decided: None,
        };
        let mut check = self.check_event(trail, EventStatus::Ok)?;
        check.message = trail.rule.as_deref().map(|rule| self.text(rule)).transpose()?;
        let request = self.event(trail, Phase::Approval, "request", EventStatus::Ok)?;
        let mut pending = self.call_row(trail, CallState::Pending)?;
        pending.counted = trail.limit.is_some();
        let calm = self.calm(&trail.session, now).await?;
        let mut changes = vec![
            Change::RequireSession { id: trail.session.clone() },
            calm.clone().into(),
            Change::InsertCall(pending),
            Change::Event(check),
            Change::Event(request),
            AskChange::Open(row).into(),
        ];
        let entries = match &trail.change {
            Some(change) => {
                changes.push(self.proposal_row(trail, change, &id, None, None)?);
                self.propose_records(trail, change, &id, Status::HitlRequired)?
            }
            None => {
                let mut entry = self.entry(Op::ToolApproval, trail)?;
                entry.event_type = Some("approval.request");
                entry.status = Some(Status::HitlRequired);
                entry.hitl_id = Some(id.clone());
                entry.tool_args = Some(self.args(trail)?);
                vec![entry]
            }
        };
        let mut put = None;
        // Whoever waits is told how it ends, not the id: a power cut takes him along, and the decision is synced behind it.
        let later = trail.waits && self.parts.sync == AuditSync::ReadsLater;
        let batch = if later { Batch::lazy(entries, changes) } else { Batch::durable(entries, changes) };
        let found = match store.commit(batch).await {
            Ok(committed) => {
                put = committed.last().map(|sealed| (sealed, committed.is_durable()));
                store.questions().approval(id.as_str()).await
            }
            Err(error) if error.concerns_batch_only() => {
                let before = store.questions().asked_before(trail.session.as_str(), trail.asked()).await;
                match before {
                    Ok(Some(row)) if matches!(row.state, AskState::Pending | AskState::Approved) => {
                        return Ok((row, None));
                    }
                    _ if self.is_flooded(&calm).await? => return Err(self.pause(trail).await?),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        let found = found.map_err(|error| CallError::from(&error))?;
        let row =
            found.ok_or_else(|| CallError::new(ErrorCode::AuditUnavailable, "the question was not kept"))?;
        Ok((row, put))
    }

    /// Waits until the question is settled, the caller's patience is over, or its time is.
    async fn outlast(
        &self,
        row: &Row,
        trail: &mut Trail,
        patience: &Patience<'_>,
    ) -> Result<Heard, CallError> {
        let questions = self.parts.store.questions();
        // Before looking: what happens from now on wakes us.
        let mut watch: Option<Watch> = patience.longest.map(|_| questions.watch());
        if watch.is_some() && row.state == AskState::Pending {
            self.extend(row).await;
        }
        let begun = Instant::now();
        let mut ran_out = false;
        loop {
            let found = questions.approval(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
            let row =
                found.ok_or_else(|| CallError::new(ErrorCode::ProposalNotFound, "the question is gone"))?;
            let now = self.parts.clock.now();
            let open = match (row.state, row.kind) {
                (AskState::Pending | AskState::Approved, _) if now >= row.expires && !ran_out => {
                    ran_out = true;
                    self.expire(&row).await?;
                    continue;
                }
                (AskState::Pending, _) if now >= row.expires => return Ok(Heard::told(self.settled(&row))),
                (AskState::Pending, _) => true,
                (AskState::Approved, AskKind::Call) if now < row.expires => {
                    let call = AskedCall::of(&row, questions)?;
                    resume(trail, &row);
                    let walked = self.walk(call.raw, trail).await;
                    return Ok(Heard::Resumed(Box::new(walked)));
                }
                (AskState::Used, AskKind::Change) => {
                    let change = questions.proposal(row.id.as_str()).await;
                    let change = change.map_err(|error| CallError::from(&error))?;
                    match change {
                        Some(change) if change.state == ProposalState::Applying => {
                            if change.life.as_ref().is_none_or(|life| !questions.lives(life)) {
                                self.recover().await?;
                            }
                            true
                        }
                        Some(change) => {
                            let undone = self.undone(&change).await?;
                            return match undone {
                                Some(undone) => Ok(Heard::told(undone)),
                                None => self.applied(&row, &change).map(Heard::told),
                            };
                        }
                        None => return Err(CallError::new(ErrorCode::Internal, "the proposal is gone")),
                    }
                }
                _ => return Ok(Heard::told(self.settled(&row))),
            };
            let left = patience.longest.and_then(|longest| longest.checked_sub(begun.elapsed()));
            let (true, Some(watch), Some(left)) = (open, watch.as_mut(), left.filter(|left| !left.is_zero()))
            else {
                return self.open(&row).await.map(Heard::told);
            };
            if let Some(told) = patience.told {
                told(&Waiting::of(&row, now));
            }
            let until = (row.expires.millis() - now.millis()).max(1).unsigned_abs();
            watch.changed(left.min(Duration::from_millis(until))).await;
        }
    }

    /// Somebody waits: the deadline of the risk holds instead of the short one (B2). Where it cannot be said the short one
    /// stays.
    async fn extend(&self, row: &Row) {
        let risk = Level::parse(&row.risk).unwrap_or(Level::Medium);
        let expires = row.created.later(self.parts.asking.deadline_ms(risk));
        if expires > row.expires {
            let change = AskChange::Extend { id: row.id.clone(), expires };
            let _ = self.parts.store.commit(Batch::with_next(Vec::new(), vec![change.into()])).await;
        }
    }

    /// Nobody decided in time.
    pub(crate) async fn expire(&self, row: &Row) -> Result<(), CallError> {
        expire(&*self.parts.store, &*self.parts.redactor, self.parts.clock.now(), row).await
    }

    /// What every record about a question says.
    pub(crate) fn describe(&self, entry: &mut vambrace_store::Entry, row: &Row) -> Result<(), CallError> {
        describe(entry, row, &*self.parts.redactor)
    }

    /// The answer while a question is open.
    async fn open(&self, row: &Row) -> Result<Outcome, CallError> {
        let questions = self.parts.store.questions();
        let change = questions.proposal(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
        let shown = change.as_ref().map(|change| shown(change, questions)).transpose()?;
        let part = |key: &str| shown.as_ref().and_then(|shown| shown.get(key)).cloned();
        let clean = |value: Value| Redacted::json(value, &*self.parts.redactor).map_err(redactor_failed);
        let diff = part("diff").and_then(|diff| diff.as_str().map(str::to_owned)).unwrap_or_default();
        Ok(Outcome::Asked(Box::new(Asked {
            id: row.id.clone(),
            ttl: seconds_left(row, self.parts.clock.now()),
            summary: row.summary.clone(),
            preview: vambrace_workspace::diff::preview(diff.as_bytes()),
            data: clean(part("payload").unwrap_or_else(|| Value::Object(Default::default())))?,
            details: clean(part("details").unwrap_or_else(|| Value::Object(Default::default())))?
                .into_inner(),
        })))
    }

    /// The answer of a question that was not agreed to.
    fn settled(&self, row: &Row) -> Outcome {
        let error = match row.state {
            AskState::Rejected => {
                let reason = row.decided.as_ref().and_then(|decided| decided.reason.as_deref());
                let why = match reason {
                    Some(reason) => format!("rejected by the user: {reason}"),
                    None => "rejected by the user".to_owned(),
                };
                CallError::new(ErrorCode::ApprovalRejected, why)
            }
            AskState::Stale => CallError::new(
                ErrorCode::StaleBase,
                "the files changed before it could be applied, or a rule stands against it now",
            ),
            AskState::Used => {
                CallError::new(ErrorCode::ProposalUsed, "the yes to this call was used already")
            }
            AskState::Expired | AskState::Pending | AskState::Approved => {
                CallError::new(ErrorCode::ApprovalTimeout, "Approval timeout: nobody decided in time")
            }
        };
        Outcome::Failed { error, standing: Standing::Denied }
    }

    /// The answer of a change that was applied and undone since. A rollback may itself have been undone.
    async fn undone(&self, change: &ProposalRow<String>) -> Result<Option<Outcome>, CallError> {
        let (mut last, mut stands) = (change.clone(), true);
        while last.state == ProposalState::RolledBack {
            let found = self.parts.store.questions().undone_by(last.id.as_str()).await;
            let Some(by) = found.map_err(|error| CallError::from(&error))? else { break };
            (last, stands) = (by, !stands);
        }
        let why = || {
            format!(
                "`{}` was applied, and the user rolled it back (`{}`): the files are as before",
                change.id, last.id
            )
        };
        Ok((!stands).then(|| Outcome::Failed {
            error: CallError::new(ErrorCode::ApprovalRejected, why())
                .suggest("the same call once more is a new proposal; ask the user what is wanted first"),
            standing: Standing::Denied,
        }))
    }

    /// The answer of a change that was agreed to.
    fn applied(&self, row: &Row, change: &ProposalRow<String>) -> Result<Outcome, CallError> {
        let damaged =
            || CallError::new(ErrorCode::OutcomeUnknown, "the outcome of the proposal cannot be read");
        let questions = self.parts.store.questions();
        let kept = change.outcome.as_ref().ok_or_else(damaged)?;
        let bytes = questions.vault().open_kept(row.id.as_str(), kept).ok_or_else(damaged)?;
        let told: Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let text = |from: Option<&Value>, key: &str| {
            from.and_then(|from| from.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        if let Some(error) = told.get("error") {
            let word = text(Some(error), "code");
            let code = ErrorCode::ALL.iter().copied().find(|code| code.as_str() == word);
            let error = CallError::new(code.unwrap_or(ErrorCode::Internal), text(Some(error), "message"))
                .suggest(text(Some(error), "suggestion"));
            return Ok(Outcome::Failed { error, standing: Standing::Error });
        }
        let clean = |value: Option<&Value>| {
            Redacted::json(value.cloned().unwrap_or_default(), &*self.parts.redactor).map_err(redactor_failed)
        };
        Ok(Outcome::Done(Box::new(Done {
            data: clean(told.get("data"))?,
            details: clean(told.get("details"))?.into_inner(),
            text: Some(
                Redacted::text(&text(Some(&told), "text"), &*self.parts.redactor).map_err(redactor_failed)?,
            ),
            note: None,
            provenance: Provenance::Broker,
            truncated: false,
        })))
    }

    /// Tells the outcome of a question, on record; whoever heard how it ended is not told again.
    async fn tell(&self, trail: Trail, row: &Row, outcome: Outcome) -> Answer {
        let made = async {
            let mut entry = vambrace_store::Entry::new(Op::ToolApproval, self.parts.clock.now());
            self.describe(&mut entry, row)?;
            entry.tool_call_id = trail.tool_call_id.as_deref().map(|id| self.text(id)).transpose()?;
            let mut changes = Vec::new();
            (entry.event_type, entry.status) = match &outcome {
                Outcome::Asked(_) => (Some("approval.waiting"), Some(Status::HitlRequired)),
                Outcome::Done(_) => (Some("approval.told"), Some(Status::Success)),
                Outcome::Failed { error, .. } => {
                    entry.error_code = Some(error.code);
                    (Some("approval.told"), Some(Status::Denied))
                }
            };
            if !matches!(outcome, Outcome::Asked(_)) {
                changes.push(AskChange::Deliver { id: row.id.clone() }.into());
            }
            let committed = self.parts.store.commit(Batch::lazy(vec![entry], changes)).await;
            committed.map_err(|error| CallError::from(&error))
        };
        let (outcome, audit) = match made.await {
            Ok(committed) => (outcome, committed.last().map(|sealed| (sealed, committed.is_durable()))),
            Err(error) => (Outcome::Failed { error, standing: Standing::Denied }, None),
        };
        self.answer_about(trail, row, outcome, audit)
    }
}

fn nobody() -> CallError {
    let why = "nobody is there to agree: under `profile: ci` what needs a person is refused";
    CallError::new(ErrorCode::ApprovalRejected, why)
        .suggest("do something that needs nobody, or ask the user to allow it by a rule of the configuration")
}

/// How waiting ended.
enum Heard {
    Told(Box<Outcome>),
    Resumed(Box<Result<Clean, Stop>>),
}

impl Heard {
    fn told(outcome: Outcome) -> Self {
        Self::Told(Box::new(outcome))
    }
}
