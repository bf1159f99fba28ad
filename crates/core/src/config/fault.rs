//! What is wrong with a file ([`ConfigError`]: the file does not count) and what was set aside while the
//! layers were combined ([`Note`]: the file counts, this value does not). Texts of a file that are quoted
//! in a message are made harmless for a terminal first.

use std::fmt;

use super::origin::Origin;

/// One fault of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// The file's name as it was handed in.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// The dotted path of the key; empty when the fault is not about a key.
    pub key: String,
    /// Lower case, one line, values in backticks.
    pub message: String,
    /// How to mend it; may be empty.
    pub hint: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A value that does not count, or an older spelling, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where the value was written.
    pub at: Origin,
    /// The dotted path of the key.
    pub key: String,
    /// Lower case, one line, values in backticks.
    pub message: String,
}

impl Note {
    /// A note about a key.
    pub fn new(at: &Origin, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at: at.clone(), key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.key, self.message)
    }
}

/// The longest text of a file that is quoted.
const QUOTED_CHARS: usize = 60;

/// A text of a file, fit for a message: control and invisible characters escaped, cut when long.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == QUOTED_CHARS {
            out.push('…');
            break;
        }
        if c == '\'' || c == '"' || c == '\\' {
            out.push(c);
        } else {
            out.extend(c.escape_debug());
        }
    }
    out
}

/// The name among `valid` that is nearest to `asked`, when one is near enough to be meant.
pub(crate) fn nearest<'a>(
    asked: &str,
    valid: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if asked.len() > QUOTED_CHARS {
        return None;
    }
    let asked = asked.to_lowercase();
    let words = |name: &str| {
        let mut words: Vec<_> = name.split(['_', '-', '.']).map(str::to_owned).collect();
        words.sort();
        words
    };
    valid
        .into_iter()
        .filter_map(|name| {
            let score = if words(name) == words(&asked) {
                0.99
            } else {
                let plain = strsim::normalized_damerau_levenshtein(&asked, name);
                let start = if asked.len() > 2 && (name.starts_with(&asked) || asked.starts_with(name)) {
                    0.75
                } else {
                    0.0
                };
                plain.max(start)
            };
            (score >= 0.55).then_some((score, name))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names_are_found() {
        let valid = ["read_bytes", "read_bytes_hard", "write_bytes", "regex_ms"];
        for (asked, expected) in [
            ("read_byts", Some("read_bytes")),
            ("READ_BYTES", Some("read_bytes")),
            ("bytes_read", Some("read_bytes")),
            ("read-bytes", Some("read_bytes")),
            ("regex", Some("regex_ms")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(asked, valid), expected, "{asked}");
        }
    }

    #[test]
    fn quoted_text_is_harmless_and_short() {
        assert_eq!(quoted("a\x1b[31m\n\u{202e}b"), "a\\u{1b}[31m\\n\\u{202e}b");
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), 61);
    }
}
