//! `run_test`, `run_lint` and `install_dependencies`: what they run, what they report, and what they leave behind.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::changes::decide;
use crate::home::Home;

const DEV: &str = "roles: {default: dev}\n";

const CALCULATOR: &str = "def add(a, b):\n    return a + b\n";
const CALCULATOR_TESTS: &str = "import unittest\nfrom calculator import add\n\n\nclass AddTest(unittest.TestCase):\n    def test_small(self):\n        self.assertEqual(add(1, 2), 3)\n\n    def test_wrong(self):\n        self.assertEqual(add(2, 2), 5)\n";

fn python_project(config: &str) -> Home {
    let home = Home::with(config);
    home.write("calculator.py", CALCULATOR);
    home.write("test_calculator.py", CALCULATOR_TESTS);
    home
}

fn call(home: &Home, tool: &str, args: Value) -> Value {
    home.call(tool, &args.to_string()).1
}

/// `vambrace call` with the toolchains of the user who runs the tests.
fn call_with_own_toolchains(home: &Home, tool: &str, args: &Value) -> Value {
    let mut command = home.command(["call", tool, &args.to_string(), "--json"]);
    for name in ["PATH", "HOME"] {
        command.env(name, std::env::var_os(name).unwrap_or_default());
    }
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths::<OsStr>(&path).any(|directory| directory.join(name).is_file())
}

// T14: counts, and each failure with test name, file, line and message; nobody is asked, nothing is left behind
#[test]
fn failing_unittest_is_reported_with_file_and_line() {
    let home = python_project(DEV);
    let answer = call(&home, "run_test", json!({}));
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(answer["metadata"]["execution_environment"], "sandbox", "{answer}");
    let data = &answer["data"];
    assert_eq!((&data["runner"], &data["outcome"]), (&"unittest".into(), &"failed".into()), "{answer}");
    assert_eq!(
        (&data["passed"], &data["failed"], &data["exit_code"]),
        (&1.into(), &1.into(), &1.into()),
        "{answer}"
    );
    let failure = &data["failures"][0];
    assert!(failure["test"].as_str().unwrap().contains("test_wrong"), "{answer}");
    assert_eq!((&failure["file"], &failure["line"]), (&"test_calculator.py".into(), &10.into()), "{answer}");
    assert!(failure["message"].as_str().unwrap().contains("4 != 5"), "{answer}");
    assert!(data["log"].as_str().unwrap().contains("AssertionError"), "{answer}");
    assert!(!home.project().join("__pycache__").exists());
    assert!(!home.run(["approvals", "list", "--json"]).out.contains("hitl-"));
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// T14: a target chooses tests, and is never an option
#[test]
fn target_is_a_file_or_a_name_and_never_an_option() {
    let home = python_project(DEV);
    home.write(
        "test_other.py",
        "import unittest\n\n\nclass OtherTest(unittest.TestCase):\n    def test_fine(self):\n        pass\n",
    );
    let answer = call(&home, "run_test", json!({"target": "test_other.py"}));
    assert_eq!((&answer["data"]["passed"], &answer["data"]["failed"]), (&1.into(), &0.into()), "{answer}");
    for target in ["--help", "-k", "-x test_other.py", "test_other.py::--help"] {
        let answer = call(&home, "run_test", json!({"target": target}));
        assert_eq!(answer["error"]["code"], "InvalidArguments", "{target}: {answer}");
    }
    for target in ["../outside.py", "/etc/passwd", "missing/test_x.py"] {
        let answer = call(&home, "run_test", json!({"target": target}));
        assert_ne!(answer["status"], "success", "{target}: {answer}");
    }
}

// T14: the log is cut by the strategy
#[test]
fn truncation_strategy_cuts_the_log_and_the_failures() {
    let home = python_project(DEV);
    let answer = call(&home, "run_test", json!({"truncation_strategy": "HEAD:1"}));
    assert!(answer["data"]["log_lines_left_out"].as_u64().unwrap() > 3, "{answer}");
    assert!(!answer["data"]["log"].as_str().unwrap().contains("AssertionError"), "{answer}");
    let answer = call(&home, "run_test", json!({"truncation_strategy": "FAILURES:0"}));
    assert_eq!(
        (&answer["data"]["failures"], &answer["data"]["failures_left_out"]),
        (&json!([]), &1.into()),
        "{answer}"
    );
    let answer = call(&home, "run_test", json!({"truncation_strategy": "MIDDLE:3"}));
    assert_eq!(answer["error"]["code"], "InvalidArguments", "{answer}");
}

// T14, P2, P11: the tests of a project are code: no network, no blocked file, no change of the project
#[test]
fn tests_are_confined_and_their_output_is_redacted() {
    let home = Home::with(DEV);
    let hostile = "import unittest, urllib.request\n\n\nclass HostileTest(unittest.TestCase):\n    def test_env_file(self):\n        print(open('.env').read())\n\n    def test_network(self):\n        urllib.request.urlopen('http://example.com/')\n\n    def test_write(self):\n        open('docs/guide.md', 'w').write('changed')\n        print('token = ' + 'ghp_' + 'aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5')\n";
    home.write("test_hostile.py", hostile);
    let answer = call(&home, "run_test", json!({"truncation_strategy": "TAIL:1000"}));
    assert_eq!(
        (&answer["data"]["passed"], &answer["data"]["hosts_denied"]),
        (&1.into(), &json!(["example.com"])),
        "{answer}"
    );
    for secret in ["in-the-env-file", "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"] {
        assert!(!answer.to_string().contains(secret), "{answer}");
    }
    assert_eq!(std::fs::read_to_string(home.project().join("docs/guide.md")).unwrap(), "# Guide\n");
}

// T14: the configured command wins over detection
#[test]
fn configured_commands_are_used() {
    let config = "roles: {default: dev}\ntools: {toolchain: {test: [python3, -m, unittest, -v, '{target}'], lint: [python3, lint.py, '{target}']}}\n";
    let home = python_project(config);
    let answer = call(&home, "run_test", json!({"target": "test_calculator"}));
    assert_eq!(
        answer["data"]["command"],
        json!(["python3", "-m", "unittest", "-v", "test_calculator"]),
        "{answer}"
    );
    assert_eq!((&answer["data"]["passed"], &answer["data"]["failed"]), (&1.into(), &1.into()), "{answer}");
    home.write("lint.py", "import sys\nprint(sys.argv[1] + ':2:5: E999 wrong indentation')\nopen('calculator.py', 'w')\nsys.exit(1)\n");
    let answer = call(&home, "run_lint", json!({"target": "calculator.py"}));
    let finding = &answer["data"]["findings"][0];
    assert_eq!(
        (&finding["file"], &finding["line"], &finding["column"]),
        (&"calculator.py".into(), &2.into(), &5.into()),
        "{answer}"
    );
    assert_eq!(answer["data"]["exit_code"], 1, "{answer}");
    assert_eq!(std::fs::read_to_string(home.project().join("calculator.py")).unwrap(), CALCULATOR);
}

// T14: no runner and no linter is an error that names the setting
#[test]
fn missing_toolchain_is_an_error_with_the_setting() {
    let home = Home::with(DEV);
    for (tool, setting) in [("run_test", "tools.toolchain.test"), ("run_lint", "tools.toolchain.lint")] {
        let answer = call(&home, tool, json!({}));
        assert_eq!(answer["error"]["code"], "InvalidArguments", "{answer}");
        assert!(answer["error"]["suggestion"].as_str().unwrap().contains(setting), "{answer}");
    }
}

// T14: cargo in the sandbox; its build directory is kept between runs and not in the project
#[test]
fn cargo_project_is_tested() {
    if !has_program("cargo") {
        return vambrace_skip::skip("cargo is not installed");
    }
    let home = Home::with(DEV);
    home.write("Cargo.toml", "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    home.write(
        "src/lib.rs",
        "#[test]\nfn fine() {}\n\n#[test]\nfn wrong() {\n    assert_eq!(2 + 2, 5);\n}\n",
    );
    std::fs::remove_file(home.project().join("src/main.rs")).unwrap();
    let answer = call_with_own_toolchains(&home, "run_test", &json!({}));
    assert_eq!(answer["status"], "success", "{answer}");
    let data = &answer["data"];
    assert_eq!((&data["passed"], &data["failed"]), (&1.into(), &1.into()), "{answer}");
    let failure = &data["failures"][0];
    assert_eq!((&failure["file"], &failure["line"]), (&"src/lib.rs".into(), &6.into()), "{answer}");
    assert!(!home.project().join("target").exists() && !home.project().join("Cargo.lock").exists());
}

// T14: a linter of the project's own package file
#[test]
fn lint_script_of_a_package_runs() {
    if !(has_program("npm") && has_program("node")) {
        return vambrace_skip::skip("npm is not installed");
    }
    let home = Home::with(DEV);
    home.write("package.json", r#"{"name": "sample", "scripts": {"lint": "node lint.js"}}"#);
    home.write("lint.js", "console.log('src/a.js:3:1: unused variable');\nprocess.exit(1);\n");
    home.write("src/a.js", "\n\nlet a;\n");
    let answer = call(&home, "run_lint", json!({}));
    assert_eq!((&answer["status"], &answer["data"]["exit_code"]), (&"success".into(), &1.into()), "{answer}");
    assert_eq!(answer["data"]["findings"][0]["line"], 3, "{answer}");
}

// T16: only from a lockfile
#[test]
fn install_needs_a_lockfile_and_a_known_manager() {
    let home = Home::with(DEV);
    home.write("package.json", r#"{"name": "sample", "dependencies": {"left-pad": "1.3.0"}}"#);
    let answer = call(&home, "install_dependencies", json!({"manager": "npm"}));
    assert_eq!(answer["error"]["code"], "FileNotFound", "{answer}");
    assert!(answer["error"]["suggestion"].as_str().unwrap().contains("--package-lock-only"), "{answer}");
    let answer = call(&home, "install_dependencies", json!({"manager": "npx"}));
    assert_eq!(answer["error"]["code"], "InvalidArguments", "{answer}");
}

const LOCKFILE: &str = r#"{"name": "sample", "lockfileVersion": 3, "packages": {"": {"name": "sample", "dependencies": {"left-pad": "1.3.0"}},
  "node_modules/left-pad": {"version": "1.3.0", "resolved": "REGISTRY/left-pad/-/left-pad-1.3.0.tgz", "integrity": "sha512-XI5MPzVNApjAyhQzphX8BkmKsKUxD4LdyK24iZeQGinBN9yTQT3bFlCBy/aVx2HrNcqQGsdot8ghrjyrvMCoEA=="}}}"#;

fn npm_project(config: &str, registry: &str) -> Home {
    let home = Home::with(DEV);
    home.user_config(config);
    home.write("package.json", r#"{"name": "sample", "dependencies": {"left-pad": "1.3.0"}}"#);
    home.write("package-lock.json", &LOCKFILE.replace("REGISTRY", registry));
    home
}

// T16, P2: hosts of a lockfile are judged by policy, and allowed ones are asked about
#[test]
fn hosts_of_a_lockfile_are_judged_by_policy() {
    if !has_program("npm") {
        return vambrace_skip::skip("npm is not installed");
    }
    let home = npm_project("network: {allow: [example.com]}\n", "https://registry.npmjs.org");
    let answer = call(&home, "install_dependencies", json!({}));
    assert_ne!(answer["status"], "success", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("registry.npmjs.org"), "{answer}");
    assert!(!home.run(["approvals", "list", "--json"]).out.contains("hitl-"));
    home.user_config("network: {allow: [registry.npmjs.org]}\n");
    let answer = call(&home, "install_dependencies", json!({"manager": "npm"}));
    assert_eq!(answer["details"]["status"], "hitl_required", "{answer}");
}

// T16: a lockfile cannot smuggle in credentials, addresses or plain http
#[test]
fn suspicious_lockfiles_are_denied() {
    if !has_program("npm") {
        return vambrace_skip::skip("npm is not installed");
    }
    for registry in [
        "http://registry.npmjs.org",
        "https://user:hunter2-secret@registry.npmjs.org",
        "https://127.0.0.1:4873",
    ] {
        let home = npm_project("network: {allow: ['*']}\n", registry);
        let answer = call(&home, "install_dependencies", json!({}));
        assert_eq!(answer["error"]["code"], "InvalidArguments", "{registry}: {answer}");
        assert!(!answer.to_string().contains("hunter2"), "{answer}");
    }
}

// T16: after approval the packages are there for the tests, and not in the project
#[test]
fn installed_packages_are_kept_for_the_tests() {
    if !(has_program("npm") && has_program("node")) {
        return vambrace_skip::skip("npm is not installed");
    }
    let home = Home::with(DEV);
    home.user_config("network: {allow: [registry.npmjs.org]}\n");
    for (path, content) in [
        (
            "package.json",
            r#"{"name": "sample", "scripts": {"test": "node check.js"}, "dependencies": {"local": "file:local"}}"#,
        ),
        ("local/package.json", r#"{"name": "local", "version": "1.0.0", "main": "index.js"}"#),
        ("local/index.js", "module.exports = 42;\n"),
        ("check.js", "console.log('the answer is ' + require('local'));\n"),
        (
            "package-lock.json",
            r#"{"name": "sample", "lockfileVersion": 3, "requires": true, "packages": {"": {"name": "sample",
                "dependencies": {"local": "file:local"}}, "local": {"version": "1.0.0"},
                "node_modules/local": {"resolved": "local", "link": true}}}"#,
        ),
    ] {
        home.write(path, content);
    }
    let before = call(&home, "run_test", json!({}));
    assert_eq!((&before["status"], &before["data"]["exit_code"]), (&"success".into(), &1.into()), "{before}");
    let pending = call(&home, "install_dependencies", json!({}));
    let id = pending["details"]["hitl"]["hitl_id"].as_str().unwrap_or_else(|| panic!("{pending}"));
    let ran = decide(&home, &["approvals", "approve", id]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = call(&home, "install_dependencies", json!({}));
    assert_eq!(
        (&answer["data"]["installed"], &answer["data"]["manager"]),
        (&true.into(), &"npm".into()),
        "{answer}"
    );
    let after = call(&home, "run_test", json!({}));
    assert_eq!(after["data"]["exit_code"], 0, "{after}");
    assert!(after["data"]["log"].as_str().unwrap().contains("the answer is 42"), "{after}");
    assert!(!home.project().join("node_modules").exists());
    home.write("node_modules/other/index.js", "");
    let own = call(&home, "install_dependencies", json!({}));
    assert_eq!(own["error"]["code"], "InvalidArguments", "{own}");
}
