//! The command of a planned run, and what a plan is made from.

use vambrace_core::error::{CallError, ErrorCode};

use crate::project_view::{ProjectView, below};
use crate::target::TargetError;

/// A command: no shell, arguments as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandPlan {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory, relative to the service root; `""` for the root.
    pub directory: String,
    /// Environment variables that the command needs beside the usual ones.
    pub environment: Vec<(String, String)>,
    /// Programs that must be there: names on the search path, or paths relative to the service root.
    pub programs: Vec<String>,
    /// A file that the program writes its machine-readable report to. It lies in the run's private temporary directory.
    pub report_file: Option<String>,
}

impl CommandPlan {
    pub(crate) fn new(directory: &str, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            directory: directory.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn arg(&mut self, argument: impl Into<String>) -> &mut Self {
        self.argv.push(argument.into());
        self
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a path of the service, relative to the working directory, in a form that is no option.
    pub(crate) fn path(&mut self, path: &str) -> &mut Self {
        let argument = self.relative(path);
        self.arg(argument)
    }

    /// A path of the service, relative to the working directory, in a form that is no option.
    pub(crate) fn relative(&self, path: &str) -> String {
        let relative = below(path, &self.directory).unwrap_or(path);
        if relative.starts_with('-') { format!("./{relative}") } else { relative.to_owned() }
    }
}

/// What a plan is made from, beside the project.
#[derive(Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The target, as the agent gave it.
    pub target: Option<&'a str>,
    /// The configured command, which wins over detection; `{target}` stands for the target.
    pub configured: Option<&'a [String]>,
    /// Whether a program can be started: a name on the search path, or a path relative to the service root.
    pub installed: &'a dyn Fn(&str) -> bool,
    /// Whether the run has no network.
    pub offline: bool,
    /// Directory for the report file, inside the run's private temporary directory.
    pub report_directory: &'a str,
}

impl std::fmt::Debug for PlanRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanRequest")
            .field("target", &self.target)
            .field("configured", &self.configured)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

/// A runner or linter that fits the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCandidate<T> {
    /// The runner or linter.
    pub tool: T,
    /// Its working directory, relative to the service root.
    pub directory: String,
    /// Programs that it needs.
    pub programs: Vec<String>,
    /// What in the project speaks for it.
    pub reason: String,
}

impl<T> ToolCandidate<T> {
    pub(crate) fn new(tool: T, directory: &str, programs: &[&str], reason: impl Into<String>) -> Self {
        Self {
            tool,
            directory: directory.to_owned(),
            programs: programs.iter().map(|program| (*program).to_owned()).collect(),
            reason: reason.into(),
        }
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The target is not taken.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Nothing in the project tells how.
    #[error("no {what} was found in the project")]
    NothingFound {
        /// "test runner" or "linter".
        what: &'static str,
        /// The setting that names a command.
        setting: &'static str,
    },
    /// Several directories have one, and none is above the others.
    #[error("several directories have a {what}: {}", directories.join(", "))]
    SeveralDirectories {
        /// "test runner" or "linter".
        what: &'static str,
        /// The directories.
        directories: Vec<String>,
    },
    /// The programs are not installed.
    #[error("{tool} was found ({reason}), but `{}` is not installed", programs.join("`, `"))]
    MissingProgram {
        /// The first choice.
        tool: String,
        /// Why it was chosen.
        reason: String,
        /// The programs that are missing.
        programs: Vec<String>,
    },
    /// The configured command is not one.
    #[error("the configured command {0}")]
    BadCommand(&'static str),
}

impl PlanError {
    /// What the caller can do.
    #[must_use]
    pub fn suggestion(&self) -> String {
        match self {
            Self::Target(error) => error.suggestion(),
            Self::NothingFound { setting, .. } => {
                format!("ask the user to set `{setting}` to a program and its arguments")
            }
            Self::SeveralDirectories { directories, .. } => {
                format!(
                    "give a directory as the target, for example `{}`",
                    directories.first().map_or(".", String::as_str)
                )
            }
            Self::MissingProgram { .. } => {
                "ask the user to install it, or call install_dependencies if the project brings it".to_owned()
            }
            Self::BadCommand(_) => {
                "ask the user to correct the setting: a list with a program and its arguments".to_owned()
            }
        }
    }
}

impl From<PlanError> for CallError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Target(error) => error.into(),
            error => Self::new(ErrorCode::InvalidArguments, error.to_string()).suggest(error.suggestion()),
        }
    }
}

/// The first candidate whose programs are installed.
pub(crate) fn first_installed<'a, T>(
    candidates: &'a [ToolCandidate<T>],
    installed: &dyn Fn(&str) -> bool,
    name: impl Fn(&T) -> &'static str,
    nothing: PlanError,
) -> Result<&'a ToolCandidate<T>, PlanError> {
    let ready = |candidate: &&ToolCandidate<T>| candidate.programs.iter().all(|program| installed(program));
    match (candidates.iter().find(ready), candidates.first()) {
        (Some(candidate), _) => Ok(candidate),
        (None, Some(first)) => Err(PlanError::MissingProgram {
            tool: name(&first.tool).to_owned(),
            reason: first.reason.clone(),
            programs: first.programs.iter().filter(|program| !installed(program)).cloned().collect(),
        }),
        (None, None) => Err(nothing),
    }
}

/// Variables for every run: no colours, no questions, no watching.
pub(crate) fn plain_output(plan: &mut CommandPlan) {
    plan.set("NO_COLOR", "1").set("TERM", "dumb").set("CI", "1");
}

/// The program of a Python virtual environment, if the directory has or will have one.
pub(crate) fn virtual_environment(view: &dyn ProjectView, directory: &str) -> Option<String> {
    let at = |name: &str| crate::project_view::join(directory, name);
    if let Some(found) = [".venv", "venv"].into_iter().find(|name| view.exists(&at(&format!("{name}/bin")))) {
        return Some(found.to_owned());
    }
    // The view may not show build output; with a lockfile, `.venv` is where the tools install to.
    ["uv.lock", "poetry.lock", "Pipfile.lock"]
        .iter()
        .any(|name| view.exists(&at(name)))
        .then(|| ".venv".to_owned())
}
