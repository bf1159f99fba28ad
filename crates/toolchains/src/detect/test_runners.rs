//! Which test runners a directory speaks for.

use super::cargo_workspace::workspace_directory;
use super::package_json::{PackageJson, ScriptCommand, ScriptRunner};
use super::recipes::{JUST_FILES, MAKE_FILES, recipes};
use super::{CodeLanguage, Detection, search};
use crate::command_plan::{ToolCandidate, virtual_environment};
use crate::project_view::{ProjectView, ancestors, join};
use crate::target::ToolTarget;
use crate::test_runner::TestRunner;

/// Finds the test runners for a target.
pub fn detect_test_runners(view: &dyn ProjectView, target: &ToolTarget) -> Detection<TestRunner> {
    search(view, target, |runner| language(*runner), |directory| runners(view, directory))
}

fn language(runner: TestRunner) -> Option<CodeLanguage> {
    match runner {
        TestRunner::Nextest | TestRunner::CargoTest => Some(CodeLanguage::Rust),
        TestRunner::Pytest | TestRunner::Unittest => Some(CodeLanguage::Python),
        TestRunner::Vitest | TestRunner::Jest | TestRunner::NodeTest | TestRunner::PackageScript => {
            Some(CodeLanguage::JavaScript)
        }
        TestRunner::GoTest => Some(CodeLanguage::Go),
        TestRunner::Gradle | TestRunner::Maven => Some(CodeLanguage::Java),
        TestRunner::Just | TestRunner::Make | TestRunner::Configured => None,
    }
}

fn runners(view: &dyn ProjectView, directory: &str) -> Vec<ToolCandidate<TestRunner>> {
    let mut found = Vec::new();
    cargo(view, directory, &mut found);
    if view.exists(&join(directory, "go.mod")) {
        found.push(ToolCandidate::new(TestRunner::GoTest, directory, &["go"], "go.mod"));
    }
    python(view, directory, &mut found);
    node(view, directory, &mut found);
    java(view, directory, &mut found);
    task_runners(view, directory, &mut found);
    found
}

fn cargo(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<TestRunner>>) {
    if !view.exists(&join(directory, "Cargo.toml")) {
        return;
    }
    let root = workspace_directory(view, directory);
    let reason = if view.exists(&join(root, ".config/nextest.toml")) {
        ".config/nextest.toml"
    } else {
        "Cargo.toml; nextest is preferred where it is installed"
    };
    found.push(ToolCandidate::new(TestRunner::Nextest, root, &["cargo", "cargo-nextest"], reason));
    found.push(ToolCandidate::new(TestRunner::CargoTest, root, &["cargo"], "Cargo.toml"));
}

fn python(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<TestRunner>>) {
    let Some(reason) = pytest_reason(view, directory).or_else(|| python_reason(view, directory)) else {
        return;
    };
    if let Some(environment) = virtual_environment(view, directory) {
        let bin = |name: &str| join(directory, &format!("{environment}/bin/{name}"));
        let programs = [bin("python"), bin("pytest")];
        let programs: Vec<&str> = programs.iter().map(String::as_str).collect();
        found.push(ToolCandidate::new(TestRunner::Pytest, directory, &programs, &reason));
    }
    found.push(ToolCandidate::new(TestRunner::Pytest, directory, &["python3", "pytest"], &reason));
    found.push(ToolCandidate::new(TestRunner::Unittest, directory, &["python3"], "Python without pytest"));
}

/// What speaks for pytest itself.
fn pytest_reason(view: &dyn ProjectView, directory: &str) -> Option<String> {
    let read = |name: &str| view.read(&join(directory, name)).unwrap_or_default();
    let has_section = |name: &str, section: &str| read(name).lines().any(|line| line.trim() == section);
    let sections = [
        ("pyproject.toml", "[tool.pytest.ini_options]"),
        ("pyproject.toml", "[tool.pytest]"),
        ("tox.ini", "[pytest]"),
        ("setup.cfg", "[tool:pytest]"),
    ];
    if ["pytest.ini", ".pytest.ini", "pytest.toml"].iter().any(|name| view.exists(&join(directory, name))) {
        return Some("pytest.ini".to_owned());
    }
    if let Some((name, section)) = sections.iter().find(|(name, section)| has_section(name, section)) {
        return Some(format!("{section} in {name}"));
    }
    let mentions =
        ["pyproject.toml", "requirements-dev.txt", "requirements.txt", "setup.cfg", "setup.py", "Pipfile"];
    let named = mentions.iter().find(|name| read(name).contains("pytest"));
    named.map(|name| format!("pytest in {name}"))
}

/// What speaks for Python. A `conftest.py` or a test file counts only in the root: test directories have them too.
fn python_reason(view: &dyn ProjectView, directory: &str) -> Option<String> {
    let files = ["pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "Pipfile", "requirements.txt"];
    if let Some(name) = files.iter().find(|name| view.exists(&join(directory, name))) {
        return Some((*name).to_owned());
    }
    if !directory.is_empty() {
        return None;
    }
    let is_test = |name: &str| {
        name == "conftest.py"
            || (name.ends_with(".py") && (name.starts_with("test_") || name.ends_with("_test.py")))
    };
    ["", "tests", "test"].iter().find_map(|place| {
        let name = view.list(place).into_iter().find(|name| is_test(name))?;
        Some(join(place, &name))
    })
}

fn node(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<TestRunner>>) {
    let Some(package) = PackageJson::read(view, directory) else { return };
    let manager = ScriptRunner::of(view, directory);
    let script = package.script("test");
    let hooked = package.script("pretest").is_some() || package.script("posttest").is_some();
    if let Some(runner) =
        script.filter(|_| !hooked).and_then(ScriptCommand::parse).as_ref().and_then(script_runner)
    {
        let programs = programs_of(view, directory, runner, manager);
        let reason = format!("script `test` of package.json runs {}", runner.as_str());
        found.push(ToolCandidate::new(runner, directory, &programs, reason));
    }
    if script.is_some() {
        let reason =
            format!("script `test` of package.json; {} by lockfile or packageManager", manager.program());
        found.push(ToolCandidate::new(TestRunner::PackageScript, directory, &[manager.program()], reason));
        return;
    }
    for (runner, dependency) in [(TestRunner::Vitest, "vitest"), (TestRunner::Jest, "jest")] {
        if package.depends_on(dependency) {
            let programs = programs_of(view, directory, runner, manager);
            found.push(ToolCandidate::new(
                runner,
                directory,
                &programs,
                format!("{dependency} in package.json"),
            ));
        }
    }
    if found.iter().all(|candidate| language(candidate.tool) != Some(CodeLanguage::JavaScript))
        && ["", "test", "tests", "src"]
            .iter()
            .any(|place| view.list(&join(directory, place)).iter().any(|name| is_node_test(name)))
    {
        found.push(ToolCandidate::new(
            TestRunner::NodeTest,
            directory,
            &["node"],
            "*.test.js beside package.json",
        ));
    }
}

/// The runner that a plain script starts.
pub(super) fn script_runner(command: &ScriptCommand) -> Option<TestRunner> {
    match command.program() {
        "vitest" => Some(TestRunner::Vitest),
        "jest" => Some(TestRunner::Jest),
        "node" if command.words.iter().any(|word| word == "--test") => Some(TestRunner::NodeTest),
        _ => None,
    }
}

fn programs_of(
    view: &dyn ProjectView,
    directory: &str,
    runner: TestRunner,
    manager: ScriptRunner,
) -> Vec<&'static str> {
    let visible = |name: &str| view.exists(&join(directory, &format!("node_modules/.bin/{name}")));
    match runner {
        TestRunner::NodeTest => vec!["node"],
        TestRunner::Vitest if visible("vitest") => vec!["node"],
        TestRunner::Jest if visible("jest") => vec!["node"],
        _ if manager == ScriptRunner::Npm => vec!["node", "npx"],
        _ => vec!["node", manager.program()],
    }
}

/// Whether `node --test` takes a file by its name.
pub(crate) fn is_node_test(name: &str) -> bool {
    let Some(stem) = [".js", ".mjs", ".cjs"].iter().find_map(|suffix| name.strip_suffix(suffix)) else {
        return false;
    };
    stem == "test"
        || stem.starts_with("test-")
        || [".test", "-test", "_test"].iter().any(|end| stem.ends_with(end))
}

fn java(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<TestRunner>>) {
    let has = |directory: &str, name: &str| view.exists(&join(directory, name));
    let gradle = ["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"];
    if let Some(file) = gradle.iter().find(|name| has(directory, name)) {
        // A build of several projects is run from where its settings are.
        let is_root = |directory: &&str| {
            ["settings.gradle", "settings.gradle.kts"].iter().any(|name| has(directory, name))
        };
        let root = ancestors(directory).find(is_root).unwrap_or(directory);
        let program = if has(root, "gradlew") { join(root, "gradlew") } else { "gradle".to_owned() };
        found.push(ToolCandidate::new(TestRunner::Gradle, root, &[&program], *file));
    }
    if has(directory, "pom.xml") {
        let has_modules = |directory: &&str| {
            view.read(&join(directory, "pom.xml")).is_some_and(|text| text.contains("<module>"))
        };
        let root = ancestors(directory).filter(has_modules).last().unwrap_or(directory);
        let program = if has(root, "mvnw") { join(root, "mvnw") } else { "mvn".to_owned() };
        found.push(ToolCandidate::new(TestRunner::Maven, root, &[&program], "pom.xml"));
    }
}

fn task_runners(view: &dyn ProjectView, directory: &str, found: &mut Vec<ToolCandidate<TestRunner>>) {
    for (runner, program, files) in
        [(TestRunner::Just, "just", JUST_FILES), (TestRunner::Make, "make", MAKE_FILES)]
    {
        if let Some((file, names)) = recipes(view, directory, files)
            && let Some(name) = default_recipe(&names)
        {
            found.push(ToolCandidate::new(runner, directory, &[program], format!("`{name}` in {file}")));
        }
    }
}

/// The recipe that runs the tests.
pub(crate) fn default_recipe(names: &[String]) -> Option<&str> {
    ["test", "tests", "check"].into_iter().find(|wanted| names.iter().any(|name| name == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project_view::tests::MemoryProject;

    /// `runner@directory` of each candidate.
    #[track_caller]
    fn check(files: &[(&str, &str)], target: &str, expected: &[&str]) {
        let view = MemoryProject::new(files.iter().copied());
        let target = ToolTarget::parse(target, &view).unwrap();
        let found: Vec<String> = detect_test_runners(&view, &target)
            .candidates
            .iter()
            .map(|candidate| format!("{}@{}", candidate.tool.as_str(), candidate.directory))
            .collect();
        assert_eq!(found, expected);
    }

    // T14
    #[test]
    fn every_toolchain_is_detected() {
        check(&[("Cargo.toml", "")], "", &["cargo nextest@", "cargo test@"]);
        check(&[("pytest.ini", "")], "", &["pytest@", "unittest@"]);
        check(&[("pyproject.toml", ""), ("uv.lock", "")], "", &["pytest@", "pytest@", "unittest@"]);
        check(&[("tests/test_a.py", "")], "", &["pytest@", "unittest@"]);
        check(&[("go.mod", "module x")], "", &["go test@"]);
        check(&[("build.gradle.kts", "")], "", &["gradle@"]);
        check(&[("pom.xml", "")], "", &["maven@"]);
        check(&[("justfile", "test:\n  echo\n")], "", &["just@"]);
        check(&[("Makefile", "check:\n\techo\n")], "", &["make@"]);
        check(&[("Makefile", "all:\n\techo\n")], "", &[]);
        check(
            &[("package.json", r#"{"scripts":{"test":"vitest run"}}"#)],
            "",
            &["vitest@", "package script@"],
        );
        check(&[("package.json", r#"{"scripts":{"test":"jest --ci"}}"#)], "", &["jest@", "package script@"]);
        check(
            &[("package.json", r#"{"scripts":{"test":"node --test"}}"#)],
            "",
            &["node --test@", "package script@"],
        );
        check(&[("package.json", r#"{"scripts":{"test":"tsc && jest"}}"#)], "", &["package script@"]);
        check(&[("package.json", r#"{"scripts":{"test":"jest","pretest":"x"}}"#)], "", &["package script@"]);
        check(&[("package.json", r#"{"devDependencies":{"vitest":"1"}}"#)], "", &["vitest@"]);
        let default = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        check(&[("package.json", default), ("test/a.test.js", "")], "", &["node --test@"]);
        check(&[("package.json", "not json")], "", &[]);
    }

    // T14
    #[test]
    fn the_language_of_the_target_comes_first() {
        let files = [
            ("Cargo.toml", ""),
            ("package.json", r#"{"scripts":{"test":"jest"}}"#),
            ("src/a.test.ts", ""),
            ("src/lib.rs", ""),
            ("Makefile", "test:\n"),
        ];
        check(&files, "", &["cargo nextest@", "cargo test@", "jest@", "package script@", "make@"]);
        check(
            &files,
            "src/a.test.ts",
            &["jest@", "package script@", "cargo nextest@", "cargo test@", "make@"],
        );
    }

    // T14
    #[test]
    fn the_nearest_directory_of_the_target_decides() {
        let files = [
            ("web/package.json", r#"{"scripts":{"test":"jest"}}"#),
            ("web/src/a.test.ts", ""),
            ("api/pyproject.toml", ""),
            ("api/tests/test_a.py", ""),
        ];
        check(&files, "web/src/a.test.ts", &["jest@web", "package script@web"]);
        check(&files, "api/tests", &["pytest@api", "unittest@api"]);
        check(&files, "", &[]);
        let view = MemoryProject::new(files);
        assert_eq!(detect_test_runners(&view, &ToolTarget::All).directories, ["api", "web"]);
        check(&files[..2], "", &["jest@web", "package script@web"]);
        let workspace = [
            ("Cargo.toml", "[workspace]\nmembers=['crates/a']"),
            ("crates/a/Cargo.toml", "[package]\nname='a'"),
            ("crates/a/src/lib.rs", ""),
        ];
        check(&workspace, "crates/a/src/lib.rs", &["cargo nextest@", "cargo test@"]);
    }

    #[test]
    fn reasons_and_programs_are_reported() {
        let view = MemoryProject::new([
            ("Cargo.toml", ""),
            (".config/nextest.toml", ""),
            ("gradlew", ""),
            ("build.gradle", ""),
        ]);
        let found = detect_test_runners(&view, &ToolTarget::All).candidates;
        assert_eq!(found[0].reason, ".config/nextest.toml");
        assert_eq!(found[0].programs, ["cargo", "cargo-nextest"]);
        assert_eq!(found[2].programs, ["gradlew"]);
    }
}
