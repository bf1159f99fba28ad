//! The fence (the envelope of an explanation): what a call may touch while it runs. Each layer contributes one; the
//! call runs inside the meet of them all. A fence is a list of conditions that must all hold, so the meet is the
//! concatenation and can only shrink.

use std::sync::Arc;

use crate::glob::PathGlobs;
use crate::network::Reach;
use crate::path::ScopedPath;
use crate::tool::{NamePolicy, wildcard};

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
        Self::only(Arc::new(PathGlobs::none()))
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

    /// For explanations: the globs, the forbidden ones with a leading `!`; `nothing` where nothing is inside.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        if self.only.iter().any(|globs| globs.globs().is_empty()) {
            return vec!["nothing".to_owned()];
        }
        let only = self.only.iter().map(|globs| globs.globs().join(" | "));
        let never = self.never.iter().flat_map(|globs| globs.globs().iter().map(|glob| format!("!{glob}")));
        only.chain(never).collect()
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
    /// Where every other name of a file that it reads must lie: a hard link is no way around a rule.
    pub kin: PathFence,
    /// Paths it may create, modify or delete.
    pub write: PathFence,
    /// Hosts it may connect to.
    pub hosts: NameFence,
    /// What of the network it may reach, wherever it is led; nothing where no layer says.
    pub reach: Reach,
    /// Secret scopes it may use.
    pub secrets: NameFence,
}

impl Fence {
    /// Inside these paths, whatever is done to them.
    #[must_use]
    pub fn inside(globs: &Arc<PathGlobs>) -> Self {
        let only = || PathFence::only(Arc::clone(globs));
        Self { read: only(), kin: only(), write: only(), ..Self::default() }
    }

    /// Narrows to what the other also admits.
    pub fn meet(&mut self, other: &Self) {
        self.read.meet(&other.read);
        self.kin.meet(&other.kin);
        self.write.meet(&other.write);
        self.hosts.meet(&other.hosts);
        self.reach.meet(&other.reach);
        self.secrets.meet(&other.secrets);
    }
}
