//! What a stage makes for its next run before anybody asks, because it takes long and is the same for most.

use std::path::Path;

use super::confine::Bounds;
use super::rules::Base;
use crate::filter::{self, Part, Profile, Walls};
use crate::spec::{Network, Observe};
use crate::sys::seccomp::Instruction;

/// For one run.
pub(crate) struct Stock {
    /// Landlock's rules of the system's own files.
    pub(super) base: Option<Base>,
    filters: Vec<(Profile, Vec<Instruction>)>,
    /// The part of the filter that is not installed yet.
    pub(super) part: Part,
    /// What the launcher itself is bound to.
    pub(super) bounds: Bounds,
}

impl Stock {
    /// The filters that most runs need; no rules yet.
    pub(crate) fn new(walls: Walls, part: Part) -> Self {
        let mut filters = Vec::new();
        for network in [Network::None, Network::Gated] {
            for observe in [Observe::Writes, Observe::Off] {
                let profile = Profile { network, observe, walls, guarded: Vec::new(), part };
                let filter = filter::compile(&profile);
                filters.push((profile, filter));
            }
        }
        Self { base: None, filters, part, bounds: Bounds::now() }
    }

    /// Adds the rules of a run's own folders; its new root still lies at `site`.
    pub(super) fn furnish(&mut self, site: &Path, home: &[u8]) {
        self.base = self.base.take().and_then(|base| base.furnish(site, home));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.base.is_some()
    }

    pub(crate) fn fill(&mut self, walls: Walls, landlock_abi: i32) {
        self.base = Base::make(walls, landlock_abi);
    }

    /// What is used once is gone from here; what was only read stays.
    pub(crate) fn take(&mut self) -> Self {
        let filters = std::mem::take(&mut self.filters);
        Self { base: self.base.take(), filters, part: self.part, bounds: self.bounds }
    }

    /// After a child has taken it: in this process the rest is still there, but the rules are the child's.
    pub(crate) fn forget(&mut self) {
        self.base = None;
    }

    pub(super) fn filter(&self, profile: &Profile) -> Vec<Instruction> {
        let known = self.filters.iter().find(|(one, _)| one == profile);
        known.map_or_else(|| filter::compile(profile), |(_, filter)| filter.clone())
    }
}
