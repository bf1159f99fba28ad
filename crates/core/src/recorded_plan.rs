//! A recorded plan: what a call would do and what policy said, in the form that is stored with the call. Replay judges
//! it again under another policy, without the tool, its arguments or the workspace.
//!
//! The stored text has passed the redactor. A plan whose effects do not fit is stored without them and is not judged again:
//! a verdict about a part of the effects would be wrong.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::effect::Effect;
use crate::error::{CallError, ErrorCode};
use crate::plan::Plan;
use crate::policy::{Policy, PolicyDecision};
use crate::risk::{Risk, RiskLevel};
use crate::session::SessionView;
use crate::settle::{Settlement, settle};
use crate::timestamp::Timestamp;
use crate::tool::ToolDescriptor;
use crate::verdict::{LayerKind, VerdictKind};

/// Version of the stored form.
const VERSION: u64 = 1;
/// Maximum number of effects that are stored with a call.
const MAX_EFFECTS: usize = 1000;

/// A plan as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedPlan {
    /// Name of the tool that it was judged as.
    pub tool: String,
    /// The role that the caller requested; `None` for the default role.
    pub role: Option<String>,
    /// The active skill.
    pub skill: Option<String>,
    /// What the call would do.
    pub effects: Vec<Effect>,
    /// The tool's own estimate, before policy raised it.
    pub risk: Risk,
    /// Why the workspace denied it, if it did.
    pub workspace_denial: Option<CallError>,
    /// What policy said, with the grants of its rules and without those of a person.
    pub verdict: VerdictKind,
}

impl RecordedPlan {
    /// The recorded form of a judged plan; `None` if the session was the reason of its denial, which says nothing about the
    /// rules, or if there are too many effects. `tool_risk` is the tool's own estimate.
    #[must_use]
    pub fn of(
        plan: &Plan,
        tool_risk: Risk,
        decision: &PolicyDecision,
        role: Option<&str>,
        skill: Option<&str>,
        now: Timestamp,
    ) -> Option<Self> {
        let by_session = decision
            .layers
            .iter()
            .any(|layer| layer.layer == LayerKind::Session && layer.verdict.kind() == VerdictKind::Deny);
        if by_session || plan.effects.len() > MAX_EFFECTS {
            return None;
        }
        Some(Self {
            tool: plan.tool.name.to_string(),
            role: role.map(str::to_owned),
            skill: skill.map(str::to_owned),
            effects: plan.effects.clone(),
            risk: tool_risk,
            workspace_denial: plan.workspace_denial.clone(),
            verdict: settled_verdict(&settle(decision, &[], now)),
        })
    }

    /// The stored form, not redacted yet.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let denial = self.workspace_denial.as_ref().map(|denial| [denial.code.as_str(), &denial.message]);
        json!({
            "v": VERSION, "tool": self.tool, "role": self.role, "skill": self.skill,
            "verdict": self.verdict.as_str(), "risk": self.risk.level.as_str(), "reasons": self.risk.reasons,
            "effects": self.effects.iter().map(Effect::fields).collect::<Vec<_>>(), "denial": denial,
        })
    }

    /// Reads the stored form; `None` if this version does not know it.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let stored: Value = serde_json::from_str(text).ok()?;
        if stored.get("v")?.as_u64()? != VERSION {
            return None;
        }
        let word = |key: &str| stored.get(key).and_then(Value::as_str);
        let strings = |list: &Value| -> Option<Vec<String>> {
            list.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let effects = stored.get("effects")?.as_array()?.iter();
        let denial = match stored.get("denial").filter(|denial| !denial.is_null()) {
            None => None,
            Some(denial) => match strings(denial)?.as_slice() {
                [code, message] => {
                    let code = ErrorCode::ALL.iter().copied().find(|known| known.as_str() == code)?;
                    Some(CallError::new(code, message.as_str()))
                }
                _ => return None,
            },
        };
        Some(Self {
            tool: word("tool")?.to_owned(),
            role: word("role").map(str::to_owned),
            skill: word("skill").map(str::to_owned),
            effects: effects.map(|fields| Effect::from_fields(&strings(fields)?)).collect::<Option<_>>()?,
            risk: Risk { level: RiskLevel::parse(word("risk")?)?, reasons: strings(stored.get("reasons")?)? },
            workspace_denial: denial,
            verdict: VerdictKind::parse(word("verdict")?)?,
        })
    }

    /// Judges the recorded effects by another policy, in an open session without a rate limit.
    #[must_use]
    pub fn judge(&self, policy: &Policy, tool: &Arc<ToolDescriptor>, now: Timestamp) -> Settlement {
        let plan = Plan {
            tool: Arc::clone(tool),
            args: Value::Null,
            effects: self.effects.clone(),
            content_digest: None,
            risk: policy.file_changes.raise(self.risk.clone(), &self.effects),
            workspace_denial: self.workspace_denial.clone(),
        };
        settle(&policy.decide(&plan, &SessionView::OPEN), &[], now)
    }
}

/// The verdict that a settlement without the vouchers of a person amounts to.
#[must_use]
pub fn settled_verdict(settlement: &Settlement) -> VerdictKind {
    match settlement {
        Settlement::Permitted(_) => VerdictKind::Allow,
        Settlement::Waiting(_) => VerdictKind::Ask,
        Settlement::Denied { .. } => VerdictKind::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Extent, PathAccess};
    use crate::path::{AskedPath, ScopedPath, Zone};

    // A5: effects are stored without loss
    #[test]
    fn a_stored_plan_reads_back_as_it_was() {
        let path = |text: &str| AskedPath::new(text).parse().unwrap();
        let tree = |path| Effect::Path { access: PathAccess::Modify, extent: Extent::Tree, path };
        let create = |path| Effect::Path { access: PathAccess::Create, extent: Extent::Single, path };
        let recorded = RecordedPlan {
            tool: "edit_file".to_owned(),
            role: Some("dev".to_owned()),
            skill: None,
            effects: vec![
                Effect::read(path("./~odd name")),
                Effect::read_tree(ScopedPath::root(Zone::Project)),
                tree(path("./project:x")),
                create(path("project:a/b")),
                Effect::Path { access: PathAccess::Delete, extent: Extent::Single, path: path("single") },
                Effect::Execute { argv: vec!["rm".into(), "-rf".into(), String::new()] },
                Effect::Connect { host: "::1".into(), port: 443 },
                Effect::Request { method: "GET".into(), host: "a.example".into(), port: 80 },
                Effect::Secret { scope: "npm".into() },
                Effect::System { action: "reboot".into() },
            ],
            risk: Risk::medium("why"),
            workspace_denial: Some(CallError::new(ErrorCode::ScopeViolation, "outside")),
            verdict: VerdictKind::Ask,
        };
        assert_eq!(RecordedPlan::from_json(&recorded.to_json().to_string()), Some(recorded));
        for unknown in ["", "[]", "{}", r#"{"v":2}"#, r#"{"v":1,"tool":"x","effects":[["fly"]]}"#] {
            assert_eq!(RecordedPlan::from_json(unknown), None, "{unknown}");
        }
    }
}
