//! What to run and inside which walls.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vambrace_core::block::hidden_from_programs;

use serde::{Deserialize, Serialize};

use crate::network::Door;
use crate::stop::Stop;
use crate::tier::Tier;

/// A program and its confinement.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program: a path, or a name that is looked for in the sandbox's `PATH`.
    pub program: OsString,
    /// The SHA-256 that the program's file must have; one that was replaced meanwhile is not started.
    pub digest: Option<[u8; 32]>,
    /// Its arguments, without the program's own name.
    pub arguments: Vec<OsString>,
    /// Its whole environment besides the five names that are always there.
    pub environment: Vec<(OsString, OsString)>,
    /// The project folder.
    pub workspace: PathBuf,
    /// Where the program starts, below the workspace; its root when empty.
    pub cwd: PathBuf,
    /// Which bits of its mode a new file does not get.
    pub umask: u32,
    /// What of the workspace the program sees, and what becomes of what it writes there.
    pub filesystem: Filesystem,
    /// Further paths that may be read and executed.
    pub read: Vec<PathBuf>,
    /// Further paths that may be changed, directly.
    pub write: Vec<PathBuf>,
    /// Whether what is written there goes into a layer that is dropped; not in tier no-userns.
    pub drops_writes: bool,
    /// Names that are masked in the workspace (`.env`, `secrets/`, `*.pem`), at any depth.
    pub masked: Vec<String>,
    /// Names below the workspace that are never promoted.
    pub protected: Vec<String>,
    /// Build folders of the workspace whose content is kept in [`crate::Places::scratch`] and never promoted.
    pub scratch: Vec<String>,
    /// The home folder whose toolchains are shown; none when absent.
    pub home: Option<PathBuf>,
    /// Folders that `PATH` names; those in the home folder are shown.
    pub path: Vec<PathBuf>,
    /// The network.
    pub network: Network,
    /// Who stands outside it, when it is gated.
    pub door: Option<Arc<dyn Door>>,
    /// Bounds.
    pub limits: Limits,
    /// Who may end it before its time.
    pub stop: Option<Stop>,
    /// Which denials are told.
    pub observe: Observe,
    /// The weakest tier that will do.
    pub least: Tier,
    /// The tier to use even where a stronger one is there; for tests and comparisons.
    pub only: Option<Tier>,
}

/// What the program sees of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filesystem {
    /// Nothing.
    Deny,
    /// Its files, unchangeable.
    Read,
    /// An empty folder; what is new at the end is moved in.
    Write,
    /// Its files; what changed at the end is taken over.
    ReadWrite,
    /// The same, but what changed is only told.
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

/// What of the network there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Not even a socket.
    None,
    /// A loopback interface of the sandbox's own, for programs that talk to themselves.
    Loopback,
    /// The same, and every other address leads to [`Spec::door`].
    Gated,
}

/// Which calls are put before the observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observe {
    /// None: denials are enforced, not told.
    Off,
    /// What is meant to change something, and starts of programs.
    Writes,
    /// Every open as well; for explaining a failure.
    All,
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Until SIGTERM.
    pub time: Duration,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Memory of the whole tree, in bytes; files in `/tmp` and changed files count.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Processor time of one process, in seconds.
    pub cpu_seconds: u64,
    /// Processors, in hundredths; where control groups can be used.
    pub cpu_percent: u64,
    /// One file, in bytes.
    pub file_size: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// `/tmp`, the home folder and changed files together, in bytes.
    pub disk: u64,
    /// What is written into build folders, in bytes; watched.
    pub scratch: u64,
    /// Kept of each of the two output streams, in bytes.
    pub output: usize,
}

impl Default for Limits {
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

/// Never promoted: what runs or configures without being asked, at any depth, since a project may hold others. A `.git`
/// that is no folder leads to one somewhere else, and is never promoted either.
pub const PROTECTED: &[&str] = &[
    ".aider.conf.yml",
    ".amazonq/",
    ".augment/",
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".byebugrc",
    ".claude/",
    ".cline/",
    "*.code-workspace",
    ".codex/",
    "**/.config/fish/",
    "**/.config/mise.toml",
    "**/.config/mise/",
    ".continue/",
    ".copilot/",
    ".crush.json",
    ".cshrc",
    ".cursor/",
    ".devcontainer.json",
    ".devcontainer/",
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".emacs",
    ".emacs.d/",
    ".emacs.el",
    ".envrc",
    ".exrc",
    ".factory/",
    ".fleet/",
    ".flow/",
    ".gdbinit",
    ".gemini/",
    ".ghci",
    "**/.git/commondir",
    "**/.git/config",
    "**/.git/config.worktree",
    "**/.git/hooks/",
    "**/.git/info/attributes",
    "**/.git/modules/",
    // Its `exec` lines are run by whoever goes on with it.
    "**/.git/rebase-merge/git-rebase-todo",
    "**/.git/sl/config",
    "**/.git/worktrees/",
    ".gitconfig",
    ".githooks/",
    "**/.github/hooks/",
    ".gitmodules",
    ".goose/",
    ".gvimrc",
    ".helix/",
    "**/.hg/hgrc",
    "**/.hg/hgrc-not-shared",
    "**/.hg/requires",
    "**/.hg/sharedpath",
    ".husky/",
    ".idea/",
    ".iex.exs",
    ".inputrc",
    ".irbrc",
    ".jj/",
    ".junie/",
    ".kiro/",
    ".kshrc",
    ".lefthook.*",
    ".lldbinit",
    ".login",
    ".logout",
    ".lvimrc",
    ".mcp.json",
    ".mise.*",
    ".mise/",
    ".mkshrc",
    ".nova/",
    ".nvim.lua",
    ".nvimrc",
    ".ocamlinit",
    ".octaverc",
    ".opencode/",
    ".overcommit.yml",
    ".pam_environment",
    ".pdbrc",
    ".perldb",
    ".pre-commit-config.yaml",
    ".profile",
    ".pryrc",
    ".qwen/",
    ".rdata",
    ".rdbgrc",
    ".rdbgrc.rb",
    ".renviron",
    ".ripgreprc",
    ".roo/",
    ".roomodes",
    ".rprofile",
    ".shrc",
    "**/.sl/config",
    "*.sublime-project",
    ".tcshrc",
    ".theia/",
    ".trae/",
    ".vambrace/",
    ".vimrc",
    ".vs/",
    ".vscode/",
    ".windsurf/",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".zed/",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "config.fish",
    "crush.json",
    "lefthook-local.*",
    "lefthook.*",
    "mcp.json",
    "mise.*.toml",
    "mise.toml",
    "opencode.json",
    "opencode.jsonc",
];

/// A pattern that means one name, wherever it is.
pub(crate) fn plain_name(pattern: &str) -> Option<&str> {
    let name = pattern.strip_suffix('/').unwrap_or(pattern);
    let special =
        |letter: char| matches!(letter, '/' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '\\' | '\0');
    let is_name = (1..=255).contains(&name.len()) && !matches!(name, "." | "..");
    (is_name && !name.contains(special)).then_some(name)
}

/// Build folders by default.
pub const SCRATCH: &[&str] = &["target", "node_modules", ".venv"];

impl Spec {
    /// A program in a workspace, with the bounds and names that hold when nobody says otherwise.
    #[must_use]
    pub fn new(program: impl Into<OsString>, workspace: impl Into<PathBuf>) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
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
            protected: owned(PROTECTED),
            scratch: Vec::new(),
            home: None,
            path: Vec::new(),
            network: Network::None,
            door: None,
            stop: None,
            limits: Limits::default(),
            observe: Observe::Writes,
            least: Tier::NoUserns,
            only: None,
        }
    }
}
