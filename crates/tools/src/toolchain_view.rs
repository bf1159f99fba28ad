//! What the detection of toolchains sees of a project: its files through the workspace, so that blocked and out-of-scope
//! files do not exist for it; and, by existence only, installed dependencies, which agents cannot read but programs run.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use vambrace_core::digest::Digest;
use vambrace_core::path::{ScopedPath, Zone};
use vambrace_sandbox::{SCRATCH, StateDirs};
use vambrace_toolchains::ProjectView;
use vambrace_workspace::{Content, ListRequest, ReadRequest, ResolvedKind, Workspace};

use crate::program_context::ProgramContext;

/// Maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of names of one directory.
const MAX_NAMES: usize = 5000;
/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// Directories of installed dependencies, with the programs that they bring.
const DEPENDENCIES: &[&str] = &["node_modules", ".venv", "venv"];
/// Where the sandbox always has programs, beside the directories of `PATH`.
const SYSTEM_PATH: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// What the sandbox shows of the system.
const SYSTEM_ROOTS: &[&str] = &["/usr", "/opt", "/nix", "/bin", "/sbin"];

/// The files of one project.
#[derive(Debug)]
pub(crate) struct ToolchainView<'a> {
    workspace: &'a Workspace,
    programs: &'a ProgramContext,
    /// Resolved path of the project directory, as programs see it.
    project: PathBuf,
    /// Where the sandbox keeps the project's build directories.
    scratch: PathBuf,
}

impl<'a> ToolchainView<'a> {
    pub(crate) fn new(workspace: &'a Workspace, programs: &'a ProgramContext) -> Self {
        let directory = workspace.directory();
        let project = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let scratch = scratch_directory(programs.sandbox.places(), &project);
        Self { workspace, programs, project, scratch }
    }

    /// Resolved path of the service root, as programs see it.
    pub(crate) fn service_directory(&self) -> PathBuf {
        self.project.join(self.service_root())
    }

    /// Resolved path of the project directory, as programs see it.
    pub(crate) fn project_directory(&self) -> &Path {
        &self.project
    }

    /// The service root relative to the project; empty for the project itself.
    pub(crate) fn service_root(&self) -> &str {
        let root = self.programs.settings.service_root.trim_end_matches('/');
        if root == "." { "" } else { root }
    }

    /// Whether a program can be started: a name on the sandbox's search path, or a path relative to the service root.
    pub(crate) fn installed(&self, program: &str) -> bool {
        if program.contains('/') {
            return if program.starts_with('/') {
                is_executable(Path::new(program))
            } else {
                self.exists(program)
            };
        }
        let inherited = &self.programs.inherited;
        let home = inherited.home.as_deref();
        let shown = |dir: &&Path| {
            SYSTEM_ROOTS.iter().any(|root| dir.starts_with(root))
                || home.is_some_and(|home| dir.starts_with(home))
        };
        let own = inherited.path.iter().map(PathBuf::as_path).filter(|dir| dir.is_absolute()).filter(shown);
        own.chain(SYSTEM_PATH.iter().map(Path::new)).any(|dir| is_executable(&dir.join(program)))
    }

    /// Whether an earlier run left a path, relative to the project, in a build directory of the sandbox.
    pub(crate) fn was_built(&self, path: &str) -> bool {
        exists_below(&self.scratch, path)
    }

    /// Whether the project itself has a directory of dependencies. The sandbox then shows that one and keeps no other.
    pub(crate) fn has_own(&self, name: &str) -> bool {
        self.project.join(name).is_dir()
    }

    fn resolved(&self, path: &str) -> Option<vambrace_workspace::Resolved> {
        let path = scoped(path)?;
        // Most probes are for files that do not exist; the workspace would look for similar names.
        self.service_directory().join(path.relative()).symlink_metadata().ok()?;
        self.workspace.resolve(&path).ok()
    }

    /// Installed dependencies: blocked for agents, and outside of the scope where they are symlinks to the system.
    fn is_dependency(&self, path: &str) -> bool {
        let Some(path) = scoped(path) else { return false };
        if !path.relative().split('/').any(|name| DEPENDENCIES.contains(&name)) {
            return false;
        }
        let root = self.service_root();
        let relative =
            if root.is_empty() { path.relative().to_owned() } else { format!("{root}/{}", path.relative()) };
        let top = relative.split('/').next().unwrap_or_default();
        if SCRATCH.contains(&top) && !self.has_own(top) {
            self.was_built(&relative)
        } else {
            exists_below(&self.project, &relative)
        }
    }
}

impl ProjectView for ToolchainView<'_> {
    fn exists(&self, path: &str) -> bool {
        self.resolved(path).is_some() || self.is_dependency(path)
    }

    fn is_directory(&self, path: &str) -> bool {
        self.resolved(path).is_some_and(|found| found.kind == ResolvedKind::Directory)
    }

    fn read(&self, path: &str) -> Option<String> {
        let request = ReadRequest {
            end_line: Some(u64::MAX),
            max_bytes: MAX_FILE_BYTES,
            hard_cap: MAX_FILE_BYTES,
            ..ReadRequest::default()
        };
        let read = self.workspace.read_open(&self.resolved(path)?, &request).ok()?;
        match read.content {
            Content::Text(text) if !read.truncated => Some(text),
            _ => None,
        }
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let Some(path) = scoped(directory).filter(|_| self.is_directory(directory)) else {
            return Vec::new();
        };
        let request = ListRequest { max_entries: MAX_NAMES, ..ListRequest::default() };
        let listing = self.workspace.list(&path, &request);
        listing.map(|listing| listing.files.into_iter().map(|entry| entry.name).collect()).unwrap_or_default()
    }
}

/// A path of the service; `None` if it is not normalized.
fn scoped(path: &str) -> Option<ScopedPath> {
    let root = ScopedPath::root(Zone::Service);
    match path {
        "" | "." => Some(root),
        path if path.len() > MAX_PATH_BYTES => None,
        path => path.split('/').try_fold(root, |path, name| path.join(name)),
    }
}

/// Whether a path exists below a directory. The last name may be a symlink to anywhere; no other symlink leads out.
fn exists_below(directory: &Path, relative: &str) -> bool {
    let path = directory.join(relative);
    let inside = || {
        let root = directory.canonicalize().ok()?;
        let parent = path.parent()?.canonicalize().ok()?;
        Some(parent.starts_with(root))
    };
    path.symlink_metadata().is_ok() && inside() == Some(true)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Where the sandbox keeps the build directories of a project: named by a digest of its resolved path.
fn scratch_directory(places: &StateDirs, project: &Path) -> PathBuf {
    let digest = Digest::of(project.as_os_str().as_encoded_bytes()).hex();
    let name: String = digest.iter().take(24).copied().map(char::from).collect();
    places.scratch.join(name)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make their own directories")]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_normalized_are_no_paths() {
        for path in ["../x", "a/../b", "a//b", "/etc/passwd", "./a", "a/.", "a\0b"] {
            assert_eq!(scoped(path), None, "{path}");
        }
        assert_eq!(scoped("a/b").unwrap().relative(), "a/b");
        assert_eq!(scoped(".").unwrap().relative(), "");
    }

    #[test]
    fn only_the_last_name_of_a_dependency_may_lead_out() {
        let directory = std::env::temp_dir().join(format!("vambrace-toolchain-view-{}", std::process::id()));
        std::fs::create_dir_all(directory.join(".venv/bin")).unwrap();
        std::os::unix::fs::symlink("/usr/bin/env", directory.join(".venv/bin/python")).unwrap();
        std::os::unix::fs::symlink("/usr/bin", directory.join(".venv/out")).unwrap();
        let found = [".venv/bin/python", ".venv/out/env", ".venv/bin/pytest"]
            .map(|path| exists_below(&directory, path));
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn programs_are_executable_files() {
        assert!(is_executable(Path::new("/bin/sh")));
        assert!(!is_executable(Path::new("/bin")) && !is_executable(Path::new("/etc/passwd")));
    }
}
