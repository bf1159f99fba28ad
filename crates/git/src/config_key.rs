//! The key of a setting of git: section, subsection, variable.

use vambrace_core::quote::quoted;

/// The key of a git setting. Section and variable ignore case and are kept in lower case; the subsection is kept as written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GitConfigKey {
    section: Vec<u8>,
    subsection: Option<Vec<u8>>,
    variable: Vec<u8>,
}

impl GitConfigKey {
    /// Splits a full key as git does: the section ends at the first dot, the variable begins after the last one. `None`
    /// without any dot; git compares such a key with nothing.
    #[must_use]
    pub fn from_full(full: &[u8]) -> Option<Self> {
        let first = full.iter().position(|byte| *byte == b'.')?;
        let last = full.iter().rposition(|byte| *byte == b'.')?;
        Some(Self {
            section: full.get(..first)?.to_ascii_lowercase(),
            subsection: full.get(first + 1..last).map(<[u8]>::to_vec),
            variable: full.get(last + 1..)?.to_ascii_lowercase(),
        })
    }

    /// The section, in lower case.
    #[must_use]
    pub fn section(&self) -> &[u8] {
        &self.section
    }

    /// The subsection as written; `None` without one.
    #[must_use]
    pub fn subsection(&self) -> Option<&[u8]> {
        self.subsection.as_deref()
    }

    /// The variable, in lower case.
    #[must_use]
    pub fn variable(&self) -> &[u8] {
        &self.variable
    }

    /// Whether it is this variable of this section, in any subsection or none. Both in lower case.
    #[must_use]
    pub fn is(&self, section: &str, variable: &str) -> bool {
        self.section == section.as_bytes() && self.variable == variable.as_bytes()
    }

    /// The full key, as in `GIT_CONFIG_KEY_0`.
    #[must_use]
    pub fn to_full(&self) -> Vec<u8> {
        let parts = [Some(self.section.as_slice()), self.subsection(), Some(self.variable.as_slice())];
        parts.into_iter().flatten().collect::<Vec<_>>().join(&b'.')
    }
}

impl std::fmt::Display for GitConfigKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoted(&self.to_full()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_at_the_first_and_the_last_dot() {
        let check = |full: &str, section: &str, subsection: Option<&str>, variable: &str| {
            let key = GitConfigKey::from_full(full.as_bytes()).unwrap();
            assert_eq!(key.section(), section.as_bytes());
            assert_eq!(key.subsection(), subsection.map(str::as_bytes));
            assert_eq!(key.variable(), variable.as_bytes());
        };
        check("core.hooksPath", "core", None, "hookspath");
        check("filter.A.b.clean", "filter", Some("A.b"), "clean");
        check("filter..clean", "filter", Some(""), "clean");
        check("a.b=c.d", "a", Some("b=c"), "d");
        assert_eq!(GitConfigKey::from_full(b"plain"), None);
    }
}
