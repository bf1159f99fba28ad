//! The error for a rule that cannot be used.

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{reason}", if rule.is_empty() { String::new() } else { format!("rule `{rule}`: ") })]
pub struct RuleError {
    /// The file.
    pub file: String,
    /// The line in the file, counted from one; 0 if unknown.
    pub line: usize,
    /// The rule's id; empty if there is none.
    pub rule: String,
    /// What is wrong.
    pub reason: String,
}
