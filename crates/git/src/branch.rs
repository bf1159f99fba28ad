//! Branch names and the rules about them: which may be created, and which may not be changed.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::ref_name::{RefNameError, check_ref_name, is_object_name};

/// Maximum number of patterns in a list.
const MAX_PATTERNS: usize = 200;
/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 200;

/// The short name of a branch, without `refs/heads/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BranchName(String);

impl BranchName {
    /// Checks a name by the rules of `git check-ref-format --branch`; what looks like an object name or a full ref name is
    /// not accepted.
    pub fn new(name: &str) -> Result<Self, RefNameError> {
        check_ref_name(name)?;
        let reserved = name.eq_ignore_ascii_case("HEAD") || name.starts_with("refs/") || is_object_name(name);
        if reserved { Err(RefNameError::Reserved) } else { Ok(Self(name.to_owned())) }
    }

    /// The short name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full ref name.
    #[must_use]
    pub fn full_ref(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl std::fmt::Display for BranchName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which branches may be created, and which are protected. Patterns are globs in which `*` stops at `/` and `**` does not.
#[derive(Debug, Clone)]
pub struct BranchRules {
    allowed: Option<GlobSet>,
    allowed_patterns: Vec<String>,
    protected: GlobSet,
    protected_patterns: Vec<String>,
}

/// Why a branch may not be created or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BranchDenial {
    /// The name has none of the allowed forms.
    #[error("branch `{name}` does not match the allowed names: {allowed}")]
    NotAllowed {
        /// The branch.
        name: String,
        /// The allowed patterns.
        allowed: String,
    },
    /// The branch is protected.
    #[error("branch `{name}` is protected by `{pattern}`")]
    Protected {
        /// The branch.
        name: String,
        /// The pattern that protects it.
        pattern: String,
    },
}

/// A pattern that is not a valid glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("branch pattern `{pattern}` is not valid: {reason}")]
pub struct BadBranchPattern {
    /// The pattern.
    pub pattern: String,
    /// What is wrong.
    pub reason: String,
}

impl BranchRules {
    /// Compiles the patterns. No allowed pattern: every valid name may be created.
    pub fn new(allowed: &[String], protected: &[String]) -> Result<Self, BadBranchPattern> {
        Ok(Self {
            allowed: if allowed.is_empty() { None } else { Some(compile(allowed, false)?) },
            allowed_patterns: allowed.to_vec(),
            // Names that differ only in case are one branch on some file systems.
            protected: compile(protected, true)?,
            protected_patterns: protected.to_vec(),
        })
    }

    /// Whether a branch of this name may be created.
    pub fn check_create(&self, branch: &BranchName) -> Result<(), BranchDenial> {
        self.check_change(branch)?;
        match &self.allowed {
            Some(allowed) if !allowed.is_match(branch.as_str()) => Err(BranchDenial::NotAllowed {
                name: branch.to_string(),
                allowed: self.allowed_patterns.join(", "),
            }),
            _ => Ok(()),
        }
    }

    /// Whether commits may be added to a branch, here or by a push.
    pub fn check_change(&self, branch: &BranchName) -> Result<(), BranchDenial> {
        let first = self.protected.matches(branch.as_str()).into_iter().next();
        match first.and_then(|index| self.protected_patterns.get(index)) {
            Some(pattern) => {
                Err(BranchDenial::Protected { name: branch.to_string(), pattern: pattern.clone() })
            }
            None => Ok(()),
        }
    }
}

fn compile(patterns: &[String], ignore_case: bool) -> Result<GlobSet, BadBranchPattern> {
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let bad = |reason: String| BadBranchPattern { pattern: pattern.clone(), reason };
        if index == MAX_PATTERNS || pattern.len() > MAX_PATTERN_BYTES {
            return Err(bad("too many patterns, or too long".to_owned()));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).case_insensitive(ignore_case).build();
        set.add(glob.map_err(|error| bad(error.kind().to_string()))?);
    }
    set.build().map_err(|error| BadBranchPattern { pattern: String::new(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> BranchRules {
        let list =
            |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>();
        BranchRules::new(&list(&["feature/*", "fix-*", "main"]), &list(&["main", "release/**"])).unwrap()
    }

    // T15
    #[test]
    fn branches_follow_the_allowed_and_protected_patterns() {
        let check = |name: &str, create: bool, change: bool| {
            let branch = BranchName::new(name).unwrap();
            assert_eq!(rules().check_create(&branch).is_ok(), create, "create {name}");
            assert_eq!(rules().check_change(&branch).is_ok(), change, "change {name}");
        };
        check("feature/a", true, true);
        check("feature/a/b", false, true);
        check("fix-1", true, true);
        check("other", false, true);
        check("main", false, false);
        check("Main", false, false);
        check("release/1/2", false, false);
        let denial = rules().check_change(&BranchName::new("main").unwrap()).unwrap_err();
        assert_eq!(denial.to_string(), "branch `main` is protected by `main`");
        let open = BranchRules::new(&[], &[]).unwrap();
        assert!(open.check_create(&BranchName::new("anything/at-all").unwrap()).is_ok());
        assert!(BranchRules::new(&["a[".to_owned()], &[]).is_err());
    }

    #[test]
    fn names_that_mean_something_else_are_no_branches() {
        for name in ["HEAD", "head", "refs/heads/x", &"a".repeat(40), "@"] {
            assert_eq!(BranchName::new(name), Err(RefNameError::Reserved), "{name}");
        }
        assert_eq!(BranchName::new("a").unwrap().full_ref(), "refs/heads/a");
    }
}
