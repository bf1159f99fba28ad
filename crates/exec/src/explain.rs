//! Computes the smallest set of grants that a failed program would need, from its denials.
//!
//! The program runs again with everything observed and all writes discarded. Denied lookups count only if no other denial can
//! be granted: programs look up many files that they do not need. What would be denied next is unknown until a denial is
//! granted; grants that give no access to the machine (a discarded write layer, a private network without routes) are
//! tried, others are not.

mod candidates;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use vambrace_sandbox::{
    DenialRule, Exit, Filesystem, Input, NetworkMode, Observe, RunOutcome, Sandbox, SandboxDenial, Spec,
    StopHandle, Tier,
};

use crate::error::ExecError;
use crate::network::{GateSetup, NetworkAttempts};
use crate::request::NetworkRequest;
use crate::run::{PreparedRun, RunReport, behind};
use candidates::GrantCandidates;

/// Something that a request can ask for.
#[derive(Debug, Clone, PartialEq)]
pub enum Grant {
    /// Another access to the workspace.
    Filesystem(Filesystem),
    /// A loopback interface.
    Loopback,
    /// These hosts.
    Hosts(Vec<String>),
    /// A further path to read.
    Read(PathBuf),
    /// A further path to change.
    Write(PathBuf),
    /// A longer time limit.
    Time(Duration),
    /// A higher memory limit, in bytes.
    Memory(u64),
    /// A higher disk limit, in bytes.
    Disk(u64),
}

/// A grant without a path that would permit the denied action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ModeGrant {
    Read,
    ReadWrite,
    /// Without namespaces: only new files, in a directory that is empty at the start.
    Write,
    Loopback,
}

impl ModeGrant {
    fn grant(self) -> Grant {
        match self {
            Self::Read => Grant::Filesystem(Filesystem::Read),
            Self::ReadWrite => Grant::Filesystem(Filesystem::ReadWrite),
            Self::Write => Grant::Filesystem(Filesystem::Write),
            Self::Loopback => Grant::Loopback,
        }
    }

    /// Adds the grant to a run whose changes are discarded.
    fn apply_to(self, spec: &mut Spec) {
        match self {
            Self::Read => spec.filesystem = Filesystem::Read,
            Self::ReadWrite => spec.filesystem = Filesystem::Speculative,
            Self::Write => spec.filesystem = Filesystem::Write,
            Self::Loopback => spec.network = NetworkMode::Loopback,
        }
    }
}

/// The denials of the observed run, and the grants that would permit them.
#[derive(Debug)]
pub struct NeededGrants {
    /// The exit code of the last run.
    pub exit_code: i32,
    /// Whether the program could not be run again.
    pub not_rerun: bool,
    /// Whether the caller stopped it.
    pub stopped: bool,
    /// The denials of the last run.
    pub denials: Vec<SandboxDenial>,
    /// Whether the list of denials may be incomplete.
    pub denials_missing: bool,
    /// What the program would need; enough if the last run succeeded.
    pub grants: Vec<Grant>,
    /// What no request gets.
    pub never: BTreeSet<String>,
    /// What this user may not access either.
    pub no_access: BTreeSet<String>,
    /// Granted paths that prevent a rename or removal; their parent must be granted instead.
    pub in_place_of: BTreeSet<String>,
    /// A file of the workspace that cannot be changed because of its group.
    pub foreign_group: Option<ForeignGroup>,
    /// Whether it did not start in the workspace.
    pub outside_workspace: bool,
    /// Connection attempts seen by a gate that only observes.
    pub attempts: Option<NetworkAttempts>,
    free_grant: Option<ModeGrant>,
}

impl NeededGrants {
    /// Whether the last run succeeded.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.exit_code == 0
    }
}

/// What is known in addition to the outcome of a run.
#[derive(Debug, Default)]
struct ExplainState {
    /// Grants that the run had in addition to the request.
    given: Vec<ModeGrant>,
    /// Grants that were tried and did not help.
    useless: Vec<ModeGrant>,
    /// The hosts of the request.
    listed: Vec<String>,
    /// Denied hosts.
    hosts: BTreeSet<String>,
}

impl PreparedRun {
    /// Explains why a program failed: runs it again, and computes what it would need. Nothing that it changes is kept, but
    /// build directories, and what it sends to allowed hosts.
    pub fn explain(
        &self,
        sandbox: &Sandbox,
        first: &RunReport,
        stop: Option<StopHandle>,
    ) -> Result<NeededGrants, ExecError> {
        let mut spec = Spec { stop, ..self.spec.clone() };
        let mut state = ExplainState::default();
        if let (NetworkRequest::Hosts(hosts), Some(_)) = (&self.network, &self.gate) {
            state.listed.clone_from(&hosts.hosts);
        }
        if first.outcome.tier == Tier::NoUserns && !spec.write.is_empty() {
            // In this tier, writes to further paths cannot be discarded.
            let needed = needed_grants(&first.outcome, &spec, sandbox, &state, None);
            return Ok(NeededGrants { not_rerun: true, free_grant: None, ..needed });
        }
        spec.observe = Observe::All;
        spec.drops_writes = true;
        if spec.filesystem == Filesystem::ReadWrite {
            spec.filesystem = Filesystem::Speculative;
        }
        let mut observing = None;
        loop {
            let gate = observing.as_ref().or(self.gate.as_ref());
            let run = &mut |spec: &Spec| sandbox.run(spec, Input::Nothing, &mut |_, _| {});
            let (outcome, attempts) = behind(gate, &spec, run)?;
            state.hosts = attempts.as_ref().map(NetworkAttempts::wanted_hosts).unwrap_or_default();
            // Attempts that a host list denied were reported for the first run.
            let attempts = attempts.filter(|_| gate.is_some_and(GateSetup::only_observes));
            let needed = needed_grants(&outcome, &spec, sandbox, &state, attempts);
            if !needed.is_enough() && !needed.stopped && state.given.last() == Some(&ModeGrant::Write) {
                // An empty directory does not help.
                state.given.pop();
                state.useless.push(ModeGrant::Write);
                spec.filesystem = Filesystem::Read;
                continue;
            }
            let Some(mode) = needed.free_grant else {
                let keeps = !needed.is_enough() && !needed.stopped;
                let foreign_group = ForeignGroup::find(&spec, outcome.tier).filter(|_| keeps);
                return Ok(NeededGrants { foreign_group, ..needed });
            };
            mode.apply_to(&mut spec);
            state.given.push(mode);
            if spec.network == NetworkMode::Loopback {
                observing = Some(GateSetup::observing(&mut spec, self.runtime()));
            }
        }
    }
}

fn needed_grants(
    outcome: &RunOutcome,
    spec: &Spec,
    sandbox: &Sandbox,
    state: &ExplainState,
    attempts: Option<NetworkAttempts>,
) -> NeededGrants {
    let workspace = spec.workspace.canonicalize().unwrap_or_else(|_| spec.workspace.clone());
    let mut found = GrantCandidates::default();
    for denial in &outcome.denials {
        // A visible path may be a symlink to the outside.
        let real = match denial.rule {
            DenialRule::NotGranted => denial.path.canonicalize().ok(),
            _ => None,
        };
        let inside = real.as_ref().unwrap_or(&denial.path).starts_with(&workspace);
        found.add(denial, inside, spec, outcome.tier, sandbox, &state.useless);
    }
    let enough = outcome.exit == Exit::Code(0);
    let free = |mode: &&ModeGrant| match mode {
        ModeGrant::Read => false,
        // The program could read the files already.
        ModeGrant::ReadWrite | ModeGrant::Write => spec.filesystem == Filesystem::Read,
        ModeGrant::Loopback => spec.network == NetworkMode::None,
    };
    let stopped = matches!(outcome.exit, Exit::Stopped(_));
    let free_grant = found.modes.iter().find(free).copied().filter(|_| !enough && !stopped);
    let mut grants: Vec<Grant> = state.given.iter().map(|mode| mode.grant()).collect();
    match exhausted_limit(outcome, spec) {
        Some(ExhaustedLimit::Grant(grant)) => grants.push(grant),
        Some(ExhaustedLimit::Fixed(what)) => _ = found.never.insert(what),
        None => {}
    }
    if !enough {
        grants.extend(found.grants());
        if !state.hosts.is_empty() {
            // The denied hosts are needed; a host list includes a loopback interface.
            grants.retain(|grant| !matches!(grant, Grant::Loopback | Grant::Hosts(_)));
            grants.push(Grant::Hosts(state.listed.iter().chain(&state.hosts).cloned().collect()));
        }
    }
    NeededGrants {
        exit_code: outcome.exit.code(),
        not_rerun: false,
        stopped,
        denials: outcome.denials.clone(),
        denials_missing: outcome.denials_missing || stopped,
        grants,
        never: if enough { BTreeSet::new() } else { found.never },
        no_access: if enough { BTreeSet::new() } else { found.no_access },
        in_place_of: if enough { BTreeSet::new() } else { found.in_place_of },
        foreign_group: None,
        outside_workspace: spec.filesystem == Filesystem::Deny,
        attempts,
        free_grant,
    }
}

/// A limit that the program reached.
enum ExhaustedLimit {
    Grant(Grant),
    /// No request changes it.
    Fixed(String),
}

/// The limit that was reached, doubled: how much the program needs is unknown.
fn exhausted_limit(outcome: &RunOutcome, spec: &Spec) -> Option<ExhaustedLimit> {
    const TOO_LARGE: i32 = 25;
    const REPORTED_BY_SHELL: i32 = 128 + TOO_LARGE;
    let doubled = |bytes: u64| bytes.max(1 << 20).saturating_mul(2);
    let limits = &spec.limits;
    // With a private file system, only build directories are watched.
    let disk = if outcome.tier == Tier::NoUserns { limits.disk } else { limits.scratch };
    Some(ExhaustedLimit::Grant(match outcome.exit {
        Exit::Timeout => Grant::Time(limits.time.saturating_mul(2)),
        Exit::OutOfMemory => Grant::Memory(doubled(limits.memory)),
        Exit::OutOfDisk => Grant::Disk(doubled(disk)),
        Exit::Signal(TOO_LARGE) | Exit::Code(REPORTED_BY_SHELL) => match outcome.tier {
            Tier::NoUserns if disk < limits.file_size => Grant::Disk(doubled(disk)),
            _ => {
                let what = format!("a file of more than {}M", limits.file_size >> 20);
                return Some(ExhaustedLimit::Fixed(what));
            }
        },
        Exit::Code(_) | Exit::Signal(_) | Exit::Stopped(_) => return None,
    }))
}

/// A file of the workspace with a group that is not mapped in the user namespace: overlayfs cannot copy it up (EOVERFLOW).
#[derive(Debug)]
pub struct ForeignGroup {
    /// The file.
    pub path: PathBuf,
    /// Its group.
    pub group: u32,
}

impl ForeignGroup {
    /// Looks at the top level of the workspace, for a run of an unprivileged user with an overlay.
    fn find(spec: &Spec, tier: Tier) -> Option<Self> {
        let layered = matches!(spec.filesystem, Filesystem::ReadWrite | Filesystem::Speculative);
        if !layered || tier == Tier::NoUserns || rustix::process::geteuid().is_root() {
            return None;
        }
        let own = rustix::process::getegid().as_raw();
        let dir = spec.workspace.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(spec.workspace.clone()).chain(dir).find_map(|path| {
            let group = path.symlink_metadata().ok()?.gid();
            (group != own).then_some(Self { path, group })
        })
    }
}
