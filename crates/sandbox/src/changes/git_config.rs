//! A parser for git config files: keys and values, whatever section they are in.

use crate::wire::Bytes;

/// Every key in lower case, with its value. Lines that end in a backslash are parsed both joined and separate, since
/// the parser does not know whether the backslash is in a comment.
pub(super) fn parse_git_config(text: &[u8]) -> Vec<(Bytes, Bytes)> {
    let mut joined = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\\\n").or(line.strip_suffix(b"\\\r\n")) {
            Some(begun) => joined.extend_from_slice(begun),
            None => joined.extend_from_slice(line),
        }
    }
    let mut found: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(parse_line).collect();
    if joined.len() != text.len() {
        found.extend(joined.split(|byte| *byte == b'\n').filter_map(parse_line));
    }
    found
}

fn parse_line(line: &[u8]) -> Option<(Bytes, Bytes)> {
    let line = after_section(line.trim_ascii());
    let cut = line.iter().position(|byte| *byte == b'=')?;
    let key = line.get(..cut)?.trim_ascii().to_ascii_lowercase();
    Some((key, value(line.get(cut + 1..)?.trim_ascii())))
}

/// The rest of a line after a section header: a setting may follow on the same line.
fn after_section(line: &[u8]) -> &[u8] {
    if !line.starts_with(b"[") {
        return line;
    }
    let (mut quoted, mut escaped) = (false, false);
    let end = line.iter().position(|byte| {
        let ends = !quoted && *byte == b']';
        quoted ^= *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.and_then(|end| line.get(end + 1..)).unwrap_or_default()
}

/// A value without quotes, escapes and trailing comment.
fn value(text: &[u8]) -> Bytes {
    let (mut value, mut quoted, mut end) = (Bytes::new(), false, 0);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'#' | b';' if !quoted => break,
            b'\\' => value.extend(bytes.next()),
            byte => value.push(byte),
        }
        if quoted || !byte.is_ascii_whitespace() {
            end = value.len();
        }
    }
    value.truncate(end);
    value
}

#[cfg(test)]
mod tests {
    use super::parse_git_config;

    #[test]
    fn every_spelling_of_a_setting_is_parsed() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found = parse_git_config(text.as_bytes());
            let found: Vec<(String, String)> = found
                .into_iter()
                .map(|(key, value)| (String::from_utf8(key).unwrap(), String::from_utf8(value).unwrap()))
                .collect();
            let expected: Vec<(String, String)> =
                expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("[core]\n\thooksPath = .githooks\r\n", &[("hookspath", ".githooks")]);
        check("[core] HOOKSPATH=./tools//hooks/", &[("hookspath", "./tools//hooks/")]);
        check("hookspath = \"a b\" # comment", &[("hookspath", "a b")]);
        check("hooksPath = a#b\nhooksPath = \"a#b\"", &[("hookspath", "a"), ("hookspath", "a#b")]);
        check("[includeIf \"gitdir:a]b=\\\"\"] path = a]b", &[("path", "a]b")]);
        check("hooksPath = a\\\nb", &[("hookspath", "a"), ("hookspath", "ab")]);
        check("# comment \\\nhooksPath = x", &[("hookspath", "x"), ("# comment hookspath", "x")]);
        check("hooksPath = a\\\\b\\\"", &[("hookspath", "a\\b\"")]);
        check("[core]\nbare", &[]);
    }
}
