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
    harmless(text, QUOTED_CHARS)
}

/// A text with control and invisible characters escaped, cut at a number of characters.
pub(crate) fn harmless(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == most {
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
pub(crate) fn nearest<'a>(asked: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if asked.len() > QUOTED_CHARS { None } else { crate::near::nearest(asked, valid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_harmless_and_short() {
        assert_eq!(quoted("a\x1b[31m\n\u{202e}b"), "a\\u{1b}[31m\\n\\u{202e}b");
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), 61);
    }
}
