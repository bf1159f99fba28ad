//! What happens to each key that a repository sets, from `config_keys.txt`.
//!
//! **Invariant.** A variable of one of git's sections that the table does not know is set to nothing: a newer git may read it,
//! and an empty value starts no program. Sections that are not git's are left alone.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::config_key::GitConfigKey;

const TABLE: &str = include_str!("config_keys.txt");

/// What happens to a key that a repository sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyTreatment {
    /// Every invocation sets it to this value.
    Set(&'static str),
    /// Set to this value where the repository sets it.
    Found(&'static str),
    /// Options and environment of every invocation take precedence.
    Option,
    /// No invocation reads it.
    Unused,
    /// Checked by code.
    Special,
    /// A push is denied.
    DenyPush,
    /// Has its effect.
    Data,
    /// Not a key of git.
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubsectionPattern {
    None,
    Literal(&'static str),
    Any,
    AnyOrNone,
}

struct KeyPattern {
    subsection: SubsectionPattern,
    /// `None` for any variable.
    variable: Option<String>,
    treatment: KeyTreatment,
    text: &'static str,
}

static PATTERNS: LazyLock<HashMap<String, Vec<KeyPattern>>> = LazyLock::new(|| {
    let mut patterns: HashMap<String, Vec<KeyPattern>> = HashMap::new();
    for (section, pattern) in lines().filter_map(parse_line) {
        patterns.entry(section).or_default().push(pattern);
    }
    patterns
});

/// What happens to this key.
pub(crate) fn treatment_of(key: &GitConfigKey) -> KeyTreatment {
    let section = std::str::from_utf8(key.section()).unwrap_or_default();
    match PATTERNS.get(section) {
        None => KeyTreatment::Foreign,
        Some(patterns) => patterns
            .iter()
            .find(|pattern| pattern.matches(key))
            .map_or(KeyTreatment::Found(""), |pattern| pattern.treatment),
    }
}

/// Whether a line of the table decides about this key, rather than the rule for unknown keys.
#[must_use]
pub fn is_known_key(key: &GitConfigKey) -> bool {
    let section = std::str::from_utf8(key.section()).unwrap_or_default();
    PATTERNS.get(section).is_some_and(|patterns| patterns.iter().any(|pattern| pattern.matches(key)))
}

/// The keys that every invocation sets, with their values.
pub(crate) fn fixed_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut fixed: Vec<_> = PATTERNS
        .values()
        .flatten()
        .filter_map(|pattern| match pattern.treatment {
            KeyTreatment::Set(value) => Some((pattern.text, value)),
            _ => None,
        })
        .collect();
    fixed.sort_unstable();
    fixed.into_iter()
}

impl KeyPattern {
    fn matches(&self, key: &GitConfigKey) -> bool {
        let subsection = match (self.subsection, key.subsection()) {
            (SubsectionPattern::None, None)
            | (SubsectionPattern::Any, Some(_))
            | (SubsectionPattern::AnyOrNone, _) => true,
            (SubsectionPattern::Literal(literal), Some(subsection)) => subsection == literal.as_bytes(),
            _ => false,
        };
        subsection && self.variable.as_ref().is_none_or(|variable| variable.as_bytes() == key.variable())
    }
}

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn parse_line(line: &'static str) -> Option<(String, KeyPattern)> {
    let mut words = line.split_whitespace();
    let text = words.next()?;
    let treatment = match (words.next()?, words.next()) {
        ("set", Some(value)) => KeyTreatment::Set(if value == "-" { "" } else { value }),
        ("found", Some(value)) => KeyTreatment::Found(if value == "-" { "" } else { value }),
        ("option", None) => KeyTreatment::Option,
        ("unused", None) => KeyTreatment::Unused,
        ("special", None) => KeyTreatment::Special,
        ("push", None) => KeyTreatment::DenyPush,
        ("data", None) => KeyTreatment::Data,
        _ => return None,
    };
    let (section, rest) = text.split_once('.')?;
    let (subsection, variable) = match rest.rsplit_once('.') {
        None if rest == "**" => (SubsectionPattern::AnyOrNone, "*"),
        None => (SubsectionPattern::None, rest),
        Some(("*", variable)) => (SubsectionPattern::Any, variable),
        Some(("?", variable)) => (SubsectionPattern::AnyOrNone, variable),
        Some((literal, variable)) => (SubsectionPattern::Literal(literal), variable),
    };
    let variable = (variable != "*").then(|| variable.to_ascii_lowercase());
    let set_has_one_key =
        variable.is_some() && matches!(subsection, SubsectionPattern::None | SubsectionPattern::Literal(_));
    if matches!(treatment, KeyTreatment::Set(_)) && !set_has_one_key {
        return None;
    }
    Some((section.to_ascii_lowercase(), KeyPattern { subsection, variable, treatment, text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, expected: KeyTreatment) {
        let key = GitConfigKey::from_full(key.as_bytes()).unwrap();
        assert_eq!(treatment_of(&key), expected, "{key}");
    }

    #[test]
    fn every_line_of_the_table_is_valid_and_reachable() {
        for line in lines() {
            let (section, pattern) = parse_line(line).unwrap_or_else(|| panic!("not valid: {line}"));
            let sample = pattern.text.replace("**", "x.y").replace(['*', '?'], "sample");
            let key = GitConfigKey::from_full(sample.as_bytes()).unwrap();
            assert_eq!(section.as_bytes(), key.section());
            assert_eq!(treatment_of(&key), pattern.treatment, "an earlier line hides: {line}");
        }
    }

    #[test]
    fn keys_have_the_treatment_of_the_first_line_that_matches() {
        check("core.fsMonitor", KeyTreatment::Set("false"));
        check("filter.Any.thing.process", KeyTreatment::Found(""));
        check("gpg.other.program", KeyTreatment::Found("false"));
        check("http.sslverify", KeyTreatment::Found("true"));
        check("http.https://a.b/.sslverify", KeyTreatment::Found("true"));
        check("http.https://a.b/.invented", KeyTreatment::DenyPush);
        check("core.invented", KeyTreatment::Found(""));
        check("remote.origin.gh-resolved", KeyTreatment::Found(""));
        check("lfs.url", KeyTreatment::Foreign);
        check("branch.main.remote", KeyTreatment::Data);
        check("alias.x", KeyTreatment::Unused);
    }
}
