//! The invocations that read a repository or change it. `push.rs` has the one that connects.

use std::ffi::OsString;

use crate::branch::BranchName;
use crate::commit_message::{CommitIdentity, CommitMessage};
use crate::commits::COMMIT_FORMAT;
use crate::git_path::Pathspec;
use crate::invocation::{GitAccess, GitInvocation, InvocationTransport};
use crate::repository::Repository;
use crate::revision::{FileAtRevision, Revision, RevisionRange};

/// Options of every invocation that compares files. Programs for comparing and converting are off, submodules are compared by
/// commit only, and the output has one form whatever the configuration says.
const DIFF_OPTIONS: &[&str] = &[
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=dirty",
    "--submodule=short",
    "--no-color",
    "--no-relative",
    "--find-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--full-index",
];
/// For a list of files with modes, objects and line counts.
const SUMMARY_OPTIONS: &[&str] = &["-z", "--raw", "--numstat", "--no-abbrev"];
/// For text; not `-z`, which would leave line breaks in names.
const PATCH_OPTIONS: &[&str] = &["--patch", "--inter-hunk-context=0", "--ws-error-highlight=none"];
/// For commits; a merge is compared with its first parent.
const COMMIT_OPTIONS: &[&str] =
    &["--no-show-signature", "--no-notes", "--no-mailmap", "--no-decorate", "--diff-merges=first-parent"];

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffScope {
    /// The working tree with the index: what is not staged.
    Unstaged,
    /// The index with the commit that is checked out: what a commit would contain.
    Staged,
    /// The working tree with a commit.
    Since(Revision),
    /// Two commits.
    Between(Revision, Revision),
}

/// Which untracked files a status lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UntrackedFiles {
    /// None.
    Hide,
    /// Directories that have no tracked file count as one.
    Fold,
    /// Every file.
    All,
}

/// Which commits a log lists, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// The commits; `None` for what is checked out.
    pub range: Option<RevisionRange>,
    /// Only commits that change one of these paths.
    pub paths: Vec<Pathspec>,
    /// Maximum number of commits.
    pub max_count: u32,
    /// How many to leave out first.
    pub skip: u32,
    /// Whether to list the files of each commit.
    pub files: bool,
}

/// Builds the invocations on one repository.
#[derive(Debug, Clone)]
pub struct GitOperations<'r> {
    pub(crate) repository: &'r Repository,
    pub(crate) program: OsString,
    pub(crate) search_path: OsString,
}

impl<'r> GitOperations<'r> {
    /// `program` is git, as a name in the search path or as a path; `search_path` is the value of `PATH`, without relative
    /// directories.
    pub fn new(
        repository: &'r Repository,
        program: impl Into<OsString>,
        search_path: impl Into<OsString>,
    ) -> Self {
        Self { repository, program: program.into(), search_path: search_path.into() }
    }

    /// What differs between commit, index and working tree. Output: [`GitStatus`](crate::GitStatus).
    #[must_use]
    pub fn status(&self, untracked: UntrackedFiles) -> GitInvocation {
        let untracked = match untracked {
            UntrackedFiles::Hide => "--untracked-files=no",
            UntrackedFiles::Fold => "--untracked-files=normal",
            UntrackedFiles::All => "--untracked-files=all",
        };
        let mut invocation = self.invocation(GitAccess::Read);
        invocation.arguments([
            "status",
            "--porcelain=v2",
            "-z",
            "--branch",
            "--show-stash",
            "--ahead-behind",
        ]);
        invocation.arguments(["--find-renames", "--no-column", "--ignore-submodules=dirty", untracked]);
        invocation
    }

    /// The files that differ. Output: [`DiffSummary`](crate::DiffSummary). No paths: the whole tree.
    #[must_use]
    pub fn diff_summary(&self, scope: &DiffScope, paths: &[Pathspec]) -> GitInvocation {
        let mut invocation = self.diff(SUMMARY_OPTIONS);
        diff_scope(&mut invocation, scope, paths);
        invocation
    }

    /// The differences as text. Output: [`GitPatch`](crate::GitPatch). Name the paths whose content may be shown, from
    /// [`Self::diff_summary`]; no paths: the whole tree.
    #[must_use]
    pub fn diff_patch(&self, scope: &DiffScope, paths: &[Pathspec], context_lines: u16) -> GitInvocation {
        let mut invocation = self.diff(PATCH_OPTIONS);
        invocation.arguments([format!("--unified={context_lines}")]);
        diff_scope(&mut invocation, scope, paths);
        invocation
    }

    /// Commits. Output: [`GitCommits`](crate::GitCommits).
    #[must_use]
    pub fn log(&self, query: &LogQuery) -> GitInvocation {
        let mut invocation = self.commits("log");
        invocation.arguments(["--no-follow", if query.files { "--raw" } else { "--no-patch" }]);
        if query.files {
            invocation.arguments(SUMMARY_OPTIONS);
        }
        invocation.arguments([format!("--max-count={}", query.max_count), format!("--skip={}", query.skip)]);
        let range = query.range.as_ref().map_or("HEAD", RevisionRange::as_str);
        invocation.arguments(["--end-of-options", range, "--"]);
        invocation.arguments(query.paths.iter().map(Pathspec::as_os_str));
        invocation
    }

    /// One commit with its files. Output: [`GitCommits`](crate::GitCommits) with one commit; after a commit, its result.
    #[must_use]
    pub fn show_commit(&self, revision: &Revision) -> GitInvocation {
        let mut invocation = self.commits("show");
        invocation.arguments(SUMMARY_OPTIONS);
        invocation.arguments(["--end-of-options", &revision.as_commit(), "--"]);
        invocation
    }

    /// The changes of one commit as text. Output: [`GitPatch`](crate::GitPatch). Paths as in [`Self::diff_patch`].
    #[must_use]
    pub fn show_patch(&self, revision: &Revision, paths: &[Pathspec], context_lines: u16) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::Read);
        invocation.arguments([
            "show",
            "--format=",
            "--no-show-signature",
            "--no-notes",
            "--diff-merges=first-parent",
        ]);
        invocation.arguments(DIFF_OPTIONS);
        invocation.arguments(PATCH_OPTIONS);
        invocation.arguments([format!("--unified={context_lines}")]);
        invocation.arguments(["--end-of-options", &revision.as_commit(), "--"]);
        invocation.arguments(paths.iter().map(Pathspec::as_os_str));
        invocation
    }

    /// The content of a file in a commit, as it is stored.
    #[must_use]
    pub fn show_file(&self, file: &FileAtRevision) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::Read);
        let mut object = OsString::from(file.revision.as_commit());
        object.push(":");
        object.push(file.path.as_os_str());
        invocation.arguments(["cat-file", "blob"]);
        invocation.arguments([object]);
        invocation
    }

    /// Which of these files have a filter attribute. Output: [`parse_filter_attributes`](crate::parse_filter_attributes).
    /// Filters do not run here: staging such a file would store its unfiltered content.
    #[must_use]
    pub fn filter_attributes(&self, files: &[Pathspec]) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::Read);
        invocation.arguments(["check-attr", "--stdin", "-z", "filter"]);
        invocation.stdin = nul_terminated(files);
        invocation
    }

    /// Stages files, also those that were deleted. Name files, not directories: everything below a directory would be staged.
    #[must_use]
    pub fn add(&self, files: &[Pathspec]) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::WriteRepository);
        invocation.arguments(["add", "--pathspec-from-file=-", "--pathspec-file-nul"]);
        invocation.stdin = nul_terminated(files);
        invocation
    }

    /// Commits what is staged. The result is read by [`Self::show_commit`] of `HEAD`.
    #[must_use]
    pub fn commit(&self, message: &CommitMessage, identity: &CommitIdentity) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::WriteRepository);
        for role in ["AUTHOR", "COMMITTER"] {
            invocation.set(&format!("GIT_{role}_NAME"), identity.name());
            invocation.set(&format!("GIT_{role}_EMAIL"), identity.email());
        }
        invocation.arguments(["commit", "--quiet", "--no-verify", "--no-gpg-sign", "--no-post-rewrite"]);
        invocation.arguments(["--no-status", "--no-verbose", "--cleanup=verbatim", "--file=-"]);
        invocation.stdin = message.as_str().as_bytes().to_vec();
        invocation
    }

    /// Checks out a branch that exists here.
    #[must_use]
    pub fn switch(&self, branch: &BranchName) -> GitInvocation {
        let mut invocation = self.switching();
        invocation.arguments(["--no-guess", branch.as_str()]);
        invocation
    }

    /// Creates a branch at the commit that is checked out, and checks it out.
    #[must_use]
    pub fn create_branch(&self, branch: &BranchName) -> GitInvocation {
        let mut invocation = self.switching();
        invocation.arguments(["--no-track", "--create", branch.as_str()]);
        invocation
    }

    fn switching(&self) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::WriteWorkTree);
        invocation.arguments(["switch", "--quiet", "--no-progress", "--no-recurse-submodules"]);
        invocation
    }

    fn commits(&self, command: &str) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::Read);
        invocation.arguments([command, "-z", COMMIT_FORMAT]);
        invocation.arguments(COMMIT_OPTIONS);
        invocation.arguments(DIFF_OPTIONS);
        invocation
    }

    fn diff(&self, form: &[&str]) -> GitInvocation {
        let mut invocation = self.invocation(GitAccess::Read);
        invocation.arguments(["diff"]);
        invocation.arguments(DIFF_OPTIONS);
        invocation.arguments(form);
        invocation
    }

    fn invocation(&self, access: GitAccess) -> GitInvocation {
        let transport = InvocationTransport::default();
        GitInvocation::new(self.repository, &self.program, &self.search_path, access, &transport)
    }
}

fn diff_scope(invocation: &mut GitInvocation, scope: &DiffScope, paths: &[Pathspec]) {
    match scope {
        DiffScope::Unstaged => {}
        DiffScope::Staged => invocation.arguments(["--cached"]),
        DiffScope::Since(revision) => invocation.arguments(["--end-of-options", &revision.as_commit()]),
        DiffScope::Between(old, new) => {
            invocation.arguments(["--end-of-options", &old.as_commit(), &new.as_commit()]);
        }
    }
    invocation.arguments(["--"]);
    invocation.arguments(paths.iter().map(Pathspec::as_os_str));
}

fn nul_terminated(paths: &[Pathspec]) -> Vec<u8> {
    paths.iter().flat_map(|path| path.as_bytes().iter().copied().chain([0])).collect()
}
