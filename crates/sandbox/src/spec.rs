//! [`Spec`]: what to run and how it is confined.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vambrace_core::blocked_paths::hidden_from_programs;
use vambrace_core::risk::SELF_RUNNING;

use crate::network::NetworkGate;
use crate::stop::StopHandle;
use crate::tier::Tier;
use crate::workspace_fence::WorkspaceFence;

/// A program and its confinement.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program: a path, or a name that is looked up in the sandbox's `PATH`.
    pub program: OsString,
    /// The SHA-256 that the program's file must have; a file that was replaced meanwhile is not started.
    pub digest: Option<[u8; 32]>,
    /// Its arguments, without the program's own name.
    pub arguments: Vec<OsString>,
    /// Its environment variables, besides the five that are always set.
    pub environment: Vec<(OsString, OsString)>,
    /// The project directory.
    pub workspace: PathBuf,
    /// The working directory, relative to the workspace; empty for the workspace itself.
    pub cwd: PathBuf,
    /// The file mode creation mask.
    pub umask: u32,
    /// What the program sees of the workspace, and what happens to what it writes there.
    pub filesystem: Filesystem,
    /// Further paths that the program may read and execute.
    pub read: Vec<PathBuf>,
    /// Further paths that the program may change, directly.
    pub write: Vec<PathBuf>,
    /// Whether writes to those paths go into an overlay that is discarded; not in tier no-userns.
    pub drops_writes: bool,
    /// Names that are masked in the workspace (`.env`, `secrets/`, `*.pem`), at any depth.
    pub masked: Vec<String>,
    /// What else of the workspace is masked, or not written back.
    pub fence: WorkspaceFence,
    /// Names that are never written back, at any depth: files that run code or configure tools without being asked. A
    /// `.git` that is not a directory points to one elsewhere and is never written back either.
    pub protected: Vec<String>,
    /// Build directories of the workspace: their content is kept in [`crate::StateDirs::scratch`] and never written back.
    pub scratch: Vec<String>,
    /// The home directory whose toolchains are visible; none when absent.
    pub home: Option<PathBuf>,
    /// Directories of `PATH`; those in the home directory are visible.
    pub path: Vec<PathBuf>,
    /// The network.
    pub network: NetworkMode,
    /// The egress gate of a gated network.
    pub gate: Option<Arc<dyn NetworkGate>>,
    /// Resource limits.
    pub limits: RunLimits,
    /// Lets the caller stop the run early.
    pub stop: Option<StopHandle>,
    /// Which denials to report.
    pub observe: Observe,
    /// The weakest tier that is accepted.
    pub min_tier: Tier,
    /// The tier to use even where a stronger one is available; for tests and comparisons.
    pub forced_tier: Option<Tier>,
}

/// What the program sees of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filesystem {
    /// Nothing.
    Deny,
    /// Its files, read-only.
    Read,
    /// An empty directory; new files are moved into the workspace at the end.
    Write,
    /// Its files; changes are written back at the end.
    ReadWrite,
    /// The same, but changes are only reported.
    Speculative,
}

impl Filesystem {
    /// As written on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "readwrite",
            Self::Speculative => "speculative",
        }
    }
}

/// Which network the program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkMode {
    /// None: not even a socket.
    None,
    /// A loopback interface of the sandbox's own, for programs that talk to themselves.
    Loopback,
    /// The same, and every other address leads to [`Spec::gate`].
    Gated,
}

/// Which system calls go to the observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observe {
    /// None: denials are enforced, not reported.
    Off,
    /// Calls that change something, and program starts.
    Writes,
    /// Every open as well; to explain a failure.
    All,
}

/// Resource limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Until SIGTERM.
    pub time: Duration,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Memory of all processes together, in bytes; files in `/tmp` and changed files count.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// CPU time of one process, in seconds.
    pub cpu_seconds: u64,
    /// CPUs, in percent of one; only where cgroups are available.
    pub cpu_percent: u64,
    /// Size of one file, in bytes.
    pub file_size: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// `/tmp`, the home directory and changed files together, in bytes.
    pub disk: u64,
    /// What is written to build directories, in bytes; enforced by polling.
    pub scratch: u64,
    /// How much of each of the two output streams is kept, in bytes.
    pub output: usize,
}

impl Default for RunLimits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            time: Duration::from_secs(60),
            grace: Duration::from_millis(500),
            memory: 2048 * MIB,
            processes: 512,
            cpu_seconds: 600,
            cpu_percent: 400,
            file_size: 1024 * MIB,
            open_files: 1024,
            disk: 1024 * MIB,
            scratch: 16 * 1024 * MIB,
            output: 1 << 20,
        }
    }
}

/// The name, if the pattern matches exactly one name at any depth.
pub(crate) fn plain_name(pattern: &str) -> Option<&str> {
    let name = pattern.strip_suffix('/').unwrap_or(pattern);
    let special =
        |letter: char| matches!(letter, '/' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '\\' | '\0');
    let is_name = (1..=255).contains(&name.len()) && !matches!(name, "." | "..");
    (is_name && !name.contains(special)).then_some(name)
}

/// Default names of build directories.
pub const SCRATCH: &[&str] = &["target", "node_modules", ".venv"];

impl Spec {
    /// A program in a workspace, with the default limits and names.
    #[must_use]
    pub fn new(program: impl Into<OsString>, workspace: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            digest: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            workspace: workspace.into(),
            cwd: PathBuf::new(),
            umask: 0o022,
            filesystem: Filesystem::Read,
            read: Vec::new(),
            write: Vec::new(),
            drops_writes: false,
            masked: hidden_from_programs().map(str::to_owned).collect(),
            fence: WorkspaceFence::default(),
            protected: SELF_RUNNING.protected().map(str::to_owned).collect(),
            scratch: Vec::new(),
            home: None,
            path: Vec::new(),
            network: NetworkMode::None,
            gate: None,
            stop: None,
            limits: RunLimits::default(),
            observe: Observe::Writes,
            min_tier: Tier::NoUserns,
            forced_tier: None,
        }
    }
}
