//! One call of a git tool: the repository, checked, and the runs of git on it.

use std::cell::RefCell;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;
use serde_json::{Value, json};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::{Fence, PathFence};
use vambrace_core::path::ScopedPath;
use vambrace_core::principal::Provenance;
use vambrace_exec::RunRequest;
use vambrace_git::{
    DiffSummary, GitAccess, GitFileDiff, GitInvocation, GitOperations, GitOutputError, GitPatch, GitPath,
    Pathspec, Repository, RepositoryFile, RepositoryReader as _,
};
use vambrace_sandbox::{Exit, Filesystem, Input, Tier};

use super::repository_files::RepositoryFiles;
use crate::program_run::{FinishedRun, programs, run_with_input};
use crate::tool::{RunFacts, ToolContext, ToolOutput, TouchedFiles};

/// The search path inside the sandbox; git starts nothing by name.
const SEARCH_PATH: &str = "/usr/bin:/bin";
/// How much output of a list is parsed, in bytes.
const LIST_BYTES: usize = 4 << 20;
/// Maximum size of a `.git` file, in bytes.
const MAX_POINTER_BYTES: usize = 64 << 10;
/// Maximum length of git's message in an error, in characters.
const MESSAGE_CHARS: usize = 500;
/// Maximum number and bytes of paths of one patch; they are arguments.
const MAX_PATCH_PATHS: usize = 2000;
const MAX_PATCH_PATH_BYTES: usize = 64 << 10;

/// What output is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputUse {
    /// To be parsed.
    List,
    /// To be shown, up to the limit of the configuration.
    Text,
}

/// A repository that a call works on.
pub(super) struct GitSession<'c> {
    pub(super) context: &'c ToolContext,
    fence: &'c Fence,
    pub(super) files: RefCell<RepositoryFiles>,
    pub(super) repository: Repository,
    /// Relative to the project.
    work_tree: PathBuf,
}

impl<'c> GitSession<'c> {
    /// Checks the repository of the service root, or else of the project.
    pub(super) fn open(context: &'c ToolContext, fence: &'c Fence) -> Result<Self, CallError> {
        let project = context.workspace.directory();
        let mut files = RepositoryFiles::open(project)?;
        let work_tree = find_work_tree(context, &mut files)?;
        let repository = Repository::open(project, &project.join(&work_tree), &mut files)
            .map_err(|error| CallError::new(ErrorCode::ScopeViolation, format!("git is not run: {error}")))?;
        Ok(Self { context, fence, files: RefCell::new(files), repository, work_tree })
    }

    pub(super) fn operations(&self) -> GitOperations<'_> {
        GitOperations::new(&self.repository, "git", SEARCH_PATH)
    }

    /// Runs git; a failure is an error with git's own message.
    pub(super) fn run(&self, invocation: &GitInvocation, kept: OutputUse) -> Result<FinishedRun, CallError> {
        let request = self.request(invocation, kept)?;
        let mut fence = self.fence.clone();
        if invocation.access != GitAccess::Read {
            // The changes are checked before any of them is written back.
            fence.write = PathFence::default();
        }
        let input = standard_input(&invocation.stdin)?;
        let input = input.as_ref().map_or(Input::Nothing, |file| Input::From(file.as_fd()));
        let run = run_with_input(self.context, &fence, &request, input, false)?;
        if run.report.outcome.exit == Exit::Code(0) { Ok(run) } else { Err(git_error(&run)) }
    }

    fn request(&self, invocation: &GitInvocation, kept: OutputUse) -> Result<RunRequest, CallError> {
        let limits = &programs(self.context)?.limits;
        let mut words = invocation.argv.iter().cloned();
        let mut request =
            RunRequest::new(words.next().unwrap_or_default(), self.context.workspace.directory());
        request.arguments = words.collect();
        request.variables = invocation.environment.clone();
        request.cwd = self.work_tree.clone();
        request.scratch = Vec::new();
        request.limits.time = limits.time;
        request.limits.output = match kept {
            OutputUse::List => LIST_BYTES,
            OutputUse::Text => limits.output_bytes,
        };
        if invocation.access != GitAccess::Read {
            request.filesystem = Filesystem::ReadWrite;
            // A weaker tier has no overlay at the repository's own path.
            request.min_tier = Tier::FullNoProc;
        }
        Ok(request)
    }

    /// The scoped path of a file, if the caller may see it.
    pub(super) fn visible(&self, path: &GitPath) -> Option<ScopedPath> {
        self.visible_in_project(&self.work_tree.join(path.to_str()?.trim_end_matches('/')))
    }

    /// The same for a path relative to the project.
    pub(super) fn visible_in_project(&self, relative: &Path) -> Option<ScopedPath> {
        let path = self.context.workspace.project_path(relative)?;
        (self.context.workspace.writable(&path) && self.fence.read.admits(&path)).then_some(path)
    }

    /// Whether the caller may change an entry of the working tree; the path is relative to the project.
    pub(super) fn may_change(&self, relative: &Path) -> bool {
        let path = self.context.workspace.project_path(relative);
        path.is_some_and(|path| self.context.workspace.writable(&path) && self.fence.write.admits(&path))
    }

    /// Whether the caller may see both names of a file.
    pub(super) fn shows(&self, path: &GitPath, original: Option<&GitPath>) -> bool {
        std::iter::once(path).chain(original).all(|path| self.visible(path).is_some())
    }

    /// Removes what the caller may not see.
    pub(super) fn retain_visible(&self, summary: &mut DiffSummary) {
        summary.files.retain(|file| self.shows(&file.path, file.original.as_ref()));
    }

    /// The patch that a run printed, of files that the caller may see, redacted. A path that is a file on one side and a
    /// directory on the other selects everything below it too, so the patch is checked again.
    pub(super) fn visible_patch(&self, run: &FinishedRun) -> Result<String, CallError> {
        let mut shown = Vec::new();
        for file in GitPatch::parse(&run.report.outcome.stdout.bytes).files {
            let mut names = file.old_path.iter().chain(&file.new_path).peekable();
            if names.peek().is_some() && names.all(|name| self.visible(name).is_some()) {
                shown.extend_from_slice(file.text);
            }
        }
        let (clean, _) = programs(self.context)?
            .redactor
            .redact_bytes(&shown)
            .map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))?;
        Ok(String::from_utf8_lossy(&clean).into_owned())
    }

    /// The path as git names it; `None` for the whole working tree.
    pub(super) fn pathspec(&self, path: &ScopedPath) -> Result<Option<Pathspec>, CallError> {
        let service_root = &programs(self.context)?.settings.service_root;
        let in_project = crate::program_run::project_path(path, service_root);
        let outside = |_| {
            let why = format!("`{path}` is outside the repository");
            CallError::new(ErrorCode::ScopeViolation, why)
        };
        let relative = in_project.strip_prefix(&self.work_tree).map_err(outside)?;
        if relative.as_os_str().is_empty() {
            return Ok(None);
        }
        let spec = Pathspec::new(relative.as_os_str().as_encoded_bytes());
        spec.map(Some)
            .map_err(|error| CallError::new(ErrorCode::InvalidArguments, format!("`{path}`: {error}")))
    }

    /// Which hooks exist; none runs.
    pub(super) fn hooks(&self) -> Vec<String> {
        self.files.borrow().hooks(&self.repository)
    }

    /// The git directory, relative to the project.
    pub(super) fn git_dirs(&self) -> [&Path; 2] {
        let project = self.context.workspace.directory();
        let layout = self.repository.layout();
        [layout.git_dir(), layout.common_dir()].map(|dir| dir.strip_prefix(project).unwrap_or(dir))
    }
}

/// The paths of a patch, old names of renamed files included, and whether some are left out because there are too many.
pub(super) fn patch_paths(files: &[GitFileDiff]) -> (Vec<Pathspec>, bool) {
    let mut paths = Vec::new();
    let mut bytes = 0;
    for file in files {
        let names = std::iter::once(&file.path).chain(&file.original).map(Pathspec::try_from);
        // A name that git cannot be given is not shown.
        let Ok(names) = names.collect::<Result<Vec<_>, _>>() else { return (paths, true) };
        bytes += names.iter().map(|name| name.as_bytes().len()).sum::<usize>();
        if paths.len() + names.len() > MAX_PATCH_PATHS || bytes > MAX_PATCH_PATH_BYTES {
            return (paths, true);
        }
        paths.extend(names);
    }
    (paths, false)
}

/// Output that the parsers reject.
pub(super) fn unexpected_output(error: GitOutputError) -> CallError {
    CallError::new(ErrorCode::Internal, format!("git printed something unexpected: {error}"))
}

/// The result of a git tool.
pub(super) fn output(data: Value, text: String, truncated: bool, facts: RunFacts) -> ToolOutput {
    ToolOutput {
        data,
        details: json!({"exit_code": facts.exit_code, "sandbox_tier": facts.tier}),
        text: Some(text),
        note: None,
        provenance: Provenance::Program,
        truncated,
        touched: TouchedFiles { run: Some(facts), ..TouchedFiles::default() },
    }
}

fn find_work_tree(context: &ToolContext, files: &mut RepositoryFiles) -> Result<PathBuf, CallError> {
    let project = context.workspace.directory();
    let service_root = &programs(context)?.settings.service_root;
    for work_tree in [service_root.as_str(), ""] {
        let found = files.read(&project.join(work_tree).join(".git"), MAX_POINTER_BYTES);
        if !matches!(found, Ok(RepositoryFile::Missing)) {
            return Ok(PathBuf::from(work_tree));
        }
    }
    Err(CallError::new(ErrorCode::FileNotFound, "the project is not a git repository")
        .suggest("ask the user to run `git init`"))
}

fn standard_input(content: &[u8]) -> Result<Option<std::fs::File>, CallError> {
    if content.is_empty() {
        return Ok(None);
    }
    let failed = |error: std::io::Error| {
        CallError::new(ErrorCode::Internal, format!("cannot make the standard input of git: {error}"))
    };
    let file =
        rustix::fs::memfd_create("git-input", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(content).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok(Some(file))
}

fn git_error(run: &FinishedRun) -> CallError {
    let message: String = run.stderr.trim().chars().take(MESSAGE_CHARS).collect();
    match run.report.outcome.exit {
        Exit::Timeout => CallError::new(ErrorCode::Timeout, "git timed out; all its processes were killed"),
        Exit::Code(code) => CallError::new(
            ErrorCode::InvalidArguments,
            format!("git failed with exit code {code}: {message}"),
        )
        .suggest("git_status shows the state of the repository"),
        _ => {
            let end = run.end_note().unwrap_or_default();
            CallError::new(ErrorCode::Internal, format!("git did not finish: {end}"))
        }
    }
}
