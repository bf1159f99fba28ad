//! `--network`: from words to a gate, and from a gate's events to words.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use vambrace_core::config::{Effective, Setting as Written};
use vambrace_core::network::decide::EVERYTHING;
use vambrace_egress::{Action, BadRule, Caps, Event, Gate, Reach, Rules, Setting, Termination, Upstream};
use vambrace_sandbox::{Network, Spec};

use super::faint;
use crate::args::SandboxRun;
use crate::failure::Failure;
use crate::found::Found;
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// The gate's side of a run; none where the network is denied or its own.
pub(super) struct Gates {
    runtime: Handle,
    setting: Setting,
}

/// What was attempted, and how much more there was than is kept.
pub(super) type Attempts = (Vec<Event>, u64);

/// What the configuration says about hosts. Whoever types the command chooses; the files only narrow.
pub(super) struct Hosts {
    /// What may be reached at most; nothing where no file says.
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

impl Hosts {
    pub(super) fn of(found: &[Found], combined: &Effective) -> Self {
        let says = |file: &&Found| file.parsed.as_ref().is_ok_and(|file| file.get("network.allow").is_some());
        let allow = match found.iter().find(says).map(|file| file.source) {
            None => None,
            // A project alone widens nothing, but it may narrow what was typed.
            Some(source) if source.is_project() => {
                let own = found.iter().find(says).and_then(|file| file.parsed.as_ref().ok());
                match own.and_then(|file| file.get("network.allow")).map(|value| &value.value) {
                    Some(Written::List(items)) => Some(items.iter().map(|item| item.value.clone()).collect()),
                    _ => Some(Vec::new()),
                }
            }
            Some(_) => Some(combined.network.allow.clone()),
        };
        Self { allow, deny: combined.network.deny.clone() }
    }

    /// What was typed, narrowed; and what its writer may not have meant.
    fn narrow(&self, typed: &str) -> Result<(Reach, Vec<String>), BadRule> {
        let typed: Vec<String> = typed.split(',').map(str::to_owned).collect();
        let warnings = Rules::parse(typed.iter().map(String::as_str))?.warnings().collect();
        // What is refused is refused in the typed list too: what else it names stays as it is.
        let refused = self.deny.iter().filter(|entry| *entry != EVERYTHING).map(|entry| format!("!{entry}"));
        let typed: Vec<String> = typed.into_iter().chain(refused).collect();
        let typed = Rules::parse(typed.iter().map(String::as_str))?;
        let everything = self.deny.iter().any(|entry| entry == EVERYTHING).then(Rules::default);
        let allowed = self.allow.as_ref().map(|allow| Rules::configured(allow, &self.deny)).transpose()?;
        Ok((Reach::of([Some(typed), everything, allowed].into_iter().flatten()), warnings))
    }
}

/// What was asked for; warnings are said at once.
pub(super) fn gates(
    wish: &SandboxRun,
    hosts: &Hosts,
    spec: &mut Spec,
    out: Out,
) -> Result<Option<Gates>, Failure> {
    spec.network = match wish.network.as_str() {
        "deny" => Network::None,
        "loopback" => Network::Loopback,
        _ => Network::Gated,
    };
    if spec.network != Network::Gated {
        return Ok(None);
    }
    let (rules, warnings) =
        hosts.narrow(&wish.network).map_err(|bad| Failure::usage(bad.to_string(), &bad.suggestion))?;
    for warning in warnings {
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
    /// One that lets nothing out, to see what is wanted; none where nobody is there to serve it.
    pub(super) fn closed() -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        Some(Self { runtime, setting: Setting::new(Reach::of([Rules::default()])) })
    }

    /// With hosts whose TLS ends at the gate.
    pub(super) fn ending(mut self, termination: Option<Arc<Termination>>) -> Self {
        self.setting.termination = termination;
        self
    }

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

/// What was refused and could be listed, as it would be written.
pub(super) fn wanted((events, _): &Attempts) -> BTreeSet<String> {
    let written = |event: &Event| match (event.action, event.port) {
        (Action::Dns, _) | (_, 80 | 443) => event.host.clone(),
        _ => place(event),
    };
    let refused = events.iter().filter(|event| event.denied() && event.action != Action::Local);
    let words: BTreeSet<String> = refused.map(written).collect();
    words.into_iter().filter(|word| Rules::parse([word.as_str()]).is_ok()).collect()
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
