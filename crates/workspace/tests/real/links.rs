//! T13: symlinks, hard links and special files.

use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, FileType, Mode};
use vambrace_core::ErrorCode::{BlockedPath, FileNotFound, NotAFile, ScopeViolation};
use vambrace_workspace::{Isolation, ResolvedKind};

use crate::fixtures::{CANARY, TestProject, is_root, path};

// T13
#[test]
fn symlinks_are_followed_only_inside_the_scope() {
    let tree = TestProject::new();
    tree.file("services/a/real/file", "inside").file("services/b/file", CANARY);
    tree.file("shared/doc", "shared").file("services/a/secrets/k", CANARY);
    let inside = tree.at("services/a/real/file");
    let own = "services/a/";
    for (name, target) in [
        ("rel", "real/file"),
        ("dir", "real"),
        ("chain", "rel"),
        ("up", "real/../real/file"),
        ("through", "dir/../rel"),
        ("to_shared", "../../shared/doc"),
        ("dangling", "real/nope"),
        ("loop1", "loop2"),
        ("loop2", "loop1"),
        ("sibling", "../b/file"),
        ("sibling_missing", "../b/nope"),
        ("out", "../../../outside/secret.txt"),
        ("out_missing", "../../../outside/nope"),
        ("root", "/etc/passwd"),
        ("innocent", "secrets/k"),
        ("innocent_missing", "secrets/nope"),
        ("innocent_dir", "secrets"),
        ("project_root", "../.."),
        ("proc", "/proc/self/environ"),
        ("deep/up3", "../../../../../../../etc/passwd"),
    ] {
        tree.link(&format!("{own}{name}"), target);
    }
    tree.link("services/a/absolute", &inside).link("services/a/outside", tree.outside());
    let workspace = tree.open_as("services/a", Isolation::Strict);
    for name in ["rel", "dir/file", "chain", "up", "through", "absolute"] {
        workspace.check_read(name, Ok("inside"));
    }
    workspace.check_read("to_shared", Ok("shared"));
    assert_eq!(workspace.0.resolve(&path("to_shared")).unwrap().path.to_string(), "project:shared/doc");
    let dir = workspace.0.resolve(&path("dir")).unwrap();
    assert_eq!((dir.path.to_string().as_str(), dir.kind), ("real", ResolvedKind::Directory));
    for name in ["dangling", "dir/nope", "rel/x"] {
        workspace.check_read(name, Err(FileNotFound));
    }
    for name in ["innocent", "innocent_missing", "innocent_dir/k", "innocent_dir/nope"] {
        workspace.check_read(name, Err(BlockedPath));
    }
    for name in [
        "loop1",
        "loop2/x",
        "sibling",
        "sibling_missing",
        "out",
        "out_missing",
        "root",
        "proc",
        "outside/secret.txt",
        "outside/nope",
        "project_root/shared",
        "deep/up3",
    ] {
        let error = workspace.read(name).unwrap_err();
        // `project_root/shared` resolves inside the scope, to a directory.
        let expected = if name == "project_root/shared" { NotAFile } else { ScopeViolation };
        assert_eq!(error.code, expected, "{name}");
        assert!(!error.message.contains("passwd") && !error.message.contains(CANARY));
    }
    workspace.check_read("project_root/services/b/file", Err(ScopeViolation));
    assert_eq!(workspace.0.search(&path(""), &crate::fixtures::lines(CANARY)).unwrap().total, 0);
}

#[test]
fn forty_symlinks_are_followed_and_forty_one_are_not() {
    let tree = TestProject::new();
    tree.file("l0", "end");
    for at in 1..=41 {
        tree.link(&format!("l{at}"), format!("l{}", at - 1));
    }
    let workspace = tree.open();
    workspace.check_read("l40", Ok("end"));
    workspace.check_read("l41", Err(ScopeViolation));
}

// T13
#[test]
fn a_file_can_be_read_only_if_all_its_hard_links_are_in_scope() {
    let tree = TestProject::new();
    tree.file("twice", "needle both inside\n").file("src/x", "");
    std::fs::hard_link(tree.at("twice"), tree.at("src/again")).unwrap();
    std::fs::hard_link(tree.outside().join("secret.txt"), tree.at("innocent")).unwrap();
    tree.file("secrets/key", CANARY);
    std::fs::hard_link(tree.at("secrets/key"), tree.at("notes")).unwrap();
    let workspace = tree.open();
    workspace.check_read("twice", Ok("needle both inside\n"));
    workspace.check_read("src/again", Ok("needle both inside\n"));
    workspace.check_read("innocent", Err(ScopeViolation));
    workspace.check_read("notes", Err(ScopeViolation));
    let message = workspace.read("innocent").unwrap_err().message;
    assert_eq!(message, "`innocent` has 2 hard links and only 1 of them are in scope and not blocked");
    let found = workspace.search("", "needle|CANARY");
    assert_eq!(found, ["src/again:1:1:needle both inside", "twice:1:1:needle both inside"]);
    let result = workspace.search_with("", &crate::fixtures::lines("CANARY")).unwrap();
    assert_eq!((result.total, result.skipped), (0, 2));
    let named = workspace.search_with("innocent", &crate::fixtures::lines("CANARY"));
    assert_eq!(named.unwrap_err().code, ScopeViolation);
}

#[test]
fn a_hard_link_into_a_sibling_is_outside_for_a_strict_service() {
    let tree = TestProject::new();
    tree.file("s/a/x", "x").file("s/b/y", CANARY).file("shared/z", "shared");
    std::fs::hard_link(tree.at("s/b/y"), tree.at("s/a/y")).unwrap();
    std::fs::hard_link(tree.at("shared/z"), tree.at("s/a/z")).unwrap();
    let strict = tree.open_as("s/a", Isolation::Strict);
    strict.check_read("y", Err(ScopeViolation));
    strict.check_read("z", Ok("shared"));
    tree.open_as("s/a", Isolation::Shared).check_read("y", Ok(CANARY));
}

// T13: none of these may block, or the test hangs.
#[test]
fn pipes_sockets_and_devices_are_never_opened_for_reading() {
    let tree = TestProject::new();
    tree.file("plain", "needle\n").link("to_pipe", "pipe");
    rustix::fs::mknodat(CWD, tree.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("socket")).unwrap();
    let mut special = vec!["pipe", "to_pipe", "socket"];
    let zero = rustix::fs::makedev(1, 5);
    let mode = Mode::from_raw_mode(0o600);
    if rustix::fs::mknodat(CWD, tree.at("zero"), FileType::CharacterDevice, mode, zero).is_ok() {
        special.push("zero");
    } else {
        vambrace_skip::skip_part("making a device needs root");
    }
    let workspace = tree.open();
    for name in special {
        workspace.check_read(name, Err(NotAFile));
        assert_eq!(workspace.search_with(name, &crate::fixtures::lines("x")).unwrap_err().code, NotAFile);
    }
    assert_eq!(workspace.search("", "needle"), ["plain:1:1:needle"]);
    assert_eq!(workspace.list("", true, Some("p*")), ["plain:file:7"]);
    workspace.check_read("", Err(NotAFile));
}

#[test]
fn names_that_are_not_utf8_are_listed_and_cannot_be_opened() {
    let tree = TestProject::new();
    tree.file("good", "needle\n");
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff");
    std::fs::write(tree.project.join(odd), "needle\n").unwrap();
    let dir = std::ffi::OsStr::from_bytes(b"dir\xfe");
    std::fs::create_dir(tree.project.join(dir)).unwrap();
    std::fs::write(tree.project.join(dir).join("x"), "needle\n").unwrap();
    std::os::unix::fs::symlink("good", tree.project.join(std::ffi::OsStr::from_bytes(b"l\xff"))).unwrap();
    let workspace = tree.open();
    let listed = ["dir\u{fffd}:directory:0", "good:file:7", "l\u{fffd}:symlink:0", "odd\u{fffd}:file:7"];
    assert_eq!(workspace.list("", true, None), listed);
    workspace.check_read("odd\u{fffd}", Err(FileNotFound));
    assert_eq!(workspace.search("", "needle"), ["good:1:1:needle"]);
}

#[test]
fn unreadable_files_are_reported_and_do_not_stop_a_search() {
    use std::os::unix::fs::PermissionsExt;
    let tree = TestProject::new();
    tree.file("closed", "needle\n").file("shut/x", "needle\n").file("open", "needle\n");
    for name in ["closed", "shut"] {
        std::fs::set_permissions(tree.at(name), std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let workspace = tree.open();
    if is_root() {
        // Root reads everything; the denial is tested when the tests run as another user.
        vambrace_skip::skip_part("root may read files without permission bits");
        workspace.check_read("closed", Ok("needle\n"));
    } else {
        workspace.check_read("closed", Err(NotAFile));
        workspace.check_read("shut/x", Err(NotAFile));
        assert_eq!(workspace.search("", "needle"), ["open:1:1:needle"]);
        assert_eq!(workspace.search_with("", &crate::fixtures::lines("needle")).unwrap().skipped, 1);
    }
    assert_eq!(workspace.list("", false, None).len(), 3);
    std::fs::set_permissions(tree.at("shut"), std::fs::Permissions::from_mode(0o700)).unwrap();
}
