//! `--network`: from words to a gate, and from a gate's events to words.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use vambrace_core::config::{Effective, Setting as Written};
use vambrace_core::network::decide::EVERYTHING;
use vambrace_egress::{
    Action, BadRule, Caps, Event, Gate, Reach, Reason, Rules, Setting, Termination, Upstream,
};
use vambrace_sandbox::{Network, Observe, Outcome, SandboxFault, Spec};

use super::faint;
use crate::args::SandboxRun;
use crate::failure::Failure;
use crate::found::Found;
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// The gate's side of a run; none where the network is denied.
pub(super) struct Gates {
    runtime: Handle,
    setting: Setting,
    /// Of a gate that lets nothing out and only tells: what the network is where none can be gated.
    instead: Option<Network>,
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
    fn narrow(&self, typed: &str) -> Result<(Reach, BTreeSet<String>), BadRule> {
        let typed: Vec<String> = typed.split(',').map(str::to_owned).collect();
        let mut warnings: BTreeSet<String> =
            Rules::parse(typed.iter().map(String::as_str))?.warnings().collect();
        // What is refused is refused in the typed list too: what else it names stays as it is.
        let refused = self.deny.iter().filter(|entry| *entry != EVERYTHING).map(|entry| format!("!{entry}"));
        let typed: Vec<String> = typed.into_iter().chain(refused).collect();
        let typed = Rules::parse(typed.iter().map(String::as_str))?;
        let everything = self.deny.iter().any(|entry| entry == EVERYTHING).then(Rules::default);
        let allowed = self.allow.as_ref().map(|allow| Rules::configured(allow, &self.deny)).transpose()?;
        warnings.extend(allowed.iter().flat_map(Rules::warnings));
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
    match spec.network {
        // Without sockets nobody says where to: that is told where everything is to be told.
        Network::None if spec.observe != Observe::All => return Ok(None),
        Network::None | Network::Loopback => return Gates::telling(spec).map(Some),
        Network::Gated => {}
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
    let setting = Setting { caps, upstream, ..Setting::new(rules) };
    Ok(Some(Gates { runtime: runtime()?, setting, instead: None }))
}

fn runtime() -> Result<Handle, Failure> {
    Handle::try_current()
        .map_err(|error| Failure::failed(format!("nobody is there to serve the network: {error}")))
}

impl Gates {
    /// A gate that lets nothing out, and tells what was attempted, in place of a network without one.
    pub(super) fn telling(spec: &mut Spec) -> Result<Self, Failure> {
        let instead = Some(std::mem::replace(&mut spec.network, Network::Gated));
        Ok(Self { runtime: runtime()?, setting: Setting::new(Reach::default()), instead })
    }

    /// Whether it lets nothing out.
    pub(super) fn only_tells(&self) -> bool {
        self.instead.is_some()
    }

    /// With hosts whose TLS ends at the gate.
    pub(super) fn ending(mut self, termination: Option<Arc<Termination>>) -> Self {
        self.setting.termination = termination;
        self
    }

    /// A run behind a gate of its own. Where the machine can gate no network, a gate that only tells is left out.
    pub(super) fn around(
        &self,
        spec: &Spec,
        run: &mut dyn FnMut(&Spec) -> Result<Outcome, SandboxFault>,
    ) -> Result<(Outcome, Option<Attempts>), SandboxFault> {
        let gate = Gate::new(self.setting.clone(), self.runtime.clone());
        let mut spec = Spec { door: Some(gate.clone()), ..spec.clone() };
        match (run(&spec), self.instead) {
            (Err(SandboxFault::Unavailable { .. }), Some(plain)) => {
                (spec.network, spec.door) = (plain, None);
                Ok((run(&spec)?, None))
            }
            (outcome, _) => Ok((outcome?, Some(gate.close()))),
        }
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
            plain(&clean(&vambrace_core::quote::quoted(place(event).as_bytes()))),
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
    let unlisted = |event: &&Event| {
        matches!(
            event.reason,
            Some(Reason::HostNotAllowed | Reason::AddressNotAllowed | Reason::PortNotAllowed)
        )
    };
    let refused = events.iter().filter(unlisted);
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
