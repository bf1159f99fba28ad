//! Paths: the state directory, the configuration files of the organisation and the user, the project. They are read from the
//! environment once and passed on as a value.

use std::env;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vambrace_core::error::ErrorCode;

use crate::error::HostError;
use crate::system::variable;

/// Configuration file of the organisation.
const ORGANISATION: &str = "/etc/vambrace/config.yaml";

/// Where state and configuration are.
#[derive(Debug, Clone)]
pub struct Paths {
    state: PathBuf,
    anchors: Option<PathBuf>,
    organisation: (PathBuf, Presence),
    user_config: Option<PathBuf>,
}

/// Whether a file must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It was named explicitly: if it does not exist, that is an error, not an empty policy.
    Required,
    /// It may not exist.
    Optional,
}

impl Paths {
    /// The paths that the environment names.
    pub fn from_environment() -> Result<Self, HostError> {
        Ok(Self {
            state: state()?,
            anchors: anchors(),
            organisation: organisation(),
            user_config: user_config(),
        })
    }

    /// The state directory: `$VAMBRACE_HOME`, else the XDG state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Directory for copies of checkpoints (anchors): outside the state directory, so that a rollback of the state does not
    /// roll them back too.
    #[must_use]
    pub fn anchors(&self) -> Option<&Path> {
        self.anchors.as_deref()
    }

    /// The organisation's file.
    pub(crate) fn organisation(&self) -> (&Path, Presence) {
        (&self.organisation.0, self.organisation.1)
    }

    /// The user's file.
    pub(crate) fn user_config(&self) -> Option<&Path> {
        self.user_config.as_deref()
    }

    /// The project: as given, else the nearest parent directory that is set up, else the current directory.
    pub fn project(&self, given: Option<&Path>) -> Result<PathBuf, HostError> {
        let project = directory(given)?;
        self.deny_overlap(&project)?;
        Ok(project)
    }

    /// The project for a command that gives no access to it; `None` if it overlaps the state directory, as a home directory
    /// does: files there are not a project's configuration.
    pub fn project_outside_state(&self) -> Result<Option<PathBuf>, HostError> {
        let project = directory(None)?;
        Ok(self.deny_overlap(&project).is_ok().then_some(project))
    }

    /// The state directory must be outside every workspace, or an agent could read the ledger.
    fn deny_overlap(&self, project: &Path) -> Result<(), HostError> {
        let state = self.state.canonicalize().unwrap_or_else(|_| self.state.clone());
        if state.starts_with(project) || project.starts_with(&state) {
            let why = format!(
                "the state directory `{}` and the workspace `{}` overlap",
                state.display(),
                project.display()
            );
            let hint = "set VAMBRACE_HOME to a directory outside the workspace";
            return Err(HostError::denied(ErrorCode::ScopeViolation, why, hint));
        }
        Ok(())
    }

    /// Paths below one directory, for tests.
    #[cfg(test)]
    pub(crate) fn below(dir: &Path) -> Self {
        Self {
            state: dir.join("state"),
            anchors: Some(dir.join("anchors")),
            organisation: (dir.join("organisation.yaml"), Presence::Optional),
            user_config: Some(dir.join("user.yaml")),
        }
    }
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

fn state() -> Result<PathBuf, HostError> {
    let dir = variable("VAMBRACE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_STATE_HOME").map(|dir| PathBuf::from(dir).join("vambrace")))
        .or_else(|| home().map(|home| home.join(".local/state/vambrace")))
        .ok_or_else(|| HostError::failed("no state directory is configured").hint("set VAMBRACE_HOME"))?;
    std::path::absolute(&dir)
        .map_err(|error| HostError::failed(format!("state directory `{}`: {error}", dir.display())))
}

fn anchors() -> Option<PathBuf> {
    let data =
        variable("XDG_DATA_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".local/share")));
    data.filter(|dir| dir.is_absolute()).map(|dir| dir.join("vambrace/anchors"))
}

/// The organisation's file, whether it exists or not.
#[must_use]
pub fn organisation_config() -> PathBuf {
    organisation().0
}

/// `$VAMBRACE_ORG_CONFIG` counts only if the machine has no file, so that the variable cannot remove a policy.
fn organisation() -> (PathBuf, Presence) {
    let fixed = Path::new(ORGANISATION);
    match variable("VAMBRACE_ORG_CONFIG") {
        Some(named) if !fixed.try_exists().unwrap_or(true) => (PathBuf::from(named), Presence::Required),
        _ => (fixed.to_owned(), Presence::Optional),
    }
}

fn user_config() -> Option<PathBuf> {
    let dir =
        variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".config")))?;
    Some(dir.join("vambrace/config.yaml"))
}

fn directory(given: Option<&Path>) -> Result<PathBuf, HostError> {
    let here =
        || env::current_dir().map_err(|error| HostError::failed(format!("current directory: {error}")));
    let start = match given {
        Some(dir) => dir.to_owned(),
        None => {
            let here = here()?;
            here.ancestors().find(|dir| is_set_up(dir)).map(Path::to_owned).unwrap_or(here)
        }
    };
    let found = start.canonicalize().and_then(|found| {
        if found.is_dir() { Ok(found) } else { Err(std::io::ErrorKind::NotADirectory.into()) }
    });
    found.map_err(|error| {
        HostError::usage(
            format!("workspace `{}`: {error}", start.display()),
            "name an existing directory with `--workspace`",
        )
    })
}

/// The nearest parent directory that is set up.
pub(crate) fn set_up_above(project: &Path) -> Option<&Path> {
    project.ancestors().skip(1).find(|dir| is_set_up(dir))
}

/// Whether the caller or root set up this directory. In a directory that all may write, such as `/tmp`, another user
/// could otherwise choose the workspace of everything below (git: `safe.directory`).
fn is_set_up(dir: &Path) -> bool {
    let is_trusted = |name: &str| {
        let me = rustix::process::geteuid().as_raw();
        dir.join(name).symlink_metadata().is_ok_and(|found| is_trusted_owner(found.uid(), me))
    };
    (dir.join(".vambrace").exists() && is_trusted(".vambrace"))
        || (dir.join(".flow/config.json").is_file() && is_trusted(".flow"))
}

fn is_trusted_owner(owner: u32, me: u32) -> bool {
    owner == me || owner == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a temporary directory")]
    fn directory_that_another_user_set_up_is_not_a_workspace() {
        assert!(is_trusted_owner(1000, 1000) && is_trusted_owner(0, 1000) && !is_trusted_owner(65534, 1000));
        assert!(is_trusted_owner(0, 0) && !is_trusted_owner(1000, 0));
        let temp = tempfile::tempdir().unwrap();
        let (shared, project) = (temp.path(), temp.path().join("project"));
        std::fs::create_dir_all(shared.join(".vambrace")).unwrap();
        assert_eq!(set_up_above(&project), Some(shared));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(shared.join(".vambrace"), Some(65534), None).unwrap();
            assert!(set_up_above(&project).is_none_or(|above| above != shared));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a temporary directory")]
    fn workspace_and_state_directory_must_not_overlap() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let paths = Paths::below(&root);
        std::fs::create_dir_all(root.join("state/inner")).unwrap();
        std::fs::create_dir_all(root.join("project")).unwrap();
        for denied in [root.clone(), root.join("state"), root.join("state/inner")] {
            let error = paths.project(Some(&denied)).unwrap_err();
            assert_eq!(error.error.code, ErrorCode::ScopeViolation, "{}", denied.display());
        }
        assert_eq!(paths.project(Some(&root.join("project"))).unwrap(), root.join("project"));
    }
}
