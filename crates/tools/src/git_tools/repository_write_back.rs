//! Writes what git changed in its overlay to the repository.
//!
//! **Invariant.** Only objects, refs, logs and the index are written, as plain files and directories, and for a checkout files
//! that the caller may change; all of them or none, also after a crash. A change of anything else, such as hooks and settings,
//! means that git did something that it was not asked for: nothing is written. The write-back itself checks that nobody
//! changed the same files meanwhile.

use std::ffi::OsStr;
use std::path::{Component, Path};

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_exec::prepare_write_back;
use vambrace_sandbox::{ChangeKind, EntryChange, EntryMetadata, FileKind, WithheldReason};
use vambrace_workspace::AppliedFile;

use super::session::GitSession;
use crate::program_run::{FinishedRun, programs};

/// Files of a git directory that hold state and nothing that git executes or is configured by.
const DATA_FILES: &[&str] = &["index", "HEAD", "COMMIT_EDITMSG", "packed-refs"];
/// Directories of which everything is such data.
const DATA_DIRECTORIES: &[&str] = &["refs", "logs"];

/// What a run of git may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitChanges {
    /// Data of the repository.
    Repository,
    /// Files of the working tree too.
    WorkTree,
}

/// Checks and writes the changes of a run; returns the changed files of the working tree. `tag` names them in the journal.
pub(super) fn write_back(
    git: &GitSession<'_>,
    run: &FinishedRun,
    allowed: GitChanges,
    tag: &str,
) -> Result<Vec<AppliedFile>, CallError> {
    let Some(changes) = run.report.changes().filter(|changes| !changes.is_empty()) else {
        return Ok(Vec::new());
    };
    if let Some(withheld) = changes.withheld.first() {
        let code = match withheld.why {
            WithheldReason::StaleBase => ErrorCode::StaleBase,
            _ => ErrorCode::PermissionDenied,
        };
        return Err(unexpected(git, code, &withheld.path));
    }
    let directories = git.git_dirs();
    let is_allowed = |change: &&EntryChange| {
        is_data(change, &directories)
            || (allowed == GitChanges::WorkTree && changed_paths(change).all(|path| git.may_change(path)))
    };
    if let Some(other) = changes.list.iter().find(|change| !is_allowed(change)) {
        return Err(unexpected(git, ErrorCode::PermissionDenied, &other.path));
    }
    let Some(applier) = &git.context.changes.applier else {
        return Err(CallError::new(ErrorCode::PermissionDenied, "the project is read-only here"));
    };
    let programs = programs(git.context)?;
    let (places, umask) = (programs.sandbox.places(), programs.inherited.umask);
    let written =
        prepare_write_back(changes, applier, places, umask).and_then(|prepared| prepared.commit(tag));
    written.map(|written| written.files).map_err(CallError::from)
}

/// Names a file only if the caller may see it.
fn unexpected(git: &GitSession<'_>, code: ErrorCode, path: &Path) -> CallError {
    let path = match git.visible_in_project(path) {
        Some(path) => format!("`{path}`"),
        None => "a file that this call cannot use".to_owned(),
    };
    let why = match code {
        ErrorCode::StaleBase => "changed meanwhile",
        _ => "may not be changed by this call",
    };
    CallError::new(code, format!("nothing was written: git would change {path}, which {why}"))
        .suggest("ask the user to run this git command")
}

/// Whether a change is of repository data only.
fn is_data(change: &EntryChange, git_dirs: &[&Path]) -> bool {
    let plain = |entry: &EntryMetadata| match entry.kind {
        FileKind::Directory => true,
        FileKind::File => entry.mode & 0o111 == 0,
        _ => false,
    };
    changed_paths(change).all(|path| is_data_path(path, git_dirs))
        && change.before.iter().chain(&change.after).all(plain)
}

/// The path of a change, and the old one of a renamed file.
fn changed_paths(change: &EntryChange) -> impl Iterator<Item = &Path> {
    let from = match &change.kind {
        ChangeKind::Renamed { from } => Some(from.as_path()),
        _ => None,
    };
    std::iter::once(change.path.as_path()).chain(from)
}

fn is_data_path(path: &Path, git_dirs: &[&Path]) -> bool {
    git_dirs.iter().any(|git_dir| {
        let Ok(inside) = path.strip_prefix(git_dir) else { return false };
        let names: Option<Vec<&str>> = inside
            .components()
            .map(|part| match part {
                Component::Normal(name) => OsStr::to_str(name),
                _ => None,
            })
            .collect();
        match names.as_deref() {
            Some([file]) if DATA_FILES.contains(file) => true,
            Some([directory, ..]) if DATA_DIRECTORIES.contains(directory) => true,
            Some(["objects", "pack"]) => true,
            Some(["objects", "pack", file]) => file.starts_with("pack-"),
            Some(["objects", fan]) => is_hex(fan, 2),
            Some(["objects", fan, object]) => is_hex(fan, 2) && (is_hex(object, 38) || is_hex(object, 62)),
            _ => false,
        }
    })
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // T15
    #[test]
    fn only_repository_data_is_written() {
        let object = format!("app/.git/objects/ab/{}", "0".repeat(38));
        let check = |path: &str, expected: bool| {
            assert_eq!(is_data_path(Path::new(path), &[Path::new("app/.git")]), expected, "{path}");
        };
        check(&object, true);
        for path in
            ["index", "HEAD", "refs/heads/a/b", "logs/HEAD", "COMMIT_EDITMSG", "objects/ab", "packed-refs"]
        {
            check(&format!("app/.git/{path}"), true);
        }
        for path in [
            "config",
            "config.worktree",
            "hooks",
            "hooks/pre-commit",
            "info/attributes",
            "info/exclude",
            "objects/info/alternates",
            "objects/pack/x",
            "objects/zz",
            "commondir",
            "gitdir",
            "modules/x/HEAD",
            "worktrees/x/HEAD",
            "MERGE_HEAD",
            "index.lock",
            "refs/../config",
        ] {
            check(&format!("app/.git/{path}"), false);
        }
        check("app/src/main.rs", false);
        check("app/.git", false);
        check(".git/index", false);
    }
}
