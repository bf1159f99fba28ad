//! Which part of the project a service may see: its own folder, the shared folders, perhaps its siblings; and
//! never a blocked name. All of it is lexical, over link-free paths relative to the project root ("places");
//! whoever opens a place must forbid links, or the answer here means nothing.

use vambrace_core::block::BlockList;
use vambrace_core::path::{ScopedPath, Zone};

use crate::fault::{OpenError, Refusal};

/// Read-only for every service unless configured otherwise, relative to the project root.
pub const DEFAULT_SHARED_PATHS: &[&str] = &["shared/", "contracts/", "shared_contracts/", "docs/policies/"];

/// How far a service sees beside itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Its own folder and the shared paths.
    Strict,
    /// Also the folders beside its own, read-only.
    Shared,
}

/// What a workspace is told about its scope.
#[derive(Debug, Clone)]
pub struct ScopeRules {
    /// Relative to the project root; `""` or `"."` is the project root itself.
    pub service_root: String,
    /// Whether sibling services can be read.
    pub isolation: Isolation,
    /// Folders of the project that every service may read.
    pub shared_paths: Vec<String>,
    /// Names that nobody reads.
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

/// Through which rule a place is in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Service,
    Shared,
    Sibling,
}

/// The rules, cleaned.
#[derive(Debug)]
pub(crate) struct Scope {
    // INVARIANT: every path here is clean: names joined by single slashes, no `.` or `..`, no slash at an end.
    service: String,
    shared: Vec<String>,
    /// The folder whose children are the siblings, when those can be read.
    siblings: Option<String>,
    block: BlockList,
}

impl Scope {
    pub(crate) fn new(rules: ScopeRules) -> Result<Self, OpenError> {
        let service = clean(&rules.service_root)?;
        let shared = rules.shared_paths.iter().map(|path| clean(path)).collect::<Result<_, _>>()?;
        let siblings = (rules.isolation == Isolation::Shared && !service.is_empty())
            .then(|| service.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned()));
        if rules.block.blocks(&service).is_some() {
            return Err(OpenError::ServiceRootBlocked(service));
        }
        Ok(Self { service, shared, siblings, block: rules.block })
    }

    /// Where a path of a caller lies in the project.
    pub(crate) fn place(&self, asked: &ScopedPath) -> String {
        match asked.zone() {
            Zone::Project => asked.relative().to_owned(),
            Zone::Service => join(&self.service, asked.relative()),
        }
    }

    /// Whether a link-free place may be read, and by which rule.
    pub(crate) fn admit(&self, place: &str) -> Result<Reach, Refusal> {
        let reach = self.reach(place).ok_or(Refusal::OutOfScope)?;
        if self.blocks(place) { Err(Refusal::Blocked) } else { Ok(reach) }
    }

    /// Whether a place may be stepped through on the way to somewhere: in scope, or above it.
    pub(crate) fn admit_step(&self, place: &str) -> Result<(), Refusal> {
        let above = |root: &String| is_below(root, place);
        let leads = above(&self.service)
            || self.shared.iter().any(above)
            || self.siblings.as_ref().is_some_and(|parent| parent == place || above(parent));
        if leads && self.reach(place).is_none() {
            return if self.blocks(place) { Err(Refusal::Blocked) } else { Ok(()) };
        }
        self.admit(place).map(|_| ())
    }

    /// Whether an entry of an admitted folder is blocked.
    pub(crate) fn blocks_entry(&self, place: &str) -> bool {
        self.block.blocks_entry(place).is_some()
            || self
                .in_service(place)
                .is_some_and(|own| own.len() != place.len() && self.block.blocks_entry(own).is_some())
    }

    /// The one spelling of a place.
    pub(crate) fn spell(&self, place: &str) -> ScopedPath {
        let (zone, relative) = match self.in_service(place) {
            Some(own) => (Zone::Service, own),
            None => (Zone::Project, place),
        };
        let mut path = ScopedPath::root(zone);
        for name in relative.split('/') {
            path = path.join(name).unwrap_or(path);
        }
        path
    }

    /// The same as text that parses back to the same place.
    pub(crate) fn spell_text(&self, place: &str) -> String {
        match self.in_service(place) {
            Some("") => ".".to_owned(),
            // A file may be called `project:x` or `~x`; bare, that would name something else.
            Some(own) if own.starts_with("project:") || own.starts_with('~') => format!("./{own}"),
            Some(own) => own.to_owned(),
            None if place.is_empty() => "project:.".to_owned(),
            None if place.starts_with('~') => format!("project:./{place}"),
            None => format!("project:{place}"),
        }
    }

    pub(crate) fn is_service(&self, place: &str) -> bool {
        self.in_service(place).is_some()
    }

    /// Whether the place would itself be a sibling service, which only a folder can be.
    pub(crate) fn is_sibling_root(&self, place: &str) -> bool {
        let parent = place.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.siblings.as_deref() == Some(parent)
            && !self.is_service(place)
            && !self.shared.iter().any(|root| is_at_or_below(place, root))
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

    fn reach(&self, place: &str) -> Option<Reach> {
        if self.is_service(place) {
            return Some(Reach::Service);
        }
        if self.shared.iter().any(|root| is_at_or_below(place, root)) {
            return Some(Reach::Shared);
        }
        self.siblings.as_ref().filter(|parent| is_below(place, parent)).map(|_| Reach::Sibling)
    }

    fn blocks(&self, place: &str) -> bool {
        self.block.blocks(place).is_some()
            || self
                .in_service(place)
                .is_some_and(|own| own.len() != place.len() && self.block.blocks(own).is_some())
    }

    fn in_service<'a>(&self, place: &'a str) -> Option<&'a str> {
        let rest = place.strip_prefix(self.service.as_str())?;
        if self.service.is_empty() || rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

/// A place and what lies below it.
pub(crate) fn join(folder: &str, rest: &str) -> String {
    match (folder, rest) {
        ("", rest) => rest.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, rest) => format!("{folder}/{rest}"),
    }
}

pub(crate) fn is_at_or_below(place: &str, root: &str) -> bool {
    place == root || is_below(place, root)
}

fn is_below(place: &str, root: &str) -> bool {
    if root.is_empty() {
        return !place.is_empty();
    }
    place.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

fn clean(path: &str) -> Result<String, OpenError> {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => return Err(OpenError::BadFolder(path.to_owned())),
            name => names.push(name),
        }
    }
    if path.starts_with('/') || path.contains('\0') {
        return Err(OpenError::BadFolder(path.to_owned()));
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

    fn check(scope: &Scope, asked: &str, expected: Result<Reach, Refusal>) {
        let path = AskedPath::new(asked).parse().unwrap();
        assert_eq!(scope.admit(&scope.place(&path)), expected, "{asked}");
    }

    // T12
    #[test]
    fn a_strict_service_sees_itself_and_the_shared_folders() {
        let scope = scope("services/a", Isolation::Strict);
        for asked in ["", "x", "src/y", "project:services/a", "project:services/a/x"] {
            check(&scope, asked, Ok(Reach::Service));
        }
        for asked in ["project:shared", "project:shared/x", "project:docs/policies/p.md"] {
            check(&scope, asked, Ok(Reach::Shared));
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
            check(&scope, asked, Err(Refusal::OutOfScope));
        }
        for asked in [".env", "a/secrets/b", "project:shared/x.pem", "config/prod/k"] {
            check(&scope, asked, Err(Refusal::Blocked));
        }
    }

    // T4, T12
    #[test]
    fn a_shared_service_also_sees_its_siblings() {
        let nested = scope("services/a", Isolation::Shared);
        check(&nested, "project:services/b/x", Ok(Reach::Sibling));
        check(&nested, "project:services/b/.env", Err(Refusal::Blocked));
        check(&nested, "project:services", Err(Refusal::OutOfScope));
        check(&nested, "project:other/x", Err(Refusal::OutOfScope));
        let top = scope("a", Isolation::Shared);
        check(&top, "project:b/x", Ok(Reach::Sibling));
        check(&top, "project:", Err(Refusal::OutOfScope));
        assert!(top.is_sibling_root("README.md") && !top.is_sibling_root("b/x"));
        assert!(!top.is_sibling_root("shared") && !top.is_sibling_root("a"));
    }

    #[test]
    fn without_a_service_root_the_project_is_the_service() {
        for root in ["", ".", "./"] {
            let scope = scope(root, Isolation::Shared);
            check(&scope, "any/thing", Ok(Reach::Service));
            check(&scope, "project:any/thing", Ok(Reach::Service));
            check(&scope, "project:", Ok(Reach::Service));
        }
    }

    #[test]
    fn every_place_has_one_spelling_that_parses_back() {
        let scope = scope("services/a", Isolation::Strict);
        for (place, text) in [
            ("services/a", "."),
            ("services/a/x/y", "x/y"),
            ("services/ab", "project:services/ab"),
            ("shared/x", "project:shared/x"),
            ("services/a/project:x", "./project:x"),
            ("services/a/~x", "./~x"),
            ("~x", "project:./~x"),
            ("", "project:."),
        ] {
            assert_eq!(scope.spell_text(place), text);
            let parsed = AskedPath::new(text).parse().unwrap();
            assert_eq!(scope.place(&parsed), place);
            assert_eq!(scope.spell(place), parsed);
        }
    }

    #[test]
    fn steps_towards_the_scope_are_admitted_and_no_others() {
        let scope = scope("services/a", Isolation::Strict);
        for place in ["", "services", "services/a", "docs", "docs/policies", "shared/x"] {
            assert_eq!(scope.admit_step(place), Ok(()), "{place}");
        }
        assert_eq!(scope.admit_step("services/b"), Err(Refusal::OutOfScope));
        assert_eq!(scope.admit_step("docs/other"), Err(Refusal::OutOfScope));
        assert_eq!(scope.admit_step("services/a/secrets"), Err(Refusal::Blocked));
    }

    #[test]
    fn bad_roots_are_refused() {
        let block = || BlockList::with_defaults::<&str>(&[]).unwrap();
        assert!(Scope::new(ScopeRules::new("../x", block())).is_err());
        assert!(Scope::new(ScopeRules::new("/x", block())).is_err());
        assert!(Scope::new(ScopeRules::new("a/secrets/b", block())).is_err());
    }
}
