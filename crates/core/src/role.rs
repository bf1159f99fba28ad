//! Roles: the only source of permission. A role names tools, paths and kinds of effects; what it does not name is
//! denied. No role: no tools.

use std::sync::Arc;

use crate::block::BadPattern;
use crate::effect::{Effect, EffectKind, Extent};
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::glob::{Ground, PathGlobs, Purpose};
use crate::id::RoleName;
use crate::plan::Plan;
use crate::tool::ToolFacts;
use crate::verdict::{LayerKind, Reason, Site, Verdict};

/// A role as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleWords {
    /// Its name.
    pub name: RoleName,
    /// Where it is written.
    pub at: Site,
    /// Tools: names, `group:NAME`, globs; `None` means every tool.
    pub tools: Option<Vec<String>>,
    /// Tools taken out again.
    pub except: Vec<String>,
    /// Path globs; `None` means every path in scope.
    pub paths: Option<Vec<String>>,
    /// Kinds of effects; `None` means every kind.
    pub permits: Option<Vec<EffectKind>>,
    /// What its paths stand on.
    pub ground: Ground,
}

/// The roles that exist without configuration (T5). They permit nothing until a configuration names one.
#[must_use]
pub fn built_in(name: &str, ground: &Ground) -> Option<RoleWords> {
    let role = |except: &[&str]| RoleWords {
        name: RoleName::new(name),
        at: Site::built_in(),
        tools: None,
        except: except.iter().map(|&tool| tool.to_owned()).collect(),
        paths: None,
        permits: None,
        ground: ground.clone(),
    };
    match name {
        "dev" => Some(role(&["git_push", "group:system"])),
        "sre" => Some(role(&["git_push"])),
        "release_manager" => Some(role(&["group:system"])),
        "product_owner" => Some(RoleWords {
            tools: Some(
                ["read_file", "list_files", "search_file", "count_matches", "group:knowledge"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            paths: Some(
                ["docs/", "plans/", "*.md", "project:docs/", "project:*.md"].map(str::to_owned).to_vec(),
            ),
            permits: Some(vec![EffectKind::Read]),
            ..role(&[])
        }),
        _ => None,
    }
}

/// Roles whose every action is audited as privileged, and which are never had without being granted by name.
pub const PRIVILEGED: [&str; 2] = ["sre", "release_manager"];

/// The names of the built-in roles.
pub const BUILT_IN: [&str; 4] = ["dev", "sre", "release_manager", "product_owner"];

/// A role, compiled: every definition of the name, from the organisation down, must agree.
#[derive(Debug, Clone)]
pub struct Role {
    name: RoleName,
    parts: Vec<RolePart>,
}

#[derive(Debug, Clone)]
struct RolePart {
    words: RoleWords,
    paths: Option<Arc<PathGlobs>>,
}

impl Role {
    /// Joins the definitions of one role: each further one can only take away.
    pub fn new(name: RoleName, definitions: Vec<RoleWords>) -> Result<Self, (Site, BadPattern)> {
        let mut parts = Vec::new();
        for words in definitions {
            let paths = match &words.paths {
                Some(globs) => {
                    let globs = PathGlobs::new(globs, Purpose::Permit, &words.ground);
                    Some(Arc::new(globs.map_err(|bad| (words.at.clone(), bad))?))
                }
                None => None,
            };
            parts.push(RolePart { words, paths });
        }
        Ok(Self { name, parts })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &RoleName {
        &self.name
    }

    /// Whether everything this role permits, of these tools, is permitted by the other one too. The privileged
    /// roles are never within another: they must be granted by name.
    #[must_use]
    pub fn is_within(&self, other: &Self, tools: &[Arc<ToolFacts>]) -> bool {
        if self.name == other.name {
            return true;
        }
        !PRIVILEGED.contains(&self.name.as_str())
            && tools.iter().all(|tool| !self.offers(tool) || other.offers(tool))
            && other
                .parts
                .iter()
                .all(|outer| self.parts.iter().any(|inner| inner.words.reaches_within(&outer.words)))
    }

    fn offers(&self, tool: &ToolFacts) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.words.offers(tool))
    }

    /// Judges a plan: what the role does not permit is denied.
    pub fn judge(&self, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        if self.parts.is_empty() {
            verdict.deny(
                ErrorCode::PermissionDenied,
                self.reason(None, &plan.tool.name, "is not defined".to_owned()),
            );
        }
        if let Some(required) = &plan.tool.required_role
            && *required != self.name
        {
            let why = format!("`{}` is for role `{required}` only", plan.tool.name);
            verdict.deny(ErrorCode::PermissionDenied, self.reason(None, &plan.tool.name, why));
        }
        for part in &self.parts {
            self.judge_part(part, plan, verdict);
            if let Some(paths) = &part.paths {
                fence.meet(&Fence::inside(paths));
            }
        }
    }

    fn judge_part(&self, part: &RolePart, plan: &Plan, verdict: &mut Verdict) {
        if !part.words.offers(&plan.tool) {
            let why = format!("may not use `{}`", plan.tool.name);
            verdict.deny(ErrorCode::PermissionDenied, self.reason(Some(part), &plan.tool.name, why));
            return;
        }
        for effect in &plan.effects {
            if part.words.permits.as_ref().is_some_and(|permits| !permits.contains(&effect.kind())) {
                let why = format!("does not permit `{}`", effect.kind().as_str());
                verdict.deny(ErrorCode::PermissionDenied, self.reason(Some(part), effect, why));
            }
            // A walk is narrowed by the fence; only a named file can be outside.
            if let (Some(paths), Effect::Path { path, extent: Extent::Single, .. }) = (&part.paths, effect)
                && !paths.matches(path)
            {
                let why = format!("reaches only {}", paths.globs().join(", "));
                verdict.deny(ErrorCode::PermissionDenied, self.reason(Some(part), effect, why));
            }
        }
    }

    fn reason(&self, part: Option<&RolePart>, about: &dyn std::fmt::Display, why: String) -> Reason {
        Reason {
            layer: LayerKind::Role,
            rule: format!("role {}", self.name),
            at: part.map_or_else(Site::built_in, |part| part.words.at.clone()),
            about: about.to_string(),
            why: format!("role `{}` {why}", self.name),
        }
    }
}

impl RoleWords {
    /// Whether paths and kinds of effects are, word for word, among the other's.
    fn reaches_within(&self, other: &Self) -> bool {
        fn within<T: PartialEq>(inner: Option<&Vec<T>>, outer: Option<&Vec<T>>) -> bool {
            match (inner, outer) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(inner), Some(outer)) => inner.iter().all(|word| outer.contains(word)),
            }
        }
        within(self.paths.as_ref(), other.paths.as_ref())
            && within(self.permits.as_ref(), other.permits.as_ref())
    }

    fn offers(&self, tool: &ToolFacts) -> bool {
        let named =
            self.tools.as_ref().is_none_or(|tools| tools.iter().any(|pattern| tool.is_meant_by(pattern)));
        named && !self.except.iter().any(|pattern| tool.is_meant_by(pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str) -> Role {
        Role::new(RoleName::new(name), vec![built_in(name, &Ground::plain()).unwrap()]).unwrap()
    }

    // T5
    #[test]
    fn a_narrower_role_is_within_a_wider_one() {
        let tools = crate::policy::samples::tools();
        let within = |inner: &str, outer: &str| role(inner).is_within(&role(outer), &tools);
        assert!(within("product_owner", "dev"));
        assert!(within("dev", "dev"));
        assert!(within("dev", "sre"));
        assert!(!within("sre", "dev"));
        assert!(!within("release_manager", "dev"));
        assert!(!within("dev", "product_owner"));
    }
}
