//! T10: hostile patterns end with a result or a SecurityError. The benchmark measures how fast; these tests only fail on a
//! hang, since machines may be slow.

use std::time::{Duration, Instant};

use vambrace_core::ErrorCode;
use vambrace_workspace::{SearchMode, SearchRequest};

use crate::fixtures::TestProject;

/// Expected result of a pattern.
enum Expected {
    /// Rejected or over its budget.
    Rejected,
    /// Either: it depends on the machine.
    Any,
}

#[track_caller]
fn check(tree: &TestProject, file: &str, regex: &str, expected: &Expected) {
    for mode in [SearchMode::Lines, SearchMode::Count] {
        // A workspace of its own, so that abandoned threads of an earlier pattern do not affect this one.
        let workspace = tree.open();
        let request = SearchRequest { regex: regex.to_owned(), mode, ..SearchRequest::default() };
        let begun = Instant::now();
        let got = workspace.search_with(file, &request);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{regex:.60} took {took:?}");
        match (got, expected) {
            (Ok(_), Expected::Any) => {}
            (Err(error), _) => assert_eq!(error.code, ErrorCode::SecurityError, "{regex:.60}"),
            (Ok(_), Expected::Rejected) => panic!("{regex:.60} in {file} was not stopped ({mode:?})"),
        }
    }
}

// T10
#[test]
fn hostile_patterns_end() {
    let tree = TestProject::new();
    tree.file("as", "a".repeat(300)).file("long", format!("{}!", "a".repeat(30_000)));
    tree.file("quadratic", format!("{}!", "a".repeat(160_000)));
    tree.file("xs", "x".repeat(60_000)).file("unicode", "äöüß漢字ſK".repeat(5000));
    let huge = format!("(?:{})", (0..700).map(|n| format!("w{n}x")).collect::<Vec<_>>().join("|"));
    check(&tree, "as", "((a{0,100}){0,100}){0,10}$", &Expected::Rejected);
    for (file, regex) in [
        ("quadratic", ".*[^a!]|[a!]"),
        ("long", "(?s).{0,900}z"),
        ("long", "(a|aa)+$"),
        ("long", "(a+)+$"),
        ("xs", "(x+x+)+y"),
        ("unicode", r"\pL{50}\pN"),
        ("unicode", r"(\pL+\pN*)+\pS"),
        ("unicode", r"(?i)[\w\p{Greek}\p{Cyrillic}ſK]{20}!"),
        ("unicode", r"(?i)(?:ſ|K|ß|ä){1,200}$x"),
        ("long", huge.as_str()),
        ("long", &format!("(?i){huge}$")),
        ("long", "a{0,500}a{0,500}a{0,500}b"),
        ("long", ".{1,300}.{1,300}z"),
        ("", "(.*)(.*)(.*)(.*)(.*)[^a]$"),
        ("", &r"\pL".repeat(1300)),
        ("", &r"(?i)\pL".repeat(500)),
    ] {
        check(&tree, file, regex, &Expected::Any);
    }
}

// T10: each match is fast, but there are too many; the search stops between matches.
#[test]
fn quadratic_counting_exceeds_its_budget() {
    let tree = TestProject::new();
    tree.file("quadratic", format!("{}!", "a".repeat(160_000)));
    let workspace = tree.open();
    let regex = ".*[^a!]|[a!]".to_owned();
    let request = SearchRequest { regex, mode: SearchMode::Count, ..SearchRequest::default() };
    let begun = Instant::now();
    assert_eq!(workspace.search_with("", &request).unwrap_err().code, ErrorCode::SecurityError);
    assert!(begun.elapsed() < Duration::from_secs(10));
    // The next search works.
    assert_eq!(workspace.count("", "!"), (1, 1));
}

/// Six megabytes of random `a` and `b` in one line: reaches every state of a large automaton.
fn random_line() -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed & 1 == 0 { b'a' } else { b'b' }
    };
    (0..6 << 20).map(letter).collect()
}

// T10: a single match that does not return cannot be stopped, only abandoned; the number of such threads is limited.
#[test]
fn a_match_that_does_not_return_is_abandoned_and_limits_later_searches() {
    let tree = TestProject::new();
    tree.file("ab", random_line()).file("small", "needle\n");
    let workspace = tree.open();
    let regex = "(a|b)*a(a|b){300}(c|d)".to_owned();
    let request = SearchRequest { regex, ..SearchRequest::default() };
    let mut codes = Vec::new();
    for _ in 0..8 {
        let begun = Instant::now();
        codes.push(workspace.search_with("ab", &request).unwrap_err().code);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(codes[0], ErrorCode::SecurityError);
    let known = [ErrorCode::SecurityError, ErrorCode::ResourceBusy];
    assert!(codes.iter().all(|code| known.contains(code)), "{codes:?}");
    // These threads do not affect another workspace.
    assert_eq!(tree.open().count("small", "needle"), (1, 1));
}

// T10: a file with a line over 8 MiB is not searched; the result counts it as skipped.
#[test]
fn a_file_with_a_line_of_a_hundred_megabytes_is_skipped() {
    let tree = TestProject::new();
    let line = vec![b'a'; 100 * 1024 * 1024];
    tree.file("line", &line).file("small", "aaa z\n");
    drop(line);
    let workspace = tree.open();
    for regex in ["z", "a{3} ?z", "[^a]"] {
        let request = SearchRequest { regex: regex.to_owned(), ..SearchRequest::default() };
        let begun = Instant::now();
        match workspace.search_with("", &request) {
            Ok(result) => assert_eq!((result.files, result.skipped), (1, 1), "{regex}"),
            Err(error) => assert_eq!(error.code, ErrorCode::SecurityError, "{regex}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
