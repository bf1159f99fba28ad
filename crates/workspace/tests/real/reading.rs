//! T6, A1, B1: reading files.

use vambrace_core::ErrorCode::{self, BinaryFile, InvalidArguments, NotAFile, NotUtf8, TooLarge};
use vambrace_core::redacted::RedactError;
use vambrace_workspace::{Bom, Content, Eol, FileRead, ReadRequest};

use crate::fixtures::{TestProject, TestWorkspace, path};
use crate::searching::{finder, finder_of};

fn read(workspace: &TestWorkspace, name: &str, request: &ReadRequest) -> Result<FileRead, ErrorCode> {
    workspace.0.read(&path(name), request).map_err(|error| error.code())
}

fn text(read: &FileRead) -> &str {
    match &read.content {
        Content::Text(text) => text,
        Content::Binary(_) => panic!("binary"),
    }
}

// B1
#[test]
fn the_first_two_hundred_lines_are_the_default() {
    let tree = TestProject::new();
    let all: String = (1..=500).map(|n| format!("line {n}\n")).collect();
    tree.file("long", &all).file("exact", all.split_inclusive('\n').take(200).collect::<String>());
    let workspace = tree.open();
    let got = read(&workspace, "long", &ReadRequest::default()).unwrap();
    assert_eq!((got.returned_range.start_line, got.returned_range.end_line), (1, 200));
    assert!(got.truncated && text(&got).ends_with("line 200\n"));
    assert_eq!((got.total_lines, got.size), (500, all.len() as u64));
    assert!(!read(&workspace, "exact", &ReadRequest::default()).unwrap().truncated);

    let request = |start, end| ReadRequest { start_line: start, end_line: end, ..Default::default() };
    let got = read(&workspace, "long", &request(Some(499), Some(900))).unwrap();
    assert_eq!((text(&got), got.truncated), ("line 499\nline 500\n", false));
    assert_eq!(got.returned_range.end_line, 500);
    let got = read(&workspace, "long", &request(Some(10), Some(11))).unwrap();
    assert_eq!((text(&got), got.truncated), ("line 10\nline 11\n", false));
    let got = read(&workspace, "long", &request(Some(600), None)).unwrap();
    assert_eq!((text(&got), got.truncated), ("", false));
    assert_eq!((got.returned_range.start_line, got.returned_range.end_line), (600, 599));
    assert_eq!(read(&workspace, "long", &request(Some(0), None)).unwrap_err(), InvalidArguments);
    assert_eq!(read(&workspace, "long", &request(Some(5), Some(4))).unwrap_err(), InvalidArguments);
}

// T6
#[test]
fn the_byte_limit_cuts_whole_lines_and_is_clamped() {
    let tree = TestProject::new();
    tree.file("f", "0123456789\n".repeat(20)).file("one", "ä".repeat(100_000));
    let workspace = tree.open();
    let request = |max_bytes, hard_cap| ReadRequest { max_bytes, hard_cap, ..Default::default() };
    let got = read(&workspace, "f", &request(40, 1000)).unwrap();
    assert_eq!((text(&got).len(), got.returned_range.end_line, got.truncated), (33, 3, true));
    let got = read(&workspace, "f", &request(1_000_000, 22)).unwrap();
    assert_eq!((text(&got).len(), got.truncated), (22, true));
    let got = read(&workspace, "one", &request(1001, 131_072)).unwrap();
    assert_eq!((text(&got).len(), got.truncated, got.total_lines), (1000, true, 1));
}

// A1
#[test]
fn line_endings_bom_and_indentation_are_reported() {
    let tree = TestProject::new();
    tree.file("empty", "").file("crlf", "a\r\n\tb\r\n").file("bom", "\u{feff}x\n  y\n    z\n");
    let workspace = tree.open();
    let empty = read(&workspace, "empty", &ReadRequest::default()).unwrap();
    assert_eq!((text(&empty), empty.size, empty.total_lines, empty.truncated), ("", 0, 0, false));
    assert_eq!((empty.returned_range.start_line, empty.returned_range.end_line), (1, 0));
    assert_eq!(empty.base_hash, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let crlf = read(&workspace, "crlf", &ReadRequest::default()).unwrap();
    assert_eq!((crlf.eol, crlf.indent.to_string().as_str()), (Eol::Crlf, "tabs"));
    assert_eq!((text(&crlf), crlf.bom), ("a\r\n\tb\r\n", None));
    let bom = read(&workspace, "bom", &ReadRequest::default()).unwrap();
    assert_eq!((text(&bom), bom.bom), ("x\n  y\n    z\n", Some(Bom::Utf8)));
    assert_eq!((bom.indent.to_string().as_str(), bom.size), ("spaces:2", 15));
    assert_eq!(bom.content.encoding(), "utf-8");
}

// B1: the hash covers the whole file, whatever part is requested and however long the file is.
#[test]
fn the_hash_is_the_same_for_every_range_and_chunk() {
    use sha2::Digest as _;
    let tree = TestProject::new();
    for size in [1, 131_071, 131_072, 131_073, 400_000] {
        // Three-byte characters, so that chunks end inside of them.
        let content: String = "漢字\n".chars().cycle().take(size / 3 + 1).collect();
        tree.file("f", &content);
        let workspace = tree.open();
        let expected: String =
            sha2::Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        for start in [1, 7, 1_000_000] {
            let request = ReadRequest { start_line: Some(start), ..Default::default() };
            let got = read(&workspace, "f", &request).unwrap();
            assert_eq!(got.base_hash, format!("sha256:{expected}"));
            assert_eq!(got.size, content.len() as u64);
            assert_eq!(got.total_lines, content.lines().count() as u64);
        }
    }
}

// T6, A1
#[test]
fn binary_files_are_rejected_or_returned_whole() {
    let tree = TestProject::new();
    let png = b"\x89PNG\r\n\x1a\n\0\0rest".as_slice();
    tree.file("nul", b"a\0b").file("control", [1_u8; 100]).file("p.png", png);
    tree.file("fake.png", b"a\0b").file("text.png", "just text").file("p.PNG", png);
    tree.file("d.pdf", b"%PDF-1.7 \xff").file("big.png", [png, &[7_u8; 200_000]].concat());
    tree.file("latin1", b"caf\xe9 au lait\n").file("late", [&b"a\n".repeat(100_000)[..], b"\xff"].concat());
    tree.file("u16", b"\xff\xfea\0b\0").file("cut", b"ab\xe6\xbc");
    let workspace = tree.open();
    let plain = ReadRequest::default();
    for name in ["nul", "control", "fake.png"] {
        assert_eq!(read(&workspace, name, &plain).unwrap_err(), BinaryFile, "{name}");
    }
    for name in ["p.png", "p.PNG", "d.pdf"] {
        let got = read(&workspace, name, &plain).unwrap();
        assert_eq!(got.content.encoding(), "binary", "{name}");
    }
    assert_eq!(read(&workspace, "p.png", &plain).unwrap().content, Content::Binary(png.to_vec()));
    assert_eq!(text(&read(&workspace, "text.png", &plain).unwrap()), "just text");
    assert_eq!(read(&workspace, "big.png", &plain).unwrap_err(), TooLarge);
    let none = ReadRequest { allow_binary: Vec::new(), ..Default::default() };
    assert_eq!(read(&workspace, "p.png", &none).unwrap_err(), BinaryFile);
    for (name, words) in
        [("latin1", "offset 3"), ("late", "offset 200000"), ("u16", "`utf-16le`"), ("cut", "offset 2")]
    {
        let error = workspace.read(name).unwrap_err();
        assert_eq!(error.code, NotUtf8, "{name}");
        assert!(error.message.contains(words), "{}", error.message);
    }
}

#[test]
fn directories_and_huge_files_are_rejected_before_they_are_read() {
    let tree = TestProject::new();
    tree.file("d/x", "");
    std::fs::File::create(tree.at("huge")).unwrap().set_len(100 * 1024 * 1024 + 1).unwrap();
    let workspace = tree.open();
    workspace.check_read("d", Err(NotAFile));
    workspace.check_read("huge", Err(TooLarge));
}

// The hash of a file that is written concurrently is the hash of the returned content.
#[test]
fn hash_and_content_are_consistent_while_a_file_changes() {
    use sha2::Digest as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    let tree = TestProject::new();
    tree.file("f", "a".repeat(3000));
    let workspace = tree.open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let letter = if turn % 2 == 0 { "b" } else { "c" };
                std::fs::write(tree.at("f"), letter.repeat(2000 + turn % 2000)).unwrap();
            }
        });
        for _ in 0..3000 {
            let got = read(&workspace, "f", &ReadRequest::default()).unwrap();
            let digest = sha2::Sha256::digest(text(&got));
            let expected: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(got.base_hash, format!("sha256:{expected}"));
            assert_eq!(got.size, text(&got).len() as u64);
        }
        done.store(true, Ordering::Relaxed);
    });
}

// B1, T21: whichever part of a file is requested, it contains no part of a secret
#[test]
fn no_partial_read_distinguishes_one_secret_from_another() {
    let secrets = ["hunter2!", "xxxxxxxx", "!xß =yz"];
    let filling = format!("{}\n", "ä".repeat(49)).repeat(700);
    let trees = secrets.map(|secret| {
        let text = format!("a\npassword = {secret};\nb\nBEGIN\n{secret}\n{secret}{secret}\nEND c\n");
        let tree = TestProject::new();
        tree.file("small", &text).file("bom", format!("\u{feff}{text}"));
        tree.file("large", format!("{filling}{text}{filling}"));
        tree
    });
    let workspaces = trees.each_ref().map(TestProject::open);
    for (name, first, step) in [("small", 1, 1), ("bom", 1, 3), ("large", 701, 19)] {
        for start in 0..8 {
            let caps = (1..60).step_by(step).map(|cap| (8, cap));
            for (lines, max_bytes) in (1..8).map(|lines| (lines, 9999)).chain(caps) {
                let request = ReadRequest {
                    start_line: Some(first + start),
                    end_line: Some(first + start + lines),
                    max_bytes,
                    secrets: Some(finder()),
                    ..Default::default()
                };
                let parts = workspaces.each_ref().map(|workspace| {
                    let got = read(workspace, name, &request).unwrap();
                    let shown = if got.total_lines == got.returned_range.end_line && start == 0 {
                        // The whole file: the caller redacts it.
                        got.masked.to_string()
                    } else {
                        text(&got).to_owned()
                    };
                    (shown, got.masked, got.returned_range, got.truncated)
                });
                for other in &parts {
                    assert_eq!(*other, parts[0], "{name} {request:?}");
                }
                assert!(!parts[0].0.contains("hu") && !parts[0].0.contains("r2!"), "{name} {parts:?}");
            }
        }
    }
    let request = |start_line| ReadRequest { start_line, secrets: Some(finder()), ..Default::default() };
    let got = read(&workspaces[0], "small", &request(Some(6))).unwrap();
    assert_eq!((text(&got), got.masked), ("[S]\nEND c\n", 1));
    let refusing = finder_of(|_| Err(RedactError("no".to_owned())));
    let part = ReadRequest { secrets: Some(refusing), ..request(Some(2)) };
    assert_eq!(
        read(&workspaces[0], "small", &part).unwrap_err(),
        ErrorCode::Internal,
        "without secret detection nothing is returned"
    );
}
