//! T13: another mount inside the project is not entered. Mounting needs a private mount namespace, so the test
//! runs itself again under `unshare`; where that is not allowed it says so.

use vambrace_core::ErrorCode::CrossDevice;
use vambrace_workspace::ListRequest;

use crate::tree::{CANARY, Tree, is_root, lines};

const INSIDE: &str = "VAMBRACE_TEST_IN_MOUNT_NAMESPACE";
const THIS: &str = "mounts::mounts_inside_the_project_are_seen_and_not_entered";

// T4, T13
#[test]
fn mounts_inside_the_project_are_seen_and_not_entered() {
    if std::env::var_os(INSIDE).is_some() {
        return with_mounts();
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
        eprintln!("SKIPPED {THIS}: this system does not let the test mount anything");
        return;
    }
    let output = unshare()
        .arg(std::env::current_exe().unwrap())
        .args([THIS, "--exact", "--nocapture"])
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
