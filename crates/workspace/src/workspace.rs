//! A workspace: the project's root handle, its volume and its scope. The one place where a path of the host is
//! opened by name; everything after that goes through the handle.
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

use crate::fault::OpenError;
use crate::handle::{Root, Volume};
use crate::loom::{LoomFault, LoomLimits};
use crate::scope::{Scope, ScopeRules};
use crate::search::Strays;

/// The project as one service may see it. Cheap to clone; every clone is the same workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Root,
    scope: Scope,
    /// The root's own spellings, for links that name their target in full.
    spellings: Vec<PathBuf>,
    /// Whether the project lies inside a repository whose `.git` is above it.
    inside_repository: bool,
    strays: Arc<Strays>,
}

impl Workspace {
    /// Opens the project root and checks that the kernel can keep us inside it.
    pub fn open(project_root: &Path, rules: ScopeRules) -> Result<Self, OpenError> {
        let refuse = |why: String| OpenError::Root { path: project_root.display().to_string(), why };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, project_root, flags, Mode::empty())
            .map_err(|errno| refuse(errno.to_string()))?;
        let root = Root::new(fd).map_err(|errno| refuse(errno.to_string()))?;
        match root.open_folder("") {
            Ok(_) => {}
            // A seccomp filter that does not know the call answers EPERM instead of ENOSYS.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return Err(OpenError::NoOpenat2),
            Err(errno) => return Err(refuse(errno.to_string())),
        }
        let scope = Scope::new(rules)?;
        root.open_folder(scope.service()).map_err(|_| OpenError::ServiceRoot(scope.service().to_owned()))?;
        let real = std::fs::canonicalize(project_root).map_err(|error| refuse(error.to_string()))?;
        let inside_repository =
            real.ancestors().skip(1).any(|above| std::fs::metadata(above.join(".git")).is_ok());
        let mut spellings = vec![real];
        spellings.extend(std::path::absolute(project_root));
        let strays = Arc::default();
        Ok(Self { inner: Arc::new(Inner { root, scope, spellings, inside_repository, strays }) })
    }

    /// Device and mount of the root, for the record.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        self.inner.root.volume()
    }

    /// Whether the scope lets this path be written at all: the service's own folder and no blocked name.
    #[must_use]
    pub fn writable(&self, path: &ScopedPath) -> bool {
        let place = self.scope().place(path);
        self.scope().is_service(&place) && self.scope().admit(&place).is_ok()
    }

    /// The whole content of a file that may be changed, for whoever shows or edits a proposal of it.
    pub fn content(&self, path: &ScopedPath, limits: &LoomLimits) -> Result<Arc<Vec<u8>>, LoomFault> {
        self.base(path, limits).map(|base| base.bytes)
    }

    /// A short name for this project and service, the same in every process and after a restart of the machine.
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

    pub(crate) fn strays(&self) -> &Arc<Strays> {
        &self.inner.strays
    }

    /// What remains of an absolute path below the project root, when it is spelled like the root.
    pub(crate) fn below_root<'a>(&self, absolute: &'a str) -> Option<&'a str> {
        self.inner
            .spellings
            .iter()
            .find_map(|root| Path::new(absolute).strip_prefix(root).ok())
            .and_then(Path::to_str)
    }
}
