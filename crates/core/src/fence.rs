//! The fence (DESIGN calls it the envelope): what a call may touch while it runs. Each layer contributes one; the
//! call runs inside the meet of them all. A fence is a list of conditions that must all hold, so the meet is the
//! concatenation and can only shrink.

use std::sync::Arc;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::block::BadPattern;
use crate::path::{ScopedPath, Zone};
use crate::tool::{NamePolicy, wildcard};

/// A compiled list of path globs. `project:` globs match paths of the project root, others the service root's.
#[derive(Debug, Clone)]
pub struct PathGlobs {
    globs: Arc<[String]>,
    service: ZoneGlobs,
    project: ZoneGlobs,
}

/// The globs of one zone, each with its place in the whole list.
#[derive(Debug, Clone)]
struct ZoneGlobs {
    set: GlobSet,
    places: Vec<usize>,
}

impl PartialEq for PathGlobs {
    fn eq(&self, other: &Self) -> bool {
        self.globs == other.globs
    }
}

impl PathGlobs {
    /// Compiles. `docs/` and `docs/**` mean the folder and everything below; `*.md` without a slash matches at any
    /// depth.
    pub fn new<S: AsRef<str>>(globs: impl IntoIterator<Item = S>) -> Result<Self, BadPattern> {
        let globs: Arc<[String]> = globs.into_iter().map(|glob| glob.as_ref().to_owned()).collect();
        let of = |zone: Zone| {
            globs.iter().enumerate().filter_map(move |(place, glob)| {
                match (zone, glob.strip_prefix("project:")) {
                    (Zone::Project, Some(rest)) => Some((place, glob.as_str(), rest)),
                    (Zone::Service, None) => Some((place, glob.as_str(), glob.as_str())),
                    _ => None,
                }
            })
        };
        let (service, project) = (ZoneGlobs::new(of(Zone::Service))?, ZoneGlobs::new(of(Zone::Project))?);
        Ok(Self { globs, service, project })
    }

    /// The globs as written.
    #[must_use]
    pub fn globs(&self) -> &[String] {
        &self.globs
    }

    /// Whether one of them matches.
    #[must_use]
    pub fn matches(&self, path: &ScopedPath) -> bool {
        self.zone(path).set.is_match(path.relative())
    }

    /// Which of them match, by their place in the list.
    #[must_use]
    pub fn matching(&self, path: &ScopedPath) -> Vec<usize> {
        let zone = self.zone(path);
        let mut places = Vec::new();
        zone.set.matches_candidate_into(&Candidate::new(path.relative()), &mut places);
        for place in &mut places {
            *place = zone.places.get(*place).copied().unwrap_or(usize::MAX);
        }
        places
    }

    fn zone(&self, path: &ScopedPath) -> &ZoneGlobs {
        match path.zone() {
            Zone::Service => &self.service,
            Zone::Project => &self.project,
        }
    }
}

impl ZoneGlobs {
    fn new<'a>(globs: impl Iterator<Item = (usize, &'a str, &'a str)>) -> Result<Self, BadPattern> {
        let mut set = GlobSetBuilder::new();
        let mut places = Vec::new();
        let mut written = Vec::new();
        for (place, glob, body) in globs {
            let built = GlobBuilder::new(&anchored(body))
                .literal_separator(true)
                .build()
                .map_err(|error| BadPattern { pattern: glob.to_owned(), why: error.kind().to_string() })?;
            set.add(built);
            places.push(place);
            written.push(glob);
        }
        let set = set
            .build()
            .map_err(|error| BadPattern { pattern: written.join(", "), why: error.to_string() })?;
        Ok(Self { set, places })
    }
}

/// The glob as the matcher wants it: a folder with everything below it, a bare name at any depth.
fn anchored(body: &str) -> String {
    let body = body.trim_start_matches("./");
    if body.is_empty() || body == "." {
        return "**".to_owned();
    }
    let folder = body.strip_suffix("/**").or_else(|| body.strip_suffix('/'));
    match folder {
        Some(folder) => format!("{{{folder},{folder}/**}}"),
        None if body.contains('/') || body == "**" => body.to_owned(),
        None => format!("**/{body}"),
    }
}

/// Which paths may be touched: inside every `only`, outside every `never`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathFence {
    only: Vec<Arc<PathGlobs>>,
    never: Vec<Arc<PathGlobs>>,
}

impl PathFence {
    /// Inside these.
    #[must_use]
    pub fn only(globs: Arc<PathGlobs>) -> Self {
        Self { only: vec![globs], never: Vec::new() }
    }

    /// Takes these out.
    pub fn forbid(&mut self, globs: &Arc<PathGlobs>) {
        self.never.push(Arc::clone(globs));
    }

    /// Nothing at all.
    #[must_use]
    pub fn nothing() -> Self {
        let none = ZoneGlobs { set: GlobSet::empty(), places: Vec::new() };
        let globs = PathGlobs { globs: Arc::new([]), service: none.clone(), project: none };
        Self::only(Arc::new(globs))
    }

    /// Whether a path is inside.
    #[must_use]
    pub fn admits(&self, path: &ScopedPath) -> bool {
        self.only.iter().all(|globs| globs.matches(path))
            && !self.never.iter().any(|globs| globs.matches(path))
    }

    /// Whether every path is inside, so that a walker need not ask.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.only.is_empty() && self.never.is_empty()
    }

    fn meet(&mut self, other: &Self) {
        self.only.extend(other.only.iter().cloned());
        self.never.extend(other.never.iter().cloned());
    }

    /// For explanations: the globs, the forbidden ones with a leading `!`.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let only = self.only.iter().map(|globs| globs.globs().join(" | "));
        only.chain(self.never.iter().flat_map(|globs| globs.globs().iter().map(|glob| format!("!{glob}"))))
    }
}

/// Which names (hosts, secret scopes) may be touched: those that every list matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameFence {
    lists: Vec<Vec<String>>,
}

impl NameFence {
    /// What a declared policy lets through.
    #[must_use]
    pub fn of(policy: &NamePolicy) -> Self {
        match policy {
            NamePolicy::Allow => Self::default(),
            NamePolicy::Deny => Self { lists: vec![Vec::new()] },
            NamePolicy::Only(names) => Self { lists: vec![names.clone()] },
        }
    }

    /// Whether a name is inside.
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        self.lists.iter().all(|list| list.iter().any(|pattern| wildcard(pattern, name)))
    }

    fn meet(&mut self, other: &Self) {
        self.lists.extend(other.lists.iter().cloned());
    }

    /// For explanations.
    #[must_use]
    pub fn words(&self) -> Option<Vec<String>> {
        let first = self.lists.first()?;
        Some(first.iter().filter(|name| self.admits(name)).cloned().collect())
    }
}

/// Everything a call may touch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fence {
    /// Paths it may read.
    pub read: PathFence,
    /// Paths it may create, modify or delete.
    pub write: PathFence,
    /// Hosts it may connect to.
    pub hosts: NameFence,
    /// Secret scopes it may use.
    pub secrets: NameFence,
}

impl Fence {
    /// Narrows to what the other also admits.
    pub fn meet(&mut self, other: &Self) {
        self.read.meet(&other.read);
        self.write.meet(&other.write);
        self.hosts.meet(&other.hosts);
        self.secrets.meet(&other.secrets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::AskedPath;

    fn check(glob: &str, path: &str, expected: bool) {
        let globs = PathGlobs::new([glob]).unwrap();
        assert_eq!(globs.matches(&AskedPath::new(path).parse().unwrap()), expected, "{glob} {path}");
    }

    #[test]
    fn globs_mean_what_people_expect() {
        check("docs/", "docs/a/b.md", true);
        check("docs/", "docs", true);
        check("docs/**", "docs/a", true);
        check("docs/**", "docs", true);
        check("docs/", "x/docs/a", false);
        check("**/docs/", "x/docs/a", true);
        check("*.md", "a/b.md", true);
        check("*.md", "b.md", true);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "src/x/a.rs", false);
        check("**", "a/b", true);
        check(".", "a/b", true);
        check("project:shared/", "project:shared/x", true);
        check("shared/", "project:shared/x", false);
        check("*.md", "project:shared/x.md", false);
        check("project:*.md", "project:shared/x.md", true);
    }
}
