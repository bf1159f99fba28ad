//! Which part of the project a service may access: its own directory, the shared directories, with `Isolation::Shared`
//! also its siblings; never a blocked name. All checks are lexical, over symlink-free paths relative to the project root
//! (`rel_path`). The caller must open such a path with symlinks forbidden, or the check means nothing.

use vambrace_core::blocked_paths::BlockList;
use vambrace_core::path::{ScopedPath, Zone};

use crate::error::{OpenError, ScopeDenial};

/// Read-only for every service unless configured otherwise, relative to the project root.
pub const DEFAULT_SHARED_PATHS: &[&str] = &["shared/", "contracts/", "shared_contracts/", "docs/policies/"];

/// Whether a service can read its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Its own directory and the shared paths.
    Strict,
    /// Also the directories beside its own, read-only.
    Shared,
}

/// Configuration of a workspace's scope.
#[derive(Debug, Clone)]
pub struct ScopeRules {
    /// Relative to the project root; `""` or `"."` is the project root itself.
    pub service_root: String,
    /// Whether sibling services can be read.
    pub isolation: Isolation,
    /// Directories of the project that every service may read.
    pub shared_paths: Vec<String>,
    /// Names that are never read.
    pub block: BlockList,
}

impl ScopeRules {
    /// A strict scope with the default shared paths.
    pub fn new(service_root: impl Into<String>, block: BlockList) -> Self {
        Self {
            service_root: service_root.into(),
            isolation: Isolation::Strict,
            shared_paths: DEFAULT_SHARED_PATHS.iter().map(|path| (*path).to_owned()).collect(),
            block,
        }
    }
}

/// The rule by which a path is in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeArea {
    Service,
    Shared,
    Sibling,
}

/// The normalized rules.
#[derive(Debug)]
pub(crate) struct Scope {
    // INVARIANT: every path here is normalized: names joined by single slashes, no `.` or `..`, no slash at an end.
    service: String,
    shared: Vec<String>,
    /// The directory whose children are the siblings, when those can be read.
    siblings: Option<String>,
    block: BlockList,
}

impl Scope {
    pub(crate) fn new(rules: ScopeRules) -> Result<Self, OpenError> {
        let service = normalize(&rules.service_root)?;
        let shared = rules.shared_paths.iter().map(|path| normalize(path)).collect::<Result<_, _>>()?;
        let siblings = (rules.isolation == Isolation::Shared && !service.is_empty())
            .then(|| service.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned()));
        if rules.block.blocks(&service).is_some() {
            return Err(OpenError::ServiceRootBlocked(service));
        }
        Ok(Self { service, shared, siblings, block: rules.block })
    }

    /// The project-relative path of a caller's path.
    pub(crate) fn rel_path(&self, asked: &ScopedPath) -> String {
        match asked.zone() {
            Zone::Project => asked.relative().to_owned(),
            Zone::Service => join(&self.service, asked.relative()),
        }
    }

    /// Whether a symlink-free path may be read, and by which rule.
    pub(crate) fn admit(&self, rel_path: &str) -> Result<ScopeArea, ScopeDenial> {
        let area = self.area(rel_path).ok_or(ScopeDenial::OutOfScope)?;
        if self.blocks(rel_path) { Err(ScopeDenial::Blocked) } else { Ok(area) }
    }

    /// Whether a directory may be traversed while resolving a path: in scope, or above it.
    pub(crate) fn admit_traversal(&self, rel_path: &str) -> Result<(), ScopeDenial> {
        let above = |root: &String| is_below(root, rel_path);
        let leads = above(&self.service)
            || self.shared.iter().any(above)
            || self.siblings.as_ref().is_some_and(|parent| parent == rel_path || above(parent));
        if leads && self.area(rel_path).is_none() {
            return if self.blocks(rel_path) { Err(ScopeDenial::Blocked) } else { Ok(()) };
        }
        self.admit(rel_path).map(|_| ())
    }

    /// Whether an entry of an admitted directory is blocked.
    pub(crate) fn blocks_entry(&self, rel_path: &str) -> bool {
        self.block.blocks_entry(rel_path).is_some()
            || self
                .in_service(rel_path)
                .is_some_and(|own| own.len() != rel_path.len() && self.block.blocks_entry(own).is_some())
    }

    /// The canonical `ScopedPath` of a project-relative path.
    pub(crate) fn scoped_path(&self, rel_path: &str) -> ScopedPath {
        let (zone, relative) = match self.in_service(rel_path) {
            Some(own) => (Zone::Service, own),
            None => (Zone::Project, rel_path),
        };
        let mut path = ScopedPath::root(zone);
        for name in relative.split('/') {
            path = path.join(name).unwrap_or(path);
        }
        path
    }

    /// The same as text that parses back to the same path.
    pub(crate) fn path_text(&self, rel_path: &str) -> String {
        match self.in_service(rel_path) {
            Some("") => ".".to_owned(),
            // A file may be called `project:x` or `~x`; without `./` that would name another path.
            Some(own) if own.starts_with("project:") || own.starts_with('~') => format!("./{own}"),
            Some(own) => own.to_owned(),
            None if rel_path.is_empty() => "project:.".to_owned(),
            None if rel_path.starts_with('~') => format!("project:./{rel_path}"),
            None => format!("project:{rel_path}"),
        }
    }

    pub(crate) fn is_service(&self, rel_path: &str) -> bool {
        self.in_service(rel_path).is_some()
    }

    /// Whether the path would itself be a sibling service, which only a directory can be.
    pub(crate) fn is_sibling_root(&self, rel_path: &str) -> bool {
        let parent = rel_path.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.siblings.as_deref() == Some(parent)
            && !self.is_service(rel_path)
            && !self.shared.iter().any(|root| is_at_or_below(rel_path, root))
    }

    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    pub(crate) fn shared(&self) -> &[String] {
        &self.shared
    }

    pub(crate) fn siblings(&self) -> Option<&str> {
        self.siblings.as_deref()
    }

    fn area(&self, rel_path: &str) -> Option<ScopeArea> {
        if self.is_service(rel_path) {
            return Some(ScopeArea::Service);
        }
        if self.shared.iter().any(|root| is_at_or_below(rel_path, root)) {
            return Some(ScopeArea::Shared);
        }
        self.siblings.as_ref().filter(|parent| is_below(rel_path, parent)).map(|_| ScopeArea::Sibling)
    }

    fn blocks(&self, rel_path: &str) -> bool {
        self.block.blocks(rel_path).is_some()
            || self
                .in_service(rel_path)
                .is_some_and(|own| own.len() != rel_path.len() && self.block.blocks(own).is_some())
    }

    fn in_service<'a>(&self, rel_path: &'a str) -> Option<&'a str> {
        let rest = rel_path.strip_prefix(self.service.as_str())?;
        if self.service.is_empty() || rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

/// Joins a directory and a path below it; either may be empty.
pub(crate) fn join(dir: &str, rest: &str) -> String {
    match (dir, rest) {
        ("", rest) => rest.to_owned(),
        (dir, "") => dir.to_owned(),
        (dir, rest) => format!("{dir}/{rest}"),
    }
}

pub(crate) fn is_at_or_below(rel_path: &str, root: &str) -> bool {
    rel_path == root || is_below(rel_path, root)
}

fn is_below(rel_path: &str, root: &str) -> bool {
    if root.is_empty() {
        return !rel_path.is_empty();
    }
    rel_path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

fn normalize(path: &str) -> Result<String, OpenError> {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => return Err(OpenError::BadDirectory(path.to_owned())),
            name => names.push(name),
        }
    }
    if path.starts_with('/') || path.contains('\0') {
        return Err(OpenError::BadDirectory(path.to_owned()));
    }
    Ok(names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vambrace_core::path::AskedPath;

    fn scope(service: &str, isolation: Isolation) -> Scope {
        let block = BlockList::with_defaults(&["config/prod/"]).unwrap();
        Scope::new(ScopeRules { isolation, ..ScopeRules::new(service, block) }).unwrap()
    }

    fn check(scope: &Scope, asked: &str, expected: Result<ScopeArea, ScopeDenial>) {
        let path = AskedPath::new(asked).parse().unwrap();
        assert_eq!(scope.admit(&scope.rel_path(&path)), expected, "{asked}");
    }

    // T12
    #[test]
    fn a_strict_service_sees_itself_and_the_shared_directories() {
        let scope = scope("services/a", Isolation::Strict);
        for asked in ["", "x", "src/y", "project:services/a", "project:services/a/x"] {
            check(&scope, asked, Ok(ScopeArea::Service));
        }
        for asked in ["project:shared", "project:shared/x", "project:docs/policies/p.md"] {
            check(&scope, asked, Ok(ScopeArea::Shared));
        }
        for asked in [
            "project:",
            "project:services",
            "project:services/b/x",
            "project:services/ab",
            "project:docs",
            "project:sharedx/y",
            "project:Shared/x",
            "project:README.md",
        ] {
            check(&scope, asked, Err(ScopeDenial::OutOfScope));
        }
        for asked in [".env", "a/secrets/b", "project:shared/x.pem", "config/prod/k"] {
            check(&scope, asked, Err(ScopeDenial::Blocked));
        }
    }

    // T4, T12
    #[test]
    fn a_shared_service_also_sees_its_siblings() {
        let nested = scope("services/a", Isolation::Shared);
        check(&nested, "project:services/b/x", Ok(ScopeArea::Sibling));
        check(&nested, "project:services/b/.env", Err(ScopeDenial::Blocked));
        check(&nested, "project:services", Err(ScopeDenial::OutOfScope));
        check(&nested, "project:other/x", Err(ScopeDenial::OutOfScope));
        let top = scope("a", Isolation::Shared);
        check(&top, "project:b/x", Ok(ScopeArea::Sibling));
        check(&top, "project:", Err(ScopeDenial::OutOfScope));
        assert!(top.is_sibling_root("README.md") && !top.is_sibling_root("b/x"));
        assert!(!top.is_sibling_root("shared") && !top.is_sibling_root("a"));
    }

    #[test]
    fn without_a_service_root_the_project_is_the_service() {
        for root in ["", ".", "./"] {
            let scope = scope(root, Isolation::Shared);
            check(&scope, "any/thing", Ok(ScopeArea::Service));
            check(&scope, "project:any/thing", Ok(ScopeArea::Service));
            check(&scope, "project:", Ok(ScopeArea::Service));
        }
    }

    #[test]
    fn every_path_has_one_canonical_text_that_parses_back() {
        let scope = scope("services/a", Isolation::Strict);
        for (rel_path, text) in [
            ("services/a", "."),
            ("services/a/x/y", "x/y"),
            ("services/ab", "project:services/ab"),
            ("shared/x", "project:shared/x"),
            ("services/a/project:x", "./project:x"),
            ("services/a/~x", "./~x"),
            ("~x", "project:./~x"),
            ("", "project:."),
        ] {
            assert_eq!(scope.path_text(rel_path), text);
            let parsed = AskedPath::new(text).parse().unwrap();
            assert_eq!(scope.rel_path(&parsed), rel_path);
            assert_eq!(scope.scoped_path(rel_path), parsed);
        }
    }

    #[test]
    fn only_directories_on_the_way_to_the_scope_can_be_traversed() {
        let scope = scope("services/a", Isolation::Strict);
        for rel_path in ["", "services", "services/a", "docs", "docs/policies", "shared/x"] {
            assert_eq!(scope.admit_traversal(rel_path), Ok(()), "{rel_path}");
        }
        assert_eq!(scope.admit_traversal("services/b"), Err(ScopeDenial::OutOfScope));
        assert_eq!(scope.admit_traversal("docs/other"), Err(ScopeDenial::OutOfScope));
        assert_eq!(scope.admit_traversal("services/a/secrets"), Err(ScopeDenial::Blocked));
    }

    #[test]
    fn bad_roots_are_rejected() {
        let block = || BlockList::with_defaults::<&str>(&[]).unwrap();
        assert!(Scope::new(ScopeRules::new("../x", block())).is_err());
        assert!(Scope::new(ScopeRules::new("/x", block())).is_err());
        assert!(Scope::new(ScopeRules::new("a/secrets/b", block())).is_err());
    }
}
