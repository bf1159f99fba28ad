//! Records the network attempts of a call: each is a timeline event, and a line in the call's last ledger record
//! (P9).

use serde_json::json;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_egress::EgressEvent;
use vambrace_ledger::Entry;
use vambrace_store::{EventPhase, EventStatus, TimelineEvent};

use crate::broker::Broker;
use crate::call_record::CallRecord;

/// Maximum attempts in one ledger record; the timeline has all that were kept.
const MAX_LEDGER_LINES: usize = 12;
/// Maximum attempts on the timeline of one call; a program can make more than a person would read.
const MAX_TIMELINE_EVENTS: usize = 1000;

impl Broker {
    /// One timeline event per attempt.
    pub(crate) fn egress_events(&self, record: &CallRecord) -> Result<Vec<TimelineEvent>, CallError> {
        let (events, left_off) = &record.egress_attempts;
        let mut timeline = Vec::with_capacity(events.len());
        for event in events.iter().take(MAX_TIMELINE_EVENTS) {
            timeline.push(self.egress_event(record, event)?);
        }
        let left_off = (events.len().saturating_sub(MAX_TIMELINE_EVENTS) as u64).saturating_add(*left_off);
        if left_off > 0 {
            let mut event = self.event(record, EventPhase::Egress, "more", EventStatus::Ok)?;
            event.message = Some(self.text(&format!("{left_off} more attempts"))?);
            timeline.push(event);
        }
        Ok(timeline)
    }

    fn egress_event(&self, record: &CallRecord, attempt: &EgressEvent) -> Result<TimelineEvent, CallError> {
        let (status, error) = match attempt.verdict() {
            "allowed" => (EventStatus::Ok, None),
            "denied" => (EventStatus::Denied, Some(ErrorCode::NetworkDenied)),
            _ => (EventStatus::Error, Some(ErrorCode::UpstreamError)),
        };
        let mut event = self.event(record, EventPhase::Egress, attempt.action.as_str(), status)?;
        event.verdict = Some(Redacted::literal(attempt.verdict()));
        event.attempted_action = Some(self.text(&attempt.attempted())?);
        event.violation_type = attempt.denied().then(|| Redacted::literal("network"));
        event.error = error;
        event.message = attempt.reason.as_ref().map(|reason| self.text(&reason.to_string())).transpose()?;
        // The field names of `sandbox run --json`.
        let facts = json!({
            "host": attempt.host, "port": (attempt.port != 0).then_some(attempt.port),
            "address": attempt.address.map(|address| address.to_string()), "rule": attempt.rule.as_deref(),
            "reason": attempt.reason.as_ref().map(|reason| reason.code()),
            "sent_bytes": attempt.sent, "received_bytes": attempt.received, "times": attempt.times,
        });
        let facts = Redacted::json(facts, &*self.parts.redactor).map_err(crate::broker::redactor_failed)?;
        event.policy = Some(self.text(&facts.into_inner().to_string())?);
        event.duration_us = u64::try_from(attempt.duration.as_micros()).unwrap_or(u64::MAX);
        Ok(event)
    }

    /// Appends the attempts to the reasons of the call's last ledger record.
    pub(crate) fn attempted(&self, record: &CallRecord, entry: &mut Entry) -> Result<(), CallError> {
        let (events, left_off) = &record.egress_attempts;
        for event in events.iter().take(MAX_LEDGER_LINES) {
            entry.reasons.push(self.text(&words(event))?);
        }
        let more = (events.len().saturating_sub(MAX_LEDGER_LINES) as u64).saturating_add(*left_off);
        if more > 0 {
            entry.reasons.push(self.text(&format!("egress: {more} more attempts"))?);
        }
        Ok(())
    }
}

fn words(event: &EgressEvent) -> String {
    let why = match (&event.rule, &event.reason) {
        (_, Some(reason)) => format!(": {reason}"),
        (Some(rule), None) => format!(" by `{rule}`"),
        (None, None) => String::new(),
    };
    let bytes = format!("{} bytes sent, {} received", event.sent, event.received);
    format!("egress: {} {}{why}; {bytes}", event.attempted(), event.verdict())
}
