//! Replacement text of a regular expression match, with references to its groups: `$1`, `${name}`, `\1` or `\g<name>`; `$$`
//! is a dollar sign. A reference to an unknown group is an error, never an empty string.

use std::ops::Range;

use super::error::EditError;

/// The parts of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Text(String),
    Group(usize),
}

/// Splits a replacement into its parts. `group` maps a name or number to a group index.
pub(crate) fn parse(
    content: &str,
    group: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<TemplatePart>, EditError> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = content;
    while let Some(at) = rest.find(['$', '\\']) {
        let (before, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
        text.push_str(before);
        if let Some(after) = tail.strip_prefix("$$") {
            text.push('$');
            rest = after;
            continue;
        }
        match reference(tail) {
            Some((name, length)) => {
                let number = group(name).ok_or_else(|| EditError::BadRequest {
                    why: format!(
                        "`content` refers to group `{name}`, which the pattern does not have; write `$$` for a dollar sign"
                    ),
                })?;
                if !text.is_empty() {
                    parts.push(TemplatePart::Text(std::mem::take(&mut text)));
                }
                parts.push(TemplatePart::Group(number));
                rest = tail.get(length..).unwrap_or_default();
            }
            None => {
                let mut chars = tail.chars();
                text.extend(chars.next());
                rest = chars.as_str();
            }
        }
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(TemplatePart::Text(text));
    }
    Ok(parts)
}

/// Joins the parts; groups keep the bytes of the file.
pub(crate) fn fill(
    parts: &[TemplatePart],
    base: &[u8],
    groups: &[Option<Range<usize>>],
    text: impl Fn(&str) -> Vec<u8>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            TemplatePart::Text(words) => out.extend(text(words)),
            TemplatePart::Group(number) => {
                let span = groups.get(*number).cloned().flatten();
                out.extend_from_slice(span.and_then(|span| base.get(span)).unwrap_or_default());
            }
        }
    }
    out
}

/// The group name and the length of a reference at the start of a text.
fn reference(tail: &str) -> Option<(&str, usize)> {
    let braced = |open: &str, close: char| {
        let inner = tail.strip_prefix(open)?;
        let name = inner.get(..inner.find(close)?)?;
        (!name.is_empty() && name.chars().all(word)).then_some((name, open.len() + name.len() + 1))
    };
    if let Some(found) = braced("${", '}').or_else(|| braced("\\g<", '>')) {
        return Some(found);
    }
    if let Some(inner) = tail.strip_prefix('$') {
        let digits = inner.find(|c: char| !c.is_ascii_digit()).unwrap_or(inner.len());
        // `$1abc` is the first group followed by letters, as users expect; a name takes all word characters.
        let length = if digits > 0 { digits } else { inner.find(|c| !word(c)).unwrap_or(inner.len()) };
        return inner.get(..length).filter(|name| !name.is_empty()).map(|name| (name, length + 1));
    }
    let inner = tail.strip_prefix('\\')?;
    inner.get(..1).filter(|digit| matches!(digit.as_bytes(), [b'1'..=b'9'])).map(|digit| (digit, 2))
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &str, expected: Option<&str>) {
        let group = |name: &str| match name {
            "0" | "1" | "2" => name.parse().ok(),
            "name" => Some(2),
            _ => None,
        };
        let base = b"<one><two>";
        let groups = [Some(0..10), Some(1..4), Some(6..9)];
        let got =
            parse(content, group).map(|parts| fill(&parts, base, &groups, |text| text.as_bytes().to_vec()));
        assert_eq!(got.ok().map(|bytes| String::from_utf8(bytes).unwrap()).as_deref(), expected, "{content}");
    }

    // T8
    #[test]
    fn groups_are_substituted_and_unknown_groups_rejected() {
        check("a", Some("a"));
        check("$1-$2", Some("one-two"));
        check("${1}x$1x", Some("onexonex"));
        check("${name}!$name", Some("two!two"));
        check(r"\1 \2 \g<name> \g<1>", Some("one two two one"));
        check("$0", Some("<one><two>"));
        check("$$1 $$$1 a$", Some("$1 $one a$"));
        check(r"\n \\ \033[0m \", Some(r"\n \\ \033[0m \"));
        check("$3", None);
        check("$home", None);
        check(r"\9", None);
        check("${}", Some("${}"));
        check("$ {a}", Some("$ {a}"));
    }
}
