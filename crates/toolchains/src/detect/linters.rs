//! Which linters a directory speaks for.

use super::cargo_workspace::workspace_directory;
use super::package_json::{PackageJson, ScriptRunner};
use super::{CodeLanguage, Detection, search};
use crate::command_plan::{ToolCandidate, virtual_environment};
use crate::linter::Linter;
use crate::project_view::{ProjectView, files_below, join};
use crate::target::ToolTarget;

/// Configuration files of eslint, the flat ones first.
const ESLINT_FILES: &[&str] = &[
    "eslint.config.js",
    "eslint.config.mjs",
    "eslint.config.cjs",
    "eslint.config.ts",
    "eslint.config.mts",
    "eslint.config.cts",
    ".eslintrc",
    ".eslintrc.js",
    ".eslintrc.cjs",
    ".eslintrc.json",
    ".eslintrc.yml",
    ".eslintrc.yaml",
];
pub(crate) const GOLANGCI_FILES: &[&str] =
    &[".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json"];

/// Finds the linters for a target.
pub fn detect_linters(view: &dyn ProjectView, target: &ToolTarget) -> Detection<Linter> {
    search(view, target, |linter| language(*linter), |directory| linters(view, directory))
}

fn language(linter: Linter) -> Option<CodeLanguage> {
    match linter {
        Linter::Clippy => Some(CodeLanguage::Rust),
        Linter::Ruff | Linter::Flake8 => Some(CodeLanguage::Python),
        Linter::Eslint | Linter::Biome | Linter::PackageScript => Some(CodeLanguage::JavaScript),
        Linter::GolangciLint => Some(CodeLanguage::Go),
        Linter::Shellcheck => Some(CodeLanguage::Shell),
        Linter::Configured => None,
    }
}

fn linters(view: &dyn ProjectView, directory: &str) -> Vec<ToolCandidate<Linter>> {
    let mut found = Vec::new();
    let first =
        |names: &[&'static str]| names.iter().copied().find(|name| view.exists(&join(directory, name)));
    if view.exists(&join(directory, "Cargo.toml")) {
        let root = workspace_directory(view, directory);
        found.push(ToolCandidate::new(Linter::Clippy, root, &["cargo", "cargo-clippy"], "Cargo.toml"));
    }
    if let Some(file) = first(GOLANGCI_FILES).or_else(|| first(&["go.mod"])) {
        found.push(ToolCandidate::new(Linter::GolangciLint, directory, &["golangci-lint", "go"], file));
    }
    python(view, directory, &mut found);
    javascript(view, directory, &mut found);
    let shell = |path: &str| path.ends_with(".sh") || path.ends_with(".bash");
    if let Some(file) = first(&[".shellcheckrc"]) {
        found.push(ToolCandidate::new(Linter::Shellcheck, directory, &["shellcheck"], file));
    } else if directory.is_empty()
        && let Some(file) = files_below(view, directory, 1, shell).0.first()
    {
        found.push(ToolCandidate::new(Linter::Shellcheck, directory, &["shellcheck"], file));
    }
    found
}

fn python(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<Linter>>) {
    let read = |name: &str| view.read(&join(directory, name)).unwrap_or_default();
    let exists = |name: &str| view.exists(&join(directory, name));
    let has_section = |name: &str, section: &str| {
        read(name)
            .lines()
            .any(|line| line.trim() == section || line.trim().starts_with(&section.replace(']', ".")))
    };
    let ruff = ["ruff.toml", ".ruff.toml"].into_iter().find(|name| exists(name)).map(str::to_owned);
    let ruff = ruff.or_else(|| {
        has_section("pyproject.toml", "[tool.ruff]").then(|| "[tool.ruff] in pyproject.toml".to_owned())
    });
    let flake8 = exists(".flake8").then(|| ".flake8".to_owned());
    let flake8 = flake8.or_else(|| {
        let name = ["setup.cfg", "tox.ini"].into_iter().find(|name| has_section(name, "[flake8]"))?;
        Some(format!("[flake8] in {name}"))
    });
    let python =
        ["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"].into_iter().find(|name| exists(name));
    let mut push = |linter: Linter, program: &str, reason: &str| {
        if let Some(environment) = virtual_environment(view, directory) {
            let own = join(directory, &format!("{environment}/bin/{program}"));
            found.push(ToolCandidate::new(linter, directory, &[&own], reason));
        }
        found.push(ToolCandidate::new(linter, directory, &[program], reason));
    };
    if let Some(reason) = &ruff {
        push(Linter::Ruff, "ruff", reason);
    }
    if let Some(reason) = &flake8 {
        push(Linter::Flake8, "flake8", reason);
    }
    if let (None, None, Some(reason)) = (&ruff, &flake8, python) {
        push(Linter::Ruff, "ruff", reason);
        push(Linter::Flake8, "flake8", reason);
    }
}

fn javascript(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<Linter>>) {
    let package = PackageJson::read(view, directory);
    let manager = ScriptRunner::of(view, directory);
    let first =
        |names: &[&'static str]| names.iter().copied().find(|name| view.exists(&join(directory, name)));
    let mut push = |linter: Linter, program: &str, reason: &str| {
        let own = join(directory, &format!("node_modules/.bin/{program}"));
        let launcher = if manager == ScriptRunner::Npm { "npx" } else { manager.program() };
        let programs = if view.exists(&own) { vec!["node"] } else { vec!["node", launcher] };
        found.push(ToolCandidate::new(linter, directory, &programs, reason));
    };
    if let Some(file) = first(&["biome.json", "biome.jsonc"]) {
        push(Linter::Biome, "biome", file);
    }
    if let Some(file) = first(ESLINT_FILES) {
        push(Linter::Eslint, "eslint", file);
    } else if package.as_ref().is_some_and(|package| package.has("eslintConfig")) {
        push(Linter::Eslint, "eslint", "eslintConfig in package.json");
    }
    if package.is_some_and(|package| package.script("lint").is_some()) {
        found.push(ToolCandidate::new(
            Linter::PackageScript,
            directory,
            &[manager.program()],
            "script `lint` of package.json",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project_view::tests::MemoryProject;

    #[track_caller]
    fn check(files: &[(&str, &str)], target: &str, expected: &[&str]) {
        let view = MemoryProject::new(files.iter().copied());
        let target = ToolTarget::parse(target, &view).unwrap();
        let found = detect_linters(&view, &target).candidates;
        let found: Vec<&str> = found.iter().map(|candidate| candidate.tool.as_str()).collect();
        assert_eq!(found, expected);
    }

    // T14
    #[test]
    fn every_linter_is_detected() {
        check(&[("Cargo.toml", "")], "", &["clippy"]);
        check(&[("ruff.toml", "")], "", &["ruff"]);
        check(&[("pyproject.toml", "[tool.ruff.lint]\n")], "", &["ruff"]);
        check(&[(".flake8", "")], "", &["flake8"]);
        check(&[("setup.cfg", "[flake8]\n")], "", &["flake8"]);
        check(&[("setup.py", "")], "", &["ruff", "flake8"]);
        check(&[("eslint.config.mjs", "")], "", &["eslint"]);
        check(&[("package.json", r#"{"eslintConfig":{}}"#)], "", &["eslint"]);
        check(&[("biome.json", "{}")], "", &["biome"]);
        check(&[("go.mod", "")], "", &["golangci-lint"]);
        check(&[("scripts/a.sh", "")], "", &["shellcheck"]);
        check(&[("package.json", r#"{"scripts":{"lint":"x"}}"#)], "", &["package script"]);
        check(&[("README", "")], "", &[]);
    }

    #[test]
    fn the_language_of_the_target_comes_first() {
        let files = [("Cargo.toml", ""), ("run.sh", ""), ("ruff.toml", ""), ("a.py", "")];
        check(&files, "", &["clippy", "ruff", "shellcheck"]);
        check(&files, "run.sh", &["shellcheck", "clippy", "ruff"]);
        check(&files, "a.py", &["ruff", "clippy", "shellcheck"]);
    }
}
