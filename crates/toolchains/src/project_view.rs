//! What detection and planning see of a project: names and small text files, relative to the service root. The caller
//! implements it on its workspace handle, so that scope and blocked paths hold; nothing here opens a file.

/// Maximum number of directory entries that a walk looks at.
const MAX_WALKED_ENTRIES: usize = 20_000;
/// Maximum depth of a walk.
const MAX_WALK_DEPTH: usize = 16;
/// Directories of dependencies and build output: never walked.
const SKIPPED_DIRECTORIES: &[&str] =
    &["node_modules", "target", ".git", ".venv", "venv", "vendor", "dist", "build", "__pycache__", ".tox"];

/// The files of a project, relative to the service root. `""` is the root itself.
pub trait ProjectView {
    /// Whether a file or directory exists.
    fn exists(&self, path: &str) -> bool;

    /// Whether a directory exists.
    fn is_directory(&self, path: &str) -> bool;

    /// The text of a file; `None` if it is missing, not text, or larger than the implementation reads. Lockfiles have
    /// several MiB: read at least 16 MiB.
    fn read(&self, path: &str) -> Option<String>;

    /// The names in a directory; empty if there is none.
    fn list(&self, directory: &str) -> Vec<String>;
}

/// A path below a directory; the root is the empty string.
pub(crate) fn join(directory: &str, name: &str) -> String {
    match (directory, name) {
        ("" | ".", name) => name.to_owned(),
        (directory, "" | ".") => directory.to_owned(),
        (directory, name) => format!("{directory}/{name}"),
    }
}

/// The directory that holds a path; `""` for a name in the root.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The last name of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A directory and the directories above it, up to the root.
pub(crate) fn ancestors(directory: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(directory), |directory| (!directory.is_empty()).then(|| parent(directory)))
}

/// A path relative to a directory above it; `None` if it is not below it.
pub(crate) fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    match path.strip_prefix(directory) {
        Some("") => Some("."),
        Some(rest) if directory.is_empty() => Some(rest),
        Some(rest) => rest.strip_prefix('/'),
        None => None,
    }
}

/// Files below a directory that satisfy a condition, sorted, without dependencies and build output. At most `limit`; the
/// flag says whether there may be more.
pub(crate) fn files_below(
    view: &dyn ProjectView,
    directory: &str,
    limit: usize,
    wanted: impl Fn(&str) -> bool,
) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    let mut left = MAX_WALKED_ENTRIES;
    let mut pending = vec![(directory.to_owned(), 0_usize)];
    while let Some((directory, depth)) = pending.pop() {
        for name in view.list(&directory) {
            if left == 0 || found.len() >= limit {
                found.sort();
                return (found, true);
            }
            left -= 1;
            let path = join(&directory, &name);
            if view.is_directory(&path) {
                if depth < MAX_WALK_DEPTH && !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
                    pending.push((path, depth + 1));
                }
            } else if wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    (found, false)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A project in memory.
    #[derive(Debug, Default)]
    pub(crate) struct MemoryProject(BTreeMap<String, String>);

    impl MemoryProject {
        pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
            Self(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
        }

        /// A project of empty files.
        pub(crate) fn of_names(names: &[&str]) -> Self {
            Self::new(names.iter().map(|name| (*name, "")))
        }
    }

    impl ProjectView for MemoryProject {
        fn exists(&self, path: &str) -> bool {
            self.0.contains_key(path) || self.is_directory(path)
        }

        fn is_directory(&self, path: &str) -> bool {
            path.is_empty() || self.0.keys().any(|file| below(file, path).is_some_and(|rest| rest != "."))
        }

        fn read(&self, path: &str) -> Option<String> {
            self.0.get(path).cloned()
        }

        fn list(&self, directory: &str) -> Vec<String> {
            let names: BTreeSet<_> = self
                .0
                .keys()
                .filter_map(|file| below(file, directory))
                .filter_map(|rest| rest.split('/').next())
                .filter(|name| *name != ".")
                .map(str::to_owned)
                .collect();
            names.into_iter().collect()
        }
    }

    #[test]
    fn paths_are_joined_and_taken_apart() {
        assert_eq!(join("", "a"), "a");
        assert_eq!(join("a", "b/c"), "a/b/c");
        assert_eq!(join("a", "."), "a");
        assert_eq!(parent("a/b"), "a");
        assert_eq!(parent("a"), "");
        assert_eq!(ancestors("a/b").collect::<Vec<_>>(), ["a/b", "a", ""]);
        assert_eq!(below("a/b", "a"), Some("b"));
        assert_eq!(below("ab", "a"), None);
        assert_eq!(below("a", "a"), Some("."));
        assert_eq!(below("a", ""), Some("a"));
    }

    #[test]
    fn a_walk_skips_dependencies_and_stops_at_its_limit() {
        let view = MemoryProject::of_names(&["a.sh", "x/b.sh", "node_modules/c.sh", "x/d.txt"]);
        let shell = |path: &str| path.ends_with(".sh");
        assert_eq!(files_below(&view, "", 10, shell), (vec!["a.sh".to_owned(), "x/b.sh".to_owned()], false));
        assert!(files_below(&view, "", 1, shell).1);
    }
}
