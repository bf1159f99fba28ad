//! What a zygote builds in advance for its next run, because it is slow and the same for most runs: Landlock base
//! rules and compiled filters.

use std::path::Path;

use super::confine::InheritedLimits;
use super::landlock_rules::BaseRules;
use crate::filter::{self, Confinement, FilterPart, Profile};
use crate::spec::{NetworkMode, Observe};
use crate::sys::seccomp::Instruction;

/// Prebuilt parts for one run.
pub(crate) struct Prebuilt {
    /// Landlock rules for system files.
    pub(super) base: Option<BaseRules>,
    filters: Vec<(Profile, Vec<Instruction>)>,
    /// The part of the filter that is still to be installed.
    pub(super) part: FilterPart,
    /// Resource limits of the launcher itself.
    pub(super) bounds: InheritedLimits,
}

impl Prebuilt {
    /// Compiles the filters that most runs need; no rules yet.
    pub(crate) fn new(confinement: Confinement, part: FilterPart) -> Self {
        let mut filters = Vec::new();
        for network in [NetworkMode::None, NetworkMode::Gated] {
            for observe in [Observe::Writes, Observe::Off] {
                let profile = Profile { network, observe, confinement, guarded: Vec::new(), part };
                let filter = filter::compile(&profile);
                filters.push((profile, filter));
            }
        }
        Self { base: None, filters, part, bounds: InheritedLimits::now() }
    }

    /// Adds the rules of a run's private directories; its new root is still mounted at `site`.
    pub(super) fn add_run_paths(&mut self, site: &Path, home: &[u8]) {
        self.base = self.base.take().and_then(|base| base.add_run_paths(site, home));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.base.is_some()
    }

    pub(crate) fn fill(&mut self, confinement: Confinement, landlock_abi: i32) {
        self.base = BaseRules::make(confinement, landlock_abi);
    }

    /// Moves everything into the child's value.
    pub(crate) fn take(&mut self) -> Self {
        let filters = std::mem::take(&mut self.filters);
        Self { base: self.base.take(), filters, part: self.part, bounds: self.bounds }
    }

    /// In the zygote, after a fork: the rules belong to the child, the rest stays.
    pub(crate) fn forget(&mut self) {
        self.base = None;
    }

    pub(super) fn filter(&self, profile: &Profile) -> Vec<Instruction> {
        let known = self.filters.iter().find(|(one, _)| one == profile);
        known.map_or_else(|| filter::compile(profile), |(_, filter)| filter.clone())
    }
}
