//! Paths as an agent sends them, and paths inside the scope. An [`AskedPath`] is unchecked text; a [`ScopedPath`] has
//! passed the lexical rules. Neither opens anything: the `workspace` crate opens files through a directory handle.

use std::fmt;

use crate::error::{CallError, ErrorCode};

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum length of one path component on Linux, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Prefix of paths relative to the project root instead of the service root.
const PROJECT_PREFIX: &str = "project:";

/// Which root a path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Zone {
    /// The service root: reading and writing.
    Service,
    /// The project root: reading shared directories only.
    Project,
}

/// A path as an agent sent it, unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedPath(String);

impl AskedPath {
    /// Wraps the text; no checks.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Applies the lexical rules: relative, no `..`, no NUL, no home shorthand, sane lengths.
    /// `.` and repeated or trailing slashes are dropped.
    pub fn parse(&self) -> Result<ScopedPath, CallError> {
        let asked = self.0.as_str();
        let invalid = |why: &str| {
            let shown: String = asked.chars().take(200).collect();
            CallError::new(ErrorCode::ScopeViolation, format!("path `{}` {why}", shown.escape_debug()))
        };
        if asked.len() > MAX_PATH_BYTES {
            return Err(invalid("is longer than 4096 bytes"));
        }
        if asked.contains('\0') {
            return Err(invalid("contains a NUL character"));
        }
        let (zone, rest) = match asked.strip_prefix(PROJECT_PREFIX) {
            Some(rest) => (Zone::Project, rest),
            None => (Zone::Service, asked),
        };
        if rest.starts_with('/') {
            return Err(invalid("is absolute").suggest("give the path relative to the service root"));
        }
        if rest.starts_with('~') {
            return Err(invalid("starts with `~`: home directories are out of scope").suggest(
                "give the path relative to the service root; `./~name` names a file called `~name`",
            ));
        }
        let mut names = Vec::new();
        for name in rest.split('/') {
            match name {
                "" | "." => {}
                ".." => return Err(invalid("contains `..`, which is never allowed")),
                name if name.len() > MAX_NAME_BYTES => {
                    return Err(invalid("has a name longer than 255 bytes"));
                }
                name => names.push(name),
            }
        }
        Ok(ScopedPath { zone, relative: names.join("/") })
    }
}

/// A path inside the scope: a zone and a normalized relative path (no `.`, `..` or empty names; the root itself is the
/// empty string).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopedPath {
    // INVARIANT: `relative` consists of names joined by single slashes; no name is empty, `.` or `..`.
    zone: Zone,
    relative: String,
}

impl ScopedPath {
    /// The root of a zone.
    #[must_use]
    pub fn root(zone: Zone) -> Self {
        Self { zone, relative: String::new() }
    }

    /// The path with this normalized name relative to the project root; `None` if it is not normalized. Inside the service
    /// root (also relative to the project root; empty or `.` for the project root itself) it is a path of the service.
    #[must_use]
    pub fn in_project(relative: &str, service_root: &str) -> Option<Self> {
        let service_root = if service_root == "." { "" } else { service_root.trim_end_matches('/') };
        let own = match relative.strip_prefix(service_root) {
            Some(rest) if service_root.is_empty() || rest.is_empty() => Some(rest),
            Some(rest) => rest.strip_prefix('/'),
            None => None,
        };
        let (zone, relative) = own.map_or((Zone::Project, relative), |own| (Zone::Service, own));
        let plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        let normalized = relative.is_empty() || relative.split('/').all(plain);
        normalized.then(|| Self { zone, relative: relative.to_owned() })
    }

    /// The path of a directory entry below this one; `None` if `name` is not a plain name.
    #[must_use]
    pub fn join(&self, name: &str) -> Option<Self> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return None;
        }
        let relative =
            if self.relative.is_empty() { name.to_owned() } else { format!("{}/{name}", self.relative) };
        Some(Self { zone: self.zone, relative })
    }

    /// The root that it is relative to.
    #[must_use]
    pub fn zone(&self) -> Zone {
        self.zone
    }

    /// The path relative to the root of its zone; empty for the root itself.
    #[must_use]
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// The names from the root down.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.relative.split('/').filter(|name| !name.is_empty())
    }

    /// The last name; `None` for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.names().last()
    }
}

impl fmt::Display for ScopedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone {
            Zone::Project => f.write_str(PROJECT_PREFIX)?,
            // A file may be called `project:x` or `~x`; without `./` that would parse as another path.
            Zone::Service if self.relative.starts_with(PROJECT_PREFIX) => f.write_str("./")?,
            Zone::Service => {}
        }
        if self.relative.starts_with('~') {
            f.write_str("./")?;
        }
        f.write_str(if self.relative.is_empty() { "." } else { &self.relative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: &str, expected: Option<&str>) {
        let got = AskedPath::new(asked).parse().map(|path| path.to_string());
        match expected {
            Some(expected) => assert_eq!(got.as_deref(), Ok(expected), "{asked:?}"),
            None => assert_eq!(got.unwrap_err().code, ErrorCode::ScopeViolation, "{asked:?}"),
        }
    }

    // T12, B4
    #[test]
    fn lexical_rules_accept_and_reject() {
        check("src/main.rs", Some("src/main.rs"));
        check("./src//main.rs/", Some("src/main.rs"));
        check("", Some("."));
        check(".", Some("."));
        check("./~odd", Some("./~odd"));
        check("./project:x", Some("./project:x"));
        check("a~", Some("a~"));
        check("project:shared/a.md", Some("project:shared/a.md"));
        check("project:", Some("project:."));
        check("a..b/..c", Some("a..b/..c"));
        check("/etc/passwd", None);
        check("project:/etc/passwd", None);
        check("../x", None);
        check("a/../b", None);
        check("a/..", None);
        check("project:shared/../x", None);
        check("~/x", None);
        check("~root/x", None);
        check("a\0b", None);
        check(&"a/".repeat(3000), None);
        check(&"n".repeat(256), None);
    }

    #[test]
    fn project_paths_inside_the_service_root_are_paths_of_the_service() {
        for (relative, service_root, expected) in [
            ("a/b", "", Some("a/b")),
            ("a/b", ".", Some("a/b")),
            ("", "", Some(".")),
            ("svc/a/x", "svc/a", Some("x")),
            ("svc/a", "svc/a/", Some(".")),
            ("svc/ab", "svc/a", Some("project:svc/ab")),
            ("other", "svc/a", Some("project:other")),
            ("a//b", "", None),
            ("a/../b", "", None),
        ] {
            let path = ScopedPath::in_project(relative, service_root).map(|path| path.to_string());
            assert_eq!(path.as_deref(), expected, "{relative} in {service_root}");
        }
    }

    #[test]
    fn join_accepts_plain_names_only() {
        let root = ScopedPath::root(Zone::Service);
        assert_eq!(root.join("a").and_then(|a| a.join("b")).map(|b| b.to_string()).as_deref(), Some("a/b"));
        for bad in ["", ".", "..", "a/b", "a\0"] {
            assert_eq!(root.join(bad), None, "{bad:?}");
        }
    }
}
