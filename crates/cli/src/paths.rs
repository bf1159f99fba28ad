//! Paths: the state directory, the configuration files of the organisation and the user, the project.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vambrace_core::error::ErrorCode;

use crate::failure::Failure;

/// Configuration file of the organisation.
const ORGANISATION: &str = "/etc/vambrace/config.yaml";

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

/// The state directory: `$VAMBRACE_HOME`, else the XDG state directory.
pub(crate) fn state() -> Result<PathBuf, Failure> {
    let dir = variable("VAMBRACE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_STATE_HOME").map(|dir| PathBuf::from(dir).join("vambrace")))
        .or_else(|| home().map(|home| home.join(".local/state/vambrace")))
        .ok_or_else(|| Failure::failed("no state directory is configured").hint("set VAMBRACE_HOME"))?;
    std::path::absolute(&dir)
        .map_err(|error| Failure::failed(format!("state directory `{}`: {error}", dir.display())))
}

/// Directory for copies of checkpoints (anchors): outside the state directory, so that a rollback of the state does not roll
/// them back too.
pub(crate) fn anchors() -> Option<PathBuf> {
    let data =
        variable("XDG_DATA_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".local/share")));
    data.filter(|dir| dir.is_absolute()).map(|dir| dir.join("vambrace/anchors"))
}

/// The organisation's file. `$VAMBRACE_ORG_CONFIG` counts only if the machine has none, so that the variable cannot remove a
/// policy.
pub(crate) fn organisation() -> (PathBuf, Presence) {
    let fixed = Path::new(ORGANISATION);
    match variable("VAMBRACE_ORG_CONFIG") {
        Some(named) if !fixed.try_exists().unwrap_or(true) => (PathBuf::from(named), Presence::Required),
        _ => (fixed.to_owned(), Presence::Optional),
    }
}

/// Whether a file must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It was named explicitly: if it does not exist, that is an error, not an empty policy.
    Required,
    /// It may not exist.
    Optional,
}

/// The user's file.
pub(crate) fn user() -> Option<PathBuf> {
    let dir =
        variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".config")))?;
    Some(dir.join("vambrace/config.yaml"))
}

/// The project: as given, else the nearest parent directory that is set up, else the current directory.
pub(crate) fn project(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let project = directory(given)?;
    deny_overlap(&project)?;
    Ok(project)
}

/// The project for a command that gives no access to it; `None` if it overlaps the state directory, as a home directory
/// does: files there are not a project's configuration.
pub(crate) fn project_outside_state() -> Result<Option<PathBuf>, Failure> {
    let project = directory(None)?;
    Ok(deny_overlap(&project).is_ok().then_some(project))
}

fn directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = || env::current_dir().map_err(|error| Failure::failed(format!("current directory: {error}")));
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
        Failure::usage(
            format!("workspace `{}`: {error}", start.display()),
            "name an existing directory with `--workspace`",
        )
    })
}

/// The nearest parent directory that is set up.
pub(crate) fn set_up_above(project: &Path) -> Option<&Path> {
    project.ancestors().skip(1).find(|dir| is_set_up(dir))
}

fn is_set_up(dir: &Path) -> bool {
    dir.join(".vambrace").exists() || dir.join(".flow/config.json").is_file()
}

/// The state directory must be outside every workspace, or an agent could read the ledger.
fn deny_overlap(project: &Path) -> Result<(), Failure> {
    let state = state()?;
    let state = state.canonicalize().unwrap_or(state);
    if state.starts_with(project) || project.starts_with(&state) {
        let why = format!(
            "the state directory `{}` and the workspace `{}` overlap",
            state.display(),
            project.display()
        );
        let hint = "set VAMBRACE_HOME to a directory outside the workspace";
        return Err(Failure::denied(ErrorCode::ScopeViolation, why, hint));
    }
    Ok(())
}
