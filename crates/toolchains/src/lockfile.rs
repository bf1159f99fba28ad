//! What a lockfile names: the hosts it needs, and what policy may want to deny.
//!
//! Lockfiles and the settings beside them come with the repository and are hostile input: every reader is bounded, takes
//! no URL at face value, and never repeats a credential. A host that a reader misses is a host that the sandbox does
//! not reach, so an unread entry fails closed.

pub(crate) mod bundler;
pub(crate) mod cargo;
pub(crate) mod go;
mod host_collector;
pub(crate) mod node_settings;
pub(crate) mod npm;
pub(crate) mod pnpm;
pub(crate) mod python;
pub(crate) mod requirements;
pub(crate) mod yaml_document;
pub(crate) mod yarn;

pub(crate) use host_collector::HostCollector;

/// Maximum number of hosts that are listed.
pub const MAX_LOCKFILE_HOSTS: usize = 200;
/// Maximum number of problems that are listed.
pub const MAX_LOCKFILE_PROBLEMS: usize = 200;

/// A host that an install connects to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockfileHost {
    /// Host name in canonical form, or an address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `https`, or what the URL says.
    pub scheme: String,
    /// Which file named it; `default` for the manager's public registry.
    pub origin: String,
    /// Number of entries that name it.
    pub entries: u64,
    /// Whether a problem is reported about one of them.
    pub suspicious: bool,
}

/// Kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockfileProblemKind {
    /// A URL or a settings file contains a credential.
    Credentials,
    /// Not fetched over https.
    NotHttps,
    /// An IP address instead of a name.
    Address,
    /// The machine itself, a metadata service, or a name without a dot.
    LocalName,
    /// An unusual port.
    Port,
    /// Not a URL that all programs understand alike.
    BadUrl,
    /// A path outside of the service.
    OutsideService,
    /// An entry without a hash: its content is not pinned.
    MissingHash,
    /// A setting that makes the manager run code of the repository.
    RunsCode,
    /// A setting that turns a check off.
    WeakenedChecks,
}

impl LockfileProblemKind {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::NotHttps => "not_https",
            Self::Address => "address",
            Self::LocalName => "local_name",
            Self::Port => "port",
            Self::BadUrl => "bad_url",
            Self::OutsideService => "outside_service",
            Self::MissingHash => "missing_hash",
            Self::RunsCode => "runs_code",
            Self::WeakenedChecks => "weakened_checks",
        }
    }
}

/// Something that policy may want to deny.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockfileProblem {
    /// Kind.
    pub kind: LockfileProblemKind,
    /// The package or the setting.
    pub subject: String,
    /// The file.
    pub file: String,
    /// What is wrong, without the credential.
    pub detail: String,
}

/// What the files of an install name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockfileFacts {
    /// Hosts, sorted.
    pub hosts: Vec<LockfileHost>,
    /// Hosts beyond [`MAX_LOCKFILE_HOSTS`].
    pub hosts_left_out: u64,
    /// Problems, in the order of the files.
    pub problems: Vec<LockfileProblem>,
    /// Problems beyond [`MAX_LOCKFILE_PROBLEMS`].
    pub problems_left_out: u64,
    /// Number of packages.
    pub packages: u64,
}

/// Why a lockfile cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{file}` cannot be read: {reason}")]
pub struct LockfileError {
    /// The file.
    pub file: String,
    /// The reason.
    pub reason: String,
}

impl LockfileError {
    pub(crate) fn new(file: &str, reason: impl std::fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            reason: crate::bounded_text::clip(&reason.to_string().replace('\n', " "), 200),
        }
    }
}

#[cfg(test)]
mod tests;
