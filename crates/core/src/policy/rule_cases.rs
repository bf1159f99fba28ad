//! Test cases written next to rules: calls that a rule must match (`match`) or must not match (`not_match`). They are
//! checked whenever a policy is compiled; `vambrace policy test` reports each of them.

use std::sync::Arc;

use super::compile::{BadPolicy, rule, site};
use crate::config::{RuleCase, RuleSettings};
use crate::effect::{Effect, Extent, PathAccess};
use crate::glob::GlobRoots;
use crate::id::ToolName;
use crate::path::AskedPath;
use crate::plan::Plan;
use crate::risk::{Risk, RiskLevel};
use crate::rule::RuleTable;
use crate::tool::{FilesystemPolicy, NamePolicy, ToolDescriptor, ToolGroup, ToolPolicy};
use crate::verdict::SourceLocation;

/// Result of one test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The rule that the case belongs to.
    pub rule: String,
    /// Where the case is written.
    pub at: SourceLocation,
    /// The call, as written.
    pub case: String,
    /// Whether the rule must match it.
    pub must_match: bool,
    /// Why the case fails; `None` if it passes.
    pub fault: Option<&'static str>,
}

impl CaseResult {
    pub(super) fn into_fault(self) -> Option<BadPolicy> {
        let fault = self.fault?;
        Some(BadPolicy::Case { at: self.at, rule: self.rule, fault, case: self.case })
    }
}

/// Checks every case of every rule.
#[must_use]
pub fn check_cases(rules: &[RuleSettings], tools: &[Arc<ToolDescriptor>]) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for written in rules {
        // The policy compiler reports a rule that does not compile; its cases cannot be checked.
        let Ok(table) = RuleTable::new(vec![rule(written)], &GlobRoots::plain()) else { continue };
        let cases = written.matches.iter().map(|case| (true, case));
        for (must_match, case) in cases.chain(written.not_matches.iter().map(|case| (false, case))) {
            let fault = match plan(&case.value, tools) {
                None => Some("has a case that is not a call (a tool, then a path or a command)"),
                Some(plan) => match (must_match, table.applies_to(&plan)) {
                    (true, false) => Some("does not match its `match` case"),
                    (false, true) => Some("matches its `not_match` case"),
                    _ => None,
                },
            };
            let (rule, at, case) = (written.label(), site(&case.at), case.value.to_string());
            results.push(CaseResult { rule, at, case, must_match, fault });
        }
    }
    results
}

/// The plan of the call that a case describes.
fn plan(case: &RuleCase, tools: &[Arc<ToolDescriptor>]) -> Option<Plan> {
    let known = tools.iter().find(|tool| tool.matches_pattern(&case.tool));
    let tool = known.cloned().unwrap_or_else(|| Arc::new(placeholder_tool(&case.tool)));
    let runs =
        matches!(tool.group, ToolGroup::Shell | ToolGroup::Process | ToolGroup::Git | ToolGroup::System);
    let effect = if runs {
        Effect::Execute { argv: case.words().map(str::to_owned).collect() }
    } else {
        let access = if tool.read_only { PathAccess::Read } else { PathAccess::Modify };
        Effect::Path {
            access,
            extent: Extent::Single,
            path: AskedPath::new(case.object.as_str()).parse().ok()?,
        }
    };
    Some(Plan {
        tool,
        args: serde_json::Value::Null,
        effects: vec![effect],
        content_digest: None,
        risk: Risk::low("a case"),
        workspace_denial: None,
    })
}

/// Placeholder for a tool that a rule names and this version does not have.
fn placeholder_tool(name: &str) -> ToolDescriptor {
    let group = match name {
        "execute_command" | "shell_exec" | "run_test" | "run_lint" | "install_dependencies" => {
            ToolGroup::Shell
        }
        name if name.starts_with("git_") => ToolGroup::Git,
        name if name.starts_with("process_") => ToolGroup::Process,
        _ => ToolGroup::Fs,
    };
    ToolDescriptor {
        name: ToolName::new(name),
        aliases: Vec::new(),
        group,
        policy: ToolPolicy {
            network: NamePolicy::Deny,
            filesystem: FilesystemPolicy::ReadWrite,
            secrets: NamePolicy::Deny,
        },
        required_role: None,
        risk: RiskLevel::Medium,
        read_only: false,
    }
}
