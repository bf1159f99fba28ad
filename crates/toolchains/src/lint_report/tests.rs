//! The readers against what real linters printed, and against hostile text.

use super::*;
use proptest::prelude::*;

const AT: RunLocation<'static> = RunLocation { root: "/srv/project", directory: "" };

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/lint/", $name))
    };
}

#[track_caller]
fn check(
    linter: Linter,
    stdout: &str,
    exit_code: i32,
    outcome: LintOutcome,
    expected: &[&str],
) -> LintReport {
    let run = RunOutput { stdout, exit_code: Some(exit_code), ..RunOutput::default() };
    let report = LintReader { linter }.read(&run, &AT);
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
    assert_eq!(report.outcome, outcome, "{report:?}");
    report
}

// T14
#[test]
fn clippy_findings_are_reported_once() {
    let report = check(
        Linter::Clippy,
        fixture!("clippy.json"),
        0,
        LintOutcome::Findings,
        &[
            "src/lib.rs:2:9: warning unused_variables: unused variable: `unused`",
            "src/lib.rs:3:8: warning clippy::len_zero: length comparison to zero",
        ],
    );
    assert_eq!((report.errors, report.warnings, report.complete), (0, 2, true));
}

// T14
#[test]
fn code_that_does_not_compile_is_not_a_finished_lint() {
    let report = check(
        Linter::Clippy,
        fixture!("clippy_build.json"),
        101,
        LintOutcome::NotFinished,
        &[
            "src/lib.rs:3:9: error E0425: cannot find value `missing` in this scope",
            "src/lib.rs:6:5: error E0308: mismatched types",
        ],
    );
    assert_eq!(report.errors, 2);
}

// T14
#[test]
fn python_linters_are_read() {
    check(
        Linter::Ruff,
        fixture!("ruff.json"),
        1,
        LintOutcome::Findings,
        &[
            "a.py:1:1: warning I001: Import block is un-sorted or un-formatted",
            "a.py:1:8: warning F401: `os` imported but unused",
            "a.py:5:12: warning F821: Undefined name `undefined`",
            "bad.py:1:12: error invalid-syntax: Expected a parameter or the end of the parameter list",
            "bad.py:2:1: error invalid-syntax: unexpected EOF while parsing",
        ],
    );
    check(
        Linter::Flake8,
        fixture!("flake8.txt"),
        1,
        LintOutcome::Findings,
        &[
            "a.py:1:1: warning F401: 'os' imported but unused",
            "a.py:3:1: warning E302: expected 2 blank lines, found 1",
            "a.py:4:3: warning E111: indentation is not a multiple of 4",
            "a.py:4:8: warning E711: comparison to None should be 'if cond is None:'",
            "a.py:5:12: warning F821: undefined name 'undefined'",
            "bad.py:1:13: error E999: SyntaxError: invalid syntax",
        ],
    );
}

// T14
#[test]
fn javascript_linters_are_read() {
    check(
        Linter::Eslint,
        fixture!("eslint.json"),
        1,
        LintOutcome::Findings,
        &[
            "a.js:1:7: warning no-unused-vars: 'a' is assigned a value but never used.",
            "a.js:2:1: error no-undef: 'missing' is not defined.",
            "bad.js:1:11: error: Parsing error: Unexpected token ;",
        ],
    );
    check(
        Linter::Biome,
        fixture!("biome.txt"),
        1,
        LintOutcome::Findings,
        &[
            "bad.js:1:7: warning lint/correctness/noUnusedVariables: This variable a is unused.",
            "b.js:2:7: error lint/suspicious/noDoubleEquals: Using == may be unsafe if you are relying on type coercion.",
            "b.js:2:15: error lint/suspicious/noDebugger: This is an unexpected use of the debugger statement.",
            "bad.js:1:11: error: Expected an expression, or an assignment but instead found ';'.",
        ],
    );
}

// T14
#[test]
fn golangci_lint_and_shellcheck_are_read() {
    check(
        Linter::GolangciLint,
        fixture!("golangci.json"),
        1,
        LintOutcome::Findings,
        &[
            "calc/calc.go:6:11: warning errcheck: Error return value of `os.Remove` is not checked",
            "calc/calc.go:9:2: warning staticcheck: SA4006: this value of `x` is never used",
        ],
    );
    check(
        Linter::Shellcheck,
        fixture!("shellcheck.json"),
        1,
        LintOutcome::Findings,
        &[
            "s.sh:2:6: info SC2086: Double quote to prevent globbing and word splitting.",
            "s.sh:3:1: warning SC2164: Use 'cd ... || exit' or 'cd ... || return' in case cd fails.",
            "s.sh:4:7: warning SC2154: a is referenced but not assigned.",
            "s.sh:4:11: warning SC3014: In POSIX sh, == in place of = is undefined.",
        ],
    );
}

#[test]
fn clean_and_failed_runs_are_told_apart() {
    check(Linter::Ruff, "[]\n", 0, LintOutcome::Clean, &[]);
    check(Linter::Eslint, "[]", 0, LintOutcome::Clean, &[]);
    check(Linter::Flake8, "", 0, LintOutcome::Clean, &[]);
    let report = check(Linter::Eslint, "Oops! Something went wrong!\n", 2, LintOutcome::NotFinished, &[]);
    assert_eq!(
        (report.complete, report.notes[0].as_str()),
        (false, "the output could not be read: the result is the exit code 2")
    );
    let text = "src/a.py:3: error: Missing return type  [no-untyped-def]\n";
    check(
        Linter::Configured,
        text,
        1,
        LintOutcome::Findings,
        &["src/a.py:3: error no-untyped-def: Missing return type"],
    );
}

#[test]
fn a_readable_log_is_made_from_json() {
    let run = RunOutput { stdout: fixture!("shellcheck.json"), exit_code: Some(1), ..RunOutput::default() };
    let reader = LintReader { linter: Linter::Shellcheck };
    let report = reader.read(&run, &AT);
    let log = reader.log(&run, &report);
    assert!(log.starts_with("s.sh:2:6: info SC2086: Double quote"), "{log}");
}

#[test]
fn a_hostile_number_of_findings_is_limited_and_counted() {
    let many = "a.py:1:1: E302 x\n".repeat(MAX_FINDINGS + 5);
    let run = RunOutput { stdout: &many, exit_code: Some(1), ..RunOutput::default() };
    let report = LintReader { linter: Linter::Flake8 }.read(&run, &AT);
    assert_eq!((report.findings.len(), report.findings_left_out), (MAX_FINDINGS, 5));
    assert_eq!(report.warnings, MAX_FINDINGS as u64 + 5);
}

const LINTERS: [Linter; 9] = [
    Linter::Clippy,
    Linter::Ruff,
    Linter::Flake8,
    Linter::Eslint,
    Linter::Biome,
    Linter::GolangciLint,
    Linter::Shellcheck,
    Linter::PackageScript,
    Linter::Configured,
];

proptest! {
    #[test]
    fn readers_never_panic(stdout in "(\\PC|\n|::error |a:1:2: |\\{|\\[|\"|,|:|E1 ){0,120}", code in proptest::option::of(0..3_i32)) {
        let run = RunOutput { stdout: &stdout, stderr: &stdout, exit_code: code, report: None, truncated: false };
        for linter in LINTERS {
            let report = LintReader { linter }.read(&run, &AT);
            prop_assert!(report.findings.len() <= MAX_FINDINGS);
        }
    }

    #[test]
    fn readers_never_panic_on_cut_json(cut in 0..12_000_usize) {
        for (linter, text) in [
            (Linter::Clippy, fixture!("clippy_build.json")),
            (Linter::Ruff, fixture!("ruff.json")),
            (Linter::Eslint, fixture!("eslint.json")),
            (Linter::Shellcheck, fixture!("shellcheck.json")),
        ] {
            let run = RunOutput { stdout: text.get(..cut.min(text.len())).unwrap_or(""), exit_code: Some(1), ..RunOutput::default() };
            let report = LintReader { linter }.read(&run, &AT);
            prop_assert!(report.outcome != LintOutcome::Clean);
        }
    }
}
