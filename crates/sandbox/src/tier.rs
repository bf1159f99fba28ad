//! Tiers: which kernel features confine a run, and what the kernel must support for each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A level of confinement, ordered by strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// Landlock, the seccomp filter and limits; the workspace is read-only, or an empty directory. No speculative
    /// runs.
    NoUserns,
    /// Like full, without `/proc`: a container that masks its own `/proc` cannot mount a new one.
    FullNoProc,
    /// Separate namespaces for mounts, processes, network and the rest, besides all of the above.
    Full,
}

impl Tier {
    /// Name in results, policies and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::FullNoProc => "full-no-proc",
            Self::NoUserns => "no-userns",
        }
    }

    /// Parses the name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Full, Self::FullNoProc, Self::NoUserns].into_iter().find(|tier| tier.as_str() == word)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A kernel feature that was probed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// Which.
    pub kind: FeatureKind,
    /// Whether it worked.
    pub works: bool,
    /// Result of the probe: a version, or the kernel's error.
    pub seen: String,
}

/// The features that are probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeatureKind {
    /// User, mount, pid, net, ipc, uts and cgroup namespaces.
    Namespaces,
    /// A private root directory and read-only mounts.
    Mounts,
    /// A new `/proc`.
    Proc,
    /// Overlays with whiteouts.
    Overlay,
    /// Idmapped mounts; only probed as root.
    Idmap,
    /// A user id other than root for programs; only probed as root.
    Identity,
    /// Landlock from ABI 3 on.
    Landlock,
    /// The seccomp filter.
    Seccomp,
    /// The seccomp listener.
    Observer,
    /// Landlock's audit records of denials; not available to most users, and no tier depends on them.
    Audit,
    /// Cgroup limits for memory and processes.
    Cgroup,
}

impl FeatureKind {
    /// Short name for `doctor`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Mounts => "mounts",
            Self::Proc => "proc",
            Self::Overlay => "overlay",
            Self::Idmap => "idmapped mounts",
            Self::Identity => "user id",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Observer => "observer",
            Self::Audit => "landlock audit",
            Self::Cgroup => "control group",
        }
    }

    /// What is lost without it.
    #[must_use]
    pub fn lost(self) -> &'static str {
        match self {
            Self::Namespaces | Self::Mounts | Self::Overlay => {
                "programs run in tier no-userns: they can write only into an empty directory, have no scratch directories, and no run is \
                 speculative"
            }
            Self::Idmap => {
                "a root broker cannot show its files to an unprivileged user: tier no-userns, without scratch directories and \
                 toolchains of the home directory"
            }
            Self::Identity => {
                "programs see another user id and have no capability, but to files they are root; tier no-userns is \
                 denied"
            }
            Self::Proc => "programs run in tier full-no-proc: they have no /proc",
            Self::Landlock => "no program is run: every tier requires it",
            Self::Seccomp => "no program is run: every tier requires it",
            Self::Observer => "denials are enforced but not reported",
            Self::Audit => "denials by Landlock alone are not reported",
            Self::Cgroup => {
                "memory is polled ten times a second instead of limited by the kernel (without /proc: limited for each \
                 process only); processes are limited per user"
            }
        }
    }

    /// How to enable it.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::Namespaces => {
                "on Ubuntu install the AppArmor profile from packaging/apparmor; in a container allow user namespaces \
                 (its seccomp profile, kernel.unprivileged_userns_clone, user.max_user_namespaces)"
            }
            Self::Mounts => {
                "in a container allow mounts in user namespaces (its AppArmor or seccomp profile)"
            }
            Self::Proc => {
                "start the container with an unmasked /proc (`--security-opt systempaths=unconfined`)"
            }
            Self::Overlay => "a kernel from 6.6 on with overlayfs",
            Self::Idmap => "a kernel from 5.19 on, or run the broker as an ordinary user",
            Self::Identity => {
                "run as an ordinary user, with CAP_SETUID and CAP_SETGID, or in a user namespace with more than one id"
            }
            Self::Landlock => "a kernel from 6.2 on with landlock in its `lsm=` list",
            Self::Seccomp => "a kernel with CONFIG_SECCOMP_FILTER; in a container allow the seccomp call",
            Self::Observer => "a kernel from 5.5 on; not below another process with a seccomp listener",
            Self::Audit => {
                "a kernel from 6.15 on, root outside of containers, and audit enabled (`auditctl -e 1`)"
            }
            Self::Cgroup => {
                "run as a service or scope of its own with `Delegate=yes` (nothing else in its cgroup), or as root with writable \
                 cgroups"
            }
        }
    }
}

/// Probe results, which determine the tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// All probed features.
    pub list: Vec<Feature>,
    /// Landlock ABI; 0 when there is none.
    pub landlock_abi: i32,
}

impl Features {
    /// Whether a feature works; one that was not probed is not needed.
    #[must_use]
    pub fn works(&self, kind: FeatureKind) -> bool {
        self.list.iter().filter(|feature| feature.kind == kind).all(|feature| feature.works)
    }

    /// The strongest available tier.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        use FeatureKind::{Identity, Idmap, Landlock, Mounts, Namespaces, Overlay, Proc, Seccomp};
        let all = |kinds: &[FeatureKind]| kinds.iter().all(|kind| self.works(*kind));
        if !all(&[Landlock, Seccomp]) {
            None
        } else if !all(&[Namespaces, Mounts, Overlay, Idmap]) {
            self.works(Identity).then_some(Tier::NoUserns)
        } else if self.works(Proc) {
            Some(Tier::Full)
        } else {
            Some(Tier::FullNoProc)
        }
    }

    /// Why a tier is not available: the features that did not work.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let failed = self.list.iter().filter(|feature| !feature.works && feature.kind != FeatureKind::Audit);
        failed.map(|feature| format!("{}: {}", feature.kind.name(), feature.seen)).collect()
    }
}
