//! T11: what a search finds.

use std::time::Duration;

use memchr::memmem;
use vambrace_core::ErrorCode::{BinaryFile, Internal, InvalidArguments};
use vambrace_core::redacted::{RedactError, Secret};
use vambrace_workspace::{Detail, Isolation, ReadRequest, SearchMode, SearchRequest, SecretFinder};

use crate::tree::{Tree, lines, path};

#[test]
fn lines_come_by_path_and_line_with_columns_in_characters() {
    let tree = Tree::new();
    tree.file("b", "x\r\nää needle needle\r\n").file("a/c", "needle\n\nno\nneedle").file("d", "none");
    let door = tree.open();
    let all = ["a/c:1:1:needle", "a/c:4:1:needle", "b:2:4:ää needle needle"];
    assert_eq!(door.search("", "needle"), all);
    assert_eq!(door.search("a", "needle"), &all[..2]);
    assert_eq!(door.search("b", "nee+dle"), &all[2..]);
    assert_eq!(door.count("", "needle"), (4, 2));
    assert_eq!(door.count("", r"\bnone\b"), (1, 1));
    assert_eq!(door.count("", "absent"), (0, 0));
    assert_eq!(door.search("", "^no$"), ["a/c:3:1:no"]);
    let flat = SearchRequest { recursive: false, ..lines("needle") };
    assert_eq!(door.search_with("", &flat).unwrap().total, 1);
    assert_eq!(door.search_with("", &lines("a(")).unwrap_err().code, InvalidArguments);
}

#[test]
fn surroundings_are_whole_for_every_match() {
    let tree = Tree::new();
    tree.file("f", "1\n2\nM3\n4\nM5\n6\n7\n8\nM9\n");
    let door = tree.open();
    let result = door.search_with("", &SearchRequest { context_lines: 2, ..lines("M") }).unwrap();
    let got: Vec<_> = result
        .matches
        .iter()
        .map(|m| format!("{}|{}|{}", m.before.join(","), m.text, m.after.join(",")))
        .collect();
    assert_eq!(got, ["1,2|M3|4,M5", "M3,4|M5|6,7", "7,8|M9|"]);
}

// T11: the same as `rg` by default.
#[test]
fn ignore_files_narrow_a_search() {
    let tree = Tree::new();
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
    let door = tree.open();
    let found =
        [".shown", "a.rs", "build", "ig/y", "keep.log", "sub/deep/b.tmp", "sub/deep/c", "sub/target/x"];
    assert_eq!(door.search("", "needle"), found.map(|file| format!("{file}:1:1:needle")));
    // Parents' rules hold when the search starts below them; what is named is searched.
    assert_eq!(door.search("sub", "needle").len(), 3);
    assert_eq!(door.search("target", "needle").len(), 1);
    assert_eq!(door.search("a.log", "needle").len(), 1);
    let all = SearchRequest { respect_ignore: false, ..lines("needle") };
    assert_eq!(door.search_with("", &all).unwrap().total, 13);

    std::fs::remove_dir_all(tree.at(".git")).unwrap();
    let door = tree.open();
    assert!(door.search("", "needle").contains(&"a.log:1:1:needle".to_owned()));
    assert_eq!(door.search("ig", "needle"), ["ig/y:1:1:needle"]);
}

#[test]
fn rules_of_the_project_root_hold_inside_a_service() {
    let tree = Tree::new();
    tree.file("s/a/x", "needle").file("s/a/dist/x", "needle").file("shared/dist/x", "needle");
    tree.file(".gitignore", "dist/\n").file(".git/HEAD", "");
    let door = tree.open_as("s/a", Isolation::Strict);
    assert_eq!(door.search("", "needle"), ["x:1:1:needle"]);
    assert_eq!(door.search("project:shared/dist", "needle"), ["project:shared/dist/x:1:1:needle"]);
}

#[test]
fn binary_files_are_passed_over_and_utf16_is_read() {
    let tree = Tree::new();
    tree.file("bin", b"needle\n\0").file("late", [&b"needle\n".repeat(20_000)[..], b"\0"].concat());
    let utf16: Vec<u8> = "\u{feff}needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    tree.file("wide", utf16).file("bom", "\u{feff}needle\n").file("latin", b"\xe9 needle\n");
    let door = tree.open();
    assert_eq!(door.search_with("bin", &lines("needle")).unwrap_err().code, BinaryFile);
    let result = door.search_with(
        "",
        &SearchRequest { max_matches: 100_000, max_output_bytes: 1 << 30, ..lines("^needle") },
    );
    let result = result.unwrap();
    let of = |name: &str| result.matches.iter().filter(|m| m.path == name).count();
    assert_eq!((of("bin"), of("wide"), of("bom"), of("latin")), (0, 1, 1, 0));
    // What came before the piece with the NUL byte was found, as `rg` finds it.
    assert!((1..20_000).contains(&of("late")));
    assert_eq!(door.search("latin", "needle"), ["latin:1:3:\u{fffd} needle"]);
}

// T11
#[test]
fn too_much_is_counted_and_cut_and_says_so() {
    let tree = Tree::new();
    for n in 0..50 {
        tree.file(&format!("f{n:02}"), format!("needle {}\n", "x".repeat(500)).repeat(20));
    }
    let door = tree.open();
    let search = |want: SearchRequest| door.search_with("", &want).unwrap();
    let base = || SearchRequest { context_lines: 1, ..lines("needle") };
    let result = search(SearchRequest { max_matches: 30, ..base() });
    assert_eq!((result.matches.len(), result.total, result.files), (30, 1000, 50));
    assert_eq!((result.truncated, result.detail), (true, Detail::Full));
    assert_eq!(result.matches[29].path, "f01");
    assert_eq!(result.matches[0].text.chars().count(), 301);
    let result = search(SearchRequest { max_matches: 100, max_output_bytes: 50_000, ..base() });
    assert_eq!((result.detail, result.matches.len()), (Detail::NoContext, 100));
    let result = search(SearchRequest { max_matches: 100, max_output_bytes: 20_000, ..base() });
    assert_eq!((result.detail, result.matches.len()), (Detail::Short, 100));
    let result = search(SearchRequest { max_matches: 100, max_output_bytes: 4_000, ..base() });
    assert_eq!((result.detail, result.matches.len()), (Detail::Counts, 0));
    assert_eq!((result.per_file.len(), result.per_file[0].count), (50, 20));
    let result = search(SearchRequest { mode: SearchMode::Count, ..base() });
    assert_eq!((result.total, result.files, result.truncated), (1000, 50, false));
}

#[test]
fn the_same_is_found_by_one_thread_and_by_many() {
    let tree = Tree::new();
    for n in 0..400 {
        tree.file(&format!("d{}/e{}/f{n}", n % 7, n % 3), format!("a\nneedle {n}\n").repeat(n % 5));
    }
    let door = tree.open();
    let search = |threads| {
        let want = SearchRequest { threads, max_matches: 300, ..lines("needle") };
        door.search_with("", &want).unwrap()
    };
    let one = search(1);
    assert_eq!(one.total, 800);
    for threads in [2, 3, 8] {
        assert_eq!(search(threads), one, "{threads} threads");
    }
}

#[test]
fn a_deadline_gives_what_was_found_and_fails_a_count() {
    let tree = Tree::new();
    tree.file("f", "needle\n");
    let door = tree.open();
    let late = SearchRequest { total_deadline: Duration::ZERO, ..lines("needle") };
    // The search may still be quick enough; then it must be complete.
    let result = door.search_with("", &late).unwrap();
    assert_eq!(result.truncated, !result.complete);
}

/// What stands between `password = ` and `;`, and the lines between `BEGIN` and `END`.
pub(crate) fn finder() -> SecretFinder {
    SecretFinder::new(|bytes| {
        let mut found = Vec::new();
        for (first, last) in [("password = ", ";"), ("BEGIN\n", "END"), ("PRIVATE KEY\n", "END")] {
            for at in memmem::find_iter(bytes, first) {
                let start = at + first.len();
                let end =
                    memmem::find(&bytes[start..], last.as_bytes()).map_or(bytes.len(), |end| start + end);
                found.push(Secret { span: start..end, mark: "[S]".to_owned() });
            }
        }
        found.sort_by_key(|secret| secret.span.start);
        Ok(found)
    })
}

/// A tree with a secret in a small file, a large one, one in UTF-16, one with a mark, in a long line and in a key.
fn tree_with(secret: &str) -> Tree {
    let tree = Tree::new();
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

// T11, T21: whoever guesses a secret hears the same of every guess
#[test]
fn no_search_tells_one_secret_from_another() {
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
    let want = |regex: &str| SearchRequest { secrets: Some(finder()), max_line_chars: 40, ..lines(regex) };
    let trees =
        ["hunter2", "xxxxxxx", "! ß =!", "x longer one, so that lines are cut elsewhere"].map(tree_with);
    let doors = trees.each_ref().map(Tree::open);
    for regex in patterns {
        for want in [
            SearchRequest { mode: SearchMode::Count, ..want(regex) },
            SearchRequest { context_lines: 1, max_matches: 8, max_output_bytes: 1500, ..want(regex) },
        ] {
            let heard = doors.each_ref().map(|door| format!("{:?}", door.search_with("", &want).unwrap()));
            for other in &heard {
                assert_eq!(*other, heard[0], "`{regex}` {want:?}");
            }
            assert!(
                !heard[0].contains("hunter2") && heard[0].contains("skipped: 0"),
                "`{regex}` {}",
                heard[0]
            );
        }
    }
}

// T11, T21: what does not touch a secret is found, also beside one
#[test]
fn lines_with_secrets_are_found_by_what_else_they_say() {
    let tree = tree_with("hunter2");
    let door = tree.open();
    let found = |path: &str, regex: &str| {
        let want = SearchRequest { secrets: Some(finder()), max_line_chars: 40, ..lines(regex) };
        let result = door.search_with(path, &want).unwrap();
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
    // No piece of a secret is left where a line is cut.
    assert_eq!(found("long", " rest w")[0], "1:76:…ssword = [S]; rest word word word word w…");
    let refusing = SecretFinder::new(|_| Err(RedactError("no".to_owned())));
    let want = SearchRequest { secrets: Some(refusing), ..lines("rest") };
    assert_eq!(door.search_with("", &want).unwrap_err().code, Internal, "who cannot look tells nothing");
}

// T11, T21: a key that is longer than what is looked at before a line
#[test]
fn the_lines_of_a_very_long_key_are_not_found_and_not_shown() {
    let tree = Tree::new();
    let body: String = (0..4000).map(|n| format!("AbCdEfGhIjKlMnOpQrStUvWxYz{n:06}\n")).collect();
    for (name, first) in
        [("key", "PRIVATE KEY\n"), ("headed", "PRIVATE KEY\nVersion: 1\n\n"), ("other", "PUBLIC\n")]
    {
        tree.file(name, format!("{}{first}{body}END\ntail\n", "word\n".repeat(100)));
    }
    let door = tree.open();
    for (name, found) in [("key", 0), ("headed", 0), ("other", 1)] {
        for (regex, expected) in
            [("z000002", found), ("z003000", found), ("^A.*z003999", found), ("^tail", 1)]
        {
            let want = SearchRequest { secrets: Some(finder()), context_lines: 2, ..lines(regex) };
            let result = door.search_with(name, &want).unwrap();
            assert_eq!((result.total, result.skipped), (expected, 0), "{name} {regex}");
            assert_eq!(format!("{:?}", result.matches).contains("AbCd"), found == 1, "{name} {regex}");
        }
        let want = ReadRequest { start_line: Some(3000), secrets: Some(finder()), ..ReadRequest::default() };
        let read = door.0.read(&path(name), &want).unwrap();
        assert_eq!(format!("{:?}", read.content).contains("AbCd"), found == 1, "{name}");
    }
}
