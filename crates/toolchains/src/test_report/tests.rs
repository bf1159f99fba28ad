//! The readers against what real runners printed, and against hostile text. The fixtures' README says which are real.

use super::*;
use proptest::prelude::*;

const AT: RunLocation<'static> = RunLocation { root: "/srv/project", directory: "" };

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/test/", $name))
    };
}

fn output<'a>(stdout: &'a str, stderr: &'a str, exit_code: i32) -> RunOutput<'a> {
    RunOutput { stdout, stderr, exit_code: Some(exit_code), ..RunOutput::default() }
}

#[track_caller]
fn read(format: TestFormat, output: &RunOutput<'_>) -> TestReport {
    let mut reader = TestReader::new(format);
    reader.go_module = Some("example.com/demo".to_owned());
    let report = reader.read(output, &AT);
    assert_eq!(report.format, format, "{report:?}");
    // Output of unknown origin is recognised too.
    reader.format = TestFormat::Unknown;
    let sniffed = reader.read(output, &AT);
    if format != TestFormat::JestJson {
        assert_eq!(sniffed, report);
    }
    report
}

/// Passed, failed, skipped, errors.
#[track_caller]
fn check_counts(report: &TestReport, expected: [u64; 4], outcome: TestOutcome, complete: bool) {
    assert_eq!([report.passed, report.failed, report.skipped, report.errors], expected, "{report:#?}");
    assert_eq!((report.outcome, report.complete), (outcome, complete), "{report:#?}");
}

/// `kind test file:line message`, one a failure.
fn lines(report: &TestReport) -> Vec<String> {
    let line = |failure: &TestFailure| {
        let file = failure.file.as_deref().unwrap_or("-");
        let number = failure.line.map_or("-".to_owned(), |line| line.to_string());
        let message = failure.message.lines().next().unwrap_or_default();
        format!("{} {} {file}:{number} {message}", failure.kind.as_str(), failure.test)
    };
    report.failures.iter().map(line).collect()
}

// T14
#[test]
fn cargo_test_failures_have_test_file_line_and_message() {
    let report =
        read(TestFormat::Libtest, &output(fixture!("cargo_test.out"), fixture!("cargo_test.err"), 101));
    check_counts(&report, [2, 5, 1, 0], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test tests::does_not_panic src/lib.rs:28 note: test did not panic as expected at src/lib.rs:28:8",
            "test tests::adds src/lib.rs:15 assertion `left == right` failed: sum is wrong",
            "test tests::returns_error -:- Error: \"no database\"",
            "test whole_fails tests/whole.rs:4 called `Option::unwrap()` on a `None` value",
            "test src/lib.rs - add (line 4) src/lib.rs:5 assertion `left == right` failed",
        ]
    );
    assert_eq!(
        report.failures[1].message,
        "assertion `left == right` failed: sum is wrong\n  left: 3\n right: 4"
    );
    assert!(report.duration.is_some());
}

// T14
#[test]
fn nextest_failures_are_named_by_binary_and_test() {
    let report = read(TestFormat::Nextest, &output("", fixture!("nextest.err"), 100));
    check_counts(&report, [2, 4, 1, 0], TestOutcome::Failed, true);
    let mut found = lines(&report);
    found.sort();
    assert_eq!(
        found,
        [
            "test demo-calc::tests::adds src/lib.rs:15 assertion `left == right` failed: sum is wrong",
            "test demo-calc::tests::does_not_panic src/lib.rs:28 note: test did not panic as expected at src/lib.rs:28:8",
            "test demo-calc::tests::returns_error -:- Error: \"no database\"",
            "test demo-calc::whole::whole_fails tests/whole.rs:4 called `Option::unwrap()` on a `None` value",
        ]
    );
}

#[test]
fn retried_and_timed_out_tests_of_nextest_are_told_apart() {
    let text = "
   TRY 1 FAIL [   0.010s] demo tests::flaky
  stderr ───
    thread 'tests::flaky' panicked at src/lib.rs:3:5:
    no luck
   TRY 2 PASS [   0.010s] demo tests::flaky
     TIMEOUT [   5.000s] (2/3) demo tests::slow
     SIGSEGV [   0.010s] (3/3) demo::bin/tool tests::crash
     Summary [   5.020s] 3 tests run: 1 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 0 skipped
";
    let report = read(TestFormat::Nextest, &output("", text, 100));
    check_counts(&report, [1, 2, 0, 0], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "timeout demo::tests::slow -:- timed out",
            "error demo::bin/tool::tests::crash -:- ended by SIGSEGV"
        ]
    );
}

// T14
#[test]
fn compiler_errors_are_failures_of_kind_build() {
    let expected = [
        "build  src/lib.rs:3 cannot find value `missing` in this scope",
        "build  src/lib.rs:6 mismatched types",
    ];
    for (format, text) in [
        (TestFormat::Libtest, fixture!("cargo_build.err")),
        (TestFormat::Nextest, fixture!("nextest_build.err")),
    ] {
        let report = TestReader::new(format).read(&output("", text, 101), &AT);
        assert_eq!(lines(&report), expected, "{format:?}");
        check_counts(&report, [0, 0, 0, 2], TestOutcome::BuildFailed, false);
    }
}

#[test]
fn a_crashed_test_program_is_an_error_and_not_a_pass() {
    let text = "\nrunning 2 tests\ntest tests::a ... ok\n";
    let report = read(TestFormat::Libtest, &output(text, "error: test failed, to rerun pass `--lib`\n", 101));
    assert_eq!((report.outcome, report.complete), (TestOutcome::Failed, false));
    assert!(report.notes[0].contains("crashed or was killed"), "{:?}", report.notes);
}

// T14
#[test]
fn pytest_failures_and_fixture_errors_have_their_own_lines() {
    let report = read(TestFormat::Pytest, &output(fixture!("pytest.txt"), "", 1));
    check_counts(&report, [2, 3, 1, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test tests/test_calc.py::test_adds tests/test_calc.py:10 assert -1 == 3",
            "test tests/test_calc.py::test_div[0] calc.py:6 ZeroDivisionError: division by zero",
            "test tests/test_calc.py::TestGroup::test_inside tests/test_calc.py:38 AssertionError: letter is missing",
            "error tests/test_calc.py::test_uses_fixture tests/test_calc.py:29 RuntimeError: no database",
        ]
    );
    assert_eq!(report.duration, Some(Duration::from_millis(210)));
}

#[test]
fn pytest_collection_errors_passes_and_missing_files_are_told_apart() {
    let report = read(TestFormat::Pytest, &output(fixture!("pytest_collection.txt"), "", 2));
    check_counts(&report, [0, 0, 0, 1], TestOutcome::BuildFailed, true);
    let expected = "build tests/test_broken.py tests/test_broken.py:1 ModuleNotFoundError: No module named 'does_not_exist'";
    assert_eq!(lines(&report), [expected]);
    let report = read(TestFormat::Pytest, &output(fixture!("pytest_pass.txt"), "", 0));
    check_counts(&report, [1, 0, 0, 0], TestOutcome::Passed, true);
    let report = read(TestFormat::Pytest, &output(fixture!("pytest_missing.txt"), "", 4));
    assert_eq!(report.outcome, TestOutcome::NotFinished);
    assert_eq!(report.notes[0], "pytest: file or directory not found: nothere.py");
    let report = read(TestFormat::Pytest, &output("== no tests ran in 0.01s ==\n", "", 5));
    assert_eq!(report.outcome, TestOutcome::NoTests);
}

// T14
#[test]
fn unittest_failures_are_named_as_targets() {
    let report = read(TestFormat::Unittest, &output("", fixture!("unittest.txt"), 1));
    check_counts(&report, [1, 2, 1, 2], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "error test_calc.CalcTest.test_error test_calc.py:12 KeyError: 'missing'",
            "build test_import test_import.py:1 ModuleNotFoundError: No module named 'does_not_exist'",
            "test test_calc.CalcTest.test_adds test_calc.py:6 AssertionError: 2 != 3 : sum is wrong",
            "test test_calc.CalcTest.test_sub test_calc.py:21 AssertionError: 2 != 1",
        ]
    );
}

// T14
#[test]
fn go_events_give_leaf_tests_panics_and_compiler_errors() {
    let report = read(TestFormat::GoJson, &output(fixture!("go.json"), "", 1));
    check_counts(&report, [2, 3, 1, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "build  bad/bad.go:3 cannot use \"text\" (untyped string constant) as int value in return statement",
            "test calc::TestAdd calc/calc_test.go:7 sum is -1",
            "test calc::TestTable/two calc/calc_test.go:19 two is wrong",
            "test boom::TestBoom boom/boom_test.go:7 panic: assignment to entry in nil map [recovered, repanicked]",
        ]
    );
    let log = TestReader::new(TestFormat::GoJson).log(&output(fixture!("go.json"), "", 1));
    assert!(log.contains("\n--- FAIL: TestAdd (0.00s)\n") && !log.contains("\"Action\""), "{log}");
}

#[test]
fn go_without_json_gives_the_same_failures() {
    let report = read(TestFormat::GoText, &output(fixture!("go.txt"), fixture!("go.err"), 1));
    assert_eq!(
        lines(&report),
        [
            "test boom::TestBoom boom/boom_test.go:7 panic: assignment to entry in nil map [recovered, repanicked]",
            "test calc::TestAdd calc/calc_test.go:7 sum is -1",
            "test calc::TestTable/two calc/calc_test.go:19 two is wrong",
            "build  bad/bad.go:3 cannot use \"text\" (untyped string constant) as int value in return statement",
        ]
    );
    let passed = read(TestFormat::GoText, &output("ok  \texample.com/demo/calc\t0.008s\n", "", 0));
    assert_eq!(passed.outcome, TestOutcome::Passed);
    assert!(passed.notes[0].contains("1 packages passed"));
}

// T14
#[test]
fn node_test_runner_is_read_from_tap_and_from_spec() {
    let report = read(TestFormat::Tap, &output(fixture!("node.tap"), "", 1));
    check_counts(&report, [2, 3, 1, 0], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test adds a.test.mjs:5 Expected values to be strictly equal:",
            "test group > inside fails a.test.mjs:11 broken inside",
            "build syntax.test.mjs syntax.test.mjs:1 file:///srv/project/syntax.test.mjs:1",
        ]
    );
    let report = read(TestFormat::NodeSpec, &output(fixture!("node.spec"), "", 1));
    check_counts(&report, [2, 3, 1, 0], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test adds a.test.mjs:5 AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:",
            "test inside fails a.test.mjs:11 Error: broken inside",
            "test /srv/project/syntax.test.mjs syntax.test.mjs:1 'test failed'",
        ]
    );
}

#[test]
fn plain_tap_without_a_summary_is_counted_line_by_line() {
    let text = "TAP version 14\n1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no network\n";
    let report = read(TestFormat::Tap, &output(text, "", 1));
    check_counts(&report, [1, 1, 1, 0], TestOutcome::Failed, true);
    assert_eq!(lines(&report), ["test b -:- "]);
}

// T14
#[test]
fn jest_and_vitest_reports_give_failures_and_files_that_did_not_load() {
    let jest = RunOutput { report: Some(fixture!("jest.json")), ..output("", fixture!("jest.txt"), 1) };
    let report = read(TestFormat::JestJson, &jest);
    check_counts(&report, [1, 2, 2, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test calc.test.js::calc adds calc.test.js:3 Error: expect(received).toBe(expected) // Object.is equality",
            "test calc.test.js::calc throws calc.test.js:9 TypeError: broken inside",
            "build syntax.test.js syntax.test.js:1 SyntaxError: /srv/project/syntax.test.js: Unexpected token (1:10)",
        ]
    );
    let vitest = RunOutput { report: Some(fixture!("vitest.json")), ..output("", "", 1) };
    let report = read(TestFormat::JestJson, &vitest);
    check_counts(&report, [1, 2, 1, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test calc.test.ts::calc adds calc.test.ts:5 AssertionError: expected 2 to be 3 // Object.is equality",
            "test calc.test.ts::calc throws calc.test.ts:10 TypeError: broken inside",
            "build missing.test.ts missing.test.ts:- No test suite found in file /srv/project/missing.test.ts",
        ]
    );
}

#[test]
fn without_a_report_file_the_text_of_jest_and_vitest_is_read() {
    let expect = TestReader::new(TestFormat::JestJson);
    let report = expect.read(&output("", fixture!("jest.txt"), 1), &AT);
    assert_eq!(report.format, TestFormat::JestText);
    check_counts(&report, [1, 2, 2, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test calc.test.js::calc adds calc.test.js:3 expect(received).toBe(expected) // Object.is equality",
            "test calc.test.js::calc throws calc.test.js:9 TypeError: broken inside",
            "build syntax.test.js syntax.test.js:- Jest encountered an unexpected token",
        ]
    );
    let report = expect.read(&output(fixture!("vitest.out"), fixture!("vitest.err"), 1), &AT);
    assert_eq!(report.format, TestFormat::VitestText);
    check_counts(&report, [1, 2, 1, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "build missing.test.ts missing.test.ts:- Error: No test suite found in file /srv/project/missing.test.ts",
            "test calc.test.ts::calc adds calc.test.ts:5 AssertionError: expected 2 to be 3 // Object.is equality",
            "test calc.test.ts::calc throws calc.test.ts:10 TypeError: broken inside",
        ]
    );
}

#[test]
fn mocha_counts_and_failures_are_read() {
    let report = read(TestFormat::MochaText, &output(fixture!("mocha.txt"), "", 1));
    check_counts(&report, [1, 1, 1, 0], TestOutcome::Failed, true);
    let expected =
        "test calc adds calc.cjs:3 AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:";
    assert_eq!(lines(&report), [expected]);
}

// T14
#[test]
fn maven_and_gradle_failures_and_compiler_errors_are_read() {
    let report = read(TestFormat::Maven, &output(fixture!("maven.txt"), "", 1));
    check_counts(&report, [1, 1, 1, 1], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test CalcTest.adds -:8 sum is wrong ==> expected: <3> but was: <-1>",
            "error CalcTest.throwsError -:13 IllegalState no database",
        ]
    );
    let report = read(TestFormat::Maven, &output(fixture!("maven_build.txt"), "", 1));
    check_counts(&report, [0, 0, 0, 1], TestOutcome::BuildFailed, false);
    assert_eq!(lines(&report), ["build  src/main/java/demo/X.java:1 <identifier> expected"]);
    assert_eq!(report.duration, Some(Duration::from_secs(65)));

    let report = read(TestFormat::Gradle, &output(fixture!("gradle.txt"), "", 1));
    check_counts(&report, [1, 2, 1, 0], TestOutcome::Failed, true);
    assert_eq!(
        lines(&report),
        [
            "test CalcTest.adds -:8 org.opentest4j.AssertionFailedError: sum is wrong ==> expected: <3> but was: <-1>",
            "test CalcTest.throwsError -:13 java.lang.IllegalStateException at CalcTest.java:13",
        ]
    );
    let report = read(TestFormat::Gradle, &output(fixture!("gradle_build.txt"), "", 1));
    check_counts(&report, [0, 0, 0, 1], TestOutcome::BuildFailed, false);
}

#[test]
fn unreadable_output_falls_back_to_the_exit_code_and_says_so() {
    let check = |exit_code: Option<i32>, outcome: TestOutcome| {
        let run = RunOutput { stdout: "\u{0}garbage {", exit_code, ..RunOutput::default() };
        let report = TestReader::new(TestFormat::Pytest).read(&run, &AT);
        assert_eq!((report.format, report.outcome, report.complete), (TestFormat::Unknown, outcome, false));
        assert!(
            report.notes[0].starts_with("the output could not be read as that of pytest"),
            "{:?}",
            report.notes
        );
    };
    check(Some(0), TestOutcome::Passed);
    check(Some(3), TestOutcome::Failed);
    check(None, TestOutcome::NotFinished);
}

#[test]
fn an_exit_code_that_contradicts_the_output_is_noted() {
    let report = read(TestFormat::Pytest, &output(fixture!("pytest.txt"), "", 0));
    assert_eq!(report.outcome, TestOutcome::Failed);
    assert!(report.notes[0].contains("exit code was 0"));
    let report = read(TestFormat::Pytest, &output("== 1 passed in 0.01s ==\n", "", 1));
    assert_eq!(report.outcome, TestOutcome::NotFinished);
    let killed = RunOutput { stdout: "== 1 passed in 0.01s ==\n", exit_code: None, ..RunOutput::default() };
    assert_eq!(read(TestFormat::Pytest, &killed).outcome, TestOutcome::NotFinished);
}

#[test]
fn hostile_output_gives_a_bounded_report() {
    let many: String = (0..5000)
        .map(|n| format!("test t{n} ... FAILED\n---- t{n} stdout ----\n{}\n", "x".repeat(3000)))
        .collect();
    let report = TestReader::new(TestFormat::Libtest).read(&output(&many, "", 101), &AT);
    assert_eq!(report.failures.len(), MAX_FAILURES);
    assert!(report.failures_left_out > 0);
    assert!(
        report
            .failures
            .iter()
            .all(|failure| failure.message.chars().count() <= 2100 && failure.test.len() <= 1300)
    );
}

/// Pieces of every format, so that random texts reach deep into the readers.
const PIECES: &[&str] = &[
    "test a ... FAILED",
    "---- a stdout ----",
    "thread 'a' panicked at src/lib.rs:1:2:",
    "test result: FAILED. 1 passed; 1 failed",
    "running 1 test",
    "        FAIL [   0.1s] a b",
    "     Summary [ 1s] 1 tests run: (1 passed",
    "error[E1]: x",
    " --> a:1:2",
    "=== FAILURES ===",
    "___ t ___",
    "E   x",
    "a.py:1: in x",
    "FAILED a::b[ - c] - d",
    "=== 1 failed in 1s ===",
    "======================================================================",
    "FAIL: a (b.c)",
    "  File \"a\", line 1, in b",
    "Ran 1 test in 1s",
    "FAILED (failures=1)",
    "{\"Action\":\"fail\",\"Package\":\"p\",\"Test\":\"a/b\"}",
    "FAIL\tp\t1s",
    "--- FAIL: a/b (1s)",
    "    x_test.go:1: y",
    "TAP version 13",
    "not ok 1 - a",
    "  ---",
    "  error: |-",
    "  stack: |-",
    "  ...",
    "# Subtest: a",
    "# pass 1",
    "1..2",
    "ℹ pass 1",
    "ℹ fail 1",
    "✖ failing tests:",
    "✖ a (1ms)",
    "test at a:1:2",
    "FAIL a.js",
    "  ● a › b",
    "Tests: 1 failed, 1 total",
    " FAIL  a > b",
    " ❯ a:1:2",
    "      Tests  1 failed (1)",
    "  1 passing (1ms)",
    "  1) a",
    "[ERROR] Failures: ",
    "[ERROR]   A.b:1->c:2 d",
    "[INFO] Results:",
    "[ERROR] Tests run: 1, Failures: 1",
    "[INFO] BUILD FAILURE",
    "A > b() FAILED",
    "1 tests completed, 1 failed",
    "BUILD FAILED in 1s",
    "{\"numTotalTests\":1,\"testResults\":[{\"status\":\"failed\"}]}",
    "\u{1b}[31m",
    "é",
    "",
];

proptest! {
    #[test]
    fn readers_never_panic_on_arbitrary_text(stdout in ".{0,300}", stderr in ".{0,300}", code in proptest::option::of(-3..130_i32)) {
        let run = RunOutput { stdout: &stdout, stderr: &stderr, exit_code: code, report: Some(&stdout), truncated: false };
        let report = TestReader::new(TestFormat::Unknown).read(&run, &AT);
        prop_assert!(report.failures.len() <= MAX_FAILURES);
    }

    #[test]
    fn readers_never_panic_on_pieces_of_their_formats(
        picked in proptest::collection::vec((0..PIECES.len(), 0..4_usize), 0..40),
        cut in 0..200_usize,
        code in proptest::option::of(0..3_i32),
    ) {
        let mut text: String = picked.iter().map(|(piece, gap)| format!("{}{}\n", "  ".repeat(*gap), PIECES[*piece])).collect();
        let plain: String = picked.iter().map(|(piece, _)| format!("{}\n", PIECES[*piece])).collect();
        let end = text.char_indices().map(|(at, _)| at).rev().nth(cut).unwrap_or(text.len());
        text.truncate(end);
        for (stdout, stderr) in [(text.as_str(), plain.as_str()), (plain.as_str(), text.as_str())] {
            let run = RunOutput { stdout, stderr, exit_code: code, report: None, truncated: true };
            for format in TestFormat::TRIED {
                let report = TestReader::new(format).read(&run, &AT);
                prop_assert!(report.failures.len() <= MAX_FAILURES);
                prop_assert!(report.outcome != TestOutcome::Passed || code == Some(0));
            }
            prop_assert!(TestReader::new(TestFormat::GoJson).log(&run).len() <= stdout.len() + stderr.len() + 2);
        }
    }
}
