//! Plans an install of dependencies: only from a lockfile, in the manager's locked form, without install scripts unless
//! they are allowed, with the hosts that it needs.

mod node;
mod python;
mod refused_form;
mod system_language;

use vambrace_core::error::{CallError, ErrorCode};

pub use refused_form::{InstallForm, install_form};

use crate::command_plan::CommandPlan;
use crate::lockfile::requirements::RequirementsError;
use crate::lockfile::{HostCollector, LockfileError, LockfileFacts};
use crate::package_manager::PackageManager;
use crate::project_view::{ProjectView, join};

/// Whether packages and the project may run code while they are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InstallScripts {
    /// No scripts, no builds, no plugins, as far as the manager can be told.
    #[default]
    Off,
    /// As the manager does by default.
    Allowed,
}

/// What an install plan is made from, beside the project.
#[derive(Debug, Clone, Copy, Default)]
pub struct InstallRequest<'a> {
    /// The manager; found by its lockfile if it is not given.
    pub manager: Option<PackageManager>,
    /// Directory of the lockfile, relative to the service root.
    pub directory: Option<&'a str>,
    /// Whether code may run.
    pub scripts: InstallScripts,
    /// The proxy for go modules; the public one if it is not given.
    pub go_proxy: Option<&'a str>,
}

/// A planned install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallPlan {
    /// The manager.
    pub manager: PackageManager,
    /// The lockfile, relative to the service root.
    pub lockfile: String,
    /// The commands, in order; a later one runs only after the earlier ones succeeded.
    pub steps: Vec<CommandPlan>,
    /// Hosts and problems.
    pub facts: LockfileFacts,
    /// Whether code may run.
    pub scripts: InstallScripts,
    /// What the reader of the plan should know.
    pub notes: Vec<String>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// No lockfile of any manager.
    #[error("no lockfile was found in the service")]
    NothingFound,
    /// Lockfiles of several managers or in several directories.
    #[error("several lockfiles were found: {}", .0.join(", "))]
    Several(Vec<String>),
    /// The manager's lockfile is missing.
    #[error("{} needs a lockfile, and there is no {}", manager.as_str(), manager.lockfiles().join(" or "))]
    NoLockfile {
        /// The manager.
        manager: PackageManager,
    },
    /// The lockfile cannot be read.
    #[error(transparent)]
    Unreadable(#[from] LockfileError),
    /// The requirements file does not pin everything.
    #[error(transparent)]
    Requirements(#[from] RequirementsError),
    /// The directory is not one of the service.
    #[error("`{0}` is not a directory of the service")]
    BadDirectory(String),
}

impl InstallError {
    /// What the caller can do.
    #[must_use]
    pub fn suggestion(&self) -> String {
        match self {
            Self::NothingFound => {
                "ask the user to create a lockfile with the project's package manager".to_owned()
            }
            Self::Several(_) => "name the manager, for example {\"manager\": \"npm\"}".to_owned(),
            Self::NoLockfile { manager } => {
                format!("ask the user to create and commit it with `{}`", manager.lock_command())
            }
            Self::Unreadable(_) => "ask the user to create the lockfile again".to_owned(),
            Self::Requirements(_) => {
                format!(
                    "ask the user for a file with hashes, made by `{}`",
                    PackageManager::Pip.lock_command()
                )
            }
            Self::BadDirectory(_) => "give a directory relative to the service root".to_owned(),
        }
    }
}

impl From<InstallError> for CallError {
    fn from(error: InstallError) -> Self {
        let code = match error {
            InstallError::NothingFound | InstallError::NoLockfile { .. } => ErrorCode::FileNotFound,
            InstallError::BadDirectory(_) => ErrorCode::ScopeViolation,
            _ => ErrorCode::InvalidArguments,
        };
        Self::new(code, error.to_string()).suggest(error.suggestion())
    }
}

/// What a manager's part of this crate fills in.
#[derive(Debug, Default)]
struct InstallDraft {
    steps: Vec<CommandPlan>,
    collector: HostCollector,
    notes: Vec<String>,
}

/// The project, the place and the request, for the managers' parts.
struct InstallSite<'a> {
    view: &'a dyn ProjectView,
    directory: &'a str,
    lockfile: &'a str,
    request: InstallRequest<'a>,
}

impl InstallSite<'_> {
    /// The text of a file beside the lockfile.
    fn read(&self, name: &str) -> Option<String> {
        self.view.read(&join(self.directory, name))
    }

    fn exists(&self, name: &str) -> bool {
        self.view.exists(&join(self.directory, name))
    }

    fn lockfile_text(&self) -> Result<String, LockfileError> {
        let reason = "it is not text, or too large";
        self.view.read(self.lockfile).ok_or_else(|| LockfileError::new(self.lockfile, reason))
    }

    fn scripts_off(&self) -> bool {
        self.request.scripts == InstallScripts::Off
    }

    fn command(&self, program: &str, words: &[&str]) -> CommandPlan {
        let mut plan =
            CommandPlan::new(self.directory, std::iter::once(program).chain(words.iter().copied()));
        plan.programs.push(program.to_owned());
        crate::command_plan::plain_output(&mut plan);
        plan
    }
}

/// Plans an install.
pub fn plan_install(
    view: &dyn ProjectView,
    request: &InstallRequest<'_>,
) -> Result<InstallPlan, InstallError> {
    let (manager, directory) = find(view, request)?;
    let file = manager.lockfiles().iter().find(|name| view.exists(&join(&directory, name)));
    let lockfile = join(&directory, file.ok_or(InstallError::NoLockfile { manager })?);
    let site = InstallSite { view, directory: &directory, lockfile: &lockfile, request: *request };
    let draft = match manager {
        PackageManager::Npm => node::npm(&site)?,
        PackageManager::Pnpm => node::pnpm(&site)?,
        PackageManager::Yarn => node::yarn(&site)?,
        PackageManager::Poetry => python::poetry(&site)?,
        PackageManager::Uv => python::uv(&site)?,
        PackageManager::Pip => python::pip(&site)?,
        PackageManager::Cargo => system_language::cargo(&site)?,
        PackageManager::Go => system_language::go(&site)?,
        PackageManager::Bundler => system_language::bundler(&site)?,
    };
    Ok(InstallPlan {
        manager,
        lockfile,
        steps: draft.steps,
        facts: draft.collector.finish(),
        scripts: request.scripts,
        notes: draft.notes,
    })
}

/// The manager and the directory: as asked, else by the lockfiles of the root, else of the only directory below it.
fn find(
    view: &dyn ProjectView,
    request: &InstallRequest<'_>,
) -> Result<(PackageManager, String), InstallError> {
    if let Some(asked) = request.directory {
        let bad =
            || InstallError::BadDirectory(crate::bounded_text::clip(asked, 200).escape_debug().to_string());
        let path = vambrace_core::path::AskedPath::new(asked).parse().map_err(|_| bad())?;
        let inside = path.zone() == vambrace_core::path::Zone::Service;
        let directory = path.relative().to_owned();
        if !inside || !(directory.is_empty() || view.is_directory(&directory)) {
            return Err(bad());
        }
        return find_in(view, &[directory], request.manager);
    }
    match find_in(view, &[String::new()], request.manager) {
        Err(InstallError::NothingFound | InstallError::NoLockfile { .. }) => {}
        found => return found,
    }
    let names = view.list("").into_iter().filter(|name| !name.starts_with('.') && name != "node_modules");
    let directories: Vec<String> = names.filter(|name| view.is_directory(name)).take(200).collect();
    find_in(view, &directories, request.manager)
}

fn find_in(
    view: &dyn ProjectView,
    directories: &[String],
    manager: Option<PackageManager>,
) -> Result<(PackageManager, String), InstallError> {
    let mut found: Vec<(PackageManager, String, String)> = Vec::new();
    for directory in directories {
        for candidate in
            PackageManager::ALL.into_iter().filter(|candidate| manager.is_none_or(|m| m == *candidate))
        {
            // A requirements file is only a lockfile if it has hashes, so it counts last and alone.
            let first =
                candidate.lockfiles().iter().map(|name| join(directory, name)).find(|path| view.exists(path));
            let weak = candidate == PackageManager::Pip
                && manager.is_none()
                && found.iter().any(|(m, ..)| is_python(*m));
            if let Some(path) = first.filter(|_| !weak) {
                found.push((candidate, directory.clone(), path));
            }
        }
    }
    match (found.len(), found.pop(), manager) {
        (1, Some((manager, directory, _)), _) => Ok((manager, directory)),
        (0, _, Some(manager)) => Err(InstallError::NoLockfile { manager }),
        (0, _, None) => Err(InstallError::NothingFound),
        (_, last, _) => {
            found.extend(last);
            Err(InstallError::Several(
                found
                    .into_iter()
                    .map(|(manager, _, path)| format!("{path} ({})", manager.as_str()))
                    .collect(),
            ))
        }
    }
}

fn is_python(manager: PackageManager) -> bool {
    matches!(manager, PackageManager::Poetry | PackageManager::Uv)
}

#[cfg(test)]
mod tests;
