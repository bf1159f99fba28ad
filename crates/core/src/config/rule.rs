//! `approvals.rules`: rules for tools, paths and commands, with their test cases. Kept per file and in order;
//! [`crate::policy`] applies them.

use serde_json::{Value, json};

use super::key::ItemKind;
use super::origin::{Located, ValueOrigin};
use super::role::texts;
use super::yaml_tree::YamlNode;
use crate::rule::RuleDecision;

/// One rule of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSettings {
    /// A name for explanations.
    pub id: Option<String>,
    /// Tools, patterns with `*`, `group:NAME`; empty means any tool.
    pub tools: Vec<String>,
    /// Path globs; empty means any path, or none.
    pub paths: Vec<String>,
    /// First words of commands; empty means any command, or none.
    pub commands: Vec<String>,
    /// What it decides.
    pub decision: RuleDecision,
    /// The reason, shown to the approver or with the denial.
    pub reason: Option<String>,
    /// Calls that the rule must match.
    pub matches: Vec<Located<RuleCase>>,
    /// Calls that the rule must not match.
    pub not_matches: Vec<Located<RuleCase>>,
    /// Where it is written.
    pub at: ValueOrigin,
}

/// A call in short form: `read_file docs/a.md`, `execute_command git status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCase {
    /// The tool.
    pub tool: String,
    /// The path, or the words of the command.
    pub object: String,
}

impl RuleCase {
    /// Parses `TOOL OBJECT`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (tool, object) = text.trim().split_once(char::is_whitespace)?;
        Some(Self { tool: tool.to_owned(), object: object.trim().to_owned() })
    }

    /// The words of the object.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.object.split_whitespace()
    }
}

impl std::fmt::Display for RuleCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.tool, self.object)
    }
}

impl RuleSettings {
    /// The name, or the location if the rule has no name.
    #[must_use]
    pub fn label(&self) -> String {
        self.id.clone().unwrap_or_else(|| self.at.to_string())
    }

    pub(crate) fn read(node: &YamlNode, at: &dyn Fn(u32) -> ValueOrigin) -> Option<Self> {
        let text = |key: &str| node.get(key).and_then(YamlNode::text).map(str::to_owned);
        let cases = |key: &str| {
            let items = node.get(key).map(YamlNode::items).unwrap_or_default();
            items
                .iter()
                .filter_map(|item| Some(Located::new(RuleCase::parse(item.text()?)?, at(item.at.line))))
                .collect()
        };
        Some(Self {
            id: text("id"),
            tools: texts(node, "tools", ItemKind::Tool).unwrap_or_default(),
            paths: texts(node, "paths", ItemKind::Glob).unwrap_or_default(),
            commands: texts(node, "commands", ItemKind::Text).unwrap_or_default(),
            decision: decision(&text("decision")?)?,
            reason: text("reason"),
            matches: cases("match"),
            not_matches: cases("not_match"),
            at: at(node.at.line),
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        let cases = |cases: &[Located<RuleCase>]| {
            cases.iter().map(|case| Value::from(case.value.to_string())).collect::<Vec<_>>()
        };
        json!({
            "source": self.at.source().map(|source| source.as_str()),
            "id": self.id,
            "tools": self.tools,
            "paths": self.paths,
            "commands": self.commands,
            "decision": word(self.decision),
            "reason": self.reason,
            "match": cases(&self.matches),
            "not_match": cases(&self.not_matches),
        })
    }
}

fn decision(word: &str) -> Option<RuleDecision> {
    match word {
        "deny" => Some(RuleDecision::Deny),
        "ask" => Some(RuleDecision::Ask),
        "allow" => Some(RuleDecision::Allow),
        _ => None,
    }
}

fn word(decision: RuleDecision) -> &'static str {
    match decision {
        RuleDecision::Deny => "deny",
        RuleDecision::Ask => "ask",
        RuleDecision::Allow => "allow",
    }
}
