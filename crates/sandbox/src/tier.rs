//! How strong the walls are, in three steps, and what a kernel must do for each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A named strength. The order is by strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// Landlock, the system call filter and limits; the workspace only read, or an empty folder. No speculative runs.
    NoUserns,
    /// As full, without `/proc`: a container that masks its own lets no new one be mounted.
    FullNoProc,
    /// Namespaces of its own for files, processes, network and the rest, besides all of the above.
    Full,
}

impl Tier {
    /// As written in results, policies and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::FullNoProc => "full-no-proc",
            Self::NoUserns => "no-userns",
        }
    }

    /// From its written form.
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

/// Something of the kernel that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// Which.
    pub kind: FeatureKind,
    /// Whether it worked.
    pub works: bool,
    /// What was seen: a version, or the kernel's refusal.
    pub seen: String,
}

/// The features that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeatureKind {
    /// User, mount, pid, net, ipc, uts and cgroup namespaces.
    Namespaces,
    /// A root folder of its own and read-only mounts.
    Mounts,
    /// A new `/proc`.
    Proc,
    /// Overlays with whiteouts.
    Overlay,
    /// Mounts that show files as another user's; only asked of root.
    Idmap,
    /// A user id for programs that is not root's; only asked of root.
    Identity,
    /// Landlock from ABI 3 on.
    Landlock,
    /// The system call filter.
    Seccomp,
    /// The filter's listener.
    Observer,
    /// Landlock's own records of what it refused; for most users there are none, and no tier rests on them.
    Audit,
    /// A control group for memory and processes.
    Cgroup,
}

impl FeatureKind {
    /// Short, for a line of `doctor`.
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

    /// What does not work without it.
    #[must_use]
    pub fn lost(self) -> &'static str {
        match self {
            Self::Namespaces | Self::Mounts | Self::Overlay => {
                "programs run in tier no-userns: they can write only into an empty folder, have no build folders, and no run is \
                 speculative"
            }
            Self::Idmap => {
                "a broker that is root cannot show its files to an unprivileged user: tier no-userns, without build folders and \
                 toolchains of the home folder"
            }
            Self::Identity => {
                "programs find another number and have no capability, but files take them for root; tier no-userns is \
                 refused"
            }
            Self::Proc => "programs run in tier full-no-proc: they find no /proc",
            Self::Landlock => "no program is run: both tiers rest on it",
            Self::Seccomp => "no program is run: both tiers rest on it",
            Self::Observer => "denials are enforced but not told",
            Self::Audit => "what Landlock refuses by itself is not named",
            Self::Cgroup => {
                "memory is watched ten times a second instead of limited by the kernel; processes are limited per user"
            }
        }
    }

    /// How to get it back.
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
                "start it as an ordinary user, with CAP_SETUID and CAP_SETGID, or in a user namespace with more than one id"
            }
            Self::Landlock => "a kernel from 6.2 on with landlock in its `lsm=` list",
            Self::Seccomp => "a kernel with CONFIG_SECCOMP_FILTER; in a container allow the seccomp call",
            Self::Observer => "a kernel from 5.5 on; not inside another program that listens",
            Self::Audit => {
                "a kernel from 6.15 on, root outside of containers, and audit switched on (`auditctl -e 1`)"
            }
            Self::Cgroup => {
                "run as a service or scope of its own with `Delegate=yes` (nothing else in its group), or as root where control \
                 groups can be written"
            }
        }
    }
}

/// What was tried, and the tiers that follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Each.
    pub list: Vec<Feature>,
    /// Landlock's version, 0 when there is none.
    pub landlock_abi: i32,
}

impl Features {
    /// Whether one works; what was not tried was not needed.
    #[must_use]
    pub fn works(&self, kind: FeatureKind) -> bool {
        self.list.iter().filter(|feature| feature.kind == kind).all(|feature| feature.works)
    }

    /// The strongest tier.
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

    /// Why a tier cannot be had: the features that did not work.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let failed = self.list.iter().filter(|feature| !feature.works && feature.kind != FeatureKind::Audit);
        failed.map(|feature| format!("{}: {}", feature.kind.name(), feature.seen)).collect()
    }
}
