//! A workspace: the project's root handle, its volume and its scope. This is the only module that opens a host path by
//! name; everything after that goes through the handle.
#![expect(
    clippy::disallowed_methods,
    reason = "the project root is opened once by its path; from then on only its handle is used"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use crate::edit::{EditError, EditLimits};
use crate::error::OpenError;
use crate::handle::{Root, Volume};
use crate::program_scope::ProgramScope;
use crate::scope::{Scope, ScopeRules};
use crate::search::AbandonedThreads;

/// The project as one service can access it. Cheap to clone; every clone is the same workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<WorkspaceInner>,
}

#[derive(Debug)]
struct WorkspaceInner {
    root: Root,
    scope: Scope,
    /// Absolute paths of the root, for symlinks with an absolute target.
    spellings: Vec<PathBuf>,
    /// Whether the project lies inside a repository whose `.git` is above it.
    inside_repository: bool,
    abandoned_threads: Arc<AbandonedThreads>,
}

impl Workspace {
    /// Opens the project root and checks that the kernel supports `openat2`.
    pub fn open(project_root: &Path, rules: ScopeRules) -> Result<Self, OpenError> {
        let root_error = |why: String| OpenError::Root { path: project_root.display().to_string(), why };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, project_root, flags, Mode::empty())
            .map_err(|errno| root_error(errno.to_string()))?;
        let root = Root::new(fd).map_err(|errno| root_error(errno.to_string()))?;
        match root.open_dir("") {
            Ok(_) => {}
            // A seccomp filter that does not know the call returns EPERM instead of ENOSYS.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return Err(OpenError::NoOpenat2),
            Err(errno) => return Err(root_error(errno.to_string())),
        }
        let scope = Scope::new(rules)?;
        root.open_dir(scope.service()).map_err(|_| OpenError::ServiceRoot(scope.service().to_owned()))?;
        let real = std::fs::canonicalize(project_root).map_err(|error| root_error(error.to_string()))?;
        let inside_repository =
            real.ancestors().skip(1).any(|above| std::fs::metadata(above.join(".git")).is_ok());
        let mut spellings = vec![real];
        spellings.extend(std::path::absolute(project_root));
        let abandoned_threads = Arc::default();
        Ok(Self {
            inner: Arc::new(WorkspaceInner { root, scope, spellings, inside_repository, abandoned_threads }),
        })
    }

    /// Device and mount of the root, for the record.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        self.inner.root.volume()
    }

    /// The path of an entry whose path below the project root is known; `None` if it is not UTF-8 or not normalized.
    #[must_use]
    pub fn project_path(&self, relative: &Path) -> Option<ScopedPath> {
        ScopedPath::in_project(relative.to_str()?, self.scope().service())
    }

    /// The project's directory, symlinks resolved; for programs that run in it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.spellings.first().map(PathBuf::as_path).unwrap_or_else(|| Path::new(""))
    }

    /// What a program may use of the project, as the scope of the service says; `None` if the service is the whole project.
    #[must_use]
    pub fn program_scope(&self) -> Option<ProgramScope> {
        ProgramScope::of(self.scope())
    }

    /// Whether this is the project that a resolved path names.
    #[must_use]
    pub fn is_project_at(&self, real_path: &Path) -> bool {
        self.inner.spellings.first().is_some_and(|own| own == real_path)
    }

    /// Whether the path is in the service root and not blocked.
    #[must_use]
    pub fn writable(&self, path: &ScopedPath) -> bool {
        let rel_path = self.scope().rel_path(path);
        self.scope().is_service(&rel_path) && self.scope().admit(&rel_path).is_ok()
    }

    /// The whole content of a writable file, for showing or amending a proposal.
    pub fn content(&self, path: &ScopedPath, limits: &EditLimits) -> Result<Arc<Vec<u8>>, EditError> {
        self.base_content(path, limits).map(|base| base.bytes)
    }

    /// A short id of this project and service, the same in every process and after a reboot.
    pub(crate) fn identity(&self) -> String {
        let path =
            self.inner.spellings.first().map(|path| path.as_os_str().as_encoded_bytes()).unwrap_or_default();
        let hex = Digest::of_parts([path, self.scope().service().as_bytes()]).hex();
        hex.iter().take(16).map(|digit| char::from(*digit)).collect()
    }

    pub(crate) fn root(&self) -> &Root {
        &self.inner.root
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.inner.scope
    }

    pub(crate) fn inside_repository(&self) -> bool {
        self.inner.inside_repository
    }

    pub(crate) fn abandoned_threads(&self) -> &Arc<AbandonedThreads> {
        &self.inner.abandoned_threads
    }

    /// The part of an absolute path below the project root; `None` when it is not below one of the root's spellings.
    pub(crate) fn strip_root<'a>(&self, absolute: &'a str) -> Option<&'a str> {
        self.inner
            .spellings
            .iter()
            .find_map(|root| Path::new(absolute).strip_prefix(root).ok())
            .and_then(Path::to_str)
    }
}
