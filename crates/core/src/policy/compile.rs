//! Compiles a configuration into a policy: the rules of each file become a layer, and the caller's role is chosen and
//! joined from its definitions. A configuration that does not compile is an error with its location; without a policy
//! no call runs.

use std::sync::Arc;

use super::rule_cases::{CaseResult, check_cases};
use super::{FileChangePolicy, NetworkLayer, Policy, RoleName};
use crate::blocked_paths::BadPattern;
use crate::config::{ConfigSource, EffectiveConfig, Profile, RoleSettings, RuleSettings, ValueOrigin};
use crate::digest::Digest;
use crate::effect::EffectKind;

use crate::glob::GlobRoots;
use crate::network::{BadNetworkRule, NetworkFence};
use crate::role::{BUILT_IN_ROLES, Role, RoleDefinition, built_in_role};
use crate::rule::{Rule, RuleTable};
use crate::skill::Skill;
use crate::tool::{ToolDescriptor, is_reserved};
use crate::verdict::{LayerKind, SourceLocation};

/// Why a configuration does not compile into a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// A glob does not compile.
    #[error("{0}: {1}")]
    Pattern(SourceLocation, BadPattern),
    /// A rule or role names a tool that does not exist.
    #[error("{at}: `{pattern}` matches no tool")]
    UnknownTool {
        /// Where it is written.
        at: SourceLocation,
        /// The name or pattern.
        pattern: String,
    },
    /// A test case of a rule fails.
    #[error("{at}: rule `{rule}` {fault}: `{case}`")]
    Case {
        /// Where the case is written.
        at: SourceLocation,
        /// The rule.
        rule: String,
        /// Why it fails.
        fault: &'static str,
        /// The case.
        case: String,
    },
}

impl Policy {
    /// Compiles the effective settings for a caller that asks for a role, or gets the default one.
    pub fn compile(
        settings: &EffectiveConfig,
        asked_role: Option<&str>,
        skill: Option<Skill>,
        tools: &[Arc<ToolDescriptor>],
    ) -> Result<Self, Vec<BadPolicy>> {
        let mut errors = Vec::new();
        let layers = [LayerKind::Organisation, LayerKind::User, LayerKind::Project];
        let mut rules = Vec::new();
        for layer in layers {
            let written = settings.rules.iter().filter(|rule| layer_of(&rule.at) == Some(layer));
            match RuleTable::new(written.map(rule).collect(), &glob_roots(settings, Some(layer))) {
                Ok(table) => rules.push((layer, table)),
                Err((at, bad)) => errors.push(BadPolicy::Pattern(at, bad)),
            }
        }
        errors.extend(unknown_tools(settings, tools));
        errors.extend(check_cases(&settings.rules, tools).into_iter().filter_map(CaseResult::into_fault));
        let block = settings.block_list().map_err(|bad| BadPolicy::Pattern(SourceLocation::built_in(), bad));
        let role = choose_role(settings, asked_role, tools);
        let file_changes =
            FileChangePolicy::of(settings).map_err(|bad| BadPolicy::Pattern(SourceLocation::built_in(), bad));
        let network = NetworkLayer::of(settings).map_err(|(at, bad)| {
            let BadNetworkRule { text: pattern, why, .. } = bad;
            BadPolicy::Pattern(at, BadPattern { pattern, why })
        });
        let network = network.map_err(|error| errors.push(error)).unwrap_or_default();
        match (block, role, file_changes) {
            (Ok(block), Ok(role), Ok(file_changes)) if errors.is_empty() => {
                let revision = Digest::of(settings.revision().as_bytes());
                Ok(Self { block, rules, role, skill, network, file_changes, revision, damage: None })
            }
            (block, role, file_changes) => {
                errors.extend(block.err());
                errors.extend(role.err());
                errors.extend(file_changes.err());
                Err(errors)
            }
        }
    }
}

impl Policy {
    /// Compiles the policy for a program that the user starts personally. The block list and the rules hold; no role limits
    /// the user, and `hosts` are what the user chose, as the files narrow it.
    pub fn for_user(
        settings: &EffectiveConfig,
        hosts: NetworkFence,
        tools: &[Arc<ToolDescriptor>],
    ) -> Result<Self, Vec<BadPolicy>> {
        let policy = Self::compile(settings, None, None, tools)?;
        let (role, network) = (Ok(Role::of_user()), NetworkLayer::of_user(hosts));
        Ok(Self { role, network, file_changes: FileChangePolicy::of_user(), ..policy })
    }
}

/// Names in rules and roles that no tool has: such a rule would never apply.
fn unknown_tools(settings: &EffectiveConfig, tools: &[Arc<ToolDescriptor>]) -> Vec<BadPolicy> {
    let of_rules = settings.rules.iter().map(|rule| (&rule.at, &rule.tools));
    let roles = settings.roles.iter().flat_map(|layer| &layer.roles);
    let of_roles = roles.filter_map(|role| role.tools.as_ref().map(|tools| (&role.at, tools)));
    of_rules
        .chain(of_roles)
        .flat_map(|(at, patterns)| patterns.iter().map(move |pattern| (at, pattern)))
        .filter(|(_, pattern)| {
            !pattern.starts_with("group:")
                && !is_reserved(pattern)
                && !tools.iter().any(|tool| tool.matches_pattern(pattern))
        })
        .map(|(at, pattern)| BadPolicy::UnknownTool { at: site(at), pattern: pattern.clone() })
        .collect()
}

/// The role of a caller (T5). The caller may choose a role that a layer above the project names, or one that permits no
/// more than those; without a choice it gets the default. The inner error says why there is none.
fn choose_role(
    settings: &EffectiveConfig,
    asked: Option<&str>,
    tools: &[Arc<ToolDescriptor>],
) -> Result<Result<Role, String>, BadPolicy> {
    let default = settings.default_role.as_ref().map(|name| name.value.as_str());
    let Some(name) = asked.or(default) else {
        let why =
            "no role is configured, so there are no tools; `vambrace init` writes a configuration with one";
        return Ok(Err(why.to_owned()));
    };
    let role = match joined_role(settings, name)? {
        Some(role) => role,
        None => {
            let known =
                BUILT_IN_ROLES.iter().copied().chain(settings.roles.iter().flat_map(|layer| layer.names()));
            let near = crate::suggest::nearest(name, known).map(|near| format!("; did you mean `{near}`?"));
            return Ok(Err(format!("there is no role `{name}`{}", near.unwrap_or_default())));
        }
    };
    let above = settings.granted_roles();
    // The roles that the files above the project name are granted; if they name none, the default of the trusted
    // project is.
    let granted: Vec<&str> = if above.is_empty() {
        default.into_iter().collect()
    } else {
        above.iter().map(String::as_str).collect()
    };
    for grant in &granted {
        if *grant == name
            || joined_role(settings, grant)?.is_some_and(|granted| role.is_within(&granted, tools))
        {
            return Ok(Ok(role));
        }
    }
    let list = if granted.is_empty() { "none".to_owned() } else { granted.join(", ") };
    Ok(Err(format!("role `{name}` is not granted to this caller (granted: {list})")))
}

/// Joins all definitions of a role: the built-in one and those of the files.
fn joined_role(settings: &EffectiveConfig, name: &str) -> Result<Option<Role>, BadPolicy> {
    let declared = settings.roles.iter().flat_map(|layer| &layer.roles).filter(|role| role.name == name);
    let own = built_in_role(name, &glob_roots(settings, None));
    let declared = declared.map(|role| role_definition(role, glob_roots(settings, layer_of(&role.at))));
    let mut definitions: Vec<RoleDefinition> = own.into_iter().chain(declared).collect();
    if definitions.is_empty() {
        return Ok(None);
    }
    definitions.extend(profile_definition(settings, name));
    Role::new(RoleName::new(name), definitions).map(Some).map_err(|(at, bad)| BadPolicy::Pattern(at, bad))
}

/// What the profile leaves of a role. Like every further definition it only narrows.
fn profile_definition(settings: &EffectiveConfig, role: &str) -> Option<RoleDefinition> {
    const READERS: [&str; 9] = [
        "read_file",
        "list_files",
        "search_file",
        "count_matches",
        "group:knowledge",
        "git_status",
        "git_diff",
        "git_log",
        "git_show",
    ];
    let (tools, permits) = match settings.profile {
        Profile::Coding | Profile::Ci => return None,
        Profile::Readonly => (READERS.to_vec(), vec![EffectKind::Read]),
        Profile::Messaging => (
            READERS.into_iter().chain(["group:web", "group:memory"]).collect(),
            vec![EffectKind::Read, EffectKind::Connect, EffectKind::Secret],
        ),
    };
    let at = settings.get("profile").map_or_else(SourceLocation::built_in, |profile| site(&profile.at));
    Some(RoleDefinition {
        name: RoleName::new(role),
        at,
        tools: Some(tools.into_iter().map(str::to_owned).collect()),
        except: Vec::new(),
        paths: None,
        permits: Some(permits),
        roots: glob_roots(settings, None),
    })
}

fn role_definition(role: &RoleSettings, roots: GlobRoots) -> RoleDefinition {
    let permits = role
        .permits
        .as_ref()
        .map(|permits| permits.iter().filter_map(|permit| EffectKind::parse(permit.as_str())).collect());
    RoleDefinition {
        name: RoleName::new(&role.name),
        at: site(&role.at),
        tools: role.tools.clone(),
        except: Vec::new(),
        paths: role.paths.clone(),
        permits,
        roots,
    }
}

/// The roots that the globs of a layer are relative to. A layer above the file that sets the service root was written
/// without knowing it, so its globs stay relative to the project root. `None` stands for the built-in roles, whose globs
/// are relative to the service root.
#[must_use]
pub fn glob_roots(settings: &EffectiveConfig, layer: Option<LayerKind>) -> GlobRoots {
    let service_root = match settings.service_root.as_str() {
        "." => String::new(),
        root => root.to_owned(),
    };
    let setter = settings.get("workspace.service_root").and_then(|root| layer_of(&root.at));
    let seen = match (setter, layer) {
        (Some(setter), Some(layer)) if layer < setter => String::new(),
        _ => service_root.clone(),
    };
    GlobRoots { service_root, author_root: seen }
}

/// Converts a rule from its configuration form.
pub(super) fn rule(written: &RuleSettings) -> Rule {
    Rule {
        id: written.label(),
        at: site(&written.at),
        tools: written.tools.clone(),
        paths: written.paths.clone(),
        commands: written.commands.clone(),
        decision: written.decision,
        // An untrusted project must not put its own text into our messages.
        reason: written
            .reason
            .clone()
            .filter(|_| written.at.source() != Some(ConfigSource::Project { trusted: false })),
    }
}

pub(super) fn layer_of(at: &ValueOrigin) -> Option<LayerKind> {
    Some(match at.source()? {
        ConfigSource::Organisation => LayerKind::Organisation,
        ConfigSource::User => LayerKind::User,
        ConfigSource::Project { .. } => LayerKind::Project,
    })
}

/// The location in the form of explanations.
pub(super) fn site(at: &ValueOrigin) -> SourceLocation {
    match at {
        ValueOrigin::BuiltIn => SourceLocation::built_in(),
        ValueOrigin::File { file, line, .. } => {
            SourceLocation { file: file.to_string(), line: usize::try_from(*line).unwrap_or_default() }
        }
    }
}
