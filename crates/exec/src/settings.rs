//! [`RunSettings`]: what a configuration says about every run of a program.

use std::sync::Arc;

use vambrace_core::blocked_paths::{hidden_from_programs, is_hidden_from_programs};
use vambrace_core::config::{EffectiveConfig, FileConfig, TerminateSettings, Tier as RequiredTier};
use vambrace_egress::TrustedRoots;
use vambrace_sandbox::{RunLimits, Tier};

use crate::network::HostLists;

/// Limits, masks and hosts of a configuration.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Memory of all processes of a run, in bytes; `None` is no limit, here and below.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// CPUs, in percent of one.
    pub cpu_percent: Option<u64>,
    /// `/tmp`, the home directory and changed files together, in bytes.
    pub disk: Option<u64>,
    /// The weakest tier that is accepted.
    pub min_tier: Tier,
    /// Patterns of names that no program sees.
    pub masked: Vec<String>,
    /// The service root, relative to the project; empty for the project itself.
    pub service_root: String,
    /// Hosts that may be reached at most.
    pub hosts: HostLists,
    /// Hosts whose TLS the gate terminates.
    pub terminate: Vec<TerminateSettings>,
    /// The certificates that the gate trusts there.
    pub trusted_roots: Arc<TrustedRoots>,
}

impl RunSettings {
    /// The settings of a configuration. `files`: the files that it was combined from, of the organisation, the user and the
    /// project, in this order.
    #[must_use]
    pub fn of(config: &EffectiveConfig, files: &[&FileConfig], trusted_roots: Arc<TrustedRoots>) -> Self {
        let service_root = match config.service_root.trim_end_matches('/') {
            "." => String::new(),
            root => root.trim_start_matches("./").to_owned(),
        };
        Self {
            memory: config.sandbox.memory,
            processes: config.sandbox.pids,
            cpu_percent: config.sandbox.cpu,
            disk: config.sandbox.tmp,
            min_tier: match config.sandbox.tier {
                RequiredTier::Namespaces => Tier::FullNoProc,
                _ => Tier::NoUserns,
            },
            masked: masked_names(&config.block, &service_root),
            service_root,
            hosts: HostLists::of(config, files),
            terminate: config.network.terminate.clone(),
            trusted_roots,
        }
    }

    /// Lowers limits to those of the configuration.
    pub(crate) fn bound(&self, limits: &mut RunLimits) {
        let least = |asked: u64, most: Option<u64>| most.map_or(asked, |most| asked.min(most));
        limits.memory = least(limits.memory, self.memory);
        limits.processes = least(limits.processes, self.processes);
        limits.cpu_percent = least(limits.cpu_percent, self.cpu_percent);
        limits.disk = least(limits.disk, self.disk);
    }
}

/// The blocked patterns that hold for programs too. A pattern with a slash is relative to the project root and to the
/// service root, as for tools.
fn masked_names(blocked: &[String], service_root: &str) -> Vec<String> {
    let mut masked: Vec<String> = hidden_from_programs().map(str::to_owned).collect();
    for pattern in blocked.iter().filter(|pattern| is_hidden_from_programs(pattern)) {
        let mut forms = vec![pattern.clone()];
        let relative = pattern.trim_start_matches("./").trim_start_matches('/');
        if !service_root.is_empty() && relative.trim_end_matches('/').contains('/') {
            forms.push(format!("{service_root}/{relative}"));
        }
        for form in forms {
            if !masked.contains(&form) {
                masked.push(form);
            }
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use vambrace_core::blocked_paths::BlockList;

    use super::*;

    // T12
    #[test]
    fn blocked_patterns_of_the_user_are_masked_from_both_roots() {
        let blocked = [".git/", "node_modules/", "private/", "config/prod/", "**/*.key", "./a/b"];
        let blocked: Vec<String> = blocked.map(str::to_owned).to_vec();
        let list = BlockList::new(masked_names(&blocked, "svc")).unwrap();
        for path in [
            "private/x",
            "d/private",
            "config/prod/k",
            "svc/config/prod/k",
            "x.key",
            "a/b",
            "svc/a/b",
            ".env",
        ] {
            assert!(list.blocks(path).is_some(), "{path}");
        }
        for path in [".git/HEAD", "node_modules/x", "other/config/prod/k", "d/a/b", "src/main.rs"] {
            assert_eq!(list.blocks(path), None, "{path}");
        }
    }
}
