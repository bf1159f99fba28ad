//! Roles: the only source of permission. A role names tools, paths and kinds of effects; everything else is denied. A
//! caller without a role has no tools.

use std::sync::Arc;

use crate::blocked_paths::BadPattern;
use crate::effect::{Effect, EffectKind, Extent};
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::glob::{GlobPurpose, GlobRoots, PathGlobs};
use crate::id::RoleName;
use crate::plan::Plan;
use crate::tool::ToolDescriptor;
use crate::verdict::{LayerKind, Reason, SourceLocation, Verdict};

/// One definition of a role: built in, or from one configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleDefinition {
    /// The role's name.
    pub name: RoleName,
    /// Where it is written.
    pub at: SourceLocation,
    /// Tools: names, `group:NAME`, globs; `None` means every tool.
    pub tools: Option<Vec<String>>,
    /// Exceptions from `tools`.
    pub except: Vec<String>,
    /// Path globs; `None` means every path in scope.
    pub paths: Option<Vec<String>>,
    /// Kinds of effects; `None` means every kind.
    pub permits: Option<Vec<EffectKind>>,
    /// What its path globs are relative to.
    pub roots: GlobRoots,
}

/// The roles that exist without configuration (T5). A built-in role permits nothing until a configuration names it.
#[must_use]
pub(crate) fn built_in_role(name: &str, roots: &GlobRoots) -> Option<RoleDefinition> {
    let role = |except: &[&str]| RoleDefinition {
        name: RoleName::new(name),
        at: SourceLocation::built_in(),
        tools: None,
        except: except.iter().map(|&tool| tool.to_owned()).collect(),
        paths: None,
        permits: None,
        roots: roots.clone(),
    };
    match name {
        "dev" => Some(role(&["git_push", "group:system"])),
        "sre" => Some(role(&["git_push"])),
        "release_manager" => Some(role(&["group:system"])),
        "product_owner" => Some(RoleDefinition {
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

/// Roles whose every action is audited as privileged, and which must be granted by name.
pub const PRIVILEGED_ROLES: [&str; 2] = ["sre", "release_manager"];

/// The names of the built-in roles.
pub(crate) const BUILT_IN_ROLES: [&str; 4] = ["dev", "sre", "release_manager", "product_owner"];

/// A compiled role: every definition of it, from the organisation down, must permit a call.
#[derive(Debug, Clone)]
pub struct Role {
    name: RoleName,
    definitions: Vec<CompiledDefinition>,
}

#[derive(Debug, Clone)]
struct CompiledDefinition {
    definition: RoleDefinition,
    paths: Option<Arc<PathGlobs>>,
}

impl Role {
    /// Joins the definitions of one role: each further definition can only narrow it.
    pub fn new(
        name: RoleName,
        definitions: Vec<RoleDefinition>,
    ) -> Result<Self, (SourceLocation, BadPattern)> {
        let mut compiled = Vec::new();
        for definition in definitions {
            let paths = match &definition.paths {
                Some(globs) => {
                    let globs = PathGlobs::new(globs, GlobPurpose::Permit, &definition.roots);
                    Some(Arc::new(globs.map_err(|bad| (definition.at.clone(), bad))?))
                }
                None => None,
            };
            compiled.push(CompiledDefinition { definition, paths });
        }
        Ok(Self { name, definitions: compiled })
    }

    /// The role of what the user starts personally: it permits every tool, path and effect.
    #[must_use]
    pub fn of_user() -> Self {
        let name = RoleName::new("user");
        let definition = RoleDefinition {
            name: name.clone(),
            at: SourceLocation::built_in(),
            tools: None,
            except: Vec::new(),
            paths: None,
            permits: None,
            roots: GlobRoots::default(),
        };
        Self { name, definitions: vec![CompiledDefinition { definition, paths: None }] }
    }

    /// The role's name.
    #[must_use]
    pub fn name(&self) -> &RoleName {
        &self.name
    }

    /// Whether the other role permits everything that this one permits for these tools. The privileged roles are never
    /// within another: they must be granted by name.
    #[must_use]
    pub(crate) fn is_within(&self, other: &Self, tools: &[Arc<ToolDescriptor>]) -> bool {
        if self.name == other.name {
            return true;
        }
        !PRIVILEGED_ROLES.contains(&self.name.as_str())
            && tools.iter().all(|tool| !self.offers(tool) || other.offers(tool))
            && other.definitions.iter().all(|outer| {
                self.definitions.iter().any(|inner| inner.definition.reaches_within(&outer.definition))
            })
    }

    fn offers(&self, tool: &ToolDescriptor) -> bool {
        !self.definitions.is_empty() && self.definitions.iter().all(|part| part.definition.offers(tool))
    }

    /// Judges a plan: everything that the role does not permit is denied.
    pub fn judge(&self, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        if self.definitions.is_empty() {
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
        for part in &self.definitions {
            self.judge_part(part, plan, verdict);
            if let Some(paths) = &part.paths {
                fence.meet(&Fence::inside(paths));
            }
        }
    }

    fn judge_part(&self, part: &CompiledDefinition, plan: &Plan, verdict: &mut Verdict) {
        if !part.definition.offers(&plan.tool) {
            let why = format!("may not use `{}`", plan.tool.name);
            verdict.deny(ErrorCode::PermissionDenied, self.reason(Some(part), &plan.tool.name, why));
            return;
        }
        for effect in &plan.effects {
            if part.definition.permits.as_ref().is_some_and(|permits| !permits.contains(&effect.kind())) {
                let why = format!("does not permit `{}`", effect.kind().as_str());
                verdict.deny(ErrorCode::PermissionDenied, self.reason(Some(part), effect, why));
            }
            // The fence narrows a walk; only a path that is named can be outside.
            if let (Some(paths), Effect::Path { path, extent: Extent::Single, .. }) = (&part.paths, effect)
                && !paths.matches(path)
            {
                let why = format!("permits only {}", paths.globs().join(", "));
                verdict.deny(ErrorCode::PermissionDenied, self.reason(Some(part), effect, why));
            }
        }
    }

    fn reason(
        &self,
        part: Option<&CompiledDefinition>,
        about: &dyn std::fmt::Display,
        why: String,
    ) -> Reason {
        Reason {
            layer: LayerKind::Role,
            rule: format!("role {}", self.name),
            at: part.map_or_else(SourceLocation::built_in, |part| part.definition.at.clone()),
            about: about.to_string(),
            why: format!("role `{}` {why}", self.name),
        }
    }
}

impl RoleDefinition {
    /// Whether the paths and kinds of effects are, compared as text, among those of the other definition.
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

    fn offers(&self, tool: &ToolDescriptor) -> bool {
        let named =
            self.tools.as_ref().is_none_or(|tools| tools.iter().any(|pattern| tool.matches_pattern(pattern)));
        named && !self.except.iter().any(|pattern| tool.matches_pattern(pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str) -> Role {
        Role::new(RoleName::new(name), vec![built_in_role(name, &GlobRoots::plain()).unwrap()]).unwrap()
    }

    // T5
    #[test]
    fn narrower_role_is_within_a_wider_one() {
        let tools = crate::policy::fixtures::tools();
        let within = |inner: &str, outer: &str| role(inner).is_within(&role(outer), &tools);
        assert!(within("product_owner", "dev"));
        assert!(within("dev", "dev"));
        assert!(within("dev", "sre"));
        assert!(!within("sre", "dev"));
        assert!(!within("release_manager", "dev"));
        assert!(!within("dev", "product_owner"));
    }
}
