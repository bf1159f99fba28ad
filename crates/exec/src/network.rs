//! The network of a run: which hosts the program may reach, and the egress gate that it connects through.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::runtime::Handle;
use vambrace_core::config::{EffectiveConfig, FileConfig, SettingValue};
use vambrace_core::fence::Fence;
use vambrace_core::network::decide::ANY_HOST;
use vambrace_egress::{
    BadNetworkRule, EgressAction, EgressEvent, EgressGate, GateConfig, NetworkFence, NetworkReason,
    NetworkRules, TlsTermination,
};
use vambrace_sandbox::{NetworkMode, Observe, RunOutcome, SandboxError, Spec};

use crate::error::ExecError;
use crate::request::{HostRequest, NetworkRequest};

/// What a program tried to reach.
#[derive(Debug, Clone, Default)]
pub struct NetworkAttempts {
    /// The attempts, in order.
    pub events: Vec<EgressEvent>,
    /// How many more there were that were not kept.
    pub left_off: u64,
}

impl NetworkAttempts {
    /// Denied hosts that a request could ask for, in its syntax.
    #[must_use]
    pub(crate) fn wanted_hosts(&self) -> BTreeSet<String> {
        let written = |event: &EgressEvent| match (event.action, event.port) {
            (EgressAction::Dns, _) | (_, 80 | 443) => event.host.clone(),
            _ if event.host.contains(':') => format!("[{}]:{}", event.host, event.port),
            _ => format!("{}:{}", event.host, event.port),
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
        let words: BTreeSet<String> = self.events.iter().filter(unlisted).map(written).collect();
        words.into_iter().filter(|word| NetworkRules::parse([word.as_str()]).is_ok()).collect()
    }
}

/// Host lists of a configuration. A request chooses the hosts; the files can only narrow it.
#[derive(Debug, Clone, Default)]
pub struct HostLists {
    /// The hosts that may be reached at most; `None` if no file limits them.
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

impl HostLists {
    pub(crate) fn of(config: &EffectiveConfig, files: &[&FileConfig]) -> Self {
        let allow = match files.iter().find_map(|file| Some((file.source, file.get("network.allow")?))) {
            None => None,
            // A project cannot widen, but it can narrow the request.
            Some((source, own)) if source.is_project() => match &own.value {
                SettingValue::List(items) => Some(items.iter().map(|item| item.value.clone()).collect()),
                _ => Some(Vec::new()),
            },
            Some(_) => Some(config.network.allow.clone()),
        };
        Self { allow, deny: config.network.deny.clone() }
    }

    /// What the user's own request may reach: the hosts that the user typed, narrowed by the files. For other callers the
    /// fence comes from the policy.
    pub fn fence_of_user(&self, request: &NetworkRequest) -> Result<NetworkFence, ExecError> {
        match request {
            NetworkRequest::None | NetworkRequest::Loopback => Ok(NetworkFence::default()),
            NetworkRequest::Hosts(hosts) => {
                self.narrow(&hosts.hosts).map(|(fence, _)| fence).map_err(invalid)
            }
        }
    }

    /// The requested hosts narrowed by the configuration, and warnings about probable mistakes.
    fn narrow(&self, requested: &[String]) -> Result<(NetworkFence, BTreeSet<String>), BadNetworkRule> {
        let mut warnings: BTreeSet<String> =
            NetworkRules::parse(requested.iter().map(String::as_str))?.warnings().collect();
        // Denied hosts are added to the requested list as exceptions.
        let denied = self.deny.iter().filter(|entry| *entry != ANY_HOST).map(|entry| format!("!{entry}"));
        let requested: Vec<String> = requested.iter().cloned().chain(denied).collect();
        let requested = NetworkRules::parse(requested.iter().map(String::as_str))?;
        let everything = self.deny.iter().any(|entry| entry == ANY_HOST).then(NetworkRules::default);
        let allowed =
            self.allow.as_ref().map(|allow| NetworkRules::configured(allow, &self.deny)).transpose()?;
        warnings.extend(allowed.iter().flat_map(NetworkRules::warnings));
        Ok((NetworkFence::of([Some(requested), everything, allowed].into_iter().flatten()), warnings))
    }
}

fn invalid(bad: BadNetworkRule) -> ExecError {
    ExecError::invalid(bad.to_string(), bad.suggestion)
}

/// The egress gate of a run, not yet open.
#[derive(Debug)]
pub(crate) struct GateSetup {
    runtime: Handle,
    config: GateConfig,
    /// Set for a gate that only observes: the network to use where no gate is possible.
    instead: Option<NetworkMode>,
}

/// Sets the network of a spec; returns the gate that it needs, and warnings.
pub(crate) fn set_up(
    request: &NetworkRequest,
    hosts: &HostLists,
    fence: &Fence,
    spec: &mut Spec,
    runtime: &Handle,
) -> Result<(Option<GateSetup>, BTreeSet<String>), ExecError> {
    let HostRequest { hosts: requested, caps, upstream } = match request {
        NetworkRequest::None => {
            spec.network = NetworkMode::None;
            // Without sockets, hosts and ports are unknown; observing everything therefore uses a gate that only observes.
            let observing = spec.observe == Observe::All;
            return Ok((observing.then(|| GateSetup::observing(spec, runtime)), BTreeSet::new()));
        }
        NetworkRequest::Loopback => {
            spec.network = NetworkMode::Loopback;
            return Ok((Some(GateSetup::observing(spec, runtime)), BTreeSet::new()));
        }
        NetworkRequest::Hosts(hosts) => hosts,
    };
    spec.network = NetworkMode::Gated;
    let (mut rules, warnings) = hosts.narrow(requested).map_err(invalid)?;
    if fence.network == NetworkFence::default() {
        // No layer sets a list: nothing is allowed.
        rules.meet(&NetworkRules::default().into());
    }
    rules.meet(&fence.network);
    for names in fence.hosts.lists() {
        rules.meet(&declared_hosts(names)?.into());
    }
    let config = GateConfig { caps: *caps, upstream: upstream.clone(), ..GateConfig::new(rules) };
    Ok((Some(GateSetup { runtime: runtime.clone(), config, instead: None }), warnings))
}

/// The hosts that a tool declares, as rules of the gate.
fn declared_hosts(names: &[String]) -> Result<NetworkRules, ExecError> {
    let rule = |name: &String| if name == ANY_HOST { "allow".to_owned() } else { name.clone() };
    let rules: Vec<String> = names.iter().map(rule).collect();
    NetworkRules::parse(rules.iter().map(String::as_str)).map_err(|bad| {
        ExecError::Unenforceable(format!("the tool declares the host `{}`, which is not a rule", bad.text))
    })
}

impl GateSetup {
    /// A gate that denies everything and reports the attempts, instead of a network without a gate.
    pub(crate) fn observing(spec: &mut Spec, runtime: &Handle) -> Self {
        let instead = Some(std::mem::replace(&mut spec.network, NetworkMode::Gated));
        let config = GateConfig::new(NetworkFence::default());
        Self { runtime: runtime.clone(), config, instead }
    }

    /// Whether it denies everything and only reports.
    pub(crate) fn only_observes(&self) -> bool {
        self.instead.is_some()
    }

    /// Sets the hosts whose TLS the gate terminates.
    pub(crate) fn terminate(&mut self, termination: Arc<TlsTermination>) {
        self.config.termination = Some(termination);
    }

    /// Runs a program behind its own gate. Where no gate is possible, a gate that only observes is omitted.
    pub(crate) fn run_behind(
        &self,
        spec: &Spec,
        run: &mut dyn FnMut(&Spec) -> Result<RunOutcome, SandboxError>,
    ) -> Result<(RunOutcome, Option<NetworkAttempts>), SandboxError> {
        let gate = EgressGate::new(self.config.clone(), self.runtime.clone());
        let mut spec = Spec { gate: Some(gate.clone()), ..spec.clone() };
        match (run(&spec), self.instead) {
            (Err(SandboxError::Unavailable { .. }), Some(plain)) => {
                (spec.network, spec.gate) = (plain, None);
                Ok((run(&spec)?, None))
            }
            (outcome, _) => {
                let outcome = outcome?;
                let (events, left_off) = gate.close();
                Ok((outcome, Some(NetworkAttempts { events, left_off })))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vambrace_core::config::{ConfigSource, combine, parse};
    use vambrace_core::network::{Destination, HostName, NetworkDecision};

    use super::*;

    fn allows(user: &str, project: &str, requested: &[&str], host: &str) -> bool {
        let user = parse(user, "user.yaml", ConfigSource::User).unwrap();
        let project = parse(project, "project.yaml", ConfigSource::Project { trusted: false }).unwrap();
        let config = combine(None, Some(user.clone()), Some(project.clone()));
        let lists = HostLists::of(&config, &[&user, &project]);
        let requested: Vec<String> = requested.iter().map(|host| (*host).to_owned()).collect();
        let (fence, _) = lists.narrow(&requested).unwrap();
        let host = Destination::Name(HostName::parse(host).unwrap());
        matches!(fence.judge(&host, 443), NetworkDecision::Allow(_))
    }

    // P3
    #[test]
    fn files_only_narrow_what_a_request_asks_for() {
        assert!(allows("", "", &["a.example"], "a.example"));
        assert!(!allows("", "", &["a.example"], "b.example"));
        assert!(!allows("network: {allow: [b.example]}", "", &["a.example"], "a.example"));
        assert!(!allows("", "network: {allow: [b.example]}", &["a.example"], "a.example"));
        assert!(allows("network: {allow: ['*']}", "", &["a.example"], "a.example"));
        assert!(!allows("network: {deny: [a.example]}", "", &["allow"], "a.example"));
        assert!(!allows("network: {deny: ['*']}", "", &["allow"], "a.example"));
    }

    // P3
    #[tokio::test]
    async fn fence_narrows_the_hosts_of_a_request() {
        let request = NetworkRequest::Hosts(HostRequest {
            hosts: vec!["a.example".to_owned(), "b.example".to_owned()],
            caps: Default::default(),
            upstream: None,
        });
        let reaches = |fence: &Fence, host: &str| {
            let mut spec = Spec::new("true", "/nowhere");
            let (gate, _) =
                set_up(&request, &HostLists::default(), fence, &mut spec, &Handle::current()).unwrap();
            let host = Destination::Name(HostName::parse(host).unwrap());
            matches!(gate.unwrap().config.rules.judge(&host, 443), NetworkDecision::Allow(_))
        };
        let rules = |hosts: &[&str]| NetworkRules::parse(hosts.iter().copied()).unwrap();
        let mut fence = Fence { network: rules(&["a.example"]).into(), ..Fence::default() };
        assert!(reaches(&fence, "a.example") && !reaches(&fence, "b.example"));
        assert!(!reaches(&Fence::default(), "a.example"), "without a list nothing is allowed");
        fence.network = rules(&["allow"]).into();
        let only = vambrace_core::tool::NamePolicy::Only(vec!["b.example".to_owned()]);
        fence.hosts = vambrace_core::fence::NameFence::of(&only);
        assert!(!reaches(&fence, "a.example") && reaches(&fence, "b.example"));
    }
}
