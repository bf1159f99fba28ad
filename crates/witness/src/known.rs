//! The logs that a witness signs for: their origins, each with the keys that it may sign with (more than one
//! while a log changes its key). What is not listed gets no signature.

use std::collections::BTreeMap;

use vambrace_ledger::{KeyKind, VerifyKey};

/// Origins and their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownLogs(BTreeMap<String, Vec<VerifyKey>>);

/// A line that names no log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLogs {
    /// Counted from one.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl KnownLogs {
    /// Reads one log a line: its verifier key, and its origin where that is not the key's name. Empty lines and
    /// lines that begin with `#` are passed over.
    pub fn parse(text: &str) -> Result<Self, BadLogs> {
        let mut logs = Self::default();
        for (line, words) in (1..).zip(text.lines()) {
            let words = words.trim();
            if !words.is_empty() && !words.starts_with('#') {
                logs.add(words).map_err(|why| BadLogs { line, why })?;
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
    pub fn join(&mut self, other: Self) {
        for (origin, keys) in other.0 {
            let known = self.0.entry(origin).or_default();
            keys.into_iter().for_each(|key| {
                if !known.contains(&key) {
                    known.push(key);
                }
            });
        }
    }

    /// How many origins there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
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
    fn a_list_of_logs_reads() {
        let logs = KnownLogs::parse(&format!("# ours\n\n{SOFA}\n{SOFA} another origin\n{SOFA}\n")).unwrap();
        let found: Vec<(String, usize)> =
            logs.into_origins().map(|(origin, keys)| (origin, keys.len())).collect();
        assert_eq!(found, [("PeterNeumann".to_owned(), 1), ("another origin".to_owned(), 1)]);
    }

    #[test]
    fn a_line_that_is_no_log_is_told_with_its_place() {
        let bad = KnownLogs::parse(&format!("{SOFA}\n{}\n", SOFA.replace("c74f", "c74e"))).unwrap_err();
        assert_eq!(bad.line, 2);
        let witness = vambrace_ledger::SigningKey::new("w", KeyKind::Witness, &[1; 32]).unwrap();
        assert!(KnownLogs::parse(&witness.verify_key().to_string()).unwrap_err().why.contains("witness"));
    }
}
