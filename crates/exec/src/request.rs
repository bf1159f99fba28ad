//! [`RunRequest`]: what a caller asks to be run, before settings and fence narrow it.

use std::ffi::OsString;
use std::path::PathBuf;

use vambrace_egress::{TrafficCaps, UpstreamProxy};
use vambrace_sandbox::{Filesystem, Observe, RunLimits, SCRATCH, Tier};

/// A program, and what it asks for.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The program: a path, or a name that is looked up in the sandbox's `PATH`.
    pub program: OsString,
    /// Its arguments, without the program's own name.
    pub arguments: Vec<OsString>,
    /// The SHA-256 that the program's file must have.
    pub digest: Option<[u8; 32]>,
    /// The project directory.
    pub workspace: PathBuf,
    /// The working directory, relative to the workspace; empty for the workspace itself.
    pub cwd: PathBuf,
    /// What the program sees of the workspace.
    pub filesystem: Filesystem,
    /// Names of environment variables to pass on; `*` matches any characters.
    pub environment: Vec<String>,
    /// Further variables that are set. Those of Vambrace itself are not.
    pub variables: Vec<(OsString, OsString)>,
    /// What it may reach.
    pub network: NetworkRequest,
    /// Resource limits.
    pub limits: RunLimits,
    /// Further paths that it may read and execute.
    pub read: Vec<PathBuf>,
    /// Further paths that it may change, directly.
    pub write: Vec<PathBuf>,
    /// Build directories of the workspace.
    pub scratch: Vec<String>,
    /// The weakest tier that is accepted.
    pub min_tier: Tier,
    /// Which denials to report.
    pub observe: Observe,
}

/// The network that a program asks for.
#[derive(Debug, Clone)]
pub enum NetworkRequest {
    /// None: not even a socket.
    None,
    /// A loopback interface of its own.
    Loopback,
    /// Some hosts, through the egress gate.
    Hosts(HostRequest),
}

/// The hosts that a program asks for, and how its connections are limited.
#[derive(Debug, Clone)]
pub struct HostRequest {
    /// Rules: hosts, addresses, networks; `allow` for every address that is not special; `!` denies.
    pub hosts: Vec<String>,
    /// Limits of the traffic.
    pub caps: TrafficCaps,
    /// The proxy that every connection goes through.
    pub upstream: Option<UpstreamProxy>,
}

impl RunRequest {
    /// A program that reads the workspace, with default limits and without network.
    pub fn new(program: impl Into<OsString>, workspace: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            digest: None,
            workspace: workspace.into(),
            cwd: PathBuf::new(),
            filesystem: Filesystem::Read,
            environment: Vec::new(),
            variables: Vec::new(),
            network: NetworkRequest::None,
            limits: RunLimits::default(),
            read: Vec::new(),
            write: Vec::new(),
            scratch: SCRATCH.iter().map(|name| (*name).to_owned()).collect(),
            min_tier: Tier::NoUserns,
            observe: Observe::Writes,
        }
    }
}
