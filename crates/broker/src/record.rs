//! Recording: every exit of the corridor passes here. A success rides along with the next sync; a refusal is on disk
//! before the caller hears of it. What cannot be recorded is not answered. On a full disk refusals and ends are
//! recorded in the room that the store keeps back for them.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_core::role::PRIVILEGED;
use vambrace_core::session::SessionState;
use vambrace_ledger::{Level, Op, Range, SessionChange, Status};
use vambrace_store::{
    Batch, CallFinish, CallRow, CallState, Change, Entry, EventStatus, Phase, Sealed, SessionRow,
    TimelineEvent, ViolationRow,
};

use crate::admit::MINUTE_MS;
use crate::answer::{Answer, Audit, Outcome, Standing};
use crate::broker::{Broker, redactor_failed};
use crate::cleanse::Clean;
use crate::trail::Trail;

type Record = (Vec<Entry>, Vec<Change>);
/// A method of the contract and the path it is about.
type Operation = (&'static str, Option<String>);

impl Broker {
    /// Records how a call ended and makes the answer.
    pub(crate) async fn record(&self, trail: Trail, walked: Result<Clean, CallError>) -> Answer {
        let names = self.names(&trail);
        let result = match names.as_ref().map_err(Clone::clone).and(walked) {
            Ok(clean) => self.record_success(&trail, clean).await,
            Err(error) => self.record_failure(&trail, error).await,
        };
        let (outcome, audit) = match result {
            Ok((outcome, sealed, durable)) => {
                let audit = sealed.map(|sealed| Audit {
                    prev_hash: sealed.prev_hash.to_string(),
                    event_hash: sealed.event_hash.to_string(),
                    durable,
                });
                (outcome, audit)
            }
            Err(error) => (Outcome::Failed { error, standing: Standing::Denied }, None),
        };
        let duration_ms = trail.elapsed_ms();
        let (tool, operation) = names.unwrap_or_else(|_| ("unknown".to_owned(), None));
        Answer {
            tool,
            tool_call_id: trail.tool_call_id,
            call: Some(trail.call),
            outcome,
            operation,
            checks: match trail.verdict {
                Some("allow") => "passed",
                Some("ask") => "asked",
                Some(_) => "denied",
                None => "not_reached",
            },
            risk: trail.risk,
            duration_ms,
            audit,
        }
    }

    /// The tool and the operation as the answer names them.
    pub(crate) fn names(&self, trail: &Trail) -> Result<(String, Option<Operation>), CallError> {
        let clean = |text: &str| self.text(text).map(Redacted::into_inner);
        let operation = match &trail.operation {
            Some((method, path)) => Some((*method, path.as_deref().map(clean).transpose()?)),
            None => None,
        };
        Ok((clean(&trail.tool)?, operation))
    }

    /// The record that must be committed before a call is carried out.
    pub(crate) fn start_record(&self, trail: &Trail) -> Result<Record, CallError> {
        let mut entry = self.entry(Op::ToolStart, trail)?;
        entry.status = Some(Status::Allowed);
        entry.tool_args = Some(self.args(trail)?);
        let mut changes = vec![Change::RequireSession { id: trail.session.clone() }];
        if let Some(limit) = trail.limit.filter(|_| !trail.resumed) {
            let (session, tool) = (trail.session.clone(), self.text(&trail.tool)?);
            let since = trail.began.earlier(MINUTE_MS);
            changes.push(Change::RequirePace { session, tool, since, limit });
        }
        if trail.resumed {
            changes.push(Change::SetCall { id: trail.call.clone(), state: CallState::Executing });
        } else if !trail.row_later {
            changes.push(Change::InsertCall(self.call_row(trail, CallState::Executing)?));
        }
        Ok((vec![entry], changes))
    }

    async fn record_success(
        &self,
        trail: &Trail,
        clean: Clean,
    ) -> Result<(Outcome, Option<Sealed>, bool), CallError> {
        let now = self.parts.clock.now();
        if !clean.touched.files.is_empty() {
            return self.record_applied(trail, clean).await;
        }
        let op = if clean.touched.base_hash.is_some() { Op::ReadFile } else { Op::ToolEnd };
        let mut entry = self.entry(op, trail)?;
        entry.ts = now;
        entry.status = Some(Status::Success);
        entry.range = clean.touched.lines.map(|(first, last)| Range { first, last });
        entry.base_hash = clean.touched.base_hash;
        entry.redactions_applied = Some(clean.done.data.count());
        entry.duration_ms = Some(trail.elapsed_ms());
        let finish = CallFinish { id: trail.call.clone(), state: CallState::Completed, at: now, error: None };
        let mut event = self.event(trail, Phase::Call, "call", EventStatus::Ok)?;
        event.attempt = Some(1);
        let check = self.check_event(trail, EventStatus::Ok)?;
        self.attempted(trail, &mut entry)?;
        let mut events = vec![check];
        events.extend(self.egress_events(trail)?);
        events.push(event);
        let changes = self.end(trail, finish, events)?;
        let batch = Batch::lazy(vec![entry], changes).from_reserve();
        let committed = self.parts.store.commit(batch).await.map_err(|error| CallError::from(&error))?;
        Ok((Outcome::Done(Box::new(clean.done)), committed.last(), committed.is_durable()))
    }

    async fn record_failure(
        &self,
        trail: &Trail,
        error: CallError,
    ) -> Result<(Outcome, Option<Sealed>, bool), CallError> {
        let error = self.redacted(error)?;
        if error.code == ErrorCode::AuditUnavailable && !trail.disk_full {
            return Err(error);
        }
        // Nobody violates anything by calling under a configuration that somebody else broke.
        let violation = error.code.violation().filter(|_| self.parts.policy.damage.is_none());
        let standing = match (trail.verdict, error.code) {
            (
                _,
                ErrorCode::SessionSuspended
                | ErrorCode::RateLimited
                | ErrorCode::AuditUnavailable
                | ErrorCode::ApprovalRejected,
            ) => Standing::Denied,
            (Some("deny"), _) => Standing::Denied,
            _ if violation.is_some() => Standing::Denied,
            _ => Standing::Error,
        };
        let (mut entries, mut changes) = Record::default();
        let mut entry = self.entry(if violation.is_some() { Op::Violation } else { Op::ToolEnd }, trail)?;
        entry.ts = self.parts.clock.now();
        entry.status = Some(if standing == Standing::Error { Status::Error } else { Status::Denied });
        entry.tool_args = Some(self.args(trail)?);
        entry.error_code = Some(error.code);
        entry.message = Some(self.text(&error.message)?);
        entry.duration_ms = Some(trail.elapsed_ms());
        if let Some(kind) = violation {
            entry.level = Level::Warn;
            entry.violation_type = Some(kind);
            entry.severity = Some("HIGH");
            entry.target_path = self.target(trail)?;
        }
        self.attempted(trail, &mut entry)?;
        entries.push(entry);
        changes.extend(self.failed_asks(trail, &error)?);
        // Before its session is open a call has no row; the record says all there is.
        if trail.session_state.is_some() {
            self.finish_call(trail, &error, standing, &mut changes)?;
        }
        if let (Some(kind), Some(_)) = (violation, trail.session_state) {
            self.record_violation(trail, kind, &mut entries, &mut changes).await?;
        }
        let committed = self
            .parts
            .store
            .commit(Batch::durable(entries, changes).from_reserve())
            .await
            .map_err(|error| CallError::from(&error))?;
        let own = committed.sealed().first().copied();
        Ok((Outcome::Failed { error, standing }, own, committed.is_durable()))
    }

    fn finish_call(
        &self,
        trail: &Trail,
        error: &CallError,
        standing: Standing,
        changes: &mut Vec<Change>,
    ) -> Result<(), CallError> {
        let state = if standing == Standing::Error { CallState::Failed } else { CallState::Rejected };
        let at = self.parts.clock.now();
        let finish = CallFinish { id: trail.call.clone(), state, at, error: Some(error.code) };
        if trail.started.is_none() && !trail.resumed {
            let mut row = self.call_row(trail, CallState::Pending)?;
            // A call that came too early does not make the next one wait longer.
            row.counted &= error.code != ErrorCode::RateLimited;
            changes.push(Change::InsertCall(row));
        }
        let mut events = Vec::with_capacity(2);
        if trail.verdict.is_some() {
            let status = if standing == Standing::Error { EventStatus::Ok } else { EventStatus::Denied };
            events.push(self.check_event(trail, status)?);
        }
        events.extend(self.egress_events(trail)?);
        let (phase, action, status) = match standing {
            Standing::Error if trail.started.is_none() => (Phase::Call, "plan", EventStatus::Error),
            Standing::Error => (Phase::Call, "call", EventStatus::Error),
            Standing::Denied => (Phase::Policy, "violation", EventStatus::Denied),
        };
        let mut event = self.event(trail, phase, action, status)?;
        event.error = Some(error.code);
        event.message = Some(self.text(&error.message)?);
        if let Some(kind) = error.code.violation() {
            event.violation_type = Some(Redacted::literal(kind));
            event.attempted_action = self.target(trail)?;
        }
        events.push(event);
        changes.extend(self.end(trail, finish, events)?);
        Ok(())
    }

    /// The last events of a call and the end of its row, which may only now be made.
    pub(crate) fn end(
        &self,
        trail: &Trail,
        finish: CallFinish,
        events: Vec<TimelineEvent>,
    ) -> Result<Vec<Change>, CallError> {
        let mut changes = Vec::with_capacity(4);
        if trail.row_later && trail.started.is_some() {
            let mut row = self.call_row(trail, finish.state)?;
            row.first_seq = trail.started;
            row.finished = Some(finish.at);
            row.error = finish.error.map(|code| Redacted::literal(code.as_str()));
            row.events = events;
            changes.push(Change::InsertCall(row));
        } else {
            changes.extend(events.into_iter().map(Change::Event));
            changes.push(Change::FinishCall(finish));
        }
        Ok(changes)
    }

    /// Counts a violation, and lets too many of them have their consequence (T22, T23).
    async fn record_violation(
        &self,
        trail: &Trail,
        kind: &'static str,
        entries: &mut Vec<Entry>,
        changes: &mut Vec<Change>,
    ) -> Result<(), CallError> {
        let now = self.parts.clock.now();
        changes.push(Change::Violation(ViolationRow {
            ts: now,
            session: trail.session.clone(),
            call: Some(trail.call.clone()),
            violation_type: Redacted::literal(kind),
            target: self.target(trail)?,
        }));
        let rules = &self.parts.violations;
        let before = self
            .parts
            .store
            .violations_since(trail.session.as_str(), now.earlier(rules.window_ms))
            .await
            .map_err(|error| CallError::from(&error))?;
        let state = trail.session_state.unwrap_or(SessionState::Active);
        if before < rules.limit || state >= rules.action {
            return Ok(());
        }
        let change = match rules.action {
            SessionState::Active => return Ok(()),
            SessionState::Alert => SessionChange::Alert,
            SessionState::Suspended => SessionChange::Suspended,
            SessionState::Ended => SessionChange::Ended,
        };
        let mut entry = Entry::session(change, trail.session.clone(), now);
        entry.level = Level::Critical;
        entry.user = Some(self.text(&trail.principal.user)?);
        entry.agent_id = Some(self.text(&trail.principal.agent)?);
        let why = format!("{} violations within {} s", before + 1, rules.window_ms / 1000);
        entry.message = Some(self.text(&why)?);
        entries.push(entry);
        changes.push(Change::SetSession { id: trail.session.clone(), state: rules.action, at: now });
        self.remember(&trail.session, None);
        Ok(())
    }

    /// The record of a session's first call.
    pub(crate) fn session_record(&self, trail: &Trail) -> Result<(Entry, SessionRow), CallError> {
        let now = trail.began;
        let mut entry = Entry::session(SessionChange::Open, trail.session.clone(), now);
        entry.user = Some(self.text(&trail.principal.user)?);
        entry.agent_id = Some(self.text(&trail.principal.agent)?);
        entry.role = Some(self.text(&self.parts.role)?);
        let row = SessionRow {
            id: trail.session.clone(),
            user: self.text(&trail.principal.user)?,
            agent: self.text(&trail.principal.agent)?,
            role: self.text(&self.parts.role)?,
            project: self.text(&self.parts.project)?,
            state: SessionState::Active,
            opened: now,
            changed: now,
        };
        Ok((entry, row))
    }

    pub(crate) fn entry(&self, op: Op, trail: &Trail) -> Result<Entry, CallError> {
        let text = |text: &str| self.text(text);
        let optional = |words: Option<&String>| words.map(|words| text(words)).transpose();
        let mut entry = Entry::new(op, trail.began);
        entry.user = Some(text(&trail.principal.user)?);
        entry.agent_id = Some(text(&trail.principal.agent)?);
        entry.session = Some(trail.session.clone());
        entry.role = Some(text(&self.parts.role)?);
        entry.skill_name = optional(trail.principal.skill.as_ref())?;
        entry.execution_id = Some(trail.call.clone());
        entry.tool_call_id = optional(trail.tool_call_id.as_ref())?;
        entry.context_id = optional(trail.context_id.as_ref())?;
        entry.tool_name = Some(text(&trail.tool)?);
        entry.path = optional(trail.operation.as_ref().and_then(|(_, path)| path.as_ref()))?;
        entry.execution_environment = Some("in_process");
        entry.risk = trail.risk;
        entry.verdict = trail.verdict;
        entry.rule = optional(trail.rule.as_ref())?;
        entry.reasons = trail.reasons.iter().map(|reason| text(reason)).collect::<Result<_, _>>()?;
        entry.hitl_id = trail.hitl.clone();
        entry.plan_digest = trail.plan_digest;
        entry.policy_revision = Some(text(&self.parts.policy.revision.to_string())?);
        if PRIVILEGED.contains(&self.parts.role.as_str()) {
            entry.level = Level::Warn;
            entry.severity = Some("PRIVILEGED");
        }
        Ok(entry)
    }

    pub(crate) fn event(
        &self,
        trail: &Trail,
        phase: Phase,
        action: &'static str,
        status: EventStatus,
    ) -> Result<TimelineEvent, CallError> {
        let tool = self.text(&trail.tool)?;
        let mut event = TimelineEvent::new(
            self.parts.clock.now(),
            trail.call.clone(),
            phase,
            Redacted::literal(action),
            tool,
            status,
        );
        event.duration_us = u64::try_from(trail.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(event)
    }

    pub(crate) fn check_event(&self, trail: &Trail, status: EventStatus) -> Result<TimelineEvent, CallError> {
        let mut event = self.event(trail, Phase::Policy, "check", status)?;
        event.policy = trail.policy.as_deref().map(|policy| self.text(policy)).transpose()?;
        let verdict = match trail.verdict {
            Some("deny") => "denied",
            Some("ask") => "ask",
            _ => "allowed",
        };
        event.verdict = Some(Redacted::literal(verdict));
        event.duration_us = trail.decide_us;
        Ok(event)
    }

    pub(crate) fn call_row(&self, trail: &Trail, state: CallState) -> Result<CallRow, CallError> {
        let mut row = CallRow::executing(
            trail.call.clone(),
            trail.session.clone(),
            self.text(&trail.tool)?,
            trail.began,
        );
        row.state = state;
        row.counted = trail.limit.is_some();
        row.plan_digest = trail.plan_digest;
        Ok(row)
    }

    pub(crate) fn args(&self, trail: &Trail) -> Result<Redacted<serde_json::Value>, CallError> {
        Redacted::json(trail.args.clone(), &*self.parts.redactor).map_err(redactor_failed)
    }

    /// What a refused call was about: its path as asked, or its tool.
    fn target(&self, trail: &Trail) -> Result<Option<vambrace_store::Text>, CallError> {
        let named = trail.args.get("path").or_else(|| trail.args.get("url"));
        let asked = named.and_then(serde_json::Value::as_str).unwrap_or(&trail.tool);
        self.text(asked).map(Some)
    }

    pub(crate) fn redacted(&self, error: CallError) -> Result<CallError, CallError> {
        // One line, unless it lists the faults of a configuration: names and reasons from a project must not look
        // like further lines of ours.
        let flat = |text: &str| match &self.parts.policy.damage {
            Some(_) => text.to_owned(),
            None => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        };
        Ok(CallError {
            code: error.code,
            message: self.text(&flat(&error.message))?.into_inner(),
            suggestion: self.text(&flat(&error.suggestion))?.into_inner(),
        })
    }
}
