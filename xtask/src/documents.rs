//! Paths and links in the documents: each must lead to a file that exists.

use std::{fs, path::Path};

use crate::{
    fault::{TaskResult, WithContext},
    project::Project,
};

/// A path in backticks is checked when it begins with one of these.
const CHECKED_DIRS: [&str; 9] =
    ["crates/", "tests/", "docs/", "benches/", "xtask/", "contrib/", "fuzz/", "packaging/", "toolpacks/"];

/// Whether every path and link leads somewhere; prints those that do not.
pub(crate) fn check(project: &Project) -> TaskResult<bool> {
    let root = project.root();
    let mut broken = Vec::new();
    for dir in ["", "docs"] {
        let entries = fs::read_dir(root.join(dir)).when(|| format!("cannot list `{dir}`"))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).when(|| format!("cannot read `{}`", path.display()))?;
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                broken.extend(
                    broken_references(root, &root.join(dir), &text)
                        .map(|lost| format!("{name}: `{lost}` does not exist")),
                );
            }
        }
    }
    broken.sort();
    broken.iter().for_each(|line| println!("{line}"));
    Ok(broken.is_empty())
}

fn broken_references<'t>(root: &'t Path, dir: &'t Path, text: &'t str) -> impl Iterator<Item = String> + 't {
    let paths = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|path| CHECKED_DIRS.iter().any(|dir| path.starts_with(dir)) && is_plain_path(path))
        .filter(|path| !root.join(path).exists());
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link.split('#').next().unwrap_or_default())
        .filter(|link| !link.is_empty() && !link.contains("://") && !dir.join(link).exists());
    paths.chain(links).map(str::to_owned)
}

/// Without globs, options and spaces.
fn is_plain_path(path: &str) -> bool {
    path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_paths_and_links_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text =
            "`xtask/nothing.rs` [a](src/main.rs) [b](src/none.md#x) [c](https://example.com) `crates/*/x`";
        let broken: Vec<_> = broken_references(root, root, text).collect();
        assert_eq!(broken, ["xtask/nothing.rs", "src/none.md"]);
    }
}
