//! Tools, plans and rules for the policy tests.

use std::sync::Arc;

use proptest::prelude::*;

use super::Policy;
use crate::blocked_paths::BlockList;
use crate::digest::Digest;
use crate::effect::{Effect, Extent, PathAccess};
use crate::glob::GlobRoots;
use crate::id::{RoleName, ToolName};
use crate::path::AskedPath;
use crate::plan::Plan;
use crate::risk::{Risk, RiskLevel};
use crate::role::{Role, built_in_role};
use crate::rule::{Rule, RuleDecision, RuleTable};
use crate::skill::Skill;
use crate::tool::{FilesystemPolicy, NamePolicy, ToolDescriptor, ToolGroup, ToolPolicy};
use crate::verdict::{LayerKind, SourceLocation};

fn tool(
    name: &str,
    group: ToolGroup,
    filesystem: FilesystemPolicy,
    role: Option<&str>,
) -> Arc<ToolDescriptor> {
    Arc::new(ToolDescriptor {
        name: ToolName::new(name),
        aliases: Vec::new(),
        group,
        policy: ToolPolicy { network: NamePolicy::Deny, filesystem, secrets: NamePolicy::Deny },
        required_role: role.map(RoleName::new),
        risk: RiskLevel::Low,
        read_only: filesystem == FilesystemPolicy::Read,
    })
}

pub(crate) fn tools() -> Vec<Arc<ToolDescriptor>> {
    vec![
        tool("read_file", ToolGroup::Fs, FilesystemPolicy::Read, None),
        tool("list_files", ToolGroup::Fs, FilesystemPolicy::Read, None),
        tool("write_file", ToolGroup::Fs, FilesystemPolicy::ReadWrite, None),
        tool("execute_command", ToolGroup::Shell, FilesystemPolicy::ReadWrite, None),
        tool("git_push", ToolGroup::Git, FilesystemPolicy::Read, Some("release_manager")),
        tool("system_ctl", ToolGroup::System, FilesystemPolicy::Deny, Some("sre")),
    ]
}

pub(super) fn plan(tool: &Arc<ToolDescriptor>, effects: Vec<Effect>) -> Plan {
    Plan {
        tool: Arc::clone(tool),
        args: serde_json::json!({}),
        effects,
        content_digest: None,
        risk: Risk::low("a sample"),
        workspace_denial: None,
    }
}

pub(super) fn any_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["docs", "src", "a.md", "b.rs", ".env", "secrets", "plans", "x"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

pub(super) fn any_effect() -> impl Strategy<Value = Effect> {
    let access = prop::sample::select(vec![
        PathAccess::Read,
        PathAccess::Create,
        PathAccess::Modify,
        PathAccess::Delete,
    ]);
    let extent = prop::sample::select(vec![Extent::Single, Extent::Tree]);
    prop_oneof![
        6 => (access, extent, any_path(), any::<bool>()).prop_map(|(access, extent, path, shared)| {
            let asked = if shared { format!("project:{path}") } else { path };
            Effect::Path { access, extent, path: AskedPath::new(asked).parse().unwrap() }
        }),
        1 => prop::collection::vec(prop::sample::select(vec!["git", "status", "rm", "-rf", "ls"]), 1..4)
            .prop_map(|argv| Effect::Execute { argv: argv.into_iter().map(str::to_owned).collect() }),
        1 => Just(Effect::Connect { host: "example.com".to_owned(), port: 443 }),
        1 => Just(Effect::Secret { scope: "API_TOKEN".to_owned() }),
    ]
}

pub(super) fn any_plan() -> impl Strategy<Value = Plan> {
    (prop::sample::select(tools()), prop::collection::vec(any_effect(), 0..4))
        .prop_map(|(tool, effects)| plan(&tool, effects))
}

pub(super) fn any_rule() -> impl Strategy<Value = Rule> {
    let tools =
        prop::collection::vec(prop::sample::select(vec!["read_file", "group:fs", "*", "git_*"]), 0..2);
    let glob = prop::sample::select(vec!["docs/", "*.md", "src/**", "x", "project:docs/", "**/*.rs"]);
    let commands = prop::collection::vec(prop::sample::select(vec!["git", "git status", "rm *"]), 0..2);
    let decision = prop::sample::select(vec![RuleDecision::Allow, RuleDecision::Ask, RuleDecision::Deny]);
    (tools, prop::collection::vec(glob, 0..3), commands, decision, 1usize..90).prop_map(
        |(tools, paths, commands, decision, line)| Rule {
            id: format!("rule-{line}"),
            at: SourceLocation { file: "config.yaml".to_owned(), line },
            tools: tools.into_iter().map(str::to_owned).collect(),
            paths: paths.into_iter().map(str::to_owned).collect(),
            commands: commands.into_iter().map(str::to_owned).collect(),
            decision,
            reason: None,
        },
    )
}

pub(super) fn any_manifest() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        r#"{}"#,
        r#"{"permissions":{}}"#,
        r#"{"permissions":{"tool_groups":["fs"],"fs":{"read":["docs/"]}}}"#,
        r#"{"permissions":{"tools":["read_file"],"fs":{"read":["**"],"write":["src/"]}}}"#,
        r#"{"permissions":{"tool_groups":["fs","shell"],"fs":{"read":["**"],"write":["**"]},"secrets":["API_*"]}}"#,
    ])
    .prop_map(str::to_owned)
}

pub(super) fn skill(manifest: &str) -> Skill {
    Skill::from_manifest(
        "s",
        SourceLocation { file: "manifest.json".to_owned(), line: 0 },
        manifest,
        &GlobRoots::plain(),
    )
    .unwrap()
}

pub(super) fn policy(rules: [Vec<Rule>; 3], role: Option<&str>, manifest: Option<&str>) -> Policy {
    let [organisation, user, project] =
        rules.map(|rules| RuleTable::new(rules, &GlobRoots::plain()).unwrap());
    Policy {
        block: BlockList::with_defaults::<&str>(&[]).unwrap(),
        rules: vec![
            (LayerKind::Organisation, organisation),
            (LayerKind::User, user),
            (LayerKind::Project, project),
        ],
        role: role
            .map(|name| {
                Role::new(RoleName::new(name), built_in_role(name, &GlobRoots::plain()).into_iter().collect())
                    .unwrap()
            })
            .ok_or_else(|| "no role".to_owned()),
        skill: manifest.map(skill),
        network: super::NetworkLayer::default(),
        file_changes: super::FileChangePolicy::default(),
        revision: Digest::of(b"sample"),
        damage: None,
    }
}

pub(super) fn any_rules() -> impl Strategy<Value = [Vec<Rule>; 3]> {
    let rules = || prop::collection::vec(any_rule(), 0..6);
    (rules(), rules(), rules()).prop_map(|(organisation, user, project)| [organisation, user, project])
}

pub(super) fn any_role() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("dev"),
        Some("sre"),
        Some("release_manager"),
        Some("product_owner"),
        Some("unknown"),
    ])
}
