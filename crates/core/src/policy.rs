//! The policy of one workspace and role: the layers, compiled, and the one function that judges a plan by all of
//! them. Pure: the same plan and session give the same decision, byte for byte.

use std::sync::Arc;

use crate::block::{BadPattern, BlockList};
use crate::digest::Digest;
use crate::effect::{Access, Effect};
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
use crate::tool::{FilesystemPolicy, ToolFacts};
use crate::verdict::{Answer, LayerKind, Reason, Site, Verdict};
use crate::voucher::Voucher;

/// The name of what denies under a damaged configuration.
pub const DAMAGED: &str = "damaged configuration";
/// The name of what denies where there is no role.
pub const NO_ROLE: &str = "no role";

/// Every layer that does not change from call to call.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Blocked zones.
    pub block: BlockList,
    /// Rules of the organisation, the user, the project.
    pub rules: Vec<(LayerKind, RuleTable)>,
    /// The caller's role, or why it has none: no role is no tools.
    pub role: Result<Role, String>,
    /// The active skill.
    pub skill: Option<Skill>,
    /// What of the network may be reached.
    pub network: NetworkLayer,
    /// Where files may be made and removed, and how risky which are.
    pub writing: Writing,
    /// Which configuration this was compiled from.
    pub revision: Digest,
    /// What is wrong with the configuration: nothing is allowed under a damaged one.
    pub damage: Option<String>,
}

/// What one layer says.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Who.
    pub layer: LayerKind,
    /// What.
    pub verdict: Verdict,
    /// Within which fence.
    pub fence: Fence,
}

/// What all layers say.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The plan it is about.
    pub digest: Digest,
    /// How risky.
    pub risk: Risk,
    /// The strictest of all.
    pub verdict: Verdict,
    /// The meet of all.
    pub fence: Fence,
    /// Each layer's own words.
    pub layers: Vec<Judgement>,
    /// Standing grants of trusted configurations that speak about this plan.
    pub standing: Vec<Voucher>,
}

impl Policy {
    /// Judges a plan by every layer.
    #[must_use]
    pub fn decide(&self, plan: &Plan, session: &SessionView) -> Decision {
        let mut layers = Vec::with_capacity(9);
        let mut layer = |kind, judge: &dyn Fn(&mut Verdict, &mut Fence)| {
            let (mut verdict, mut fence) = (Verdict::allow(), Fence::default());
            judge(&mut verdict, &mut fence);
            layers.push(Judgement { layer: kind, verdict, fence });
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
                    reason(LayerKind::Role, NO_ROLE, &plan.tool.name, why),
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
        layer(LayerKind::Risk, &|verdict, _| self.writing.ask(plan, verdict));

        let (mut verdict, mut fence) = (Verdict::allow(), Fence::default());
        for judgement in &layers {
            verdict.join(&judgement.verdict);
            fence.meet(&judgement.fence);
        }
        let standing = if verdict.answer() == Answer::Ask { self.standing_grants(plan) } else { Vec::new() };
        Decision { digest: plan.digest(), risk: plan.risk.clone(), verdict, fence, layers, standing }
    }

    /// Whether some call of this tool could be allowed; what is not offered is not listed.
    #[must_use]
    pub fn offers(&self, tool: &Arc<ToolFacts>) -> bool {
        let bare = Plan {
            tool: Arc::clone(tool),
            args: serde_json::Value::Null,
            effects: Vec::new(),
            binds: None,
            risk: Risk::low("not called"),
            refused: None,
        };
        self.decide(&bare, &SessionView::OPEN).verdict.answer() != Answer::Deny
    }

    /// The policy of a configuration that cannot be used: it denies everything and says why.
    pub fn damaged(why: &str) -> Result<Self, BadPattern> {
        Ok(Self {
            block: BlockList::with_defaults::<&str>(&[])?,
            rules: Vec::new(),
            role: Err("no role is in force under a damaged configuration".to_owned()),
            skill: None,
            network: NetworkLayer::default(),
            writing: Writing::default(),
            revision: Digest::of(why.as_bytes()),
            damage: Some(why.to_owned()),
        })
    }

    fn judge_floor(&self, plan: &Plan, verdict: &mut Verdict) {
        if let Some(why) = &self.damage {
            let reason = reason(LayerKind::Floor, DAMAGED, &plan.tool.name, why);
            verdict.deny(ErrorCode::PermissionDenied, reason);
        }
        for effect in &plan.effects {
            let Effect::Path { access, path, .. } = effect else { continue };
            if let Some(pattern) = self.block.blocks(path.relative()) {
                let why = format!("`{path}` is in the blocked zone `{pattern}`");
                verdict.deny(ErrorCode::BlockedPath, reason(LayerKind::Floor, "blocked zones", effect, &why));
            }
            if *access != Access::Read && path.zone() == Zone::Project {
                let why = format!("`{path}` is shared, and shared folders are read-only");
                verdict.deny(
                    ErrorCode::ScopeViolation,
                    reason(LayerKind::Floor, "shared folders", effect, &why),
                );
            }
        }
        self.writing.judge(plan, verdict);
        // What is refused by its name already need not be told twice.
        if let Some(refused) = &plan.refused
            && !verdict.denials().any(|denial| denial.code == refused.code)
        {
            let reason = reason(LayerKind::Floor, "workspace", &plan.tool.name, &refused.message);
            verdict.deny(refused.code, reason);
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
        at: Site::built_in(),
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
        let refused = match effect {
            Effect::Path { access, .. } => match (policy.filesystem, access) {
                (FilesystemPolicy::ReadWrite, _)
                | (FilesystemPolicy::Read, Access::Read)
                | (FilesystemPolicy::Write, Access::Create) => None,
                _ => Some("files"),
            },
            Effect::Connect { host, .. } | Effect::Request { host, .. } => {
                (!fence.hosts.admits(host)).then_some("the network")
            }
            Effect::Secret { scope } => (!fence.secrets.admits(scope)).then_some("secrets"),
            Effect::Execute { .. } | Effect::System { .. } => None,
        };
        if let Some(what) = refused {
            let why = format!("tool `{}` declares a policy for {what} that refuses this", plan.tool.name);
            verdict.deny(ErrorCode::Policy, reason(LayerKind::ToolPolicy, "declared policy", effect, &why));
        }
    }
}

pub mod cases;
pub mod compile;
mod network;
mod writing;

pub use network::NetworkLayer;
pub use writing::Writing;
#[cfg(test)]
mod properties;
#[cfg(test)]
pub(crate) mod samples;
