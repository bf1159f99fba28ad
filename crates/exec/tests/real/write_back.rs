//! What a program changed, as a ChangeSet and beside it.

use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use vambrace_core::change::{FileChangeKind, MAX_FILES};
use vambrace_sandbox::Filesystem;

use super::harness::{TestProject, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("changes_of_files_are_one_change_set_and_can_be_rolled_back", changes_can_be_rolled_back),
        test("symlinks_and_directories_are_written_beside_the_change_set", mixed_changes_are_written),
        test("more_files_than_a_change_set_holds_are_written", more_files_than_a_change_set_holds),
        test("replaced_directories_are_written_in_the_right_order", replaced_directories),
        test("files_outside_the_service_root_are_written", files_outside_the_service_root),
        test("set_id_bits_and_hard_links_are_not_kept_by_a_change", set_id_bits_and_hard_links),
        test("files_of_a_root_broker_belong_to_the_owner_of_the_project", files_belong_to_the_owner),
    ]
}

// B3, P4
fn changes_can_be_rolled_back() {
    let project = TestProject::new();
    project.write("gone.txt", "gone\n");
    project.write("tool.sh", "#!/bin/sh\n");
    project.write("bin", "\0\u{1}binary\n");
    let before = project.listing();
    let script = "echo more >>notes.txt; rm gone.txt; mv src/main.rs src/lib.rs; chmod 755 tool.sh; mkdir -p a/b; echo new >a/b/new.txt; \
                  printf 'a\\0b' >bin; printf 'a\\0b' >a/bin";
    let report = project.run(Filesystem::ReadWrite, script);
    let prepared = project.prepare(&report).unwrap();
    let set = prepared.change_set();
    let kinds: Vec<_> = set.files().iter().map(|file| (file.path().to_string(), file.kind())).collect();
    let expected = [
        ("a/b/new.txt", FileChangeKind::Create),
        ("a/bin", FileChangeKind::Create),
        ("bin", FileChangeKind::Modify),
        ("gone.txt", FileChangeKind::Delete),
        ("notes.txt", FileChangeKind::Modify),
        ("src/main.rs", FileChangeKind::Rename),
        ("tool.sh", FileChangeKind::Mode),
    ];
    assert_eq!(kinds, expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert!(!prepared.has_other_entries());
    assert_eq!(project.listing(), before, "preparing changes nothing");
    let reverse = prepared.reverse().unwrap().clone();
    let written = prepared.commit("test").unwrap();
    assert_eq!((written.changes, written.files.len()), (9, 7), "seven files and two directories");
    assert_eq!(project.read("notes.txt").as_deref(), Some("notes\nmore\n"));
    assert_eq!(project.read("src/lib.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(project.path("tool.sh").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(std::fs::read(project.path("a/bin")).unwrap(), b"a\0b");
    project.applier.apply(&reverse).unwrap();
    assert_eq!(project.listing(), before);
}

// P4
fn mixed_changes_are_written() {
    let project = TestProject::new();
    project.write("old/deep/f", "f\n");
    let script = "echo more >>notes.txt; ln -s notes.txt link; mkdir empty; mkdir -m 700 closed; echo x >closed/f; rm -r old; chmod 700 src; \
                  echo y >>src/main.rs";
    let report = project.run(Filesystem::ReadWrite, script);
    let prepared = project.prepare(&report).unwrap();
    assert!(prepared.has_other_entries());
    let files: Vec<String> =
        prepared.change_set().files().iter().map(|file| file.path().to_string()).collect();
    assert_eq!(files, ["notes.txt", "old/deep/f"]);
    prepared.commit("test").unwrap();
    assert_eq!(project.read("notes.txt").as_deref(), Some("notes\nmore\n"));
    assert_eq!(project.read("link").as_deref(), Some("notes\nmore\n"));
    assert_eq!(project.read("closed/f").as_deref(), Some("x\n"));
    assert_eq!(project.read("src/main.rs").as_deref(), Some("fn main() {}\ny\n"));
    assert!(project.path("empty").is_dir() && !project.path("old").exists());
    for name in ["closed", "src"] {
        assert_eq!(project.path(name).metadata().unwrap().permissions().mode() & 0o777, 0o700, "{name}");
    }
    let left: Vec<_> =
        project.listing().into_keys().filter(|path| path.to_string_lossy().contains(".vambrace")).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
}

fn more_files_than_a_change_set_holds() {
    let project = TestProject::new();
    let count = MAX_FILES + 1;
    let script =
        format!("mkdir many; for i in $(seq {count}); do echo $i >many/$i; done; echo more >>notes.txt");
    let report = project.run(Filesystem::ReadWrite, &script);
    let prepared = project.prepare(&report).unwrap();
    assert!(prepared.change_set().is_empty() && prepared.has_other_entries());
    assert_eq!(prepared.commit("test").unwrap().changes, count + 2);
    assert_eq!(std::fs::read_dir(project.path("many")).unwrap().count(), count);
    assert_eq!(project.read("notes.txt").as_deref(), Some("notes\nmore\n"));
}

fn replaced_directories() {
    let project = TestProject::new();
    project.write("dir/a", "a\n");
    let script = "rm -r dir; echo file >dir; rm notes.txt; mkdir notes.txt; echo inner >notes.txt/inner; mv src/main.rs notes.txt/main.rs";
    let report = project.run(Filesystem::ReadWrite, script);
    project.write_back(&report).unwrap();
    assert_eq!(project.read("dir").as_deref(), Some("file\n"));
    assert_eq!(project.read("notes.txt/inner").as_deref(), Some("inner\n"));
    assert_eq!(project.read("notes.txt/main.rs").as_deref(), Some("fn main() {}\n"));
    assert!(!project.path("src/main.rs").exists());
}

// Tools cannot change these files; the program of a user can.
fn files_outside_the_service_root() {
    let project = TestProject::new();
    project.write(".git/HEAD", "ref: x\n");
    let report = project.run(Filesystem::ReadWrite, "echo ref: y >.git/HEAD; echo more >>notes.txt");
    let prepared = project.prepare(&report).unwrap();
    assert_eq!((prepared.change_set().files().len(), prepared.has_other_entries()), (1, true));
    prepared.commit("test").unwrap();
    assert_eq!(project.read(".git/HEAD").as_deref(), Some("ref: y\n"));
}

fn set_id_bits_and_hard_links() {
    let project = TestProject::new();
    for name in ["setuid", "linked"] {
        project.write(name, "old\n");
    }
    std::fs::hard_link(project.path("linked"), project.path("other")).unwrap();
    std::fs::set_permissions(project.path("setuid"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let report = project.run(Filesystem::ReadWrite, "echo new >setuid; echo new >linked");
    project.write_back(&report).unwrap();
    assert_eq!(project.read("setuid").as_deref(), Some("new\n"));
    assert_eq!(project.path("setuid").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(project.read("linked").as_deref(), Some("new\n"));
    assert_eq!(project.read("other").as_deref(), Some("old\n"));
}

fn files_belong_to_the_owner() {
    use std::os::unix::fs::MetadataExt as _;
    if !rustix::process::geteuid().is_root() {
        vambrace_skip::skip("only root creates files for another user");
        return;
    }
    let project = TestProject::new();
    for path in project.listing().into_keys().chain([project.path("")]) {
        std::os::unix::fs::chown(path, Some(1234), Some(1235)).unwrap();
    }
    let report =
        project.run(Filesystem::ReadWrite, "mkdir -p new/deep; echo x >new/deep/f; echo x >>notes.txt");
    let prepared = project.prepare(&report).unwrap();
    assert!(!prepared.has_other_entries());
    prepared.commit("test").unwrap();
    for name in ["new", "new/deep", "new/deep/f", "notes.txt"] {
        let facts = project.path(name).metadata().unwrap();
        assert_eq!((facts.uid(), facts.gid()), (1234, 1235), "{name}");
    }
}
