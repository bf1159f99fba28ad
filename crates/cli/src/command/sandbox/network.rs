//! `--network`: from words to a gate, and from a gate's events to words.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use vambrace_egress::{Action, Caps, Event, Gate, Rules, Setting, Upstream};
use vambrace_sandbox::{Network, Spec};

use super::faint;
use crate::args::SandboxRun;
use crate::failure::Failure;
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// The gate's side of a run; none where the network is denied or its own.
pub(super) struct Gates {
    runtime: Handle,
    setting: Setting,
}

/// What was attempted, and how much more there was than is kept.
pub(super) type Attempts = (Vec<Event>, u64);

/// What was asked for; warnings are said at once.
pub(super) fn gates(wish: &SandboxRun, spec: &mut Spec, out: Out) -> Result<Option<Gates>, Failure> {
    spec.network = match wish.network.as_str() {
        "deny" => Network::None,
        "loopback" => Network::Loopback,
        _ => Network::Gated,
    };
    if spec.network != Network::Gated {
        return Ok(None);
    }
    let rules = Rules::parse(wish.network.split(','))
        .map_err(|bad| Failure::usage(bad.to_string(), &bad.suggestion))?;
    for warning in rules.warnings() {
        out.say(format!("{} {}", paint(Tone::Care, "warning:"), plain(&warning)));
    }
    let upstream = wish.upstream_proxy.as_deref().map(Upstream::parse).transpose();
    let upstream = upstream.map_err(|bad| {
        Failure::usage(bad.to_string(), "for example `--upstream-proxy http://proxy.corp:3128`")
    })?;
    let caps =
        Caps { connections: wish.network_connections, bytes: wish.network_bytes, rate: wish.network_rate };
    let runtime = Handle::try_current()
        .map_err(|error| Failure::failed(format!("nobody is there to serve the network: {error}")))?;
    Ok(Some(Gates { runtime, setting: Setting { caps, upstream, ..Setting::new(rules) } }))
}

impl Gates {
    /// A gate for one run.
    pub(super) fn gate(&self) -> Arc<Gate> {
        Gate::new(self.setting.clone(), self.runtime.clone())
    }
}

/// On standard error: what did not happen.
pub(super) fn say((events, left_off): &Attempts, clean: &dyn Fn(&str) -> String, out: Out) {
    for event in events.iter().filter(|event| event.reason.is_some()) {
        let tone = if event.denied() { Tone::Bad } else { Tone::Care };
        let reason = event.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let times = if event.times > 1 { faint(format!(" [{} times]", event.times)) } else { String::new() };
        out.say(format!(
            "{} {} {}: {}{times}",
            paint(tone, format!("{}:", event.verdict())),
            event.action.as_str(),
            plain(&clean(&place(event))),
            plain(&clean(&reason)),
        ));
    }
    if *left_off > 0 {
        out.say(faint(format!("[{left_off} attempts more]")));
    }
}

fn place(event: &Event) -> String {
    match event.action {
        Action::Dns => event.host.clone(),
        _ if event.host.contains(':') => format!("[{}]:{}", event.host, event.port),
        _ => format!("{}:{}", event.host, event.port),
    }
}

/// As events of the timeline.
pub(super) fn json((events, left_off): &Attempts) -> Value {
    let list: Vec<Value> = events.iter().map(event_json).collect();
    json!({"events": list, "left_off": left_off})
}

fn event_json(event: &Event) -> Value {
    let status = match event.verdict() {
        "allowed" => "ok",
        "denied" => "denied",
        _ => "error",
    };
    let millis = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "phase": "egress", "action": event.action.as_str(), "at_ms": millis(event.at),
        "host": event.host, "port": (event.action != Action::Dns).then_some(event.port),
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
