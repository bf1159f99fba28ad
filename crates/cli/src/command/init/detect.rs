//! What kind of project this is, by the files at its root. Names of folders come from the project and go into a
//! configuration file, so only plain ones are taken.
#![expect(clippy::disallowed_methods, reason = "names at the root of a folder that its owner names")]

use std::path::Path;

/// A file at the root, and what it says.
const MARKS: &[(&str, &str)] = &[
    ("Cargo.toml", "Rust"),
    ("package.json", "JavaScript"),
    ("tsconfig.json", "TypeScript"),
    ("deno.json", "Deno"),
    ("pyproject.toml", "Python"),
    ("setup.py", "Python"),
    ("requirements.txt", "Python"),
    ("go.mod", "Go"),
    ("pom.xml", "Java"),
    ("build.gradle", "Java"),
    ("build.gradle.kts", "Kotlin"),
    ("Gemfile", "Ruby"),
    ("composer.json", "PHP"),
    ("mix.exs", "Elixir"),
    ("Package.swift", "Swift"),
    ("CMakeLists.txt", "C or C++"),
    ("meson.build", "C or C++"),
];

/// Folders where new files are usual.
const FOLDERS: &[&str] = &[
    "src",
    "lib",
    "tests",
    "test",
    "docs",
    "scripts",
    "app",
    "apps",
    "cmd",
    "internal",
    "pkg",
    "packages",
    "crates",
    "components",
    "pages",
    "public",
    "examples",
    "benches",
    "services",
];

/// Folders that hold one service each.
const SERVICE_FOLDERS: &[&str] = &["services", "apps", "packages", "microservices"];

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Detected {
    marks: Vec<(&'static str, &'static str)>,
    pub(super) folders: Vec<&'static str>,
    pub(super) services: Vec<String>,
}

impl Detected {
    pub(super) fn of(project: &Path) -> Self {
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|facts| facts.is_dir());
        let mut found = Self {
            marks: MARKS.iter().copied().filter(|(file, _)| project.join(file).is_file()).collect(),
            folders: FOLDERS.iter().copied().filter(|name| is_folder(&project.join(name))).collect(),
            services: Vec::new(),
        };
        for parent in SERVICE_FOLDERS {
            for entry in std::fs::read_dir(project.join(parent)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if is_plain(&name) && is_folder(&entry.path()) {
                    found.services.push(format!("{parent}/{name}"));
                }
            }
        }
        found.services.sort_unstable();
        found
    }

    /// `Rust (Cargo.toml)`, each language once.
    pub(super) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<(&str, String)> = Vec::new();
        for (file, language) in &self.marks {
            if !kinds.iter().any(|(known, _)| known == language) {
                kinds.push((language, format!("{language} ({file})")));
            }
        }
        kinds.into_iter().map(|(_, kind)| kind).collect()
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_folders_and_services_are_seen_and_strange_names_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for folder in ["src", "services/web", "services/db", "services/a\nprofile: ci"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["Cargo.toml", "setup.py", "pyproject.toml"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let found = Detected::of(root);
        assert_eq!(found.kinds(), ["Rust (Cargo.toml)", "Python (pyproject.toml)"]);
        assert_eq!(found.folders, ["src", "services"]);
        assert_eq!(found.services, ["services/db", "services/web"]);
    }
}
