//! Paths and links in the documents: each must lead to a file that exists.

use std::{fs, path::Path};

use crate::{
    error::{TaskResult, WithContext},
    project::Project,
};

/// A path in backticks is checked when it begins with one of these.
const CHECKED_DIRS: [&str; 8] =
    ["crates/", "tests/", "docs/", "benches/", "xtask/", "contrib/", "fuzz/", "packaging/"];

/// Generated pages are not checked: they quote default values and prose of the binary, and tests check what they are made from.
const GENERATED_PAGES: [&str; 5] =
    ["docs/configuration.md", "docs/errors.md", "docs/requirements.md", "docs/threats.md", "docs/tools.md"];

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
                let page = path.strip_prefix(root).unwrap_or(&path);
                broken.extend(
                    broken_references(root, page, &text)
                        .into_iter()
                        .map(|lost| format!("{}: `{lost}` does not exist", page.display())),
                );
            }
        }
    }
    broken.sort();
    broken.iter().for_each(|line| println!("{line}"));
    Ok(broken.is_empty())
}

/// Paths and links of a page, given relative to the root, that lead nowhere.
fn broken_references(root: &Path, page: &Path, text: &str) -> Vec<String> {
    if GENERATED_PAGES.iter().any(|generated| page == Path::new(generated)) {
        return Vec::new();
    }
    let dir = root.join(page.parent().unwrap_or(Path::new("")));
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
    paths.chain(links).map(str::to_owned).collect()
}

/// Without globs, options and spaces.
fn is_plain_path(path: &str) -> bool {
    path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(page: &str, text: &str, expected: &[&str]) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(broken_references(root, Path::new(page), text), expected, "{page}: {text}");
    }

    #[test]
    fn missing_paths_and_links_are_found() {
        check(
            "README.md",
            "`xtask/nothing.rs` [a](src/main.rs) [b](src/none.md#x) [c](https://example.com) `crates/*/x`",
            &["xtask/nothing.rs", "src/none.md"],
        );
        check("src/page.md", "[a](main.rs) [b](src/main.rs)", &["src/main.rs"]);
    }

    #[test]
    fn default_values_and_prose_of_generated_pages_are_not_references() {
        let (default_value, prose) = ("default: `docs/policies/`", "links are written as [text](url)");
        check("docs/configuration.md", default_value, &[]);
        check("docs/tools.md", prose, &[]);
        check("docs/policy.md", default_value, &["docs/policies/"]);
        check("docs/policy.md", prose, &["url"]);
    }
}
