//! What is wrong with a rule, and where.

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{why}", if rule.is_empty() { String::new() } else { format!("rule `{rule}`: ") })]
pub struct RuleFault {
    /// The file.
    pub file: String,
    /// The line in it.
    pub line: usize,
    /// The rule's id, where there is one.
    pub rule: String,
    /// What is wrong.
    pub why: String,
}
