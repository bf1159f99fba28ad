//! `--network`: creates the egress gate from the options, and prints its events.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use vambrace_core::config::{EffectiveConfig, SettingValue as Written};
use vambrace_core::network::decide::ANY_HOST;
use vambrace_egress::{
    BadNetworkRule, EgressAction, EgressEvent, EgressGate, GateConfig, NetworkFence, NetworkReason,
    NetworkRules, TlsTermination, TrafficCaps, UpstreamProxy,
};
use vambrace_sandbox::{NetworkMode, Observe, RunOutcome, SandboxError, Spec};

use super::faint;
use crate::args::SandboxRun;
use crate::config_files::ConfigFile;
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::terminal_escape::sanitize;

/// The settings of the egress gate of a run.
pub(super) struct GateSetup {
    runtime: Handle,
    setting: GateConfig,
    /// Set for a gate that only observes: the network to use where no gate is possible.
    instead: Option<NetworkMode>,
}

/// Connection attempts, and the number of further ones that were not kept.
pub(super) type NetworkAttempts = (Vec<EgressEvent>, u64);

/// Host lists of the configuration. The user's option chooses the hosts; the files can only narrow it.
pub(super) struct HostLists {
    /// The hosts that may be reached at most; `None` if no file limits them.
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

impl HostLists {
    pub(super) fn of(found: &[ConfigFile], combined: &EffectiveConfig) -> Self {
        let sets_allow =
            |file: &&ConfigFile| file.parsed.as_ref().is_ok_and(|file| file.get("network.allow").is_some());
        let allow = match found.iter().find(sets_allow).map(|file| file.source) {
            None => None,
            // A project cannot widen, but it can narrow the option.
            Some(source) if source.is_project() => {
                let own = found.iter().find(sets_allow).and_then(|file| file.parsed.as_ref().ok());
                match own.and_then(|file| file.get("network.allow")).map(|value| &value.value) {
                    Some(Written::List(items)) => Some(items.iter().map(|item| item.value.clone()).collect()),
                    _ => Some(Vec::new()),
                }
            }
            Some(_) => Some(combined.network.allow.clone()),
        };
        Self { allow, deny: combined.network.deny.clone() }
    }

    /// The option narrowed by the configuration, and warnings about probable mistakes.
    fn narrow(&self, typed: &str) -> Result<(NetworkFence, BTreeSet<String>), BadNetworkRule> {
        let typed: Vec<String> = typed.split(',').map(str::to_owned).collect();
        let mut warnings: BTreeSet<String> =
            NetworkRules::parse(typed.iter().map(String::as_str))?.warnings().collect();
        // Denied hosts are added to the option's list as exceptions.
        let denied = self.deny.iter().filter(|entry| *entry != ANY_HOST).map(|entry| format!("!{entry}"));
        let typed: Vec<String> = typed.into_iter().chain(denied).collect();
        let typed = NetworkRules::parse(typed.iter().map(String::as_str))?;
        let everything = self.deny.iter().any(|entry| entry == ANY_HOST).then(NetworkRules::default);
        let allowed =
            self.allow.as_ref().map(|allow| NetworkRules::configured(allow, &self.deny)).transpose()?;
        warnings.extend(allowed.iter().flat_map(NetworkRules::warnings));
        Ok((NetworkFence::of([Some(typed), everything, allowed].into_iter().flatten()), warnings))
    }
}

/// Creates the gate for the options; prints warnings at once.
pub(super) fn gates(
    wish: &SandboxRun,
    hosts: &HostLists,
    spec: &mut Spec,
    out: Out,
) -> Result<Option<GateSetup>, Failure> {
    spec.network = match wish.network.as_str() {
        "deny" => NetworkMode::None,
        "loopback" => NetworkMode::Loopback,
        _ => NetworkMode::Gated,
    };
    match spec.network {
        // Without sockets, hosts and ports are unknown; `--observe all` therefore uses a gate that only observes.
        NetworkMode::None if spec.observe != Observe::All => return Ok(None),
        NetworkMode::None | NetworkMode::Loopback => return GateSetup::observing(spec).map(Some),
        NetworkMode::Gated => {}
    }
    let (rules, warnings) =
        hosts.narrow(&wish.network).map_err(|bad| Failure::usage(bad.to_string(), &bad.suggestion))?;
    for warning in warnings {
        out.message(format!("{} {}", paint(Tone::Care, "warning:"), sanitize(&warning)));
    }
    let upstream = wish.upstream_proxy.as_deref().map(UpstreamProxy::parse).transpose();
    let upstream = upstream.map_err(|bad| {
        Failure::usage(bad.to_string(), "for example `--upstream-proxy http://proxy.corp:3128`")
    })?;
    let caps = TrafficCaps {
        connections: wish.network_connections,
        bytes: wish.network_bytes,
        rate: wish.network_rate,
    };
    let setting = GateConfig { caps, upstream, ..GateConfig::new(rules) };
    Ok(Some(GateSetup { runtime: runtime()?, setting, instead: None }))
}

fn runtime() -> Result<Handle, Failure> {
    Handle::try_current()
        .map_err(|error| Failure::failed(format!("no async runtime for the egress gate: {error}")))
}

impl GateSetup {
    /// A gate that denies everything and reports the attempts, instead of a network without a gate.
    pub(super) fn observing(spec: &mut Spec) -> Result<Self, Failure> {
        let instead = Some(std::mem::replace(&mut spec.network, NetworkMode::Gated));
        Ok(Self { runtime: runtime()?, setting: GateConfig::new(NetworkFence::default()), instead })
    }

    /// Whether it denies everything and only reports.
    pub(super) fn only_observes(&self) -> bool {
        self.instead.is_some()
    }

    /// Adds hosts whose TLS the gate terminates.
    pub(super) fn with_termination(mut self, termination: Option<Arc<TlsTermination>>) -> Self {
        self.setting.termination = termination;
        self
    }

    /// Runs a program behind its own gate. Where no gate is possible, a gate that only observes is omitted.
    pub(super) fn run_behind(
        &self,
        spec: &Spec,
        run: &mut dyn FnMut(&Spec) -> Result<RunOutcome, SandboxError>,
    ) -> Result<(RunOutcome, Option<NetworkAttempts>), SandboxError> {
        let gate = EgressGate::new(self.setting.clone(), self.runtime.clone());
        let mut spec = Spec { gate: Some(gate.clone()), ..spec.clone() };
        match (run(&spec), self.instead) {
            (Err(SandboxError::Unavailable { .. }), Some(plain)) => {
                (spec.network, spec.gate) = (plain, None);
                Ok((run(&spec)?, None))
            }
            (outcome, _) => Ok((outcome?, Some(gate.close()))),
        }
    }
}

/// Prints denied and failed connections on standard error.
pub(super) fn print((events, left_off): &NetworkAttempts, clean: &dyn Fn(&str) -> String, out: Out) {
    for event in events.iter().filter(|event| event.reason.is_some()) {
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
    if *left_off > 0 {
        out.message(faint(format!("[{left_off} more attempts]")));
    }
}

/// Denied hosts that `--network` could list, in its syntax.
pub(super) fn wanted((events, _): &NetworkAttempts) -> BTreeSet<String> {
    let written = |event: &EgressEvent| match (event.action, event.port) {
        (EgressAction::Dns, _) | (_, 80 | 443) => event.host.clone(),
        _ => place(event),
    };
    let unlisted = |event: &&EgressEvent| {
        matches!(
            event.reason,
            Some(
                NetworkReason::HostNotAllowed
                    | NetworkReason::AddressNotAllowed
                    | NetworkReason::PortNotAllowed
            )
        )
    };
    let denied = events.iter().filter(unlisted);
    let words: BTreeSet<String> = denied.map(written).collect();
    words.into_iter().filter(|word| NetworkRules::parse([word.as_str()]).is_ok()).collect()
}

fn place(event: &EgressEvent) -> String {
    match event.action {
        EgressAction::Dns => event.host.clone(),
        _ if event.host.contains(':') => format!("[{}]:{}", event.host, event.port),
        _ => format!("{}:{}", event.host, event.port),
    }
}

/// The attempts as timeline events.
pub(super) fn json((events, left_off): &NetworkAttempts) -> Value {
    let list: Vec<Value> = events.iter().map(event_json).collect();
    json!({"events": list, "left_off": left_off})
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
