//! What a call attempted on the network, for the record: every attempt is an event of the timeline, and a line in the
//! call's last record of the ledger (P9).

use serde_json::json;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_egress::Event;
use vambrace_ledger::Entry;
use vambrace_store::{EventStatus, Phase, TimelineEvent};

use crate::broker::Broker;
use crate::trail::Trail;

/// So many lines stand in the ledger's record; the timeline has all that were kept.
const LINES: usize = 12;
/// So many stand on the timeline; a program can attempt more than anybody reads.
const STORED: usize = 1000;

impl Broker {
    /// Every attempt as an event.
    pub(crate) fn egress_events(&self, trail: &Trail) -> Result<Vec<TimelineEvent>, CallError> {
        let (events, left_off) = &trail.attempts;
        let mut told = Vec::with_capacity(events.len());
        for event in events.iter().take(STORED) {
            told.push(self.egress_event(trail, event)?);
        }
        let left_off = (events.len().saturating_sub(STORED) as u64).saturating_add(*left_off);
        if left_off > 0 {
            let mut event = self.event(trail, Phase::Egress, "more", EventStatus::Ok)?;
            event.message = Some(self.text(&format!("{left_off} attempts more"))?);
            told.push(event);
        }
        Ok(told)
    }

    fn egress_event(&self, trail: &Trail, attempt: &Event) -> Result<TimelineEvent, CallError> {
        let (status, error) = match attempt.verdict() {
            "allowed" => (EventStatus::Ok, None),
            "denied" => (EventStatus::Denied, Some(ErrorCode::NetworkDenied)),
            _ => (EventStatus::Error, Some(ErrorCode::UpstreamError)),
        };
        let mut event = self.event(trail, Phase::Egress, attempt.action.as_str(), status)?;
        event.verdict = Some(Redacted::literal(attempt.verdict()));
        event.attempted_action = Some(self.text(&attempt.attempted())?);
        event.violation_type = attempt.denied().then(|| Redacted::literal("network"));
        event.error = error;
        event.message = attempt.reason.as_ref().map(|reason| self.text(&reason.to_string())).transpose()?;
        // The names of `sandbox run --json`.
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

    /// The attempts in words, in the ledger's record of how the call ended.
    pub(crate) fn attempted(&self, trail: &Trail, entry: &mut Entry) -> Result<(), CallError> {
        let (events, left_off) = &trail.attempts;
        for event in events.iter().take(LINES) {
            entry.reasons.push(self.text(&words(event))?);
        }
        let more = (events.len().saturating_sub(LINES) as u64).saturating_add(*left_off);
        if more > 0 {
            entry.reasons.push(self.text(&format!("egress: {more} attempts more"))?);
        }
        Ok(())
    }
}

fn words(event: &Event) -> String {
    let why = match (&event.rule, &event.reason) {
        (_, Some(reason)) => format!(": {reason}"),
        (Some(rule), None) => format!(" by `{rule}`"),
        (None, None) => String::new(),
    };
    let bytes = format!("{} bytes sent, {} received", event.sent, event.received);
    format!("egress: {} {}{why}; {bytes}", event.attempted(), event.verdict())
}
