//! Permissions of a skill: an active skill narrows the policy to what its manifest declares; a manifest without
//! `permissions` permits nothing.

use std::sync::Arc;

use serde_json::Value;

use crate::blocked_paths::BadPattern;
use crate::effect::{Effect, Extent, PathAccess};
use crate::error::ErrorCode;
use crate::fence::{Fence, NameFence, PathFence};
use crate::glob::{GlobPurpose, GlobRoots, PathGlobs};
use crate::plan::Plan;
use crate::tool::{NamePolicy, ToolDescriptor};
use crate::verdict::{LayerKind, Reason, SourceLocation, Verdict};

/// The active skill.
#[derive(Debug, Clone)]
pub struct Skill {
    name: String,
    at: SourceLocation,
    permissions: Option<SkillPermissions>,
}

#[derive(Debug, Clone)]
struct SkillPermissions {
    tool_groups: Vec<String>,
    tools: Option<Vec<String>>,
    read: Arc<PathGlobs>,
    write: Arc<PathGlobs>,
    hosts: Vec<String>,
    secrets: Vec<String>,
}

/// Why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManifest {
    /// Not JSON, or not an object.
    #[error("{at}: the manifest is not a JSON object: {why}")]
    NotJson {
        /// The manifest file.
        at: SourceLocation,
        /// The parser's message.
        why: String,
    },
    /// A field has the wrong type.
    #[error("{at}: `{field}` must be {expected}")]
    Shape {
        /// The manifest file.
        at: SourceLocation,
        /// The field.
        field: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A glob does not compile.
    #[error("{0}: {1}")]
    Pattern(SourceLocation, BadPattern),
}

impl Skill {
    /// Reads `permissions` of a manifest (S1). Unknown keys are an error: an unknown key might be meant to narrow.
    pub fn from_manifest(
        name: &str,
        at: SourceLocation,
        manifest: &str,
        roots: &GlobRoots,
    ) -> Result<Self, BadManifest> {
        let shape =
            |field: &str, expected| BadManifest::Shape { at: at.clone(), field: field.to_owned(), expected };
        let value: Value = serde_json::from_str(manifest)
            .map_err(|error| BadManifest::NotJson { at: at.clone(), why: error.to_string() })?;
        let Value::Object(manifest) = value else {
            return Err(BadManifest::NotJson { at, why: "it is another JSON value".to_owned() });
        };
        let Some(permissions) = manifest.get("permissions") else {
            return Ok(Self { name: name.to_owned(), at, permissions: None });
        };
        let permissions = permissions.as_object().ok_or_else(|| shape("permissions", "an object"))?;
        const KNOWN: [&str; 6] = ["tool_groups", "tools", "fs", "net", "secrets", "execution_environment"];
        if let Some(unknown) = permissions.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return Err(shape(
                &format!("permissions.{unknown}"),
                "one of tool_groups, tools, fs, net, secrets, execution_environment",
            ));
        }
        let words = |value: Option<&Value>, field: &str| -> Result<Option<Vec<String>>, BadManifest> {
            let Some(value) = value else { return Ok(None) };
            let items = value.as_array().ok_or_else(|| shape(field, "a list of strings"))?;
            let words: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            words.map(Some).ok_or_else(|| shape(field, "a list of strings"))
        };
        let fs = permissions.get("fs");
        let globs = |key: &str| -> Result<Arc<PathGlobs>, BadManifest> {
            let globs =
                words(fs.and_then(|fs| fs.get(key)), &format!("permissions.fs.{key}"))?.unwrap_or_default();
            PathGlobs::new(globs, GlobPurpose::Permit, roots)
                .map(Arc::new)
                .map_err(|bad| BadManifest::Pattern(at.clone(), bad))
        };
        let mut hosts = Vec::new();
        for item in permissions.get("net").and_then(Value::as_array).into_iter().flatten() {
            let host = item.get("host").and_then(Value::as_str);
            hosts.push(host.ok_or_else(|| shape("permissions.net", "a list of {host, ports}"))?.to_owned());
        }
        let permissions = SkillPermissions {
            tool_groups: words(permissions.get("tool_groups"), "permissions.tool_groups")?
                .unwrap_or_default(),
            tools: words(permissions.get("tools"), "permissions.tools")?,
            read: globs("read")?,
            write: globs("write")?,
            hosts,
            secrets: words(permissions.get("secrets"), "permissions.secrets")?.unwrap_or_default(),
        };
        Ok(Self { name: name.to_owned(), at, permissions: Some(permissions) })
    }

    /// The skill's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Judges a plan: everything that the manifest does not declare is denied (S2, S3).
    pub fn judge(&self, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        let reason = |about: &dyn std::fmt::Display, why: String| Reason {
            layer: LayerKind::Skill,
            rule: format!("skill {}", self.name),
            at: self.at.clone(),
            about: about.to_string(),
            why: format!("skill `{}` {why}", self.name),
        };
        let Some(permissions) = &self.permissions else {
            let why = "declares no permissions, so it has no tools".to_owned();
            verdict.deny(ErrorCode::PermissionDenied, reason(&plan.tool.name, why));
            return;
        };
        if !permissions.offers(&plan.tool) {
            let why = format!("does not declare `{}`", plan.tool.name);
            verdict.deny(ErrorCode::PermissionDenied, reason(&plan.tool.name, why));
        }
        for effect in &plan.effects {
            if let Effect::Path { access, extent: Extent::Single, path } = effect {
                let globs = if *access == PathAccess::Read { &permissions.read } else { &permissions.write };
                if !globs.matches(path) {
                    verdict.deny(
                        ErrorCode::PermissionDenied,
                        reason(effect, "does not declare this path".to_owned()),
                    );
                }
            }
        }
        let declared = Fence {
            read: PathFence::only(Arc::clone(&permissions.read)),
            hard_links: PathFence::only(Arc::clone(&permissions.read)),
            write: PathFence::only(Arc::clone(&permissions.write)),
            hosts: NameFence::of(&NamePolicy::Only(permissions.hosts.clone())),
            secrets: NameFence::of(&NamePolicy::Only(permissions.secrets.clone())),
            ..Fence::default()
        };
        for effect in &plan.effects {
            let outside = match effect {
                Effect::Secret { scope } => !declared.secrets.admits(scope),
                effect => effect.host().is_some_and(|(host, _)| !declared.hosts.admits(host)),
            };
            if outside {
                verdict.deny(ErrorCode::PermissionDenied, reason(effect, "does not declare this".to_owned()));
            }
        }
        fence.meet(&declared);
    }
}

impl SkillPermissions {
    /// `tools` overrides the groups (S1).
    fn offers(&self, tool: &ToolDescriptor) -> bool {
        match &self.tools {
            Some(tools) => tools.iter().any(|pattern| tool.matches_pattern(pattern)),
            None => self.tool_groups.iter().any(|group| group == tool.group.as_str()),
        }
    }
}
