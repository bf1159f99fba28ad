//! Path globs of rules, roles and skills. A glob that names a directory includes everything below it: a path matches if
//! it, or a directory above it, matches. `project:` globs are relative to the project root, others to the service root.
//!
//! A file that sets the service root must not change the meaning of rules in the layers above it. So globs that *narrow*
//! are compared with the path relative to every directory from the project root down to the service root, and globs that
//! *permit* only relative to the root that their author saw.

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::blocked_paths::BadPattern;
use crate::path::{ScopedPath, Zone};

/// The roots that the globs of one author are relative to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GlobRoots {
    /// The effective service root, relative to the project root; empty for the project root itself.
    pub service_root: String,
    /// The service root at the time when the author wrote the globs.
    pub author_root: String,
}

impl GlobRoots {
    /// For a service root that is the project root.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }
}

/// Whether globs narrow or permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobPurpose {
    /// They deny or ask: a match relative to any root counts.
    Narrow,
    /// They permit: only a match relative to the root that their author saw counts.
    Permit,
}

/// A compiled list of path globs.
#[derive(Debug, Clone)]
pub struct PathGlobs {
    globs: Arc<[String]>,
    service_root: Arc<str>,
    /// Matched against the path relative to the project root and to every directory down to the service root.
    anywhere: IndexedGlobs,
    /// Matched against the path relative to the project root.
    from_project: IndexedGlobs,
}

/// Globs with their indices in the whole list.
#[derive(Debug, Clone)]
struct IndexedGlobs {
    set: GlobSet,
    indices: Vec<usize>,
    /// As they are matched.
    normalized: Vec<String>,
}

impl PartialEq for PathGlobs {
    fn eq(&self, other: &Self) -> bool {
        self.globs == other.globs
            && self.service_root == other.service_root
            && self.anywhere.normalized == other.anywhere.normalized
            && self.from_project.normalized == other.from_project.normalized
    }
}

impl PathGlobs {
    /// Compiles the globs.
    pub fn new<S: AsRef<str>>(
        globs: impl IntoIterator<Item = S>,
        purpose: GlobPurpose,
        roots: &GlobRoots,
    ) -> Result<Self, BadPattern> {
        let globs: Arc<[String]> = globs.into_iter().map(|glob| glob.as_ref().to_owned()).collect();
        let (mut anywhere, mut from_project) = (Vec::new(), Vec::new());
        for (index, glob) in globs.iter().enumerate() {
            match (glob.strip_prefix("project:"), purpose) {
                (Some(rest), _) => from_project.push((index, glob, normalized(rest, ""))),
                (None, GlobPurpose::Narrow) => anywhere.push((index, glob, normalized(glob, ""))),
                (None, GlobPurpose::Permit) => {
                    from_project.push((index, glob, normalized(glob, &roots.author_root)))
                }
            }
        }
        Ok(Self {
            service_root: roots.service_root.as_str().into(),
            anywhere: IndexedGlobs::new(anywhere)?,
            from_project: IndexedGlobs::new(from_project)?,
            globs,
        })
    }

    /// An empty list: nothing matches.
    #[must_use]
    pub fn none() -> Self {
        let none = IndexedGlobs { set: GlobSet::empty(), indices: Vec::new(), normalized: Vec::new() };
        Self { globs: Arc::new([]), service_root: "".into(), anywhere: none.clone(), from_project: none }
    }

    /// The globs as written.
    #[must_use]
    pub fn globs(&self) -> &[String] {
        &self.globs
    }

    /// Whether one of the globs matches.
    #[must_use]
    pub fn matches(&self, path: &ScopedPath) -> bool {
        let full_path = self.project_path(path);
        self.from_project.is_match(&full_path)
            || self.relative_forms(path, &full_path).any(|form| self.anywhere.is_match(form))
    }

    /// Whether a glob may match something below a directory, or the directory itself. True in doubt.
    #[must_use]
    pub(crate) fn may_match_below(&self, directory: &ScopedPath) -> bool {
        let full_path = self.project_path(directory);
        let holds_service_root = directory.zone() == Zone::Project
            && self
                .service_root
                .strip_prefix(full_path.as_str())
                .is_some_and(|rest| full_path.is_empty() || rest.is_empty() || rest.starts_with('/'));
        if holds_service_root && !self.anywhere.normalized.is_empty() && !self.service_root.is_empty() {
            return true;
        }
        self.from_project.may_match_below(&full_path)
            || self.relative_forms(directory, &full_path).any(|form| self.anywhere.may_match_below(form))
    }

    /// The indices of the globs that match, in order.
    #[must_use]
    pub fn matching(&self, path: &ScopedPath) -> Vec<usize> {
        let mut indices = Vec::new();
        let full_path = self.project_path(path);
        self.from_project.each_match(&full_path, &mut |hit| indices.push(hit));
        for form in self.relative_forms(path, &full_path) {
            self.anywhere.each_match(form, &mut |hit| indices.push(hit));
        }
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    /// The path relative to the project root and to each directory down to the service root.
    fn relative_forms<'a>(&self, path: &ScopedPath, full_path: &'a str) -> impl Iterator<Item = &'a str> {
        let steps = match path.zone() {
            Zone::Service => self.service_root.split('/').filter(|name| !name.is_empty()).count(),
            Zone::Project => 0,
        };
        std::iter::successors(Some(full_path), |rest| rest.split_once('/').map(|(_, below)| below))
            .take(steps + 1)
    }

    /// The path relative to the project root.
    fn project_path(&self, path: &ScopedPath) -> String {
        match path.zone() {
            Zone::Project => path.relative().to_owned(),
            Zone::Service => join(&self.service_root, path.relative()),
        }
    }
}

impl IndexedGlobs {
    /// Adds each glob twice: for the path itself, and for everything below it.
    fn new(globs: Vec<(usize, &String, String)>) -> Result<Self, BadPattern> {
        let mut set = GlobSetBuilder::new();
        let mut indices = Vec::new();
        let normalized = globs.iter().map(|(_, _, glob)| glob.clone()).collect();
        for (index, written, glob) in globs {
            let below = format!("{glob}/**");
            for glob in [glob, below] {
                let bad = |why: String| BadPattern { pattern: written.clone(), why };
                let built = GlobBuilder::new(&glob).literal_separator(true).build();
                set.add(built.map_err(|error| bad(error.kind().to_string()))?);
                indices.push(index);
            }
        }
        let set =
            set.build().map_err(|error| BadPattern { pattern: String::new(), why: error.to_string() })?;
        Ok(Self { set, indices, normalized })
    }

    fn may_match_below(&self, directory: &str) -> bool {
        self.normalized.iter().any(|glob| may_match_below(glob, directory))
    }

    fn each_match(&self, path: &str, found: &mut dyn FnMut(usize)) {
        if self.indices.is_empty() {
            return;
        }
        let hits = self.set.matches(path);
        hits.iter().filter_map(|hit| self.indices.get(*hit)).for_each(|index| found(*index));
    }

    fn is_match(&self, path: &str) -> bool {
        !self.indices.is_empty() && self.set.is_match(path)
    }
}

/// Compares a glob with a directory name by name, until one of them ends; a name with a wildcard counts as a match.
fn may_match_below(glob: &str, directory: &str) -> bool {
    // Braces may contain slashes.
    if glob.contains('{') {
        return true;
    }
    let special = |name: &str| name.contains(['*', '?', '[', '\\']);
    for (pattern, name) in glob.split('/').zip(directory.split('/').filter(|name| !name.is_empty())) {
        match pattern {
            "**" => return true,
            pattern if special(pattern) || pattern == name => {}
            _ => return false,
        }
    }
    true
}

/// Normalizes a glob for the matcher; a bare name matches at any depth below the root that the author saw.
fn normalized(glob: &str, root: &str) -> String {
    let names: Vec<&str> = glob.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    // A trailing `**` is redundant: a directory includes everything below it.
    let names = match names.as_slice() {
        [names @ .., "**"] if !names.is_empty() => names,
        names => names,
    };
    match names {
        [] => join(root, "**"),
        [name] if !glob.trim_start_matches("./").contains('/') && *name != "**" => {
            join(root, &format!("**/{name}"))
        }
        names => join(root, &names.join("/")),
    }
}

fn join(directory: &str, rest: &str) -> String {
    match (directory, rest) {
        ("" | ".", rest) => rest.to_owned(),
        (directory, "") => directory.to_owned(),
        (directory, rest) => format!("{directory}/{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::AskedPath;

    fn check(purpose: GlobPurpose, roots: &GlobRoots, glob: &str, path: &str, expected: bool) {
        let globs = PathGlobs::new([glob], purpose, roots).unwrap();
        let path = AskedPath::new(path).parse().unwrap();
        assert_eq!(globs.matches(&path), expected, "{glob} {path} {purpose:?}");
        assert_eq!(!globs.matching(&path).is_empty(), expected);
    }

    #[test]
    fn globs_match_as_documented() {
        for (glob, path, expected) in [
            ("docs/", "docs/a/b.md", true),
            ("docs/", "docs", true),
            ("docs/**", "docs/a", true),
            ("docs/**", "docs", true),
            ("docs/", "x/docs/a", false),
            ("docs", "x/docs/a", true),
            ("private", "private/deep/x", true),
            ("cfg/prod", "cfg/prod/x", true),
            ("private//", "private/x", true),
            ("private/./", "private/x", true),
            ("./private/", "private/x", true),
            ("Smith, John/", "Smith, John/x", true),
            ("a,b/", "b/x", false),
            ("**/docs/", "x/docs/a", true),
            ("*.md", "a/b.md", true),
            ("*.md", "b.md", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/x/a.rs", false),
            ("**", "a/b", true),
            (".", "a/b", true),
            ("project:shared/", "shared/x", true),
            ("project:*.md", "a/x.md", true),
        ] {
            check(GlobPurpose::Narrow, &GlobRoots::plain(), glob, path, expected);
            check(GlobPurpose::Permit, &GlobRoots::plain(), glob, path, expected);
        }
    }

    #[test]
    fn globs_that_may_match_below_a_directory_are_found() {
        let check = |roots: &GlobRoots, glob: &str, directory: &str, expected: bool| {
            let globs = PathGlobs::new([glob], GlobPurpose::Narrow, roots).unwrap();
            let directory = AskedPath::new(directory).parse().unwrap();
            assert_eq!(globs.may_match_below(&directory), expected, "{glob} {directory}");
        };
        for (glob, directory, expected) in [
            ("docs/private/**", "docs", true),
            ("docs/private/**", "docs/private", true),
            ("docs/private/**", "docs/private/deep", true),
            ("docs/private/**", "docs/public", false),
            ("docs/private/**", "src", false),
            ("docs/private/**", "", true),
            ("docs/*/x", "docs/a", true),
            ("docs/*/x", "docs/a/y", false),
            ("*.key", "src", true),
            ("src/**/k", "src/a/b", true),
            ("{a/b,c}/d", "z", true),
        ] {
            check(&GlobRoots::plain(), glob, directory, expected);
        }
        let moved = GlobRoots { service_root: "svc/a".to_owned(), author_root: String::new() };
        for (glob, directory, expected) in [
            ("gen/", "gen", true),
            ("a/gen/", "gen/x", true),
            ("svc/a/gen/", "src", false),
            ("gen/", "project:svc", true),
            ("gen/", "project:other", false),
        ] {
            check(&moved, glob, directory, expected);
        }
    }

    #[test]
    fn moving_the_service_root_does_not_move_rules_above_it() {
        let moved = GlobRoots { service_root: "svc/a".to_owned(), author_root: String::new() };
        for (glob, path, narrows, permits) in [
            ("svc/a/prod.yaml", "prod.yaml", true, true),
            ("a/prod.yaml", "prod.yaml", true, false),
            ("prod.yaml", "prod.yaml", true, true),
            ("docs/", "docs/x", true, false),
            ("project:svc/a/x", "x", true, true),
            ("*.key", "project:shared/a.key", true, true),
            ("shared/", "project:shared/a", true, true),
            ("other/", "docs/x", false, false),
        ] {
            check(GlobPurpose::Narrow, &moved, glob, path, narrows);
            check(GlobPurpose::Permit, &moved, glob, path, permits);
        }
        let own = GlobRoots { service_root: "svc/a".to_owned(), author_root: "svc/a".to_owned() };
        check(GlobPurpose::Permit, &own, "docs/", "docs/x", true);
        check(GlobPurpose::Permit, &own, "*.md", "x/y.md", true);
        check(GlobPurpose::Permit, &own, "*.md", "project:shared/y.md", false);
    }
}
