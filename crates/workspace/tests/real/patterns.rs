//! T10: hostile patterns end, with a result or as a SecurityError. How soon is measured by the bench; here a
//! hang fails the test, and machines may be slow.

use std::time::{Duration, Instant};

use vambrace_core::ErrorCode;
use vambrace_workspace::{SearchMode, SearchRequest};

use crate::tree::Tree;

/// What may come of a pattern.
enum Ends {
    /// Refused or over its budget.
    Refused,
    /// Either: it depends on the machine.
    Anyhow,
}

#[track_caller]
fn check(tree: &Tree, file: &str, regex: &str, expected: &Ends) {
    for mode in [SearchMode::Lines, SearchMode::Count] {
        // A workspace of its own, so that no stray of an earlier pattern answers for this one.
        let door = tree.open();
        let want = SearchRequest { regex: regex.to_owned(), mode, ..SearchRequest::default() };
        let begun = Instant::now();
        let got = door.search_with(file, &want);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{regex:.60} took {took:?}");
        match (got, expected) {
            (Ok(_), Ends::Anyhow) => {}
            (Err(error), _) => assert_eq!(error.code, ErrorCode::SecurityError, "{regex:.60}"),
            (Ok(_), Ends::Refused) => panic!("{regex:.60} in {file} was not stopped ({mode:?})"),
        }
    }
}

// T10
#[test]
fn hostile_patterns_end() {
    let tree = Tree::new();
    tree.file("as", "a".repeat(300)).file("long", format!("{}!", "a".repeat(30_000)));
    tree.file("quadratic", format!("{}!", "a".repeat(160_000)));
    tree.file("xs", "x".repeat(60_000)).file("unicode", "äöüß漢字ſK".repeat(5000));
    let huge = format!("(?:{})", (0..700).map(|n| format!("w{n}x")).collect::<Vec<_>>().join("|"));
    check(&tree, "as", "((a{0,100}){0,100}){0,10}$", &Ends::Refused);
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
        check(&tree, file, regex, &Ends::Anyhow);
    }
}

// T10: each find is short, but there are too many; stopped between matches.
#[test]
fn quadratic_counting_is_over_its_budget() {
    let tree = Tree::new();
    tree.file("quadratic", format!("{}!", "a".repeat(160_000)));
    let door = tree.open();
    let regex = ".*[^a!]|[a!]".to_owned();
    let want = SearchRequest { regex, mode: SearchMode::Count, ..SearchRequest::default() };
    let begun = Instant::now();
    assert_eq!(door.search_with("", &want).unwrap_err().code, ErrorCode::SecurityError);
    assert!(begun.elapsed() < Duration::from_secs(10));
    // The next search is served.
    assert_eq!(door.count("", "!"), (1, 1));
}

/// Six megabytes of `a` and `b` without order in one line: every state of a large automaton is met.
fn disorder() -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed & 1 == 0 { b'a' } else { b'b' }
    };
    (0..6 << 20).map(letter).collect()
}

// T10: one find that does not come back cannot be stopped, only left behind; and not without end.
#[test]
fn a_match_that_does_not_come_back_is_left_behind_and_bounds_the_next() {
    let tree = Tree::new();
    tree.file("ab", disorder()).file("small", "needle\n");
    let door = tree.open();
    let regex = "(a|b)*a(a|b){300}(c|d)".to_owned();
    let want = SearchRequest { regex, ..SearchRequest::default() };
    let mut codes = Vec::new();
    for _ in 0..8 {
        let begun = Instant::now();
        codes.push(door.search_with("ab", &want).unwrap_err().code);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(codes[0], ErrorCode::SecurityError);
    let known = [ErrorCode::SecurityError, ErrorCode::ResourceBusy];
    assert!(codes.iter().all(|code| known.contains(code)), "{codes:?}");
    // Another workspace is not held up by these strays.
    assert_eq!(tree.open().count("small", "needle"), (1, 1));
}

// T10: a line over 8 MiB is not matched at all; the search says that it skipped the file.
#[test]
fn a_line_of_a_hundred_megabytes_ends() {
    let tree = Tree::new();
    let line = vec![b'a'; 100 * 1024 * 1024];
    tree.file("line", &line).file("small", "aaa z\n");
    drop(line);
    let door = tree.open();
    for regex in ["z", "a{3} ?z", "[^a]"] {
        let want = SearchRequest { regex: regex.to_owned(), ..SearchRequest::default() };
        let begun = Instant::now();
        match door.search_with("", &want) {
            Ok(result) => assert_eq!((result.files, result.skipped), (1, 1), "{regex}"),
            Err(error) => assert_eq!(error.code, ErrorCode::SecurityError, "{regex}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
