//! Errors of a file ([`ConfigError`]: the file is not used) and notes from combining the layers ([`ConfigNote`]: the file
//! is used, this value is not). Text of a file is escaped for a terminal before a message quotes it.

use std::fmt;

use super::origin::ValueOrigin;

/// One error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// The file's name, as passed by the caller.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// The dotted path of the key; empty if the error is not about a key.
    pub key: String,
    /// Lower case, one line, values in backticks.
    pub message: String,
    /// How to fix it; may be empty.
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

/// A value that is ignored, or an older layout, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigNote {
    /// The origin of the value.
    pub at: ValueOrigin,
    /// The dotted path of the key.
    pub key: String,
    /// Lower case, one line, values in backticks.
    pub message: String,
}

impl ConfigNote {
    /// A note about a key.
    pub fn new(at: &ValueOrigin, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at: at.clone(), key: key.into(), message: message.into() }
    }
}

impl fmt::Display for ConfigNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.key, self.message)
    }
}

/// Maximum length of quoted text of a file, in characters.
const QUOTED_CHARS: usize = 60;

/// Text of a file for a message: control and invisible characters escaped, cut at [`QUOTED_CHARS`].
pub(crate) fn quoted(text: &str) -> String {
    escaped(text, QUOTED_CHARS)
}

/// Escapes control and invisible characters, and cuts the text after `max_chars` characters.
pub(crate) fn escaped(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == max_chars {
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

/// The valid name that is closest to `asked`, if it is close enough to be a plausible typo.
pub(crate) fn nearest<'a>(asked: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if asked.len() > QUOTED_CHARS { None } else { crate::suggest::nearest(asked, valid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_escaped_and_cut() {
        assert_eq!(quoted("a\x1b[31m\n\u{202e}b"), "a\\u{1b}[31m\\n\\u{202e}b");
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), 61);
    }
}
