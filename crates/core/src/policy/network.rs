//! The network in the decision (P2, P3): a call that connects is judged by the lists of the configuration, and takes
//! them along in its fence, so that wherever it is led is judged by the same lists again.

use super::compile::{layer_of, site};
use super::reason;
use crate::config::Effective;
use crate::effect::Effect;
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::network::{BadRule, Destination, HostName, Reach, Reason as Why, Rules, Verdict as Said};
use crate::plan::Plan;
use crate::tool::Group;
use crate::verdict::{LayerKind, Reason, Site, Verdict};

/// What a configuration says about the network.
#[derive(Debug, Clone)]
pub struct NetworkLayer {
    reach: Reach,
    layer: LayerKind,
    at: Site,
}

impl Default for NetworkLayer {
    /// Nothing is reached.
    fn default() -> Self {
        Self { reach: Rules::default().into(), layer: LayerKind::Floor, at: Site::built_in() }
    }
}

impl NetworkLayer {
    /// Compiles the settings in force.
    pub fn of(settings: &Effective) -> Result<Self, (Site, BadRule)> {
        let allow = settings.get("network.allow").map(|value| &value.at);
        let at = allow.map_or_else(Site::built_in, site);
        let rules = Rules::configured(&settings.network.allow, &settings.network.deny)
            .map_err(|bad| (at.clone(), bad))?;
        let layer = allow.and_then(layer_of).unwrap_or(LayerKind::Floor);
        Ok(Self { reach: rules.into(), layer, at })
    }

    /// Who set the list, and so who speaks.
    #[must_use]
    pub fn layer(&self) -> LayerKind {
        self.layer
    }

    pub(super) fn judge(&self, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        fence.reach = self.reach.clone();
        if plan.tool.group == Group::Web && self.reach.is_nothing() {
            let why = "no host is allowed: `network.allow` is empty";
            verdict.deny(ErrorCode::NetworkDenied, self.reason(&plan.tool.name, why));
            return;
        }
        for effect in &plan.effects {
            if let Err(why) = self.reaches(effect) {
                verdict.deny(ErrorCode::NetworkDenied, self.reason(effect, &why.to_string()));
            }
        }
    }

    fn reaches(&self, effect: &Effect) -> Result<(), Why> {
        let Some((host, port)) = effect.host() else { return Ok(()) };
        let destination = match host.parse() {
            Ok(address) => Destination::Address(address),
            Err(_) => Destination::Name(HostName::parse(host).map_err(|_| Why::BadName)?),
        };
        match self.reach.judge(&destination, port) {
            Said::Allow(_) => Ok(()),
            Said::Deny(why) => Err(why),
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
    use crate::config::{Source, combine, parse};
    use crate::id::ToolName;
    use crate::policy::Policy;
    use crate::risk::{Level, Risk};
    use crate::session::SessionView;
    use crate::tool::{FilesystemPolicy, NamePolicy, ToolFacts, ToolPolicy};
    use crate::verdict::Answer;

    fn facts() -> Arc<ToolFacts> {
        Arc::new(ToolFacts {
            name: ToolName::new("web_fetch"),
            aliases: &["web.fetch"],
            group: Group::Web,
            policy: ToolPolicy {
                network: NamePolicy::Allow,
                filesystem: FilesystemPolicy::Deny,
                secrets: NamePolicy::Deny,
            },
            required_role: None,
            risk: Level::Low,
            read_only: true,
        })
    }

    fn policy(user: &str, project: &str, trusted: bool) -> Policy {
        let user = parse(&format!("roles: {{default: dev}}\n{user}"), "user.yaml", Source::User).unwrap();
        let project = parse(project, "project.yaml", Source::Project { trusted }).unwrap();
        Policy::compile(&combine(None, Some(user), Some(project)), None, None, &[facts()]).unwrap()
    }

    #[track_caller]
    fn check(policy: &Policy, host: &str, port: u16, expected: Answer) -> String {
        let effect = Effect::Request { method: "GET".to_owned(), host: host.to_owned(), port };
        let plan = Plan {
            tool: facts(),
            args: serde_json::Value::Null,
            effects: vec![effect],
            binds: None,
            risk: Risk::low("looks"),
            refused: None,
        };
        let decision = policy.decide(&plan, &SessionView::OPEN);
        assert_eq!(decision.verdict.answer(), expected, "{host}:{port} {:?}", decision.verdict);
        decision.verdict.causes().map(|reason| format!("{} {}", reason.at, reason.why)).collect()
    }

    // P2, S3
    #[test]
    fn nothing_is_reached_and_no_web_tool_is_offered_where_nothing_is_allowed() {
        let policy = policy("", "", true);
        check(&policy, "example.com", 443, Answer::Deny);
        assert!(!policy.offers(&facts()));
    }

    // P3, S3
    #[test]
    fn what_the_configuration_allows_is_reached_and_a_refusal_names_its_place() {
        let policy = policy(
            "network:\n  allow: ['*.example.com', '10.1.0.0/16:8443']\n  deny: [a.example.com]\n",
            "",
            true,
        );
        assert!(policy.offers(&facts()));
        check(&policy, "b.example.com", 443, Answer::Allow);
        check(&policy, "10.1.2.3", 8443, Answer::Allow);
        for (host, port) in [
            ("example.com", 443),
            ("a.example.com", 443),
            ("b.example.com", 22),
            ("10.1.2.3", 443),
            ("169.254.169.254", 80),
            ("0x7f.1", 80),
            ("b.example.com%00.evil", 443),
        ] {
            let why = check(&policy, host, port, Answer::Deny);
            assert!(why.contains("user.yaml:3"), "{why}");
        }
    }

    // P3: project files only narrow
    #[test]
    fn a_project_reaches_no_further_than_the_files_above_it() {
        let user = "network: {allow: ['*.example.com', '0.0.0.0/0']}";
        for trusted in [true, false] {
            let policy = policy(user, "network: {allow: [a.example.com, evil.net, 127.0.0.1, '*']}", trusted);
            check(&policy, "a.example.com", 443, Answer::Allow);
            check(&policy, "evil.net", 443, Answer::Deny);
            check(&policy, "127.0.0.1", 80, Answer::Deny);
            check(&policy, "10.0.0.1", 80, Answer::Deny);
        }
        let alone = policy("", "network: {allow: [a.example.com]}", false);
        check(&alone, "a.example.com", 443, Answer::Deny);
        let trusted = policy("", "network: {allow: [a.example.com]}", true);
        check(&trusted, "a.example.com", 443, Answer::Allow);
    }

    // S3: where a call is led is judged by the same lists
    #[test]
    fn the_fence_takes_the_lists_along() {
        let policy = policy("network: {allow: [a.example.com]}", "", true);
        let plan = Plan {
            tool: facts(),
            args: serde_json::Value::Null,
            effects: Vec::new(),
            binds: None,
            risk: Risk::low("looks"),
            refused: None,
        };
        let fence = policy.decide(&plan, &SessionView::OPEN).fence;
        let to = |name: &str| Destination::Name(HostName::parse(name).unwrap());
        assert!(matches!(fence.reach.judge(&to("a.example.com"), 443), Said::Allow(_)));
        assert!(matches!(fence.reach.judge(&to("b.example.com"), 443), Said::Deny(_)));
        assert!(Fence::default().reach.is_nothing());
    }
}
