//! The fence (`envelope` in an explanation): what a call may use while it runs. Each layer contributes one; the call runs
//! inside the meet of all. A fence is a list of conditions that must all hold, so the meet is their concatenation and can
//! only shrink.

use std::sync::Arc;

use crate::glob::PathGlobs;
use crate::network::NetworkFence;
use crate::path::ScopedPath;
use crate::tool::{NamePolicy, wildcard};

/// Which paths may be used: inside every `only`, outside every `never`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathFence {
    only: Vec<Arc<PathGlobs>>,
    never: Vec<Arc<PathGlobs>>,
}

impl PathFence {
    /// Only paths that match.
    #[must_use]
    pub fn only(globs: Arc<PathGlobs>) -> Self {
        Self { only: vec![globs], never: Vec::new() }
    }

    /// Excludes paths that match.
    pub fn exclude(&mut self, globs: &Arc<PathGlobs>) {
        self.never.push(Arc::clone(globs));
    }

    /// No path.
    #[must_use]
    pub fn nothing() -> Self {
        Self::only(Arc::new(PathGlobs::none()))
    }

    /// Whether a path is inside the fence.
    #[must_use]
    pub fn admits(&self, path: &ScopedPath) -> bool {
        self.only.iter().all(|globs| globs.matches(path))
            && !self.never.iter().any(|globs| globs.matches(path))
    }

    /// Whether a path is excluded by name, and so everything below it; what is merely not listed is not.
    #[must_use]
    pub fn excludes(&self, path: &ScopedPath) -> bool {
        self.never.iter().any(|globs| globs.matches(path))
    }

    /// Whether a directory and everything that may ever be below it is inside the fence. False in doubt.
    #[must_use]
    pub fn admits_tree(&self, directory: &ScopedPath) -> bool {
        self.only.iter().all(|globs| globs.matches(directory))
            && !self.never.iter().any(|globs| globs.may_match_below(directory))
    }

    /// Whether every path is inside, so that a walk can skip the check.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.only.is_empty() && self.never.is_empty()
    }

    /// Narrows to what the other fence also admits.
    pub fn meet(&mut self, other: &Self) {
        let add = |own: &mut Vec<Arc<PathGlobs>>, more: &[Arc<PathGlobs>]| {
            let known = |globs: &&Arc<PathGlobs>| own.iter().any(|own| Arc::ptr_eq(own, globs));
            let more: Vec<_> = more.iter().filter(|globs| !known(globs)).cloned().collect();
            own.extend(more);
        };
        add(&mut self.only, &other.only);
        add(&mut self.never, &other.never);
    }

    /// For explanations: the globs, excluded ones with a leading `!`; `nothing` if no path is inside.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        if self.only.iter().any(|globs| globs.globs().is_empty()) {
            return vec!["nothing".to_owned()];
        }
        let only = self.only.iter().map(|globs| globs.globs().join(" | "));
        let never = self.never.iter().flat_map(|globs| globs.globs().iter().map(|glob| format!("!{glob}")));
        only.chain(never).collect()
    }
}

/// Which names (hosts, secret scopes) may be used: those that every list matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameFence {
    lists: Vec<Vec<String>>,
}

impl NameFence {
    /// The names that a declared policy admits.
    #[must_use]
    pub fn of(policy: &NamePolicy) -> Self {
        match policy {
            NamePolicy::Allow => Self::default(),
            NamePolicy::Deny => Self { lists: vec![Vec::new()] },
            NamePolicy::Only(names) => Self { lists: vec![names.clone()] },
        }
    }

    /// Whether a name is inside the fence.
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        self.lists.iter().all(|list| list.iter().any(|pattern| wildcard(pattern, name)))
    }

    fn meet(&mut self, other: &Self) {
        self.lists.extend(other.lists.iter().cloned());
    }

    /// The lists that must all match; none if every name is admitted.
    #[must_use]
    pub fn lists(&self) -> &[Vec<String>] {
        &self.lists
    }

    /// For explanations: the admitted patterns; `None` if every name is admitted.
    #[must_use]
    pub fn describe(&self) -> Option<Vec<String>> {
        let first = self.lists.first()?;
        Some(first.iter().filter(|name| self.admits(name)).cloned().collect())
    }
}

/// Everything that a call may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fence {
    /// Paths it may read.
    pub read: PathFence,
    /// Where every other hard link of a file that it reads must lie, so that a hard link cannot bypass a rule.
    pub hard_links: PathFence,
    /// Paths it may create, modify or delete.
    pub write: PathFence,
    /// Hosts it may connect to.
    pub hosts: NameFence,
    /// Destinations it may reach, redirects and resolved addresses included; none if no layer sets a list.
    pub network: NetworkFence,
    /// Secret scopes it may use.
    pub secrets: NameFence,
}

impl Fence {
    /// Inside these paths, for every kind of access.
    #[must_use]
    pub fn inside(globs: &Arc<PathGlobs>) -> Self {
        let only = || PathFence::only(Arc::clone(globs));
        Self { read: only(), hard_links: only(), write: only(), ..Self::default() }
    }

    /// Narrows to what the other fence also admits.
    pub fn meet(&mut self, other: &Self) {
        self.read.meet(&other.read);
        self.hard_links.meet(&other.hard_links);
        self.write.meet(&other.write);
        self.hosts.meet(&other.hosts);
        self.network.meet(&other.network);
        self.secrets.meet(&other.secrets);
    }
}
