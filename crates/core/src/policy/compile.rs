//! From configuration to policy: the rules of each file become a layer, the caller's role is chosen and joined from
//! its definitions. What cannot be compiled is an error with its place; there is no policy then, and no call.

use std::sync::Arc;

use super::cases::{CaseResult, check_cases};
use super::{NetworkLayer, Policy, RoleName, Writing};
use crate::block::BadPattern;
use crate::config::{Effective, Origin, Role as DeclaredRole, Rule as WrittenRule, Source};
use crate::digest::Digest;
use crate::effect::EffectKind;
use crate::glob::Ground;
use crate::network::BadRule;
use crate::role::{BUILT_IN, Role, RoleWords, built_in};
use crate::rule::{Rule, RuleTable};
use crate::skill::Skill;
use crate::tool::ToolFacts;
use crate::verdict::{LayerKind, Site};

/// A configuration that makes no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// A glob does not compile.
    #[error("{0}: {1}")]
    Pattern(Site, BadPattern),
    /// A rule's own case does not hold.
    #[error("{at}: rule `{rule}` {fault}: `{case}`")]
    Case {
        /// Where the case is written.
        at: Site,
        /// The rule.
        rule: String,
        /// What is wrong.
        fault: &'static str,
        /// The case.
        case: String,
    },
}

impl Policy {
    /// Compiles the settings in force for a caller that asks for a role, or takes the default one.
    pub fn compile(
        settings: &Effective,
        asked_role: Option<&str>,
        skill: Option<Skill>,
        tools: &[Arc<ToolFacts>],
    ) -> Result<Self, Vec<BadPolicy>> {
        let mut faults = Vec::new();
        let layers = [LayerKind::Organisation, LayerKind::User, LayerKind::Project];
        let mut rules = Vec::new();
        for layer in layers {
            let written = settings.rules.iter().filter(|rule| layer_of(&rule.at) == Some(layer));
            match RuleTable::new(written.map(rule).collect(), &ground(settings, Some(layer))) {
                Ok(table) => rules.push((layer, table)),
                Err((at, bad)) => faults.push(BadPolicy::Pattern(at, bad)),
            }
        }
        faults.extend(check_cases(&settings.rules, tools).into_iter().filter_map(CaseResult::into_fault));
        let block = settings.block_list().map_err(|bad| BadPolicy::Pattern(Site::built_in(), bad));
        let role = choose_role(settings, asked_role, tools);
        let writing = Writing::of(settings).map_err(|bad| BadPolicy::Pattern(Site::built_in(), bad));
        let network = NetworkLayer::of(settings).map_err(|(at, bad)| {
            let BadRule { text: pattern, why, .. } = bad;
            BadPolicy::Pattern(at, BadPattern { pattern, why })
        });
        let network = network.map_err(|fault| faults.push(fault)).unwrap_or_default();
        match (block, role, writing) {
            (Ok(block), Ok(role), Ok(writing)) if faults.is_empty() => {
                let revision = Digest::of(settings.revision().as_bytes());
                Ok(Self { block, rules, role, skill, network, writing, revision, damage: None })
            }
            (block, role, writing) => {
                faults.extend(block.err());
                faults.extend(role.err());
                faults.extend(writing.err());
                Err(faults)
            }
        }
    }
}

/// The role of a caller (T5). It may choose among the roles named above the project, or one that reaches no further
/// than those; without a choice it gets the default. The inner error says why there is none.
fn choose_role(
    settings: &Effective,
    asked: Option<&str>,
    tools: &[Arc<ToolFacts>],
) -> Result<Result<Role, String>, BadPolicy> {
    let default = settings.default_role.as_ref().map(|name| name.value.as_str());
    let Some(name) = asked.or(default) else {
        let why =
            "no role is configured, so there are no tools; `vambrace init` writes a configuration with one";
        return Ok(Err(why.to_owned()));
    };
    let role = match defined(settings, name)? {
        Some(role) => role,
        None => {
            let known = BUILT_IN.iter().copied().chain(settings.roles.iter().flat_map(|layer| layer.names()));
            let near = crate::near::nearest(name, known).map(|near| format!("; did you mean `{near}`?"));
            return Ok(Err(format!("there is no role `{name}`{}", near.unwrap_or_default())));
        }
    };
    let above = settings.granted_roles();
    // What the files above the project name is granted; where they name nothing, the trusted project's default is.
    let granted: Vec<&str> = if above.is_empty() {
        default.into_iter().collect()
    } else {
        above.iter().map(String::as_str).collect()
    };
    for grant in &granted {
        if *grant == name || defined(settings, grant)?.is_some_and(|granted| role.is_within(&granted, tools))
        {
            return Ok(Ok(role));
        }
    }
    let list = if granted.is_empty() { "none".to_owned() } else { granted.join(", ") };
    Ok(Err(format!("role `{name}` is not granted to this caller (granted: {list})")))
}

/// Every definition of a role joined: the built-in one and each file's.
fn defined(settings: &Effective, name: &str) -> Result<Option<Role>, BadPolicy> {
    let declared = settings.roles.iter().flat_map(|layer| &layer.roles).filter(|role| role.name == name);
    let own = built_in(name, &ground(settings, None));
    let declared = declared.map(|role| role_words(role, ground(settings, layer_of(&role.at))));
    let words: Vec<RoleWords> = own.into_iter().chain(declared).collect();
    if words.is_empty() {
        return Ok(None);
    }
    Role::new(RoleName::new(name), words).map(Some).map_err(|(at, bad)| BadPolicy::Pattern(at, bad))
}

fn role_words(role: &DeclaredRole, ground: Ground) -> RoleWords {
    let permits = role
        .permits
        .as_ref()
        .map(|permits| permits.iter().filter_map(|permit| EffectKind::parse(permit.as_str())).collect());
    RoleWords {
        name: RoleName::new(&role.name),
        at: site(&role.at),
        tools: role.tools.clone(),
        except: Vec::new(),
        paths: role.paths.clone(),
        permits,
        ground,
    }
}

/// What the globs of a layer stand on. Whoever stands above the file that set the service root did not see it; nobody's
/// layer (`None`) is that of the built-in roles, which are meant for the service.
#[must_use]
pub fn ground(settings: &Effective, layer: Option<LayerKind>) -> Ground {
    let service_root = match settings.service_root.as_str() {
        "." => String::new(),
        root => root.to_owned(),
    };
    let setter = settings.get("workspace.service_root").and_then(|root| layer_of(&root.at));
    let seen = match (setter, layer) {
        (Some(setter), Some(layer)) if layer < setter => String::new(),
        _ => service_root.clone(),
    };
    Ground { service_root, seen }
}

/// A rule as the table wants it.
pub(super) fn rule(written: &WrittenRule) -> Rule {
    Rule {
        id: written.label(),
        at: site(&written.at),
        tools: written.tools.clone(),
        paths: written.paths.clone(),
        commands: written.commands.clone(),
        decision: written.decision,
        // The words of a project that nobody trusts are not passed on in ours.
        reason: written
            .reason
            .clone()
            .filter(|_| written.at.source() != Some(Source::Project { trusted: false })),
    }
}

pub(super) fn layer_of(at: &Origin) -> Option<LayerKind> {
    Some(match at.source()? {
        Source::Organisation => LayerKind::Organisation,
        Source::User => LayerKind::User,
        Source::Project { .. } => LayerKind::Project,
    })
}

/// The place as explanations tell it.
pub(super) fn site(at: &Origin) -> Site {
    match at {
        Origin::BuiltIn => Site::built_in(),
        Origin::File { file, line, .. } => {
            Site { file: file.to_string(), line: usize::try_from(*line).unwrap_or_default() }
        }
    }
}
