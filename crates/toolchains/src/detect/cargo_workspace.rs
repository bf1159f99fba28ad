//! Cargo manifests: which package a path belongs to, and the packages of a workspace.

use crate::project_view::{ProjectView, ancestors, join};

/// Maximum number of packages that are looked at.
const MAX_PACKAGES: usize = 500;

/// A package and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CargoPackage {
    pub(crate) name: String,
    pub(crate) directory: String,
}

/// The manifest of a directory.
pub(crate) fn manifest(view: &dyn ProjectView, directory: &str) -> Option<toml::Table> {
    view.read(&join(directory, "Cargo.toml"))?.parse().ok()
}

/// The directory of the workspace that a package belongs to: the outermost manifest with `[workspace]`, else its own.
pub(crate) fn workspace_directory<'a>(view: &dyn ProjectView, package: &'a str) -> &'a str {
    let has_workspace = |directory: &&str| {
        manifest(view, directory).is_some_and(|manifest| manifest.contains_key("workspace"))
    };
    ancestors(package).filter(has_workspace).last().unwrap_or(package)
}

/// The nearest directory above a path that has a manifest.
pub(crate) fn package_directory<'a>(view: &dyn ProjectView, directory: &'a str) -> Option<&'a str> {
    ancestors(directory).find(|directory| view.exists(&join(directory, "Cargo.toml")))
}

/// The packages of a workspace: its root package and its members.
pub(crate) fn packages(view: &dyn ProjectView, root: &str) -> Vec<CargoPackage> {
    let Some(workspace) = manifest(view, root) else { return Vec::new() };
    let members =
        workspace.get("workspace").and_then(|table| table.get("members")).and_then(toml::Value::as_array);
    let mut directories = vec![root.to_owned()];
    for member in members.into_iter().flatten().filter_map(toml::Value::as_str) {
        match member.trim_start_matches("./").strip_suffix("/*") {
            Some(parent) if !parent.contains('*') => {
                let parent = join(root, parent);
                directories.extend(view.list(&parent).into_iter().map(|name| join(&parent, &name)));
            }
            _ if member.contains('*') => {}
            _ => directories.push(join(root, member.trim_start_matches("./"))),
        }
    }
    directories.truncate(MAX_PACKAGES);
    let named = |directory: String| {
        let manifest = manifest(view, &directory)?;
        let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
        let plain = !name.starts_with('-')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        plain.then_some(CargoPackage { name, directory })
    };
    directories.into_iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project_view::tests::MemoryProject;

    #[test]
    fn members_are_found_by_name_and_by_glob() {
        let view = MemoryProject::new([
            ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\", \"./tools/x\"]\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"demo-a\"\n"),
            ("crates/b/Cargo.toml", "[package]\nname = \"--evil\"\n"),
            ("tools/x/Cargo.toml", "[package]\nname = \"x\"\n"),
        ]);
        let names: Vec<_> =
            packages(&view, "").into_iter().map(|package| (package.name, package.directory)).collect();
        let expected = [("demo-a", "crates/a"), ("x", "tools/x")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(names, expected);
        assert_eq!(workspace_directory(&view, "crates/a"), "");
        assert_eq!(package_directory(&view, "crates/a/src"), Some("crates/a"));
    }
}
