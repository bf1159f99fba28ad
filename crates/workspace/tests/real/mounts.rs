//! T13: another mount inside the project is not entered; and what happens when the disk is full. Mounting needs a private
//! mount namespace, so a test runs itself again under `unshare`; where that is not allowed it says so.

use vambrace_core::ErrorCode::CrossDevice;
use vambrace_workspace::{ApplyFault, EditRequest, Isolation, ListRequest};

use crate::bench::{Bench, applier};
use crate::editing::limits;
use crate::tree::{CANARY, Tree, is_root, lines, path};

const INSIDE: &str = "VAMBRACE_TEST_IN_MOUNT_NAMESPACE";

// T4, T13
#[test]
fn mounts_inside_the_project_are_seen_and_not_entered() {
    in_namespace("mounts::mounts_inside_the_project_are_seen_and_not_entered", with_mounts);
}

// T8, B7
#[test]
fn a_full_disk_leaves_the_old_content_and_nothing_else() {
    in_namespace("mounts::a_full_disk_leaves_the_old_content_and_nothing_else", with_a_full_disk);
}

/// Runs a test again where it may mount.
fn in_namespace(this: &str, test: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    // As somebody else a user namespace gives the right to mount; some systems forbid those.
    let flags: &[&str] = if is_root() { &["-m"] } else { &["-m", "-U", "-r"] };
    let unshare = || {
        let mut command = std::process::Command::new("unshare");
        command.args(flags);
        command
    };
    let possible = unshare().args(["mount", "-t", "tmpfs", "none", "/tmp"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED {this}: this system does not let the test mount anything");
        return;
    }
    let output = unshare()
        .arg(std::env::current_exe().unwrap())
        .args([this, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let also = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && also.contains("1 passed"), "{also}\n{said}");
}

fn mount(args: &[&str]) {
    let status = std::process::Command::new("mount").args(args).status().unwrap();
    assert!(status.success(), "mount {args:?}");
}

fn with_mounts() {
    let tree = Tree::new();
    tree.file("plain", "needle\n").file("bound_file", "").link("link", "tmpfs/x");
    for folder in ["tmpfs", "bound", "deep/er"] {
        std::fs::create_dir_all(tree.at(folder)).unwrap();
    }
    let at = |path: &str| tree.at(path).to_str().unwrap().to_owned();
    let outside = tree.outside();
    mount(&["-t", "tmpfs", "none", &at("tmpfs")]);
    std::fs::write(tree.at("tmpfs/x"), CANARY).unwrap();
    // The same device: only the mount differs.
    mount(&["--bind", outside.to_str().unwrap(), &at("bound")]);
    mount(&["--bind", outside.to_str().unwrap(), &at("deep/er")]);
    mount(&["--bind", outside.join("secret.txt").to_str().unwrap(), &at("bound_file")]);
    let door = tree.open();
    for path in ["tmpfs/x", "bound/secret.txt", "bound/nope", "bound_file", "link", "deep/er/secret.txt"] {
        door.check_read(path, Err(CrossDevice));
    }
    for path in ["tmpfs", "bound", "deep/er"] {
        assert_eq!(door.list_with(path, &ListRequest::default()).unwrap_err().code, CrossDevice);
        assert_eq!(door.search_with(path, &lines("x")).unwrap_err().code, CrossDevice);
    }
    let listed = door.list("", true, None).join("\n");
    assert!(listed.contains("bound:directory:0") && !listed.contains("secret.txt"), "{listed}");
    assert_eq!(door.search("", "needle|CANARY"), ["plain:1:1:needle"]);
    assert!(door.0.volume().mount.is_some());
}

fn with_a_full_disk() {
    let tree = Tree::new();
    mount(&["-t", "tmpfs", "-o", "size=1m", "none", tree.project.to_str().unwrap()]);
    let large = format!("a\n{}", "x".repeat(600 * 1024));
    tree.file("large", &large).file("a_small", "a\n");
    let ws = tree.open_as("", Isolation::Strict).0;
    let applier = applier(&ws, tree.home.path());
    let bench = Bench { tree, ws, applier };
    let edit = [EditRequest::replace("a\n", "b\n")];
    let one = bench.ws.draft_edit(&path("large"), &edit, None, &limits()).unwrap().changes;
    let patch = "--- a/a_small\n+++ b/a_small\n@@ -1 +1 @@\n-a\n+b\n--- a/large\n+++ b/large\n@@ -1 +1 @@\n-a\n+b\n\
                 --- /dev/null\n+++ b/new/file\n@@ -0,0 +1 @@\n+n\n";
    let several = bench.ws.draft_patch(patch.as_bytes(), &limits()).unwrap().changes;
    for changes in [one, several] {
        let fault = bench.applier.apply(&changes).unwrap_err();
        assert!(matches!(&fault, ApplyFault::Io { what: "writing the new content", .. }), "{fault}");
        assert!(bench.read("large").unwrap() == large.as_bytes());
        assert_eq!(bench.read("a_small").unwrap(), b"a\n");
        assert!(!bench.tree.at("new").exists());
        assert_eq!(bench.litter(), Vec::<String>::new());
    }
}
