//! Detects the kind of a project by the files in its root. Directory names come from the project and go into the
//! configuration file, so only simple ones are used.
#![expect(clippy::disallowed_methods, reason = "lists a directory named by the user")]

use std::path::Path;

/// A file in the root, and the language it indicates.
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

/// Directories where new files are usual.
const USUAL_DIRS: &[&str] = &[
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

/// Directories with one service in each subdirectory.
const SERVICE_DIRS: &[&str] = &["services", "apps", "packages", "microservices"];

/// The detected languages, directories and services.
#[derive(Debug, Default)]
pub(crate) struct DetectedProject {
    marks: Vec<(&'static str, &'static str)>,
    pub(super) dirs: Vec<&'static str>,
    pub(super) services: Vec<String>,
}

impl DetectedProject {
    pub(super) fn of(project: &Path) -> Self {
        let is_real_dir = |path: &Path| path.symlink_metadata().is_ok_and(|facts| facts.is_dir());
        let mut found = Self {
            marks: MARKS.iter().copied().filter(|(file, _)| project.join(file).is_file()).collect(),
            dirs: USUAL_DIRS.iter().copied().filter(|name| is_real_dir(&project.join(name))).collect(),
            services: Vec::new(),
        };
        for parent in SERVICE_DIRS {
            for entry in std::fs::read_dir(project.join(parent)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if is_plain(&name) && is_real_dir(&entry.path()) {
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
    fn languages_directories_and_services_are_detected_and_unsafe_names_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for dir in ["src", "services/web", "services/db", "services/a\nprofile: ci"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        for file in ["Cargo.toml", "setup.py", "pyproject.toml"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let found = DetectedProject::of(root);
        assert_eq!(found.kinds(), ["Rust (Cargo.toml)", "Python (pyproject.toml)"]);
        assert_eq!(found.dirs, ["src", "services"]);
        assert_eq!(found.services, ["services/db", "services/web"]);
    }
}
