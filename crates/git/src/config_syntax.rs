//! Parses git's configuration syntax as git 2.39 and newer do.
//!
//! **Invariant.** What this parser accepts has the same keys for git. A NUL byte, which would cut a key short in git's C
//! strings, is an error; so is everything that git rejects. Keys that git would see and this parser would not are the danger;
//! a file that git accepts and this parser rejects is not, because nothing runs on it.

use crate::config_key::GitConfigKey;

/// Maximum size of a configuration file, in bytes.
pub(crate) const MAX_CONFIG_BYTES: usize = 1 << 20;
/// Maximum number of settings in a file.
const MAX_ENTRIES: usize = 20_000;

/// One setting of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitConfigEntry {
    /// The key.
    pub key: GitConfigKey,
    /// The value; `None` for a variable without `=`, which git takes as true.
    pub value: Option<Vec<u8>>,
}

/// A configuration file that git would reject, or that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not valid git configuration")]
pub struct GitConfigSyntaxError {
    /// The line, counted from 1.
    pub line: usize,
}

/// The settings of a configuration file, in order.
pub fn parse_git_config(bytes: &[u8]) -> Result<Vec<GitConfigEntry>, GitConfigSyntaxError> {
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(GitConfigSyntaxError { line: 0 });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut parser = ConfigParser { rest: bytes.iter(), line: 1, at_end: false, stem: Vec::new() };
    let mut entries = Vec::new();
    match parser.entries(&mut entries) {
        Some(()) => Ok(entries),
        None => Err(GitConfigSyntaxError { line: parser.line }),
    }
}

/// Quotes a value so that the parser returns exactly these bytes.
pub(crate) fn quote_config_value(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in value {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            byte => out.push(*byte),
        }
    }
    out.push(b'"');
}

struct ConfigParser<'b> {
    rest: std::slice::Iter<'b, u8>,
    line: usize,
    at_end: bool,
    /// The section, as the beginning of full keys.
    stem: Vec<u8>,
}

impl ConfigParser<'_> {
    /// The next byte; a line ends with `\n`, also before the end of the file. `None` for a NUL byte.
    fn next(&mut self) -> Option<u8> {
        match self.rest.next() {
            None => {
                self.at_end = true;
                Some(b'\n')
            }
            Some(b'\r') if self.rest.as_slice().first() == Some(&b'\n') => self.next(),
            Some(b'\n') => {
                self.line += 1;
                Some(b'\n')
            }
            Some(0) => None,
            Some(byte) => Some(*byte),
        }
    }

    fn entries(&mut self, entries: &mut Vec<GitConfigEntry>) -> Option<()> {
        loop {
            match self.next()? {
                b'\n' if self.at_end => return Some(()),
                byte if is_blank(byte) => {}
                b'#' | b';' => {
                    while self.next()? != b'\n' {}
                    if self.at_end {
                        return Some(());
                    }
                }
                b'[' => self.section()?,
                byte if byte.is_ascii_alphabetic() => {
                    let entry = self.entry(byte)?;
                    if entries.len() == MAX_ENTRIES {
                        return None;
                    }
                    entries.extend(entry);
                }
                _ => return None,
            }
        }
    }

    /// `[section]`, `[section.subsection]` or `[section "subsection"]`, after the opening bracket.
    fn section(&mut self) -> Option<()> {
        self.stem.clear();
        loop {
            match self.next()? {
                _ if self.at_end => return None,
                b']' => break,
                byte if is_blank(byte) => {
                    self.quoted_subsection(byte)?;
                    break;
                }
                byte if is_key_byte(byte) || byte == b'.' => self.stem.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
        if self.stem.is_empty() {
            return None;
        }
        self.stem.push(b'.');
        Some(())
    }

    fn quoted_subsection(&mut self, mut byte: u8) -> Option<()> {
        while is_blank(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.next()?;
        }
        if byte != b'"' {
            return None;
        }
        self.stem.push(b'.');
        loop {
            let byte = match self.next()? {
                b'"' => break,
                b'\\' => self.next()?,
                byte => byte,
            };
            if byte == b'\n' {
                return None;
            }
            self.stem.push(byte);
        }
        (self.next()? == b']').then_some(())
    }

    /// A variable with its first letter already read. Inner `None`: a key without a section.
    fn entry(&mut self, first: u8) -> Option<Option<GitConfigEntry>> {
        let mut full = self.stem.clone();
        full.push(first);
        let mut byte = self.next()?;
        while !self.at_end && is_key_byte(byte) {
            full.push(byte);
            byte = self.next()?;
        }
        while matches!(byte, b' ' | b'\t') {
            byte = self.next()?;
        }
        let value = match byte {
            b'\n' => None,
            b'=' => Some(self.value()?),
            _ => return None,
        };
        // The end of the file is read again by `entries`.
        Some(GitConfigKey::from_full(&full).map(|key| GitConfigEntry { key, value }))
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let (mut quote, mut trimmed) = (false, 0);
        loop {
            match self.next()? {
                b'\n' if quote => return None,
                b'\n' => break,
                byte if is_blank(byte) && !quote => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b';' | b'#' if !quote => {
                    while self.next()? != b'\n' {}
                    break;
                }
                b'\\' => match self.next()? {
                    b'\n' => {}
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    byte @ (b'\\' | b'"') => value.push(byte),
                    _ => return None,
                },
                b'"' => quote = !quote,
                byte => value.push(byte),
            }
            trimmed = value.len();
        }
        value.truncate(trimmed);
        Some(value)
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &[u8]) -> Result<Vec<String>, usize> {
        let entries = parse_git_config(text).map_err(|error| error.line)?;
        let value = |value: &Option<Vec<u8>>| {
            value.as_ref().map_or(String::new(), |value| format!("={}", value.escape_ascii()))
        };
        Ok(entries.iter().map(|entry| format!("{}{}", entry.key, value(&entry.value))).collect())
    }

    #[test]
    fn settings_have_the_keys_and_values_that_git_sees() {
        let check = |text: &str, expected: &[&str]| assert_eq!(shown(text.as_bytes()).unwrap(), expected);
        check("[core]\n\tbare = false\n", &["core.bare=false"]);
        check("[Core] HooksPath = x", &["core.hookspath=x"]);
        check("[Filter.Evil]\nClean=a b", &["filter.evil.clean=a b"]);
        check("[filter \"Ev\\\"il]\"]\nclean = 'a' \"# b\" # c", &["\"filter.Ev\\\"il].clean\"=\\'a\\' # b"]);
        check("[a]\r\nb\r\nc=1\\\r\n2\r\n", &["a.b", "a.c=12"]);
        check("\u{feff}[a]b=\"\"", &["a.b="]);
        check("[a] # c\n;d\nb = x\\n\\t \\\"y", &["a.b=x\\n\\t \\\"y"]);
        check("nosection = 1\n[a]b", &["a.b"]);
    }

    #[test]
    fn broken_files_and_nul_bytes_are_rejected() {
        for (text, line) in [
            (&b"[core"[..], 1),
            (b"[]", 1),
            (b"[a]\n1b", 2),
            (b"[a]b=\"x", 1),
            (b"[a]b=\\x", 1),
            (b"[filter \"evil.clean\0\"]\na = touch x", 1),
            (b"[a \"b\nc\"]", 2),
            (b"[a]b c", 1),
        ] {
            assert_eq!(shown(text), Err(line), "{}", text.escape_ascii());
        }
        assert!(parse_git_config(&vec![b'#'; MAX_CONFIG_BYTES + 1]).is_err());
    }

    #[test]
    fn quoted_values_are_parsed_back() {
        for value in [&b""[..], b" a ", b"x#;\"\\\n\t\xff", b"-"] {
            let mut text = b"[a]b=".to_vec();
            quote_config_value(value, &mut text);
            assert_eq!(parse_git_config(&text).unwrap()[0].value.as_deref(), Some(value));
        }
    }
}
