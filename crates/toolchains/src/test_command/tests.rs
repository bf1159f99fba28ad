//! Commands of every runner, and what they refuse.

use super::*;
use crate::project_view::tests::MemoryProject;
use proptest::prelude::*;

fn request<'a>(target: &'a str, installed: &'a dyn Fn(&str) -> bool) -> PlanRequest<'a> {
    PlanRequest { target: Some(target), configured: None, installed, offline: true, report_directory: "/tmp" }
}

#[track_caller]
fn plan(files: &[(&str, &str)], target: &str) -> Result<TestPlan, PlanError> {
    let view = MemoryProject::new(files.iter().copied());
    plan_test(&view, &request(target, &|program| program != "cargo-nextest"))
}

#[track_caller]
fn check(files: &[(&str, &str)], target: &str, expected: &[&str]) {
    assert_eq!(plan(files, target).unwrap().command.argv, expected, "{target}");
}

#[track_caller]
fn check_refused(files: &[(&str, &str)], target: &str) {
    let error = plan(files, target).unwrap_err();
    assert!(matches!(error, PlanError::Target(_)), "{error:?}");
}

const RUST: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace]\nmembers = ['crates/*']"),
    ("crates/demo/Cargo.toml", "[package]\nname = 'demo-calc'"),
    ("crates/demo/src/lib.rs", ""),
    ("crates/demo/src/deep/mod.rs", ""),
    ("crates/demo/tests/whole.rs", ""),
];

// T14
#[test]
fn cargo_targets_select_packages_programs_and_filters() {
    let check = |target: &str, expected: &[&str]| {
        let words: Vec<&str> = ["cargo", "test", "--no-fail-fast"].iter().chain(expected).copied().collect();
        check(RUST, target, &words);
    };
    let manifest = "--manifest-path=crates/demo/Cargo.toml";
    check("", &["--workspace"]);
    check("crates/demo", &[manifest]);
    check("crates/demo/src/lib.rs", &[manifest, "--lib"]);
    check("crates/demo/src/deep/mod.rs", &[manifest, "--", "deep::"]);
    check("crates/demo/src/lib.rs::tests::adds", &[manifest, "--lib", "--", "tests::adds"]);
    check("crates/demo/tests/whole.rs", &[manifest, "--test=whole"]);
    check("demo-calc", &["--package=demo-calc"]);
    check("demo_calc::tests::adds", &["--package=demo-calc", "--", "tests::adds"]);
    check("demo-calc::whole::whole_fails", &["--package=demo-calc", "--test=whole", "--", "whole_fails"]);
    check("demo-calc::bin/tool::tests::x", &["--package=demo-calc", "--bin=tool", "--", "tests::x"]);
    check("tests::adds", &["--", "tests::adds"]);
    check_refused(RUST, "a;b");
}

// T14
#[test]
fn nextest_is_preferred_where_it_is_installed() {
    let view = MemoryProject::new(RUST.iter().copied());
    let plan = plan_test(&view, &request("demo-calc", &|_| true)).unwrap();
    assert_eq!(plan.runner, TestRunner::Nextest);
    let options = [
        "--no-fail-fast",
        "--status-level=all",
        "--final-status-level=none",
        "--failure-output=immediate",
        "--success-output=never",
    ];
    assert_eq!(plan.command.argv[..3], ["cargo", "nextest", "run"]);
    assert_eq!(plan.command.argv[3..8], options);
    assert_eq!(plan.command.argv[8..], ["--package=demo-calc"]);
    assert_eq!(plan.command.programs, ["cargo", "cargo-nextest"]);
    assert_eq!(plan.alternatives, ["cargo test (Cargo.toml)"]);
    assert!(plan.command.environment.contains(&("CARGO_NET_OFFLINE".to_owned(), "true".to_owned())));
}

// T14
#[test]
fn python_targets_are_node_ids_and_dotted_names() {
    let files = [("pytest.ini", ""), ("tests/test_x.py", ""), ("tests/__init__.py", "")];
    let start =
        ["python3", "-m", "pytest", "-rfE", "--tb=short", "--color=no", "-o", "cache_dir=/tmp/pytest-cache"];
    let check_pytest = |target: &str, expected: &[&str]| {
        let words: Vec<&str> = start.iter().chain(expected).copied().collect();
        check(&files, target, &words);
    };
    check_pytest("", &[]);
    check_pytest("tests", &["tests"]);
    check_pytest("tests/test_x.py::TestA::test_b[1 2]", &["tests/test_x.py::TestA::test_b[1 2]"]);
    check_pytest("test_b", &["-k", "test_b"]);
    check_pytest("TestA::test_b", &["-k", "TestA and test_b"]);
    check_refused(&files, "not test_b");
    check_refused(&files, "__import__('os')");

    let view = MemoryProject::new(files);
    let unittest = |target: &str, expected: &[&str]| {
        let plan = plan_test(&view, &request(target, &|program| program == "python3")).unwrap();
        assert_eq!(plan.command.argv[..3], ["python3", "-m", "unittest"]);
        assert_eq!(plan.command.argv[3..], *expected, "{target}");
    };
    unittest("", &["discover", "-v", "-s", "tests", "-t", "."]);
    unittest("tests/test_x.py", &["-v", "tests.test_x"]);
    unittest("tests/test_x.py::TestA::test_b", &["-v", "tests.test_x.TestA.test_b"]);
    unittest("tests.test_x.TestA", &["-v", "tests.test_x.TestA"]);
    unittest("test_b", &["discover", "-v", "-s", "tests", "-t", ".", "-k", "test_b"]);

    let own = plan(&[("pyproject.toml", ""), ("uv.lock", "")], "").unwrap();
    assert_eq!(own.command.argv[..3], [".venv/bin/python", "-m", "pytest"]);
    assert_eq!(own.command.programs, [".venv/bin/python", ".venv/bin/pytest"]);
}

// T14
#[test]
fn javascript_runners_write_a_report_file() {
    let vitest =
        [("package.json", r#"{"scripts":{"test":"vitest --watch --config v.ts"}}"#), ("src/a.test.ts", "")];
    let report = ["--reporter=default", "--reporter=json", "--outputFile.json=/tmp/vambrace-report.json"];
    let words: Vec<&str> =
        ["npx", "--no-install", "vitest", "run", "--config", "v.ts"].iter().chain(&report).copied().collect();
    check(&vitest, "", &words);
    let words: Vec<&str> =
        words.iter().copied().chain(["--testNamePattern=adds \\(1\\+1\\)", "src/a.test.ts"]).collect();
    check(&vitest, "src/a.test.ts::adds (1+1)", &words);
    assert_eq!(plan(&vitest, "").unwrap().command.report_file.as_deref(), Some("/tmp/vambrace-report.json"));

    let jest = [
        ("web/package.json", r#"{"scripts":{"test":"NODE_ENV=test jest src"}}"#),
        ("web/a.test.js", ""),
        ("pnpm-lock.yaml", ""),
    ];
    let report = ["--json", "--outputFile=/tmp/vambrace-report.json", "--testLocationInResults"];
    let words: Vec<&str> =
        ["pnpm", "exec", "jest"].iter().chain(&report).chain(&["a\\.test\\.js"]).copied().collect();
    check(&jest, "web/a.test.js", &words);
    let plan = plan(&jest, "web/a.test.js").unwrap();
    assert_eq!(plan.command.directory, "web");
    assert!(plan.command.environment.contains(&("NODE_ENV".to_owned(), "test".to_owned())));
}

// T14
#[test]
fn node_test_and_scripts_take_files() {
    let node =
        [("package.json", r#"{"scripts":{"test":"node --test"}}"#), ("t/a.test.mjs", ""), ("t/b.js", "")];
    check(&node, "", &["node", "--test", "--test-reporter=tap"]);
    check(&node, "t", &["node", "--test", "--test-reporter=tap", "t/a.test.mjs"]);
    check(
        &node,
        "t/a.test.mjs::adds",
        &["node", "--test", "--test-reporter=tap", "--test-name-pattern=adds", "t/a.test.mjs"],
    );
    let script = [
        ("package.json", r#"{"scripts":{"test":"tsc && ava"}}"#),
        ("a.ts", ""),
        ("$(x).ts", ""),
        ("yarn.lock", ""),
    ];
    check(&script, "", &["yarn", "run", "test"]);
    check(&script, "a.ts", &["yarn", "run", "test", "a.ts"]);
    check_refused(&script, "$(x).ts");
    check_refused(&script, "some name");
    check(&script[..2], "a.ts", &["npm", "run", "test", "--", "a.ts"]);
}

// T14
#[test]
fn go_targets_are_packages_and_anchored_patterns() {
    let go = [
        ("svc/go.mod", "module example.com/demo // x\n"),
        ("svc/pkg/calc/calc_test.go", ""),
        ("svc/a_test.go", ""),
    ];
    check(&go, "", &["go", "test", "-json", "./..."]);
    check(&go, "svc/pkg", &["go", "test", "-json", "./pkg/..."]);
    check(&go, "svc/pkg/calc/calc_test.go", &["go", "test", "-json", "./pkg/calc"]);
    check(
        &go,
        "svc/pkg/calc::TestTable/two words",
        &["go", "test", "-json", "-run=^TestTable$/^two_words$", "./pkg/calc"],
    );
    check(&go, "svc/a_test.go::TestA", &["go", "test", "-json", "-run=^TestA$", "."]);
    check(&go, "TestAdd", &["go", "test", "-json", "-run=TestAdd", "./..."]);
    let plan = plan(&go, "").unwrap();
    assert_eq!(
        (plan.command.directory.as_str(), plan.reader.go_module.as_deref()),
        ("svc", Some("example.com/demo"))
    );
}

// T14
#[test]
fn gradle_maven_just_and_make_take_what_they_can() {
    let gradle = [
        ("settings.gradle", ""),
        ("gradlew", ""),
        ("app/build.gradle", ""),
        ("app/src/test/java/demo/CalcTest.java", ""),
        ("docs/x", ""),
    ];
    let start = ["./gradlew", "--console=plain", "--no-daemon", "--continue", "--offline"];
    let view = MemoryProject::new(gradle);
    let words = |rest: &[&'static str]| -> Vec<&str> { start.iter().chain(rest).copied().collect() };
    let argv = |target: &str| {
        plan_test(&view, &request(target, &|_| true)).map(|plan| (plan.command.argv, plan.command.directory))
    };
    assert_eq!(argv("").unwrap().0, words(&["test"]));
    assert_eq!(argv("demo.CalcTest").unwrap().0, words(&["test", "--tests", "demo.CalcTest"]));
    assert_eq!(argv("CalcTest.adds").unwrap().0, words(&["test", "--tests", "CalcTest.adds"]));
    // A project of the build is run from the root of the build.
    let (inner, directory) = argv("app/src/test/java/demo/CalcTest.java::adds").unwrap();
    assert_eq!(
        (inner, directory.as_str()),
        (
            words(&[":app:test", "--tests", "demo.CalcTest.adds"]).iter().map(|w| (*w).to_owned()).collect(),
            ""
        )
    );
    assert_eq!(argv("app").unwrap().0, words(&[":app:test"]));
    assert!(argv("docs").is_err());

    let maven = [
        ("pom.xml", "<modules><module>core</module></modules>"),
        ("core/pom.xml", ""),
        ("core/src/test/java/demo/CalcTest.java", ""),
    ];
    let start = ["mvn", "--batch-mode", "--no-transfer-progress", "--fail-at-end", "--offline"];
    let words = |rest: &[&'static str]| -> Vec<&str> { start.iter().chain(rest).copied().collect() };
    check(&maven, "", &words(&["test"]));
    check(
        &maven,
        "CalcTest#adds",
        &words(&["-Dtest=CalcTest#adds", "-Dsurefire.failIfNoSpecifiedTests=false", "test"]),
    );
    check(&maven, "core", &words(&["--projects", "core", "--also-make", "test"]));
    check(
        &maven,
        "core/src/test/java/demo/CalcTest.java",
        &words(&[
            "--projects",
            "core",
            "--also-make",
            "-Dtest=demo.CalcTest",
            "-Dsurefire.failIfNoSpecifiedTests=false",
            "test",
        ]),
    );
    check_refused(&maven, "CalcTest -Dexec=x");

    let make = [("Makefile", "test: a\ntest-unit:\ndeploy:\n")];
    check(&make, "", &["make", "test"]);
    check(&make, "test-unit", &["make", "test-unit"]);
    check_refused(&make, "deploy");
    check_refused(&make, "test SHELL=x");
    check(&[("justfile", "test arg='':\n  x\n")], "", &["just", "test"]);
}

// T14
#[test]
fn a_configured_command_wins_and_missing_programs_are_named() {
    let view = MemoryProject::new(RUST.iter().copied());
    let argv = ["tox", "-e", "{target}"].map(str::to_owned);
    let configured = PlanRequest { configured: Some(&argv), ..request("py", &|_| false) };
    let plan = plan_test(&view, &configured).unwrap();
    assert_eq!(
        (plan.runner, plan.command.argv),
        (TestRunner::Configured, vec!["tox".to_owned(), "-e".to_owned(), "py".to_owned()])
    );
    let error = plan_test(&view, &request("", &|_| false)).unwrap_err();
    assert!(error.to_string().contains("`cargo`, `cargo-nextest` is not installed"), "{error}");
    let error = plan_test(&MemoryProject::default(), &request("", &|_| true)).unwrap_err();
    assert_eq!(
        error.suggestion(),
        "ask the user to set `tools.toolchain.test` to a program and its arguments"
    );
    let two = MemoryProject::of_names(&["a/Cargo.toml", "b/go.mod"]);
    let error = plan_test(&two, &request("", &|_| true)).unwrap_err();
    assert_eq!(error.to_string(), "several directories have a test runner: a, b");
}

proptest! {
    // T14: whatever the agent sends, the target adds no option of its own choice.
    #[test]
    fn a_target_never_becomes_an_option(target in "(-|--|=|/|\\.|:|::|[a-zA-Z]{1,3}| |;|\\$|tests/test_x.py|crates/demo){0,8}") {
        let projects: [&[(&str, &str)]; 5] = [
            RUST,
            &[("pytest.ini", ""), ("tests/test_x.py", "")],
            &[("go.mod", "module x"), ("tests/test_x.py", "")],
            &[("package.json", r#"{"scripts":{"test":"vitest"}}"#), ("tests/test_x.py", "")],
            &[("pom.xml", "")],
        ];
        // What the runners add by themselves, also for a plain target of another runner.
        let plain = ["", "tests/test_x.py", "crates/demo"];
        let plans = projects.iter().flat_map(|files| plain.iter().filter_map(|target| plan(files, target).ok()));
        let everything: Vec<String> = plans.flat_map(|plan| plan.command.argv).collect();
        for files in projects {
            let known = ["--manifest-path=", "--package=", "--test=", "--bin=", "--lib", "--", "-k", "-run=", "--testNamePattern=", "-Dtest=", "-Dsurefire", "--projects", "--also-make"];
            if let Ok(plan) = plan(files, &target) {
                for argument in plan.command.argv {
                    let own = everything.contains(&argument)
                        || known.iter().any(|option| argument.starts_with(option));
                    prop_assert!(own || !argument.starts_with('-'), "{argument:?} of {target:?}");
                    prop_assert!(!argument.contains(['\0', '\n']));
                }
            }
        }
    }
}
