//! A4, T11: listing directories.

use vambrace_core::ErrorCode::{FileNotFound, InvalidArguments, ScopeViolation};
use vambrace_workspace::{Isolation, ListRequest};

use crate::fixtures::{TestProject, path};
use crate::searching::finder;

// A4
#[test]
fn entries_are_sorted_and_have_type_size_and_time() {
    let tree = TestProject::new();
    tree.file("b.txt", "12345").file("a/x.rs", "1").file("a/y/z.rs", "").file(".hidden", "");
    let workspace = tree.open();
    assert_eq!(workspace.list("", false, None), ["a:directory:0", "b.txt:file:5"]);
    let all = ["a:directory:0", "a/x.rs:file:1", "a/y:directory:0", "a/y/z.rs:file:0", "b.txt:file:5"];
    assert_eq!(workspace.list("", true, None), all);
    assert_eq!(workspace.list("a/y", true, None), ["a/y/z.rs:file:0"]);
    assert_eq!(workspace.list("b.txt", false, None), ["b.txt:file:5"]);
    let listing = workspace.list_with("b.txt", &ListRequest::default()).unwrap();
    let modified = listing.files[0].modified.clone().unwrap();
    assert!(modified.len() == 20 && modified.ends_with('Z') && modified.contains('T'), "{modified}");
    assert_eq!(listing.files[0].name, "b.txt");
    assert_eq!(workspace.list_with("nope", &ListRequest::default()).unwrap_err().code, FileNotFound);
}

// A4
#[test]
fn patterns_filter_and_only_dotted_patterns_list_hidden_names() {
    let tree = TestProject::new();
    for file in ["a.rs", "s/b.rs", "s/t/c.rs", ".github/w.yml", ".x", "s/.y", ".env", "target/o.rs"] {
        tree.file(file, "");
    }
    tree.file(".gitignore", "target/\n").file(".git/HEAD", "");
    let workspace = tree.open();
    let rs = ["a.rs:file:0", "s/b.rs:file:0", "s/t/c.rs:file:0", "target/o.rs:file:0"];
    assert_eq!(workspace.list("", true, Some("*.rs")), rs);
    assert_eq!(workspace.list("", true, Some("s/*.rs")), ["s/b.rs:file:0"]);
    assert_eq!(workspace.list("s", true, Some("t/*.rs")), ["s/t/c.rs:file:0"]);
    assert_eq!(workspace.list("", true, Some(".?")), [".x:file:0", "s/.y:file:0"]);
    assert_eq!(workspace.list("", true, Some(".github/**")), [".github/w.yml:file:0"]);
    assert_eq!(
        workspace.list("", false, Some(".*")),
        [".github:directory:0", ".gitignore:file:8", ".x:file:0"]
    );
    assert_eq!(workspace.list(".github", false, None), [".github/w.yml:file:0"]);
    let bad = ListRequest { pattern: Some("a[".to_owned()), ..Default::default() };
    assert_eq!(workspace.list_with("", &bad).unwrap_err().code, InvalidArguments);
}

// T13
#[test]
fn symlinks_are_listed_as_their_targets() {
    let tree = TestProject::new();
    tree.file("d/f", "12345").file("secrets/k", "x").link("to_file", "d/f").link("to_dir", "d");
    tree.link("dangling", "nope").link("out", tree.outside()).link("blocked", "secrets/k");
    tree.link("blocked_missing", "secrets/nope").link("circle", "circle");
    let workspace = tree.open();
    assert_eq!(
        workspace.list("", true, None),
        [
            "circle:symlink:0",
            "d:directory:0",
            "d/f:file:5",
            "dangling:symlink:0",
            "out:symlink:0",
            "to_dir:directory:0",
            "to_file:file:5",
        ]
    );
    assert_eq!(workspace.list("to_dir", false, None), ["d/f:file:5"]);
    assert_eq!(workspace.list_with("out", &ListRequest::default()).unwrap_err().code, ScopeViolation);
}

// A4
#[test]
fn ten_thousand_entries_are_counted_and_a_thousand_listed() {
    let tree = TestProject::new();
    for n in 0..10_000 {
        tree.file(&format!("many/{n:05}.txt"), "");
    }
    let workspace = tree.open();
    let listing = workspace.list_with("many", &ListRequest::default()).unwrap();
    assert_eq!((listing.files.len(), listing.total_count, listing.truncated), (1000, 10_000, true));
    assert_eq!(listing.files[999].path, "many/00999.txt");
    let some = ListRequest { pattern: Some("0000?.txt".to_owned()), ..Default::default() };
    let listing = workspace.list_with("many", &some).unwrap();
    assert_eq!((listing.files.len(), listing.total_count, listing.truncated), (10, 10, false));
}

#[test]
fn paths_in_shared_directories_start_with_project() {
    let tree = TestProject::new();
    tree.file("s/a/x", "").file("shared/d/y", "").link("s/a/common", "../../shared");
    let workspace = tree.open_as("s/a", Isolation::Strict);
    assert_eq!(
        workspace.list("project:shared", true, None),
        ["project:shared/d:directory:0", "project:shared/d/y:file:0"]
    );
    assert_eq!(workspace.list("common", false, None), ["project:shared/d:directory:0"]);
    assert_eq!(workspace.list("project:s/a", false, None), ["common:directory:0", "x:file:0"]);
    assert_eq!(workspace.list_with("project:", &ListRequest::default()).unwrap_err().code, ScopeViolation);
}

#[test]
fn trees_deeper_than_the_maximum_path_length_are_walked() {
    let tree = TestProject::new();
    let name = "n".repeat(200);
    let mut at =
        rustix::fs::open(&tree.project, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o700);
    for _ in 0..60 {
        rustix::fs::mkdirat(&at, name.as_str(), mode).unwrap();
        at = rustix::fs::openat(&at, name.as_str(), rustix::fs::OFlags::PATH, mode).unwrap();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let end = rustix::fs::openat(&at, "end.txt", flags, mode).unwrap();
    rustix::io::write(&end, b"needle\n").unwrap();
    let workspace = tree.open();
    let listed = workspace.list("", true, None);
    assert_eq!(listed.len(), 61);
    assert!(listed[60].ends_with("/end.txt:file:7"));
    let found = workspace.search("", "needle");
    assert!(found.len() == 1 && found[0].ends_with("end.txt:1:1:needle"));
}

// A4, T21: an attacker who guesses a secret in a file name gets the same result for every guess
#[test]
fn no_pattern_distinguishes_one_secret_from_another() {
    let trees = ["hunter2", "zzzzzz!"].map(|secret| {
        let tree = TestProject::new();
        tree.file(&format!("a/password = {secret};.txt"), "x").file("a/other.txt", "y");
        tree
    });
    let workspaces = trees.each_ref().map(TestProject::open);
    for pattern in ["*", "*.txt", "*= h*", "*= z*", "a/*= [a-m]*", "**/*[!h]unter*", "password*", "*;.txt"] {
        let request = ListRequest {
            recursive: true,
            pattern: Some(pattern.to_owned()),
            secrets: Some(finder()),
            ..ListRequest::default()
        };
        let counts =
            workspaces.each_ref().map(|workspace| workspace.0.list(&path(""), &request).unwrap().total_count);
        assert_eq!(counts[0], counts[1], "{pattern}");
        assert_eq!(counts[0] > 0, !pattern.contains(['h', 'z', '[']), "{pattern}");
    }
}
