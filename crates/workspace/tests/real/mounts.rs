//! T13: mounts inside the project are not crossed; a full disk. Mounting needs a private mount namespace, so a test runs
//! itself again under `unshare`; where that is not allowed, it reports that it was skipped.

use vambrace_core::ErrorCode::CrossDevice;
use vambrace_workspace::{ApplyError, EditRequest, Isolation, ListRequest};

use crate::editing::limits;
use crate::fixtures::{CANARY, TestProject, is_root, lines, path};
use crate::harness::{Harness, applier};

const INSIDE: &str = "VAMBRACE_TEST_IN_MOUNT_NAMESPACE";

// T4, T13
#[test]
fn mounts_inside_the_project_are_listed_and_not_crossed() {
    in_namespace("mounts::mounts_inside_the_project_are_listed_and_not_crossed", with_mounts);
}

// T8, B7
#[test]
fn a_full_disk_leaves_the_old_content_and_nothing_else() {
    in_namespace("mounts::a_full_disk_leaves_the_old_content_and_nothing_else", with_a_full_disk);
}

/// Runs a test again in a mount namespace.
fn in_namespace(this: &str, test: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    // An unprivileged user may mount in a user namespace; some systems forbid those.
    let flags: &[&str] = if is_root() { &["-m"] } else { &["-m", "-U", "-r"] };
    let unshare = || {
        let mut command = std::process::Command::new("unshare");
        command.args(flags);
        command
    };
    let possible = unshare().args(["mount", "-t", "tmpfs", "none", "/tmp"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        vambrace_skip::skip("this system does not allow mounting");
        return;
    }
    let output = unshare()
        .arg(std::env::current_exe().unwrap())
        .args([this, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    let also = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && also.contains("1 passed"), "{also}\n{reported}");
}

fn mount(args: &[&str]) {
    let status = std::process::Command::new("mount").args(args).status().unwrap();
    assert!(status.success(), "mount {args:?}");
}

fn with_mounts() {
    let tree = TestProject::new();
    tree.file("plain", "needle\n").file("bound_file", "").link("link", "tmpfs/x");
    for dir in ["tmpfs", "bound", "deep/er"] {
        std::fs::create_dir_all(tree.at(dir)).unwrap();
    }
    let at = |path: &str| tree.at(path).to_str().unwrap().to_owned();
    let outside = tree.outside();
    mount(&["-t", "tmpfs", "none", &at("tmpfs")]);
    std::fs::write(tree.at("tmpfs/x"), CANARY).unwrap();
    // The same device: only the mount differs.
    mount(&["--bind", outside.to_str().unwrap(), &at("bound")]);
    mount(&["--bind", outside.to_str().unwrap(), &at("deep/er")]);
    mount(&["--bind", outside.join("secret.txt").to_str().unwrap(), &at("bound_file")]);
    let workspace = tree.open();
    for path in ["tmpfs/x", "bound/secret.txt", "bound/nope", "bound_file", "link", "deep/er/secret.txt"] {
        workspace.check_read(path, Err(CrossDevice));
    }
    for path in ["tmpfs", "bound", "deep/er"] {
        assert_eq!(workspace.list_with(path, &ListRequest::default()).unwrap_err().code, CrossDevice);
        assert_eq!(workspace.search_with(path, &lines("x")).unwrap_err().code, CrossDevice);
    }
    let listed = workspace.list("", true, None).join("\n");
    assert!(listed.contains("bound:directory:0") && !listed.contains("secret.txt"), "{listed}");
    assert_eq!(workspace.search("", "needle|CANARY"), ["plain:1:1:needle"]);
    assert!(workspace.0.volume().mount.is_some());
}

fn with_a_full_disk() {
    let tree = TestProject::new();
    mount(&["-t", "tmpfs", "-o", "size=1m", "none", tree.project.to_str().unwrap()]);
    let large = format!("a\n{}", "x".repeat(600 * 1024));
    tree.file("large", &large).file("a_small", "a\n");
    let ws = tree.open_as("", Isolation::Strict).0;
    let applier = applier(&ws, tree.home.path());
    let harness = Harness { tree, ws, applier };
    let edit = [EditRequest::replace("a\n", "b\n")];
    let one = harness.ws.draft_edit(&path("large"), &edit, None, &limits()).unwrap().changes;
    let patch = "--- a/a_small\n+++ b/a_small\n@@ -1 +1 @@\n-a\n+b\n--- a/large\n+++ b/large\n@@ -1 +1 @@\n-a\n+b\n\
                 --- /dev/null\n+++ b/new/file\n@@ -0,0 +1 @@\n+n\n";
    let several = harness.ws.draft_patch(patch.as_bytes(), &limits()).unwrap().changes;
    for changes in [one, several] {
        let error = harness.applier.apply(&changes).unwrap_err();
        assert!(matches!(&error, ApplyError::Io { what: "writing the new content", .. }), "{error}");
        assert!(harness.read("large").unwrap() == large.as_bytes());
        assert_eq!(harness.read("a_small").unwrap(), b"a\n");
        assert!(!harness.tree.at("new").exists());
        assert_eq!(harness.leftovers(), Vec::<String>::new());
    }
}
