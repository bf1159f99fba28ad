//! T11: searching files.

use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use vambrace_core::ErrorCode::{BinaryFile, Internal, InvalidArguments};
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, SecretSpan};
use vambrace_workspace::{Isolation, ReadRequest, SearchDetail, SearchMode, SearchRequest, SecretFinder};

use crate::fixtures::{TestProject, lines, path};

#[test]
fn matches_are_sorted_by_path_and_line_with_columns_in_characters() {
    let tree = TestProject::new();
    tree.file("b", "x\r\nää needle needle\r\n").file("a/c", "needle\n\nno\nneedle").file("d", "none");
    let workspace = tree.open();
    let all = ["a/c:1:1:needle", "a/c:4:1:needle", "b:2:4:ää needle needle"];
    assert_eq!(workspace.search("", "needle"), all);
    assert_eq!(workspace.search("a", "needle"), &all[..2]);
    assert_eq!(workspace.search("b", "nee+dle"), &all[2..]);
    assert_eq!(workspace.count("", "needle"), (4, 2));
    assert_eq!(workspace.count("", r"\bnone\b"), (1, 1));
    assert_eq!(workspace.count("", "absent"), (0, 0));
    assert_eq!(workspace.search("", "^no$"), ["a/c:3:1:no"]);
    let flat = SearchRequest { recursive: false, ..lines("needle") };
    assert_eq!(workspace.search_with("", &flat).unwrap().total, 1);
    assert_eq!(workspace.search_with("", &lines("a(")).unwrap_err().code, InvalidArguments);
}

#[test]
fn every_match_has_its_complete_context() {
    let tree = TestProject::new();
    tree.file("f", "1\n2\nM3\n4\nM5\n6\n7\n8\nM9\n");
    let workspace = tree.open();
    let result = workspace.search_with("", &SearchRequest { context_lines: 2, ..lines("M") }).unwrap();
    let got: Vec<_> = result
        .matches
        .iter()
        .map(|m| format!("{}|{}|{}", m.before.join(","), m.text, m.after.join(",")))
        .collect();
    assert_eq!(got, ["1,2|M3|4,M5", "M3,4|M5|6,7", "7,8|M9|"]);
}

// T11: the same as `rg` by default.
#[test]
fn ignore_files_apply_to_a_search() {
    let tree = TestProject::new();
    for file in [
        "a.rs",
        "a.log",
        "keep.log",
        "target/x",
        "sub/target/x",
        "sub/b.tmp",
        "sub/deep/b.tmp",
        "sub/deep/c",
        ".hidden",
        ".shown",
        "ig/x",
        "ig/y",
        "build",
        "excluded",
        "node/build/x",
    ] {
        tree.file(file, "needle\n");
    }
    tree.file(".gitignore", "*.log\n!keep.log\n/target\n!.shown\nbuild/\n# c\n").file(".git/HEAD", "");
    tree.file("sub/.gitignore", "*.tmp\n").file("sub/deep/.gitignore", "!b.tmp\n");
    tree.file(".ignore", "ig/*\n!ig/y\n").file(".git/info/exclude", "excluded\n");
    let workspace = tree.open();
    let found =
        [".shown", "a.rs", "build", "ig/y", "keep.log", "sub/deep/b.tmp", "sub/deep/c", "sub/target/x"];
    assert_eq!(workspace.search("", "needle"), found.map(|file| format!("{file}:1:1:needle")));
    // Rules of parent directories apply when the search starts below them; an explicitly named path is searched.
    assert_eq!(workspace.search("sub", "needle").len(), 3);
    assert_eq!(workspace.search("target", "needle").len(), 1);
    assert_eq!(workspace.search("a.log", "needle").len(), 1);
    let all = SearchRequest { respect_ignore: false, ..lines("needle") };
    assert_eq!(workspace.search_with("", &all).unwrap().total, 13);

    std::fs::remove_dir_all(tree.at(".git")).unwrap();
    let workspace = tree.open();
    assert!(workspace.search("", "needle").contains(&"a.log:1:1:needle".to_owned()));
    assert_eq!(workspace.search("ig", "needle"), ["ig/y:1:1:needle"]);
}

#[test]
fn ignore_rules_of_the_project_root_apply_inside_a_service() {
    let tree = TestProject::new();
    tree.file("s/a/x", "needle").file("s/a/dist/x", "needle").file("shared/dist/x", "needle");
    tree.file(".gitignore", "dist/\n").file(".git/HEAD", "");
    let workspace = tree.open_as("s/a", Isolation::Strict);
    assert_eq!(workspace.search("", "needle"), ["x:1:1:needle"]);
    assert_eq!(workspace.search("project:shared/dist", "needle"), ["project:shared/dist/x:1:1:needle"]);
}

#[test]
fn binary_files_are_skipped_and_utf16_is_searched() {
    let tree = TestProject::new();
    tree.file("bin", b"needle\n\0").file("late", [&b"needle\n".repeat(20_000)[..], b"\0"].concat());
    let utf16: Vec<u8> = "\u{feff}needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    tree.file("wide", utf16).file("bom", "\u{feff}needle\n").file("latin", b"\xe9 needle\n");
    let workspace = tree.open();
    assert_eq!(workspace.search_with("bin", &lines("needle")).unwrap_err().code, BinaryFile);
    let result = workspace.search_with(
        "",
        &SearchRequest { max_matches: 100_000, max_output_bytes: 1 << 30, ..lines("^needle") },
    );
    let result = result.unwrap();
    let of = |name: &str| result.matches.iter().filter(|m| m.path == name).count();
    assert_eq!((of("bin"), of("wide"), of("bom"), of("latin")), (0, 1, 1, 0));
    // Matches before the chunk with the NUL byte are found, as with `rg`.
    assert!((1..20_000).contains(&of("late")));
    assert_eq!(workspace.search("latin", "needle"), ["latin:1:3:\u{fffd} needle"]);
}

// T11
#[test]
fn large_results_are_counted_truncated_and_marked() {
    let tree = TestProject::new();
    for n in 0..50 {
        tree.file(&format!("f{n:02}"), format!("needle {}\n", "x".repeat(500)).repeat(20));
    }
    let workspace = tree.open();
    let search = |request: SearchRequest| workspace.search_with("", &request).unwrap();
    let base = || SearchRequest { context_lines: 1, ..lines("needle") };
    let result = search(SearchRequest { max_matches: 30, ..base() });
    assert_eq!((result.matches.len(), result.total, result.files), (30, 1000, 50));
    assert_eq!((result.truncated, result.detail), (true, SearchDetail::Full));
    assert_eq!(result.matches[29].path, "f01");
    assert_eq!(result.matches[0].text.chars().count(), 301);
    let result = search(SearchRequest { max_matches: 100, max_output_bytes: 50_000, ..base() });
    assert_eq!((result.detail, result.matches.len()), (SearchDetail::NoContext, 100));
    let result = search(SearchRequest { max_matches: 100, max_output_bytes: 20_000, ..base() });
    assert_eq!((result.detail, result.matches.len()), (SearchDetail::Short, 100));
    let result = search(SearchRequest { max_matches: 100, max_output_bytes: 4_000, ..base() });
    assert_eq!((result.detail, result.matches.len()), (SearchDetail::Counts, 0));
    assert_eq!((result.per_file.len(), result.per_file[0].count), (50, 20));
    let result = search(SearchRequest { mode: SearchMode::Count, ..base() });
    assert_eq!((result.total, result.files, result.truncated), (1000, 50, false));
}

#[test]
fn one_thread_and_many_threads_find_the_same() {
    let tree = TestProject::new();
    for n in 0..400 {
        tree.file(&format!("d{}/e{}/f{n}", n % 7, n % 3), format!("a\nneedle {n}\n").repeat(n % 5));
    }
    let workspace = tree.open();
    let search = |threads| {
        let request = SearchRequest { threads, max_matches: 300, ..lines("needle") };
        workspace.search_with("", &request).unwrap()
    };
    let one = search(1);
    assert_eq!(one.total, 800);
    for threads in [2, 3, 8] {
        assert_eq!(search(threads), one, "{threads} threads");
    }
}

#[test]
fn a_search_past_its_deadline_returns_a_partial_result() {
    let tree = TestProject::new();
    tree.file("f", "needle\n");
    let workspace = tree.open();
    let late = SearchRequest { total_deadline: Duration::ZERO, ..lines("needle") };
    // The search may still be fast enough; then it must be complete.
    let result = workspace.search_with("", &late).unwrap();
    assert_eq!(result.truncated, !result.complete);
}

/// A redactor that only reports secrets.
struct SecretList<F>(F);

impl<F: Fn(&str) -> Result<Vec<SecretSpan>, RedactError> + Send + Sync> Redact for SecretList<F> {
    fn redact<'a>(&self, _: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Err(RedactError("it only reports secrets".to_owned()))
    }

    fn secrets(&self, text: &str) -> Result<Vec<SecretSpan>, RedactError> {
        (self.0)(text)
    }
}

/// Finds what a function reports.
pub(crate) fn finder_of(
    find: impl Fn(&str) -> Result<Vec<SecretSpan>, RedactError> + Send + Sync + 'static,
) -> SecretFinder {
    SecretFinder::new(Arc::new(SecretList(find)))
}

/// Detects the text between `password = ` and `;`, and the lines between `BEGIN` and `END`.
pub(crate) fn finder() -> SecretFinder {
    finder_of(|text| {
        let (bytes, mut found) = (text.as_bytes(), Vec::new());
        for (first, last) in [("password = ", ";"), ("BEGIN\n", "END"), ("PRIVATE KEY\n", "END")] {
            for at in memmem::find_iter(bytes, first) {
                let start = at + first.len();
                let end =
                    memmem::find(&bytes[start..], last.as_bytes()).map_or(bytes.len(), |end| start + end);
                found.push(SecretSpan { span: start..end, placeholder: "[S]".to_owned() });
            }
        }
        found.sort_by_key(|secret| secret.span.start);
        Ok(found)
    })
}

/// A tree with a secret in a small file, a large one, one in UTF-16, one with a byte order mark, in a long line and in a key.
fn tree_with(secret: &str) -> TestProject {
    let tree = TestProject::new();
    let text = format!("first\na = 1\npassword = {secret}; rest\nafter = 2\nlast\n");
    let filling = format!("{}\n", ".".repeat(999)).repeat(70);
    tree.file("small", &text).file("bom", format!("\u{feff}{text}"));
    tree.file("large", format!("\u{feff}{filling}{text}{filling}"));
    tree.file(
        "wide",
        text.encode_utf16().fold(vec![0xff, 0xfe], |all, unit| [all, unit.to_le_bytes().to_vec()].concat()),
    );
    let words = "word ".repeat(12);
    tree.file(
        "long",
        format!("{words}password = {secret}; rest {words}rest\n{words}password = {secret};\nrest\n"),
    );
    tree.file("key", format!("x\nBEGIN\n{secret}\nabc{secret}def\n{secret}\nEND\nrest\n"));
    tree
}

// T11, T21: an attacker who guesses a secret gets the same result for every guess
#[test]
fn no_search_distinguishes_one_secret_from_another() {
    let patterns = [
        "password = h",
        "password = [a-m]",
        "password = .",
        "password = ?",
        r"= \b",
        r"= \B",
        r"\b; rest",
        r"\B; rest",
        "= h|= x|=",
        "(= h.*)|password",
        "^.{11}h",
        "^.{18};",
        "rest$",
        "; rest",
        "h",
        "x",
        "xx+",
        "hunter2|rest",
        "[^x]*",
        "x*",
        "",
        "^",
        "$",
        "^h",
        "2$",
        r"\bpassword\b",
        "(?i)HUNTER2",
        ".*;",
        r"\w+",
        "abc",
        "def$",
        r"\Ax*\z",
    ];
    let request = |regex: &str| SearchRequest { secrets: Some(finder()), max_line_chars: 40, ..lines(regex) };
    let trees =
        ["hunter2", "xxxxxxx", "! ß =!", "x longer one, so that lines are cut elsewhere"].map(tree_with);
    let workspaces = trees.each_ref().map(TestProject::open);
    for regex in patterns {
        for request in [
            SearchRequest { mode: SearchMode::Count, ..request(regex) },
            SearchRequest { context_lines: 1, max_matches: 8, max_output_bytes: 1500, ..request(regex) },
        ] {
            let heard = workspaces
                .each_ref()
                .map(|workspace| format!("{:?}", workspace.search_with("", &request).unwrap()));
            for other in &heard {
                assert_eq!(*other, heard[0], "`{regex}` {request:?}");
            }
            assert!(
                !heard[0].contains("hunter2") && heard[0].contains("skipped: 0"),
                "`{regex}` {}",
                heard[0]
            );
        }
    }
}

// T11, T21: text that does not touch a secret is found, also beside one
#[test]
fn lines_with_secrets_are_found_by_their_other_text() {
    let tree = tree_with("hunter2");
    let workspace = tree.open();
    let found = |path: &str, regex: &str| {
        let request = SearchRequest { secrets: Some(finder()), max_line_chars: 40, ..lines(regex) };
        let result = workspace.search_with(path, &request).unwrap();
        let shown = |hit: &vambrace_workspace::LineMatch| format!("{}:{}:{}", hit.line, hit.column, hit.text);
        result.matches.iter().map(shown).collect::<Vec<_>>()
    };
    for path in ["small", "bom", "wide"] {
        assert_eq!(found(path, "; rest"), ["3:15:password = [S]; rest"], "{path}");
        assert_eq!(found(path, "password = "), ["3:1:password = [S]; rest"], "{path}");
        assert_eq!(found(path, r"\bpassword\b"), ["3:1:password = [S]; rest"], "{path}");
        assert!(found(path, "hunter2").is_empty() && found(path, "password = .*;").is_empty(), "{path}");
    }
    assert_eq!(found("large", "rest"), ["73:17:password = [S]; rest"]);
    assert_eq!(found("large", "a = 1|after"), ["72:1:a = 1", "74:1:after = 2"]);
    assert!(found("large", "hunter").is_empty());
    // No part of a secret is left where a line is cut.
    assert_eq!(found("long", " rest w")[0], "1:76:…ssword = [S]; rest word word word word w…");
    let refusing = finder_of(|_| Err(RedactError("no".to_owned())));
    let request = SearchRequest { secrets: Some(refusing), ..lines("rest") };
    let code = workspace.search_with("", &request).unwrap_err().code;
    assert_eq!(code, Internal, "without secret detection nothing is returned");
}

// T11, T21: a key that is longer than the context scanned before a line
#[test]
fn the_lines_of_a_very_long_key_are_not_found_and_not_shown() {
    let tree = TestProject::new();
    let body: String = (0..4000).map(|n| format!("AbCdEfGhIjKlMnOpQrStUvWxYz{n:06}\n")).collect();
    for (name, first) in
        [("key", "PRIVATE KEY\n"), ("headed", "PRIVATE KEY\nVersion: 1\n\n"), ("other", "PUBLIC\n")]
    {
        tree.file(name, format!("{}{first}{body}END\ntail\n", "word\n".repeat(100)));
    }
    let workspace = tree.open();
    for (name, found) in [("key", 0), ("headed", 0), ("other", 1)] {
        for (regex, expected) in
            [("z000002", found), ("z003000", found), ("^A.*z003999", found), ("^tail", 1)]
        {
            let request = SearchRequest { secrets: Some(finder()), context_lines: 2, ..lines(regex) };
            let result = workspace.search_with(name, &request).unwrap();
            assert_eq!((result.total, result.skipped), (expected, 0), "{name} {regex}");
            assert_eq!(format!("{:?}", result.matches).contains("AbCd"), found == 1, "{name} {regex}");
        }
        let request =
            ReadRequest { start_line: Some(3000), secrets: Some(finder()), ..ReadRequest::default() };
        let read = workspace.0.read(&path(name), &request).unwrap();
        assert_eq!(format!("{:?}", read.content).contains("AbCd"), found == 1, "{name}");
    }
}
