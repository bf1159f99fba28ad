//! What it means to write or delete a path. Paths are compared as text, after `.` and `..` are resolved: this decides
//! who is asked, not what a program can reach.

use std::sync::LazyLock;

use vambrace_core::blocked_paths::BlockList;
use vambrace_core::risk::SELF_RUNNING;

use crate::built_in::BUILT_IN;

/// Longer paths are not compared with patterns; they count as protected.
const MAX_PATH_BYTES: usize = 4096;

/// Where a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTarget {
    /// Nowhere: the null device or an own stream.
    Discard,
    /// A file of the workspace, of a temporary directory, or unknown.
    Ordinary,
    /// A file that runs or configures code once a person or a build starts it.
    RunsCode,
    /// A file that runs without being asked, holds keys, or configures an agent or this program.
    Protected,
    /// A directory of the system, or a device.
    System,
}

/// Where a deletion happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteTarget {
    Ordinary,
    /// The root, a home directory, a directory of the system, or above the current directory.
    Outside,
    /// Files of this program, or keys.
    Protected,
}

static PROTECTED: LazyLock<Option<BlockList>> =
    LazyLock::new(|| BlockList::new(SELF_RUNNING.protected().chain(BUILT_IN.list("protected-paths"))).ok());
static RUNS_CODE: LazyLock<Option<BlockList>> = LazyLock::new(|| BlockList::new(SELF_RUNNING.all()).ok());
static SECRET: LazyLock<Option<BlockList>> =
    LazyLock::new(|| BlockList::new(BUILT_IN.list("secret-paths")).ok());
static KEPT: LazyLock<Option<BlockList>> = LazyLock::new(|| {
    BlockList::new(BUILT_IN.list("guard-paths").chain(BUILT_IN.list("protected-paths"))).ok()
});

/// The current directory, as far as the command line tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct CurrentDirectory {
    /// What `cd` changed, joined; empty at the beginning.
    changed: String,
    /// Root of the workspace, if it is known.
    workspace: Option<String>,
    /// Whether `~` and `$HOME` stand for the home directory: in a shell text, not in an argument vector.
    pub(crate) expands_home: bool,
}

impl CurrentDirectory {
    pub(crate) fn new(workspace: Option<String>) -> Self {
        Self { changed: String::new(), workspace, expands_home: false }
    }

    pub(crate) fn change(&mut self, to: &str) {
        self.changed = self.join(to);
    }

    pub(crate) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The path with `~` for the home directory, relative to where the command line begins, or absolute.
    fn resolve(&self, path: &str) -> String {
        let resolved = self.join(path);
        match self.workspace.as_deref().and_then(|root| resolved.strip_prefix(root)) {
            Some("") => ".".to_owned(),
            Some(inside) if inside.starts_with('/') => inside.trim_start_matches('/').to_owned(),
            _ => resolved,
        }
    }

    fn join(&self, path: &str) -> String {
        if !self.expands_home && path.starts_with(['~', '$']) {
            // A name that no rule knows.
            return join(&self.changed, &format!("_{path}"));
        }
        join(&self.changed, path)
    }

    pub(crate) fn write_target(&self, path: &str) -> WriteTarget {
        if path.len() > MAX_PATH_BYTES {
            return WriteTarget::Protected;
        }
        let resolved = self.resolve(path);
        if BUILT_IN.lists("discarding-paths", &resolved) {
            WriteTarget::Discard
        } else if matches_list(&PROTECTED, &resolved) {
            WriteTarget::Protected
        } else if is_system(&resolved) {
            WriteTarget::System
        } else if matches_list(&RUNS_CODE, &resolved) {
            WriteTarget::RunsCode
        } else {
            WriteTarget::Ordinary
        }
    }

    /// What it means to delete a path, with everything below it if `recursive`.
    pub(crate) fn delete_target(&self, path: &str, recursive: bool) -> DeleteTarget {
        if path.len() > MAX_PATH_BYTES {
            return DeleteTarget::Outside;
        }
        let resolved = self.resolve(path);
        let stem = resolved.trim_end_matches(['*', '.']).trim_end_matches('/');
        let above = resolved == ".." || resolved.starts_with("../");
        let is_home = |path: &str| {
            path == "~"
                || path == "/home"
                || path == "/Users"
                || path == "/root"
                || path
                    .strip_prefix("/home/")
                    .or(path.strip_prefix("/Users/"))
                    .is_some_and(|user| !user.contains('/'))
                || (path.starts_with('~') && !path.contains('/'))
        };
        if is_system(&resolved) || (stem.is_empty() && resolved.starts_with('/')) {
            DeleteTarget::Outside
        } else if matches_list(&KEPT, &resolved) {
            DeleteTarget::Protected
        } else if recursive && (above || is_home(&resolved) || (stem != resolved && is_home(stem))) {
            DeleteTarget::Outside
        } else {
            DeleteTarget::Ordinary
        }
    }
}

/// Whether a word of a command line names a file that usually holds secrets.
pub(crate) fn names_secret(word: &str) -> bool {
    let path = word.rsplit(['@', '=', ':', '<']).next().unwrap_or(word);
    !path.is_empty() && path.len() <= MAX_PATH_BYTES && matches_list(&SECRET, &join("", path))
}

fn matches_list(list: &LazyLock<Option<BlockList>>, path: &str) -> bool {
    let relative = path.trim_start_matches(['~', '/']);
    // A list that does not compile matches everything, so that its failure is noticed.
    list.as_ref().is_none_or(|list| list.blocks(relative).is_some())
}

fn is_system(path: &str) -> bool {
    let below =
        |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path == "/"
        || path == "/*"
        || (BUILT_IN.list("system-roots").any(below) && !BUILT_IN.list("scratch-roots").any(below))
}

/// Joins a directory and a path and resolves `.` and `..`; leading `..` stay.
fn join(directory: &str, path: &str) -> String {
    let home = ["$HOME", "${HOME}"].iter().find_map(|home| {
        let rest = path.strip_prefix(home)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("~{rest}"))
    });
    let path = home.as_deref().unwrap_or(path);
    let whole = if path.starts_with(['/', '~']) || directory.is_empty() {
        path.to_owned()
    } else {
        format!("{directory}/{path}")
    };
    let mut names: Vec<&str> = Vec::new();
    for name in whole.split('/') {
        match name {
            "" | "." => {}
            ".." if names.last().is_some_and(|last| *last != ".." && !last.starts_with('~')) => {
                names.pop();
            }
            ".." if whole.starts_with('/') => {}
            name => names.push(name),
        }
    }
    let joined = names.join("/");
    match (whole.starts_with('/'), joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_shell() -> CurrentDirectory {
        CurrentDirectory { expands_home: true, ..CurrentDirectory::default() }
    }

    #[test]
    fn paths_are_resolved_before_they_are_compared() {
        let check = |path: &str, expected| {
            assert_eq!(in_shell().write_target(path), expected, "{path}");
        };
        check("a/../../etc/x", WriteTarget::Ordinary);
        check("/tmp/../etc/x", WriteTarget::System);
        check("//etc//passwd", WriteTarget::System);
        check("/tmp/x", WriteTarget::Ordinary);
        check("/dev/null", WriteTarget::Discard);
        check("/dev/sda", WriteTarget::System);
        check("~/.bashrc", WriteTarget::Protected);
        check("$HOME/.bashrc", WriteTarget::Protected);
        check("${HOME}/.ssh/authorized_keys", WriteTarget::Protected);
        check(".git/hooks/pre-commit", WriteTarget::Protected);
        check(".GIT/hooks/pre-commit", WriteTarget::Protected);
        check("sub/.claude/settings.json", WriteTarget::Protected);
        check(".vambrace/config.yaml", WriteTarget::Protected);
        check(".flow/config.json", WriteTarget::Protected);
        check("run.sh", WriteTarget::RunsCode);
        check("src/main.rs", WriteTarget::Ordinary);
    }

    #[test]
    fn deletion_outside_the_workspace_is_recognised() {
        let check = |path: &str, expected| {
            assert_eq!(in_shell().delete_target(path, true), expected, "{path}");
        };
        for path in [
            "/", "//", "/*", "/.", "/..", "~", "~/", "~/*", "$HOME", "/home", "/home/u", "/home/*", "/etc",
            "/usr/lib", "..", "../..", "a/../..", "../x", "~root",
        ] {
            check(path, DeleteTarget::Outside);
        }
        for path in
            ["target", "./node_modules", ".", "*", "/tmp/x", "~/projects/x/target", "/home/u/p/target"]
        {
            check(path, DeleteTarget::Ordinary);
        }
        check(".vambrace", DeleteTarget::Protected);
    }

    #[test]
    fn workspace_in_a_system_directory_is_no_system_directory() {
        let here = CurrentDirectory::new(Some("/opt/app".to_owned()));
        assert_eq!(here.write_target("/opt/app/src/a.txt"), WriteTarget::Ordinary);
        assert_eq!(here.write_target("/opt/application/a"), WriteTarget::System);
        assert_eq!(here.delete_target("/opt/app/target", true), DeleteTarget::Ordinary);
    }

    // An argument vector is not expanded: `~` is a name in it.
    #[test]
    fn home_directory_is_only_known_to_a_shell() {
        assert_eq!(CurrentDirectory::default().delete_target("~", true), DeleteTarget::Ordinary);
        assert_eq!(CurrentDirectory::default().write_target("~/.bashrc"), WriteTarget::Protected);
    }

    #[test]
    fn directory_changes_apply_to_what_follows() {
        let mut here = in_shell();
        here.change(".claude");
        assert_eq!(here.write_target("settings.json"), WriteTarget::Protected);
        here.change("..");
        assert_eq!(here.write_target("settings.json"), WriteTarget::Ordinary);
        here.change("/etc");
        assert_eq!(here.write_target("hosts"), WriteTarget::System);
    }
}
