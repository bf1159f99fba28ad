//! The logs that a witness signs for: origins, each with its log keys (more than one while a log rotates its key). Logs that
//! are not listed get no signature.

use std::collections::BTreeMap;

use vambrace_ledger::{KeyKind, VerifyKey};

/// Origins and their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownLogs(BTreeMap<String, Vec<VerifyKey>>);

/// An invalid line of a log list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLogList {
    /// Line number, counted from one.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl KnownLogs {
    /// Parses one log per line: its verifier key, and its origin where that is not the key's name. Empty lines and lines that
    /// start with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self, BadLogList> {
        let mut logs = Self::default();
        for (line, words) in (1..).zip(text.lines()) {
            let words = words.trim();
            if !words.is_empty() && !words.starts_with('#') {
                logs.add(words).map_err(|why| BadLogList { line, why })?;
            }
        }
        Ok(logs)
    }

    /// Adds one log: `VKEY` or `VKEY ORIGIN`.
    pub fn add(&mut self, words: &str) -> Result<(), String> {
        let (key, origin) = words.split_once(' ').map_or((words, None), |(key, origin)| (key, Some(origin)));
        let key: VerifyKey = key.parse().map_err(|bad| format!("`{key}`: {bad}"))?;
        if key.kind() != KeyKind::Log {
            return Err(format!("`{key}` is the key of a witness, not of a log"));
        }
        let keys = self.0.entry(origin.unwrap_or(key.name()).trim().to_owned()).or_default();
        if !keys.contains(&key) {
            keys.push(key);
        }
        Ok(())
    }

    /// Adds the logs of another list.
    pub fn merge(&mut self, other: Self) {
        for (origin, keys) in other.0 {
            let known = self.0.entry(origin).or_default();
            keys.into_iter().for_each(|key| {
                if !known.contains(&key) {
                    known.push(key);
                }
            });
        }
    }

    /// The number of origins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The origins and their keys.
    pub(crate) fn into_origins(self) -> impl Iterator<Item = (String, Vec<VerifyKey>)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFA: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    #[test]
    fn log_list_is_parsed() {
        let logs = KnownLogs::parse(&format!("# ours\n\n{SOFA}\n{SOFA} another origin\n{SOFA}\n")).unwrap();
        let found: Vec<(String, usize)> =
            logs.into_origins().map(|(origin, keys)| (origin, keys.len())).collect();
        assert_eq!(found, [("PeterNeumann".to_owned(), 1), ("another origin".to_owned(), 1)]);
    }

    #[test]
    fn invalid_line_is_reported_with_its_number() {
        let bad = KnownLogs::parse(&format!("{SOFA}\n{}\n", SOFA.replace("c74f", "c74e"))).unwrap_err();
        assert_eq!(bad.line, 2);
        let witness = vambrace_ledger::SigningKey::new("w", KeyKind::Witness, &[1; 32]).unwrap();
        assert!(KnownLogs::parse(&witness.verify_key().to_string()).unwrap_err().why.contains("witness"));
    }
}
