//! Record: every exit of the pipeline commits here. A success is synced with the next batch; a denial is durable
//! before the caller sees it. A call that cannot be recorded returns an error instead of its result. On a full disk,
//! denials and ends use the space that the store reserves for them.

use std::sync::Arc;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_core::risk::RiskLevel;
use vambrace_core::role::PRIVILEGED_ROLES;
use vambrace_core::session::SessionState;
use vambrace_core::verdict::VerdictKind;
use vambrace_ledger::{FileRange, Op, RecordLevel, RecordStatus, SessionChange};
use vambrace_store::{
    Batch, CallFinish, CallRow, CallState, ChainPosition, Entry, EventPhase, EventStatus, OwnerFilter,
    SessionRow, StateChange, TimelineEvent, ViolationRow,
};

use crate::admit::MINUTE_MS;
use crate::broker::{Broker, redactor_failed};
use crate::call_record::CallRecord;
use crate::call_result::{AuditReceipt, CallOutcome, CallResult, FailureKind};
use crate::cleanse::Clean;

type BatchContent = (Vec<Entry>, Vec<StateChange>);
/// Method name of the contract and the path of the call.
type CallOperation = (Arc<str>, Option<String>);

impl Broker {
    /// Records how a call ended and builds its result.
    pub(crate) async fn record_result(
        &self,
        record: CallRecord,
        result: Result<Clean, CallError>,
    ) -> CallResult {
        let names = self.names(&record);
        let result = match names.as_ref().map_err(Clone::clone).and(result) {
            Ok(clean) => self.record_success(&record, clean).await,
            Err(error) => self.record_failure(&record, error).await,
        };
        let (outcome, audit) = match result {
            Ok((outcome, sealed, durable)) => {
                let audit = sealed.map(|sealed| AuditReceipt {
                    prev_hash: sealed.prev_hash.to_string(),
                    event_hash: sealed.event_hash.to_string(),
                    durable,
                });
                (outcome, audit)
            }
            Err(error) => (CallOutcome::Failed { error, failure: FailureKind::Denied }, None),
        };
        let duration_ms = record.elapsed_ms();
        let (tool, operation) = names.unwrap_or_else(|_| ("unknown".to_owned(), None));
        CallResult {
            tool,
            tool_call_id: record.tool_call_id,
            call: Some(record.call),
            outcome,
            operation,
            checks: match record.verdict {
                Some(VerdictKind::Allow) => "passed",
                Some(VerdictKind::Ask) => "asked",
                Some(_) => "denied",
                None => "not_reached",
            },
            risk: record.risk,
            environment: record.environment,
            sandbox_tier: record.run.as_ref().map(|run| run.tier),
            duration_ms,
            audit,
        }
    }

    /// Tool and operation as the result names them, redacted.
    pub(crate) fn names(&self, record: &CallRecord) -> Result<(String, Option<CallOperation>), CallError> {
        let clean = |text: &str| self.text(text).map(Redacted::into_inner);
        let operation = match &record.operation {
            Some((method, path)) => Some((Arc::clone(method), path.as_deref().map(clean).transpose()?)),
            None => None,
        };
        Ok((clean(&record.tool)?, operation))
    }

    /// The record that must be committed before a call runs.
    pub(crate) fn start_record(&self, record: &CallRecord) -> Result<BatchContent, CallError> {
        let mut entry = self.entry(Op::ToolStart, record)?;
        entry.status = Some(RecordStatus::Allowed);
        entry.tool_args = Some(self.args(record)?);
        let owner = self.session_owner(&record.principal)?;
        let mut changes = vec![StateChange::RequireSession { id: record.session.clone(), owner }];
        if let Some(limit) = record.limit.filter(|_| !record.resumed) {
            let (session, tool) = (record.session.clone(), self.text(&record.tool)?);
            let since = record.began.earlier(MINUTE_MS);
            changes.push(StateChange::RequireCallRate { session, tool, since, limit });
        }
        if record.resumed {
            changes.push(StateChange::SetCall { id: record.call.clone(), state: CallState::Executing });
        } else if !record.defer_row {
            changes.push(StateChange::InsertCall(self.call_row(record, CallState::Executing)?));
        }
        Ok((vec![entry], changes))
    }

    async fn record_success(
        &self,
        record: &CallRecord,
        clean: Clean,
    ) -> Result<(CallOutcome, Option<ChainPosition>, bool), CallError> {
        let now = self.parts.clock.now();
        if record.change.is_some() && !clean.touched.files.is_empty() {
            return self.record_applied(record, clean).await;
        }
        let mut entries = self.changed_file_entries(record, &clean.touched, now)?;
        let op = if clean.touched.base_hash.is_some() { Op::ReadFile } else { Op::ToolEnd };
        let mut entry = self.entry(op, record)?;
        entry.ts = now;
        entry.status = Some(RecordStatus::Success);
        entry.range = clean.touched.lines.map(|(first, last)| FileRange { first, last });
        entry.base_hash = clean.touched.base_hash;
        entry.redactions_applied = Some(clean.output.data.count());
        entry.duration_ms = Some(record.elapsed_ms());
        let finish =
            CallFinish { id: record.call.clone(), state: CallState::Completed, at: now, error: None };
        let mut event = self.event(record, EventPhase::Call, "call", EventStatus::Ok)?;
        event.attempt = Some(1);
        let check = self.check_event(record, EventStatus::Ok)?;
        self.attempted(record, &mut entry)?;
        entry.message = self.run_summary(record, &clean.touched)?;
        let mut events = vec![check];
        events.extend(self.sandbox_events(record)?);
        events.extend(self.egress_events(record)?);
        events.push(event);
        let mut changes = self.end(record, finish, events)?;
        changes.extend(self.call_outcome_change(record, || Self::outcome_json(&clean.output))?);
        entries.push(entry);
        let batch = Batch::lazy(entries, changes).from_reserve();
        let committed = self.parts.store.commit(batch).await.map_err(|error| CallError::from(&error))?;
        Ok((CallOutcome::Completed(Box::new(clean.output)), committed.last(), committed.is_durable()))
    }

    async fn record_failure(
        &self,
        record: &CallRecord,
        error: CallError,
    ) -> Result<(CallOutcome, Option<ChainPosition>, bool), CallError> {
        let error = self.redacted(error)?;
        if error.code == ErrorCode::AuditUnavailable && !record.disk_full {
            return Err(error);
        }
        // A call under a broken configuration is not a violation by its caller.
        let violation = error.code.violation().filter(|_| self.parts.policy.damage.is_none());
        let failure = match (record.verdict, error.code) {
            (
                _,
                ErrorCode::SessionSuspended
                | ErrorCode::RateLimited
                | ErrorCode::AuditUnavailable
                | ErrorCode::ApprovalRejected,
            ) => FailureKind::Denied,
            (Some(VerdictKind::Deny), _) => FailureKind::Denied,
            _ if violation.is_some() => FailureKind::Denied,
            _ => FailureKind::Error,
        };
        let (mut entries, mut changes) = BatchContent::default();
        let mut entry = self.entry(if violation.is_some() { Op::Violation } else { Op::ToolEnd }, record)?;
        entry.ts = self.parts.clock.now();
        entry.status =
            Some(if failure == FailureKind::Error { RecordStatus::Error } else { RecordStatus::Denied });
        entry.tool_args = Some(self.args(record)?);
        entry.error_code = Some(error.code);
        entry.message = Some(self.text(&error.message)?);
        entry.duration_ms = Some(record.elapsed_ms());
        if let Some(kind) = violation {
            entry.level = RecordLevel::Warn;
            entry.violation_type = Some(kind);
            entry.severity = Some("HIGH");
            entry.target_path = self.target(record)?;
        }
        self.attempted(record, &mut entry)?;
        entries.push(entry);
        changes.extend(self.failed_request_changes(record, &error)?);
        // A call without a session has no row; the ledger record holds everything about it.
        if record.session_state.is_some() {
            self.finish_call(record, &error, failure, &mut changes)?;
        }
        if let (Some(kind), Some(_)) = (violation, record.session_state) {
            self.record_violation(record, kind, &mut entries, &mut changes).await?;
        }
        let committed = self
            .parts
            .store
            .commit(Batch::durable(entries, changes).from_reserve())
            .await
            .map_err(|error| CallError::from(&error))?;
        let own = committed.positions().first().cloned();
        Ok((CallOutcome::Failed { error, failure }, own, committed.is_durable()))
    }

    fn finish_call(
        &self,
        record: &CallRecord,
        error: &CallError,
        failure: FailureKind,
        changes: &mut Vec<StateChange>,
    ) -> Result<(), CallError> {
        let state = if failure == FailureKind::Error { CallState::Failed } else { CallState::Rejected };
        let at = self.parts.clock.now();
        let finish = CallFinish { id: record.call.clone(), state, at, error: Some(error.code) };
        if record.started.is_none() && !record.resumed {
            let mut row = self.call_row(record, CallState::Pending)?;
            // A call that was rate limited does not make the next one wait longer.
            row.counted &= error.code != ErrorCode::RateLimited;
            changes.push(StateChange::InsertCall(row));
        }
        let mut events = Vec::with_capacity(2);
        if record.verdict.is_some() {
            let status = if failure == FailureKind::Error { EventStatus::Ok } else { EventStatus::Denied };
            events.push(self.check_event(record, status)?);
        }
        events.extend(self.egress_events(record)?);
        let (phase, action, status) = match failure {
            FailureKind::Error if record.started.is_none() => (EventPhase::Call, "plan", EventStatus::Error),
            FailureKind::Error => (EventPhase::Call, "call", EventStatus::Error),
            FailureKind::Denied => (EventPhase::Policy, "violation", EventStatus::Denied),
        };
        let mut event = self.event(record, phase, action, status)?;
        event.error = Some(error.code);
        event.message = Some(self.text(&error.message)?);
        if let Some(kind) = error.code.violation() {
            event.violation_type = Some(Redacted::literal(kind));
            event.attempted_action = self.target(record)?;
        }
        events.push(event);
        changes.extend(self.end(record, finish, events)?);
        Ok(())
    }

    /// The last timeline events of a call and the end of its row, which may only be inserted now.
    pub(crate) fn end(
        &self,
        record: &CallRecord,
        finish: CallFinish,
        events: Vec<TimelineEvent>,
    ) -> Result<Vec<StateChange>, CallError> {
        let mut changes = Vec::with_capacity(4);
        if record.defer_row && record.started.is_some() {
            let mut row = self.call_row(record, finish.state)?;
            row.first_record = record.started.clone();
            row.finished = Some(finish.at);
            row.error = finish.error.map(|code| Redacted::literal(code.as_str()));
            row.events = events;
            changes.push(StateChange::InsertCall(row));
        } else {
            changes.extend(events.into_iter().map(StateChange::Event));
            changes.push(StateChange::FinishCall(finish));
        }
        Ok(changes)
    }

    /// Counts a violation and changes the session's state when there are too many (T22, T23).
    async fn record_violation(
        &self,
        record: &CallRecord,
        kind: &'static str,
        entries: &mut Vec<Entry>,
        changes: &mut Vec<StateChange>,
    ) -> Result<(), CallError> {
        let now = self.parts.clock.now();
        changes.push(StateChange::Violation(ViolationRow {
            ts: now,
            session: record.session.clone(),
            call: Some(record.call.clone()),
            violation_type: Redacted::literal(kind),
            target: self.target(record)?,
        }));
        let rules = &self.parts.violations;
        let before = self
            .parts
            .store
            .violations_since(record.session.as_str(), now.earlier(rules.window_ms))
            .await
            .map_err(|error| CallError::from(&error))?;
        let state = record.session_state.unwrap_or(SessionState::Active);
        if before < rules.limit || state >= rules.action {
            return Ok(());
        }
        let change = match rules.action {
            SessionState::Active => return Ok(()),
            SessionState::Alert => SessionChange::Alert,
            SessionState::Suspended => SessionChange::Suspended,
            SessionState::Ended => SessionChange::Ended,
        };
        let mut entry = Entry::session(change, record.session.clone(), now);
        entry.level = RecordLevel::Critical;
        entry.user = Some(self.text(&record.principal.user)?);
        entry.agent_id = Some(self.text(&record.principal.agent)?);
        let why = format!("{} violations within {} s", before + 1, rules.window_ms / 1000);
        entry.message = Some(self.text(&why)?);
        entries.push(entry);
        let owner = OwnerFilter::Owner(self.session_owner(&record.principal)?.stored());
        changes.push(StateChange::SetSession {
            id: record.session.clone(),
            owner,
            state: rules.action,
            at: now,
        });
        self.cache_state(&record.session, &record.principal, None);
        Ok(())
    }

    /// Ledger entry and row that open a session.
    pub(crate) fn session_record(&self, record: &CallRecord) -> Result<(Entry, SessionRow), CallError> {
        let now = record.began;
        let mut entry = Entry::session(SessionChange::Open, record.session.clone(), now);
        entry.user = Some(self.text(&record.principal.user)?);
        entry.agent_id = Some(self.text(&record.principal.agent)?);
        entry.role = Some(self.text(&self.parts.role)?);
        let row = SessionRow {
            id: record.session.clone(),
            tenant: self.text(&record.principal.tenant)?,
            user: self.text(&record.principal.user)?,
            agent: self.text(&record.principal.agent)?,
            role: self.text(&self.parts.role)?,
            project: self.text(&self.parts.project)?,
            state: SessionState::Active,
            opened: now,
            changed: now,
        };
        Ok((entry, row))
    }

    pub(crate) fn entry(&self, op: Op, record: &CallRecord) -> Result<Entry, CallError> {
        let text = |text: &str| self.text(text);
        let optional = |words: Option<&String>| words.map(|words| text(words)).transpose();
        let mut entry = Entry::new(op, record.began);
        entry.user = Some(text(&record.principal.user)?);
        entry.agent_id = Some(text(&record.principal.agent)?);
        entry.session = Some(record.session.clone());
        entry.role = Some(text(&self.parts.role)?);
        entry.skill_name = optional(record.principal.skill.as_ref())?;
        entry.execution_id = Some(record.call.clone());
        entry.tool_call_id = optional(record.tool_call_id.as_ref())?;
        entry.context_id = optional(record.context_id.as_ref())?;
        entry.tool_name = Some(text(&record.tool)?);
        entry.path = optional(record.operation.as_ref().and_then(|(_, path)| path.as_ref()))?;
        entry.execution_environment = Some(record.environment.as_str());
        entry.sandbox_tier = record.run.as_ref().map(|run| run.tier);
        entry.risk = record.risk.map(RiskLevel::as_str);
        entry.verdict = record.verdict.map(VerdictKind::as_str);
        entry.rule = optional(record.rule.as_ref())?;
        entry.reasons = record.reasons.iter().map(|reason| text(reason)).collect::<Result<_, _>>()?;
        entry.hitl_id = record.hitl.clone();
        entry.plan_digest = record.plan_digest;
        entry.policy_revision = Some(text(&self.parts.policy.revision.to_string())?);
        if PRIVILEGED_ROLES.contains(&self.parts.role.as_str()) {
            entry.level = RecordLevel::Warn;
            entry.severity = Some("PRIVILEGED");
        }
        Ok(entry)
    }

    pub(crate) fn event(
        &self,
        record: &CallRecord,
        phase: EventPhase,
        action: &'static str,
        status: EventStatus,
    ) -> Result<TimelineEvent, CallError> {
        let tool = self.text(&record.tool)?;
        let mut event = TimelineEvent::new(
            self.parts.clock.now(),
            record.call.clone(),
            phase,
            Redacted::literal(action),
            tool,
            status,
        );
        event.duration_us = u64::try_from(record.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(event)
    }

    pub(crate) fn check_event(
        &self,
        record: &CallRecord,
        status: EventStatus,
    ) -> Result<TimelineEvent, CallError> {
        let mut event = self.event(record, EventPhase::Policy, "check", status)?;
        event.policy = record.policy.as_deref().map(|policy| self.text(policy)).transpose()?;
        let verdict = match record.verdict {
            Some(VerdictKind::Deny) => "denied",
            Some(VerdictKind::Ask) => "ask",
            _ => "allowed",
        };
        event.verdict = Some(Redacted::literal(verdict));
        event.duration_us = record.decide_us;
        Ok(event)
    }

    pub(crate) fn call_row(&self, record: &CallRecord, state: CallState) -> Result<CallRow, CallError> {
        let mut row = CallRow::executing(
            record.call.clone(),
            record.session.clone(),
            self.text(&record.tool)?,
            record.began,
        );
        row.state = state;
        row.counted = record.limit.is_some();
        row.plan_digest = record.plan_digest;
        Ok(row)
    }

    pub(crate) fn args(&self, record: &CallRecord) -> Result<Redacted<serde_json::Value>, CallError> {
        Redacted::json(record.args.clone(), &*self.parts.redactor).map_err(redactor_failed)
    }

    /// What a denied call was about: the path it named, or its tool.
    fn target(&self, record: &CallRecord) -> Result<Option<vambrace_store::RedactedText>, CallError> {
        let named = record.args.get("path").or_else(|| record.args.get("url"));
        let named_path = named.and_then(serde_json::Value::as_str).unwrap_or(&record.tool);
        self.text(named_path).map(Some)
    }

    pub(crate) fn redacted(&self, error: CallError) -> Result<CallError, CallError> {
        // One line, unless it lists the errors of a configuration: names and reasons from a project must not look
        // like further lines of the broker.
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
