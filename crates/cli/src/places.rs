//! Where files lie: the state folder, the configuration of the organisation and the user, the project.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vambrace_core::error::ErrorCode;

use crate::failure::Failure;

/// The organisation's file.
const ORGANISATION: &str = "/etc/vambrace/config.yaml";

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

/// The state folder: `$VAMBRACE_HOME`, else the XDG state folder.
pub(crate) fn state() -> Result<PathBuf, Failure> {
    let folder = variable("VAMBRACE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_STATE_HOME").map(|folder| PathBuf::from(folder).join("vambrace")))
        .or_else(|| home().map(|home| home.join(".local/state/vambrace")))
        .ok_or_else(|| Failure::failed("no place for the state is known").hint("set VAMBRACE_HOME"))?;
    std::path::absolute(&folder)
        .map_err(|error| Failure::failed(format!("state folder `{}`: {error}", folder.display())))
}

/// Where copies of checkpoints are kept: apart from the state folder, so that setting that back does not set them back.
pub(crate) fn anchors() -> Option<PathBuf> {
    let data =
        variable("XDG_DATA_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".local/share")));
    data.filter(|folder| folder.is_absolute()).map(|folder| folder.join("vambrace/anchors"))
}

/// The organisation's file. `$VAMBRACE_ORG_CONFIG` names another one only where the machine has none, so that the
/// variable cannot take a policy away.
pub(crate) fn organisation() -> (PathBuf, Presence) {
    let fixed = Path::new(ORGANISATION);
    match variable("VAMBRACE_ORG_CONFIG") {
        Some(named) if !fixed.try_exists().unwrap_or(true) => (PathBuf::from(named), Presence::Required),
        _ => (fixed.to_owned(), Presence::Optional),
    }
}

/// Whether a file must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Somebody named it: its absence is a fault, not an absent policy.
    Required,
    /// It may be missing.
    Optional,
}

/// The user's file.
pub(crate) fn user() -> Option<PathBuf> {
    let folder =
        variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".config")))?;
    Some(folder.join("vambrace/config.yaml"))
}

/// The project: as given, else the nearest folder upwards that is set up, else the current folder.
pub(crate) fn project(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let project = folder(given)?;
    refuse_overlap(&project)?;
    Ok(project)
}

/// The project's folder for a command that gives nobody access to it: none where it and the state folder overlap, as in a home folder. What
/// lies there is not a project's configuration.
pub(crate) fn project_if_apart() -> Result<Option<PathBuf>, Failure> {
    let project = folder(None)?;
    Ok(refuse_overlap(&project).is_ok().then_some(project))
}

fn folder(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = || env::current_dir().map_err(|error| Failure::failed(format!("the current folder: {error}")));
    let start = match given {
        Some(folder) => folder.to_owned(),
        None => {
            let here = here()?;
            here.ancestors().find(|folder| is_set_up(folder)).map(Path::to_owned).unwrap_or(here)
        }
    };
    let found = start.canonicalize().and_then(|found| {
        if found.is_dir() { Ok(found) } else { Err(std::io::ErrorKind::NotADirectory.into()) }
    });
    found.map_err(|error| {
        Failure::usage(
            format!("workspace `{}`: {error}", start.display()),
            "name an existing folder with --workspace",
        )
    })
}

/// The nearest folder above that is set up.
pub(crate) fn set_up_above(project: &Path) -> Option<&Path> {
    project.ancestors().skip(1).find(|folder| is_set_up(folder))
}

fn is_set_up(folder: &Path) -> bool {
    folder.join(".vambrace").exists() || folder.join(".flow/config.json").is_file()
}

/// The state must lie outside every workspace, or an agent could read the ledger.
fn refuse_overlap(project: &Path) -> Result<(), Failure> {
    let state = state()?;
    let state = state.canonicalize().unwrap_or(state);
    if state.starts_with(project) || project.starts_with(&state) {
        let why = format!(
            "the state folder `{}` and the workspace `{}` overlap",
            state.display(),
            project.display()
        );
        let hint = "set VAMBRACE_HOME to a folder outside the workspace";
        return Err(Failure::denied(ErrorCode::ScopeViolation, why, hint));
    }
    Ok(())
}
