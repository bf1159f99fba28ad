//! The network part of the policy decision (P2, P3): a call that connects is judged by the lists of the configuration.
//! They also become part of its fence, so that redirects and resolved addresses are judged by the same lists.

use super::compile::{layer_of, site};
use super::reason;
use crate::config::EffectiveConfig;
use crate::effect::Effect;
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::network::{
    BadNetworkRule, Destination, HostName, NetworkDecision, NetworkFence, NetworkReason, NetworkRules,
};
use crate::plan::Plan;
use crate::tool::ToolGroup;
use crate::verdict::{LayerKind, Reason, SourceLocation, Verdict};

/// The network lists of a configuration.
#[derive(Debug, Clone)]
pub struct NetworkLayer {
    fence: NetworkFence,
    layer: LayerKind,
    at: SourceLocation,
}

impl Default for NetworkLayer {
    /// No host is reachable.
    fn default() -> Self {
        Self {
            fence: NetworkRules::default().into(),
            layer: LayerKind::Floor,
            at: SourceLocation::built_in(),
        }
    }
}

impl NetworkLayer {
    /// Compiles the effective settings.
    pub fn of(settings: &EffectiveConfig) -> Result<Self, (SourceLocation, BadNetworkRule)> {
        let allow = settings.get("network.allow").map(|value| &value.at);
        let at = allow.map_or_else(SourceLocation::built_in, site);
        let rules = NetworkRules::configured(&settings.network.allow, &settings.network.deny)
            .map_err(|bad| (at.clone(), bad))?;
        let layer = allow.and_then(layer_of).unwrap_or(LayerKind::Floor);
        Ok(Self { fence: rules.into(), layer, at })
    }

    /// The hosts that the user chose for a run of their own, as the files narrow them.
    #[must_use]
    pub fn of_user(hosts: NetworkFence) -> Self {
        Self { fence: hosts, ..Self::default() }
    }

    /// The layer that set the allow list, and so the one that its denials name.
    #[must_use]
    pub fn layer(&self) -> LayerKind {
        self.layer
    }

    pub(super) fn judge(&self, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        fence.network = self.fence.clone();
        if plan.tool.group == ToolGroup::Web && self.fence.allows_nothing() {
            let why = "no host is allowed: `network.allow` is empty";
            verdict.deny(ErrorCode::NetworkDenied, self.reason(&plan.tool.name, why));
            return;
        }
        for effect in &plan.effects {
            if let Err(why) = self.check_host(effect) {
                verdict.deny(ErrorCode::NetworkDenied, self.reason(effect, &why.to_string()));
            }
        }
    }

    fn check_host(&self, effect: &Effect) -> Result<(), NetworkReason> {
        let Some((host, port)) = effect.host() else { return Ok(()) };
        let destination = match host.parse() {
            Ok(address) => Destination::Address(address),
            Err(_) => Destination::Name(HostName::parse(host).map_err(|_| NetworkReason::BadName)?),
        };
        match self.fence.judge(&destination, port) {
            NetworkDecision::Allow(_) => Ok(()),
            NetworkDecision::Deny(why) => Err(why),
        }
    }

    fn reason(&self, about: &dyn std::fmt::Display, why: &str) -> Reason {
        let mut reason = reason(self.layer, "network.allow", about, why);
        reason.at = self.at.clone();
        reason
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{ConfigSource, combine, parse};
    use crate::id::ToolName;
    use crate::policy::Policy;
    use crate::risk::{Risk, RiskLevel};
    use crate::session::SessionView;
    use crate::tool::{FilesystemPolicy, NamePolicy, ToolDescriptor, ToolPolicy};
    use crate::verdict::VerdictKind;

    fn facts() -> Arc<ToolDescriptor> {
        Arc::new(ToolDescriptor {
            name: ToolName::new("web_fetch"),
            aliases: vec!["web.fetch".to_owned()],
            group: ToolGroup::Web,
            policy: ToolPolicy {
                network: NamePolicy::Allow,
                filesystem: FilesystemPolicy::Deny,
                secrets: NamePolicy::Deny,
            },
            required_role: None,
            risk: RiskLevel::Low,
            read_only: true,
        })
    }

    fn policy(user: &str, project: &str, trusted: bool) -> Policy {
        let user =
            parse(&format!("roles: {{default: dev}}\n{user}"), "user.yaml", ConfigSource::User).unwrap();
        let project = parse(project, "project.yaml", ConfigSource::Project { trusted }).unwrap();
        Policy::compile(&combine(None, Some(user), Some(project)), None, None, &[facts()]).unwrap()
    }

    #[track_caller]
    fn check(policy: &Policy, host: &str, port: u16, expected: VerdictKind) -> String {
        let effect = Effect::Request { method: "GET".to_owned(), host: host.to_owned(), port };
        let plan = Plan {
            tool: facts(),
            args: serde_json::Value::Null,
            effects: vec![effect],
            content_digest: None,
            risk: Risk::low("reads"),
            workspace_denial: None,
        };
        let decision = policy.decide(&plan, &SessionView::OPEN);
        assert_eq!(decision.verdict.kind(), expected, "{host}:{port} {:?}", decision.verdict);
        decision.verdict.causes().map(|reason| format!("{} {}", reason.at, reason.why)).collect()
    }

    // P2, S3
    #[test]
    fn empty_allow_list_denies_every_host_and_offers_no_web_tool() {
        let policy = policy("", "", true);
        check(&policy, "example.com", 443, VerdictKind::Deny);
        assert!(!policy.offers(&facts()));
    }

    // P3, S3
    #[test]
    fn allowed_hosts_are_reachable_and_denials_name_file_and_line() {
        let policy = policy(
            "network:\n  allow: ['*.example.com', '10.1.0.0/16:8443']\n  deny: [a.example.com]\n",
            "",
            true,
        );
        assert!(policy.offers(&facts()));
        check(&policy, "b.example.com", 443, VerdictKind::Allow);
        check(&policy, "10.1.2.3", 8443, VerdictKind::Allow);
        for (host, port) in [
            ("example.com", 443),
            ("a.example.com", 443),
            ("b.example.com", 22),
            ("10.1.2.3", 443),
            ("169.254.169.254", 80),
            ("0x7f.1", 80),
            ("b.example.com%00.evil", 443),
        ] {
            let why = check(&policy, host, port, VerdictKind::Deny);
            assert!(why.contains("user.yaml:3"), "{why}");
        }
    }

    // P3: project files only narrow
    #[test]
    fn project_file_cannot_allow_more_hosts_than_the_files_above() {
        let user = "network: {allow: ['*.example.com', '0.0.0.0/0']}";
        for trusted in [true, false] {
            let policy = policy(user, "network: {allow: [a.example.com, evil.net, 127.0.0.1, '*']}", trusted);
            check(&policy, "a.example.com", 443, VerdictKind::Allow);
            check(&policy, "evil.net", 443, VerdictKind::Deny);
            check(&policy, "127.0.0.1", 80, VerdictKind::Deny);
            check(&policy, "10.0.0.1", 80, VerdictKind::Deny);
        }
        let alone = policy("", "network: {allow: [a.example.com]}", false);
        check(&alone, "a.example.com", 443, VerdictKind::Deny);
        let trusted = policy("", "network: {allow: [a.example.com]}", true);
        check(&trusted, "a.example.com", 443, VerdictKind::Allow);
    }

    // S3: redirects are judged by the same lists
    #[test]
    fn fence_contains_the_network_lists() {
        let policy = policy("network: {allow: [a.example.com]}", "", true);
        let plan = Plan {
            tool: facts(),
            args: serde_json::Value::Null,
            effects: Vec::new(),
            content_digest: None,
            risk: Risk::low("reads"),
            workspace_denial: None,
        };
        let fence = policy.decide(&plan, &SessionView::OPEN).fence;
        let to = |name: &str| Destination::Name(HostName::parse(name).unwrap());
        assert!(matches!(fence.network.judge(&to("a.example.com"), 443), NetworkDecision::Allow(_)));
        assert!(matches!(fence.network.judge(&to("b.example.com"), 443), NetworkDecision::Deny(_)));
        assert!(Fence::default().network.allows_nothing());
    }
}
