//! Names of refs and remotes, by the rules of `git check-ref-format`.

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Why a name is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefNameError {
    /// Empty.
    #[error("the name is empty")]
    Empty,
    /// Longer than 200 bytes.
    #[error("the name is longer than 200 bytes")]
    TooLong,
    /// Git would take it as an option.
    #[error("the name starts with `-`")]
    LeadingDash,
    /// A control character, a space, or one of `~^:?*[\`.
    #[error("the name contains a character that git does not allow")]
    Character,
    /// `..`, `@{`, `//`, or a dot or slash at a wrong place.
    #[error(
        "the name contains `..`, `@{{`, an empty part, or a part that starts with `.` or ends with `.` or `.lock`"
    )]
    Sequence,
    /// `HEAD`, `@`, `refs/...`, or what looks like an object name.
    #[error("the name means something else to git")]
    Reserved,
}

/// Checks a name by the rules that hold for every ref.
pub(crate) fn check_ref_name(name: &str) -> Result<(), RefNameError> {
    if name.is_empty() {
        return Err(RefNameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(RefNameError::TooLong);
    }
    if name.starts_with('-') {
        return Err(RefNameError::LeadingDash);
    }
    let odd = |c: char| {
        c.is_control() || c.is_whitespace() || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\')
    };
    if name.contains(odd) || vambrace_core::terminal_escape::sanitize(name) != name {
        return Err(RefNameError::Character);
    }
    let wrong_part = |part: &str| {
        part.is_empty() || part.starts_with('.') || part.ends_with('.') || part.ends_with(".lock")
    };
    if name.contains("..") || name.contains("@{") || name.split('/').any(wrong_part) {
        return Err(RefNameError::Sequence);
    }
    if name == "@" { Err(RefNameError::Reserved) } else { Ok(()) }
}

/// Whether git would rather take it as an object name.
pub(crate) fn is_object_name(name: &str) -> bool {
    matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The name of a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteName(String);

impl RemoteName {
    /// Checks a name: a ref name without characters that a URL or a path needs.
    pub fn new(name: &str) -> Result<Self, RefNameError> {
        check_ref_name(name)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if name.chars().all(plain) { Ok(Self(name.to_owned())) } else { Err(RefNameError::Character) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ref_names_follow_the_rules_of_git() {
        use RefNameError::{Character, Empty, LeadingDash, Reserved, Sequence, TooLong};
        let check = |name: &str, expected: Result<(), RefNameError>| {
            assert_eq!(check_ref_name(name), expected, "{name:?}");
        };
        for name in ["main", "feature/a-b_c.d", "v1.0", "a@b", "\u{e4}", "a/b/c", "{x}", "x@"] {
            check(name, Ok(()));
        }
        check("", Err(Empty));
        check(&"a".repeat(201), Err(TooLong));
        check("-x", Err(LeadingDash));
        for name in [
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "a\\b",
            "a\nb",
            "a\u{7f}",
            "a\u{202e}b",
            "a\u{200b}",
        ] {
            check(name, Err(Character));
        }
        for name in ["a..b", ".a", "a/.b", "a.", "a/b.lock", "a.lock/b", "a//b", "/a", "a/", "a@{b", "@{-1}"]
        {
            check(name, Err(Sequence));
        }
        check("@", Err(Reserved));
    }

    #[test]
    fn remote_names_are_plain() {
        assert_eq!(RemoteName::new("origin").unwrap().as_str(), "origin");
        for name in ["https://x/y", "a@b", "../x", "--all", "", "\u{e4}"] {
            assert!(RemoteName::new(name).is_err(), "{name}");
        }
    }
}
