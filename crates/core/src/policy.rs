//! The policy of one workspace and role: the compiled layers, and the one function that judges a plan by all of them.
//! Pure: the same plan and session give the same decision, byte for byte.

use std::sync::Arc;

use crate::blocked_paths::{BadPattern, BlockList};
use crate::digest::Digest;
use crate::effect::{Effect, PathAccess};
use crate::error::ErrorCode;
use crate::fence::{Fence, NameFence, PathFence};
use crate::id::RoleName;
use crate::path::Zone;
use crate::plan::Plan;
use crate::risk::Risk;
use crate::role::Role;
use crate::rule::RuleTable;
use crate::session::SessionView;
use crate::skill::Skill;
use crate::tool::{FilesystemPolicy, ToolDescriptor};
use crate::verdict::{LayerKind, Reason, SourceLocation, Verdict, VerdictKind};
use crate::voucher::Voucher;

/// Name of the rule that denies every call while the configuration is damaged.
pub const DAMAGED_CONFIG_RULE: &str = "damaged configuration";
/// Name of the rule that denies every call of a caller without a role.
pub const NO_ROLE_RULE: &str = "no role";

/// The layers that do not change from call to call.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Blocked paths.
    pub block: BlockList,
    /// Rules of the organisation, the user and the project.
    pub rules: Vec<(LayerKind, RuleTable)>,
    /// The caller's role, or why there is none: without a role every tool is denied.
    pub role: Result<Role, String>,
    /// The active skill.
    pub skill: Option<Skill>,
    /// Which hosts may be reached.
    pub network: NetworkLayer,
    /// Where files may be created and deleted, and how risky each change is.
    pub file_changes: FileChangePolicy,
    /// Digest of the configuration that this policy was compiled from.
    pub revision: Digest,
    /// Why the configuration is damaged, if it is; every call is then denied.
    pub damage: Option<String>,
}

/// The verdict and fence of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerVerdict {
    /// The layer.
    pub layer: LayerKind,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its fence.
    pub fence: Fence,
}

/// The joined result of all layers.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyDecision {
    /// Digest of the plan.
    pub digest: Digest,
    /// Risk of the plan.
    pub risk: Risk,
    /// The join of all verdicts: the strictest counts.
    pub verdict: Verdict,
    /// The meet of all fences.
    pub fence: Fence,
    /// The result of each layer.
    pub layers: Vec<LayerVerdict>,
    /// Grants from `allow` rules of trusted configurations that apply to this plan.
    pub configured_grants: Vec<Voucher>,
}

impl Policy {
    /// Judges a plan by every layer.
    #[must_use]
    pub fn decide(&self, plan: &Plan, session: &SessionView) -> PolicyDecision {
        let mut layers = Vec::with_capacity(9);
        let mut layer = |kind, judge: &dyn Fn(&mut Verdict, &mut Fence)| {
            let (mut verdict, mut fence) = (Verdict::allow(), Fence::default());
            judge(&mut verdict, &mut fence);
            layers.push(LayerVerdict { layer: kind, verdict, fence });
        };
        let network = |kind, verdict: &mut Verdict, fence: &mut Fence| {
            if self.network.layer() == kind {
                self.network.judge(plan, verdict, fence);
            }
        };
        layer(LayerKind::Floor, &|verdict, fence| {
            self.judge_floor(plan, verdict);
            network(LayerKind::Floor, verdict, fence);
        });
        for (kind, rules) in &self.rules {
            layer(*kind, &|verdict, fence| {
                rules.judge(*kind, plan, verdict, fence);
                network(*kind, verdict, fence);
            });
        }
        layer(LayerKind::Role, &|verdict, fence| match &self.role {
            Ok(role) => role.judge(plan, verdict, fence),
            Err(why) => {
                verdict.deny(
                    ErrorCode::PermissionDenied,
                    reason(LayerKind::Role, NO_ROLE_RULE, &plan.tool.name, why),
                );
                fence.read = PathFence::nothing();
                fence.write = PathFence::nothing();
            }
        });
        layer(LayerKind::ToolPolicy, &|verdict, fence| judge_tool_policy(plan, verdict, fence));
        if let Some(skill) = &self.skill {
            layer(LayerKind::Skill, &|verdict, fence| skill.judge(plan, verdict, fence));
        }
        layer(LayerKind::Session, &|verdict, _| session.judge(plan, verdict));
        layer(LayerKind::Risk, &|verdict, _| self.file_changes.ask(plan, verdict));

        let (mut verdict, mut fence) = (Verdict::allow(), Fence::default());
        for judgement in &layers {
            verdict.join(&judgement.verdict);
            fence.meet(&judgement.fence);
        }
        let configured_grants =
            if verdict.kind() == VerdictKind::Ask { self.standing_grants(plan) } else { Vec::new() };
        PolicyDecision {
            digest: plan.digest(),
            risk: plan.risk.clone(),
            verdict,
            fence,
            layers,
            configured_grants,
        }
    }

    /// Whether some call of this tool could be allowed; other tools are not listed.
    #[must_use]
    pub fn offers(&self, tool: &Arc<ToolDescriptor>) -> bool {
        let bare = Plan {
            tool: Arc::clone(tool),
            args: serde_json::Value::Null,
            effects: Vec::new(),
            content_digest: None,
            risk: Risk::low("not called"),
            workspace_denial: None,
        };
        self.decide(&bare, &SessionView::OPEN).verdict.kind() != VerdictKind::Deny
    }

    /// The policy for a configuration that cannot be used: it denies everything, with the reason.
    pub fn damaged(why: &str) -> Result<Self, BadPattern> {
        Ok(Self {
            block: BlockList::with_defaults::<&str>(&[])?,
            rules: Vec::new(),
            role: Err("no role is in force while the configuration is damaged".to_owned()),
            skill: None,
            network: NetworkLayer::default(),
            file_changes: FileChangePolicy::default(),
            revision: Digest::of(why.as_bytes()),
            damage: Some(why.to_owned()),
        })
    }

    fn judge_floor(&self, plan: &Plan, verdict: &mut Verdict) {
        if let Some(why) = &self.damage {
            let reason = reason(LayerKind::Floor, DAMAGED_CONFIG_RULE, &plan.tool.name, why);
            verdict.deny(ErrorCode::PermissionDenied, reason);
        }
        for effect in &plan.effects {
            let Effect::Path { access, path, .. } = effect else { continue };
            if let Some(pattern) = self.block.blocks(path.relative()) {
                let why = format!("`{path}` is a blocked path (`{pattern}`)");
                verdict.deny(ErrorCode::BlockedPath, reason(LayerKind::Floor, "blocked paths", effect, &why));
            }
            if *access != PathAccess::Read && path.zone() == Zone::Project {
                let why = format!("`{path}` is shared, and shared directories are read-only");
                verdict.deny(
                    ErrorCode::ScopeViolation,
                    reason(LayerKind::Floor, "shared directories", effect, &why),
                );
            }
        }
        self.file_changes.judge(plan, verdict);
        // Do not report the same denial twice when the path name alone was already denied.
        if let Some(denial) = &plan.workspace_denial
            && !verdict.denials().any(|known| known.code == denial.code)
        {
            let reason = reason(LayerKind::Floor, "workspace", &plan.tool.name, &denial.message);
            verdict.deny(denial.code, reason);
        }
    }

    fn standing_grants(&self, plan: &Plan) -> Vec<Voucher> {
        let mut grants = Vec::new();
        for (by, rules) in &self.rules {
            for (rule, about) in rules.grants(plan) {
                let id = format!("{} ({})", rule.id, rule.at);
                grants.push(Voucher::Grant { id, about, by: *by, expires: None, revoked: false });
            }
        }
        grants
    }
}

fn reason(layer: LayerKind, rule: &str, about: &dyn std::fmt::Display, why: &str) -> Reason {
    Reason {
        layer,
        rule: rule.to_owned(),
        at: SourceLocation::built_in(),
        about: about.to_string(),
        why: why.to_owned(),
    }
}

fn judge_tool_policy(plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
    let policy = &plan.tool.policy;
    fence.hosts = NameFence::of(&policy.network);
    fence.secrets = NameFence::of(&policy.secrets);
    if !matches!(policy.filesystem, FilesystemPolicy::Read | FilesystemPolicy::ReadWrite) {
        fence.read = PathFence::nothing();
    }
    if !matches!(policy.filesystem, FilesystemPolicy::Write | FilesystemPolicy::ReadWrite) {
        fence.write = PathFence::nothing();
    }
    for effect in &plan.effects {
        let denied = match effect {
            Effect::Path { access, .. } => match (policy.filesystem, access) {
                (FilesystemPolicy::ReadWrite, _)
                | (FilesystemPolicy::Read, PathAccess::Read)
                | (FilesystemPolicy::Write, PathAccess::Create) => None,
                _ => Some("files"),
            },
            Effect::Connect { host, .. } | Effect::Request { host, .. } => {
                (!fence.hosts.admits(host)).then_some("the network")
            }
            Effect::Secret { scope } => (!fence.secrets.admits(scope)).then_some("secrets"),
            Effect::Execute { .. } | Effect::System { .. } => None,
        };
        if let Some(what) = denied {
            let why = format!("tool `{}` declares a policy for {what} that denies this", plan.tool.name);
            verdict.deny(ErrorCode::Policy, reason(LayerKind::ToolPolicy, "declared policy", effect, &why));
        }
    }
}

pub mod compile;
mod file_changes;
mod network_layer;
pub mod rule_cases;

pub use file_changes::FileChangePolicy;
pub use network_layer::NetworkLayer;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod properties;
