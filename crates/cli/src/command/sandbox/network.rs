//! Prints what a program tried to reach, as text or JSON.

use serde_json::{Value, json};
use vambrace_core::terminal_escape::sanitize;
use vambrace_egress::{EgressAction, EgressEvent};
use vambrace_exec::NetworkAttempts;

use super::faint;
use crate::output::{Out, Tone, paint};

/// Prints denied and failed connections on standard error.
pub(super) fn print(attempts: &NetworkAttempts, clean: &dyn Fn(&str) -> String, out: Out) {
    for event in attempts.events.iter().filter(|event| event.reason.is_some()) {
        let tone = if event.denied() { Tone::Bad } else { Tone::Care };
        let reason = event.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let times = if event.times > 1 { faint(format!(" [{} times]", event.times)) } else { String::new() };
        out.message(format!(
            "{} {} {}: {}{times}",
            paint(tone, format!("{}:", event.verdict())),
            event.action.as_str(),
            sanitize(&clean(&vambrace_core::quote::quoted(place(event).as_bytes()))),
            sanitize(&clean(&reason)),
        ));
    }
    if attempts.left_off > 0 {
        out.message(faint(format!("[{} more attempts]", attempts.left_off)));
    }
}

fn place(event: &EgressEvent) -> String {
    match event.action {
        EgressAction::Dns => event.host.clone(),
        _ if event.host.contains(':') => format!("[{}]:{}", event.host, event.port),
        _ => format!("{}:{}", event.host, event.port),
    }
}

/// The attempts as timeline events.
pub(super) fn json(attempts: &NetworkAttempts) -> Value {
    let list: Vec<Value> = attempts.events.iter().map(event_json).collect();
    json!({"events": list, "left_off": attempts.left_off})
}

fn event_json(event: &EgressEvent) -> Value {
    let status = match event.verdict() {
        "allowed" => "ok",
        "denied" => "denied",
        _ => "error",
    };
    let millis = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "phase": "egress", "action": event.action.as_str(), "at_ms": millis(event.at),
        "host": event.host, "port": (event.action != EgressAction::Dns).then_some(event.port),
        "address": event.address.map(|address| address.to_string()),
        "verdict": event.verdict(), "status": status, "rule": event.rule.as_deref(),
        "violation_type": event.denied().then_some("network"),
        "attempted_action": event.denied().then(|| format!("{} {}", event.action.as_str(), place(event))),
        "reason": event.reason.as_ref().map(|reason| reason.code()),
        "message": event.reason.as_ref().map(ToString::to_string),
        "sent_bytes": event.sent, "received_bytes": event.received, "times": event.times,
        "duration_ms": millis(event.duration),
    })
}
