//! `approvals.rules`: rules per tool, path and command, with the cases that prove them. Kept per file and in
//! order; what they mean is the policy's to say.

use serde_json::{Value, json};

use super::key::Item;
use super::origin::{Origin, Sited};
use super::role::texts;
use super::tree::Node;
use crate::rule::Decision;

/// One rule of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A name for explanations.
    pub id: Option<String>,
    /// Tools, patterns with `*`, `group:NAME`; empty: any tool.
    pub tools: Vec<String>,
    /// Globs over paths; empty: any path, or none.
    pub paths: Vec<String>,
    /// Commands by their first words; empty: any command, or none.
    pub commands: Vec<String>,
    /// What it decides.
    pub decision: Decision,
    /// Told to whoever is asked or refused.
    pub reason: Option<String>,
    /// Calls that the rule must meet.
    pub matches: Vec<Sited<Case>>,
    /// Calls that the rule must not meet.
    pub not_matches: Vec<Sited<Case>>,
    /// Where it is written.
    pub at: Origin,
}

/// A call in short: `read_file docs/a.md`, `execute_command git status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The tool.
    pub tool: String,
    /// The path, or the words of the command.
    pub object: String,
}

impl Case {
    /// Reads `TOOL OBJECT`.
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

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.tool, self.object)
    }
}

impl Rule {
    /// The name, or the place where a rule has none.
    #[must_use]
    pub fn label(&self) -> String {
        self.id.clone().unwrap_or_else(|| self.at.to_string())
    }

    pub(crate) fn read(node: &Node, at: &dyn Fn(u32) -> Origin) -> Option<Self> {
        let text = |key: &str| node.get(key).and_then(Node::text).map(str::to_owned);
        let cases = |key: &str| {
            let items = node.get(key).map(Node::items).unwrap_or_default();
            items
                .iter()
                .filter_map(|item| Some(Sited::new(Case::parse(item.text()?)?, at(item.at.line))))
                .collect()
        };
        Some(Self {
            id: text("id"),
            tools: texts(node, "tools", Item::Tool).unwrap_or_default(),
            paths: texts(node, "paths", Item::Glob).unwrap_or_default(),
            commands: texts(node, "commands", Item::Text).unwrap_or_default(),
            decision: decision(&text("decision")?)?,
            reason: text("reason"),
            matches: cases("match"),
            not_matches: cases("not_match"),
            at: at(node.at.line),
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        let cases = |cases: &[Sited<Case>]| {
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

fn decision(word: &str) -> Option<Decision> {
    match word {
        "deny" => Some(Decision::Deny),
        "ask" => Some(Decision::Ask),
        "allow" => Some(Decision::Allow),
        _ => None,
    }
}

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Deny => "deny",
        Decision::Ask => "ask",
        Decision::Allow => "allow",
    }
}
