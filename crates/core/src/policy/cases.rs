//! Cases written beside the rules: calls that a rule must meet (`match`) or must not (`not_match`). Checked whenever a
//! policy is compiled, and told one by one by `vambrace policy test`.

use std::sync::Arc;

use super::compile::{BadPolicy, rule, site};
use crate::config::{Case, Rule as WrittenRule};
use crate::effect::{Access, Effect, Extent};
use crate::glob::Ground;
use crate::id::ToolName;
use crate::path::AskedPath;
use crate::plan::Plan;
use crate::risk::{Level, Risk};
use crate::rule::RuleTable;
use crate::tool::{FilesystemPolicy, Group, NamePolicy, ToolFacts, ToolPolicy};
use crate::verdict::Site;

/// How one case came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The rule it belongs to.
    pub rule: String,
    /// Where it is written.
    pub at: Site,
    /// The call in short.
    pub case: String,
    /// Whether the rule must meet it.
    pub must_match: bool,
    /// What is wrong with it, if something is.
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
pub fn check_cases(rules: &[WrittenRule], tools: &[Arc<ToolFacts>]) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for written in rules {
        // A rule that does not compile is told by the compiler; its cases say nothing then.
        let Ok(table) = RuleTable::new(vec![rule(written)], &Ground::plain()) else { continue };
        let cases = written.matches.iter().map(|case| (true, case));
        for (must_match, case) in cases.chain(written.not_matches.iter().map(|case| (false, case))) {
            let fault = match plan(&case.value, tools) {
                None => Some("has a case that is not a call (a tool, then a path or a command)"),
                Some(plan) => match (must_match, table.meets(&plan)) {
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

/// The plan that a case stands for.
fn plan(case: &Case, tools: &[Arc<ToolFacts>]) -> Option<Plan> {
    let known = tools.iter().find(|tool| tool.is_meant_by(&case.tool));
    let tool = known.cloned().unwrap_or_else(|| Arc::new(stand_in(&case.tool)));
    let runs = matches!(tool.group, Group::Shell | Group::Process | Group::Git | Group::System);
    let effect = if runs {
        Effect::Execute { argv: case.words().map(str::to_owned).collect() }
    } else {
        let access = if tool.read_only { Access::Read } else { Access::Modify };
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
        binds: None,
        risk: Risk::low("a case"),
        refused: None,
    })
}

/// A tool that a rule speaks about and this program does not have (yet).
fn stand_in(name: &str) -> ToolFacts {
    let group = match name {
        "execute_command" | "shell_exec" | "run_test" | "run_lint" | "install_dependencies" => Group::Shell,
        name if name.starts_with("git_") => Group::Git,
        name if name.starts_with("process_") => Group::Process,
        _ => Group::Fs,
    };
    ToolFacts {
        name: ToolName::new(name),
        aliases: &[],
        group,
        policy: ToolPolicy {
            network: NamePolicy::Deny,
            filesystem: FilesystemPolicy::ReadWrite,
            secrets: NamePolicy::Deny,
        },
        required_role: None,
        risk: Level::Medium,
        read_only: false,
    }
}
