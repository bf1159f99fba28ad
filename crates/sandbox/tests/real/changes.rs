//! What a program changes in the workspace is reported and written back.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use libtest_mimic::Trial;
use vambrace_sandbox::{ChangeKind, Filesystem, RunOutcome, WithheldReason};

use super::harness::{TestProject, changes, check_out, is_root, mode, out, run, test, withheld, write_back};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "changes::every_kind_of_change_is_reported_and_written_back",
            every_kind_of_change_is_reported_and_written_back,
        ),
        test(
            "changes::deletions_in_an_opaque_directory_are_listed",
            deletions_in_an_opaque_directory_are_listed,
        ),
        test(
            "changes::recreated_directories_end_up_as_without_a_sandbox",
            recreated_directories_end_up_as_without_a_sandbox,
        ),
        test("changes::directory_and_file_replace_each_other", directory_and_file_replace_each_other),
        test("changes::directory_with_a_withheld_entry_is_kept", directory_with_a_withheld_entry_is_kept),
        test(
            "changes::file_moved_out_of_a_replaced_directory_is_written_back",
            file_moved_out_of_a_replaced_directory_is_written_back,
        ),
        test(
            "changes::symlinks_out_of_the_workspace_and_special_files_are_withheld",
            symlinks_out_of_the_workspace_and_special_files_are_withheld,
        ),
        test(
            "changes::file_changed_by_the_user_during_the_run_is_stale",
            file_changed_by_the_user_during_the_run_is_stale,
        ),
        test(
            "changes::other_hard_links_of_a_file_keep_their_content",
            other_hard_links_of_a_file_keep_their_content,
        ),
        test(
            "changes::sparse_files_and_large_trees_are_written_back",
            sparse_files_and_large_trees_are_written_back,
        ),
        test("changes::new_files_keep_content_and_mode", new_files_keep_content_and_mode),
        test("changes::set_id_bits_are_not_written_back", set_id_bits_are_not_written_back),
        test("changes::renamed_file_loses_its_set_id_bits", renamed_file_loses_its_set_id_bits),
        test("changes::closed_workspace_is_reported_as_dot", closed_workspace_is_reported_as_dot),
        test(
            "changes::new_files_belong_to_the_owner_of_the_workspace",
            new_files_belong_to_the_owner_of_the_workspace,
        ),
        test("changes::names_that_are_not_utf8_are_written_back", names_that_are_not_utf8_are_written_back),
        test(
            "changes::closed_directory_does_not_hide_other_changes",
            closed_directory_does_not_hide_other_changes,
        ),
        test(
            "changes::git_apply_and_patch_reproduce_the_changes_from_the_diffs",
            git_apply_and_patch_reproduce_the_changes_from_the_diffs,
        ),
    ]
}

// P4: a reported diff can be applied
fn git_apply_and_patch_reproduce_the_changes_from_the_diffs() {
    let lines = |from: usize, to: usize| (from..=to).map(|line| format!("{line}\n")).collect::<String>();
    let script = "echo 6 >>added; rm gone; rm gone-empty; echo n >new; printf n >new-unended; : >new-empty; mkdir -p in/to; \
        echo n >in/to/new; printf '#!/bin/sh\\n' >tool; chmod 755 tool; chmod 755 both; echo x >>both; printf more >>unended; \
        echo >>ended; sed -i '3d; 30s/.*/x/; 60,61d' far; printf 'a\\r\\nc\\r\\n' >dos; : >emptied; echo n >was-empty; \
        sed -i 1d first; echo n >'with blank'; : >'an empty one '; rm 'gone too '; \
        echo n >>'an other'; echo n >'\"q\\'; echo n >'\u{e9}'; printf ' \\n\\n-- x\\n' >signs";
    let fixture = || {
        let fixture = TestProject::new();
        let tails =
            [("added", lines(1, 5)), ("gone", lines(1, 3)), ("far", lines(1, 90)), ("first", lines(1, 9))];
        tails.iter().for_each(|(name, text)| fixture.write(&format!("project/{name}"), text));
        for name in ["gone-empty", "was-empty", "gone too "] {
            fixture.write(&format!("project/{name}"), "");
        }
        for name in ["both", "emptied", "an other", "signs"] {
            fixture.write(&format!("project/{name}"), "-- old\n");
        }
        fixture.write("project/unended", "a\nb");
        fixture.write("project/ended", "a\nb");
        fixture.write("project/dos", "a\r\nb\r\n");
        fixture
    };
    let made = fixture();
    let outcome = run(&made.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    let list = outcome.changes.as_ref().unwrap();
    let mut diffs = list.diffs();
    let reported: Vec<String> = list.list.iter().map(|change| diffs.next(change).1).collect();
    write_back(&outcome).unwrap();
    let of = |fixture: &TestProject| -> Vec<String> {
        let here = fixture.project().display().to_string();
        fixture.listing("project").iter().map(|line| line.replace(&here, "")).collect()
    };
    for program in ["git apply --check -", "git apply -", "patch -sp1 --dry-run", "patch -sp1"] {
        let other = fixture();
        for diff in reported.iter().filter(|diff| !diff.starts_with("created in")) {
            apply(&other, program, diff);
        }
        let whole = fixture();
        apply(&whole, program, &reported.concat());
        // Directories have no diff; a new one is created with the files in it.
        if !program.contains("--") {
            assert_eq!(of(&whole), of(&made), "{program}");
        }
    }
}

#[track_caller]
fn apply(fixture: &TestProject, program: &str, diff: &str) {
    use std::io::Write as _;
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {program} 2>&1")])
        .current_dir(fixture.project())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(diff.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{program}: {}\n{diff}", String::from_utf8_lossy(&done.stdout));
}

// A broker of root can read all of them
fn closed_directory_does_not_hide_other_changes() {
    for (script, closed) in [
        ("mkdir d; echo x >d/f; chmod 600 d", "d"),
        ("mkdir d; echo x >d/f; chmod 000 d", "d"),
        ("chmod 444 src", "src"),
        ("echo x >src/more; chmod 444 src", "src"),
        ("rm -r src; mkdir src; chmod 600 src", "src"),
        ("rm -r src; mkdir src; echo x >src/f; chmod 600 src", "src"),
        // For an ordinary user it is masked.
        ("chmod 755 shut 2>/dev/null || mkdir shut; echo x >shut/x; rm -f shut/y", "shut"),
    ] {
        let fixture = TestProject::new();
        fixture.write("project/shut/y", "y\n");
        let shut = fixture.path("project/shut");
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o000)).unwrap();
        let outcome =
            run(&fixture.shell(Filesystem::ReadWrite, &format!("{script}; echo keep >other; echo said")));
        check_out(&outcome, "said\n");
        assert!(changes(&outcome).contains(&"created other".to_owned()), "{script}: {:?}", changes(&outcome));
        let reported = withheld(&outcome);
        let was_read = is_root() || script == "chmod 444 src";
        let why = if closed == "shut" { WithheldReason::Masked } else { WithheldReason::Unreadable };
        assert!(
            was_read || reported.iter().any(|one| one.0 == closed && one.1 == why),
            "{script}: {reported:?}"
        );
        write_back(&outcome).unwrap();
        assert_eq!(fixture.read("project/other").as_deref(), Some("keep\n"), "{script}");
        for dir in [shut, fixture.path("project/src"), fixture.path("project/d")] {
            if dir.exists() {
                std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let stays = is_root() || fixture.read("project/shut/y").is_some();
        assert!(stays, "{script}: an entry that the program could not see was deleted");
    }
}

fn every_kind_of_change_is_reported_and_written_back() {
    let fixture = TestProject::new();
    for name in ["gone", "touched", "moved", "program", "same"] {
        fixture.write(&format!("project/{name}"), &format!("content of {name}\n"));
    }
    std::fs::write(fixture.path("project/binary"), [0, 1, 2, 255]).unwrap();
    fixture.write("project/old/deep/file", "deep\n");
    let script = "echo more >>plain.txt; rm gone; touch touched; mv moved there; chmod 755 program; \
                  mkdir -p made/er; echo n >made/er/file; ln -s plain.txt link; rm -r old; \
                  printf '\\377\\0' >binary; cat same >/dev/null; cp same copied";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(
        changes(&outcome),
        [
            "modified binary",
            "created copied",
            "deleted gone",
            "created link",
            "created made",
            "created made/er",
            "created made/er/file",
            "deleted old",
            "deleted old/deep",
            "deleted old/deep/file",
            "modified plain.txt",
            "mode program",
            "renamed there",
        ]
    );
    let list = outcome.changes.as_ref().unwrap();
    let diff =
        |path: &str| list.diffs().next(list.list.iter().find(|one| one.path.as_os_str() == path).unwrap()).1;
    let head = "diff --git a/plain.txt b/plain.txt\n--- a/plain.txt\n+++ b/plain.txt\n";
    assert_eq!(diff("plain.txt"), format!("{head}@@ -1 +1,2 @@\n plain\n+more\n"));
    assert!(diff("binary").starts_with("modified binary: 4 bytes sha256:"), "{}", diff("binary"));
    assert_eq!(diff("program"), "mode 644 -> 755 program\n");
    assert_eq!(diff("there"), "rename moved -> there\n");
    assert_eq!(write_back(&outcome).unwrap(), 13);
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("plain\nmore\n"));
    assert_eq!(fixture.read("project/gone"), None);
    assert_eq!(fixture.read("project/there").as_deref(), Some("content of moved\n"));
    assert_eq!(fixture.read("project/moved"), None);
    assert_eq!(fixture.read("project/made/er/file").as_deref(), Some("n\n"));
    assert!(!fixture.path("project/old").exists());
    assert_eq!(std::fs::read_link(fixture.path("project/link")).unwrap().to_str(), Some("plain.txt"));
    assert_eq!(fixture.path("project/program").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fixture.read("project/.env").as_deref(), Some("TOKEN=in-the-env-file\n"));
    // No temporary files are left.
    assert!(!fixture.listing("project").iter().any(|line| line.contains("unfinished")));
}

/// A directory that was deleted and created again holds no whiteouts, but its old entries are gone.
fn deletions_in_an_opaque_directory_are_listed() {
    let fixture = TestProject::new();
    fixture.write("project/d/one", "1\n");
    fixture.write("project/d/two", "2\n");
    fixture.write("project/d/.env", "kept\n");
    let outcome = run(
        &fixture.shell(Filesystem::ReadWrite, "rm -r d && mkdir d && echo new >d/one && echo 3 >d/three")
    );
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["modified d/one", "created d/three", "deleted d/two"]);
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/d/one").as_deref(), Some("new\n"));
    assert_eq!(fixture.read("project/d/.env").as_deref(), Some("kept\n"));
    assert!(!fixture.path("project/d/two").exists());
}

/// The kernel marks only the outermost of the recreated directories. The expected result is that of the same script in a
/// copy of the tree.
fn recreated_directories_end_up_as_without_a_sandbox() {
    let outcome = made_anew(
        "rm -rf dist && mkdir -p dist/assets && echo new >dist/assets/new.js && echo new >dist/index.html",
    );
    let reported = changes(&outcome);
    for name in ["assets/old.js", "assets/img/same", "assets/img/a/deep", "plain", "plain/a/b/c"] {
        assert!(reported.contains(&format!("deleted dist/{name}")), "{name}: {reported:?}");
    }
    let kept = ["dist/assets/img", "dist/assets/img/.vscode", "dist/assets/img/.vscode/tasks.json"];
    let kept =
        kept.iter().zip([WithheldReason::NotEmpty, WithheldReason::Protected, WithheldReason::Protected]);
    assert_eq!(withheld(&outcome), kept.map(|(path, why)| ((*path).to_owned(), why)).collect::<Vec<_>>());
    for script in [
        "rm -rf dist; mkdir -p dist/assets/img; echo new >dist/assets/img/same",
        "rm -rf dist; mkdir -p dist/assets/img/a dist/plain/a/b; echo new >dist/plain/a/b/d",
        "mv dist z; mkdir -p dist/assets/img/a",
        "mv dist z; mkdir -p dist/plain/a; mv z/plain/x dist/plain/a",
        "mv dist/plain z; mkdir -p dist/plain/a; mv z/a/b dist/plain/a",
        "rm -rf dist/assets; mkdir -p dist/assets/img/a; rm -rf dist/assets/img; mkdir -p dist/assets/img/a/deep",
        "rm -rf dist; mkdir dist; echo file >dist/plain",
        "rm -rf dist; mkdir -p dist/plain; echo file >dist/plain/a",
        "rm -rf dist; mkdir -p dist/plain/a; ln -s ../x dist/plain/a/b",
        "rm -rf build; mkdir -p build/src/x; echo new >build/src/x/f",
        "rm -rf dist build/src; mkdir -p dist/assets build/src/x; rm -r dist/assets; mkdir dist/assets",
    ] {
        made_anew(script);
    }
}

/// Runs a script on a tree with many withheld entries, and compares the result with an unconfined run in a copy.
fn made_anew(script: &str) -> RunOutcome {
    const STAYS: [&str; 4] = ["/.env", "/.vscode", "/.git", "/secrets"];
    let fixture = TestProject::new();
    for name in [
        "dist/index.html",
        "dist/assets/old.js",
        "dist/assets/.env",
        "dist/assets/img/same",
        "dist/assets/img/a/deep",
        "dist/assets/img/.vscode/tasks.json",
        "dist/plain/x",
        "dist/plain/a/b/c",
        "build/out/o",
        "build/src/x/y/z",
        "build/src/w",
    ] {
        fixture.write(&format!("project/{name}"), &format!("{name}\n"));
    }
    let (project, model) = (fixture.project(), fixture.path("model"));
    assert!(Command::new("cp").arg("-a").args([&project, &model]).status().unwrap().success());
    let tree = |name: &str| -> Vec<String> {
        let root = fixture.path(name);
        let named = |line: String| line.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        fixture.listing(name).into_iter().map(named).collect()
    };
    let stays = |line: &String| STAYS.iter().any(|name| line.contains(name));
    let before = tree("project");
    let mut spec = fixture.shell(Filesystem::ReadWrite, script);
    spec.scratch = Vec::new();
    let outcome = run(&spec);
    write_back(&outcome).unwrap();
    assert!(Command::new("sh").args(["-c", script]).current_dir(&model).status().unwrap().success());
    // Entries that stay keep the directories that contain them.
    let holds = |line: &String| {
        let path = format!("{}/", line.split(' ').next().unwrap());
        before.iter().any(|inner| stays(inner) && inner.starts_with(&path))
    };
    let mut expected: Vec<String> = tree("model").into_iter().filter(|line| !stays(line)).collect();
    expected.extend(before.iter().filter(|line| stays(line) || holds(line)).cloned());
    expected.sort();
    expected.dedup();
    assert_eq!(tree("project"), expected, "{script}");
    outcome
}

fn directory_and_file_replace_each_other() {
    let fixture = TestProject::new();
    fixture.write("project/d/one", "1\n");
    fixture.write("project/d/sub/two", "2\n");
    let outcome = run(&fixture.shell(
        Filesystem::ReadWrite,
        "rm -r d && echo file >d && rm plain.txt && mkdir plain.txt && echo x >plain.txt/x",
    ));
    check_out(&outcome, "");
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/d").as_deref(), Some("file\n"));
    assert_eq!(fixture.read("project/plain.txt/x").as_deref(), Some("x\n"));
}

// P4, T12
fn directory_with_a_withheld_entry_is_kept() {
    let fixture = TestProject::new();
    for dir in ["gone", "file"] {
        fixture.write(&format!("project/{dir}/in/.env"), "mine\n");
        fixture.write(&format!("project/{dir}/in/a"), "a\n");
    }
    let script = "rm -rf gone file; echo x >file; echo y >other; echo z >plain.txt";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    let kept = ["file", "gone", "gone/in"].map(|path| (path.to_owned(), WithheldReason::NotEmpty));
    assert_eq!(
        withheld(&outcome).into_iter().filter(|(path, _)| path != "file/in").collect::<Vec<_>>(),
        kept
    );
    write_back(&outcome).unwrap();
    for dir in ["gone", "file"] {
        assert_eq!(fixture.read(&format!("project/{dir}/in/.env")).as_deref(), Some("mine\n"));
        assert_eq!(fixture.read(&format!("project/{dir}/in/a")), None);
    }
    assert_eq!(fixture.read("project/other").as_deref(), Some("y\n"));
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("z\n"));
}

// P4
fn file_moved_out_of_a_replaced_directory_is_written_back() {
    let fixture = TestProject::new();
    fixture.write("project/d/in/a", "moves\n");
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, "mkdir o; mv d/in/a o/z; rm -r d; echo file >d"));
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/o/z").as_deref(), Some("moves\n"));
    assert_eq!(fixture.read("project/d").as_deref(), Some("file\n"));
}

// P4, T13
fn symlinks_out_of_the_workspace_and_special_files_are_withheld() {
    let fixture = TestProject::new();
    let script = "ln -s /etc/passwd a; ln -s ../outside/file b; ln -s src/main.rs c; mkfifo d; mkdir e; ln -s ../src e/f; \
                  ln -s ../../outside e/g";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["created c", "created e", "created e/f"]);
    let outside = |name: &str| (name.to_owned(), WithheldReason::LeadsOutside);
    assert_eq!(
        withheld(&outcome),
        [outside("a"), outside("b"), ("d".to_owned(), WithheldReason::Special), outside("e/g")]
    );
    write_back(&outcome).unwrap();
    assert!(!fixture.path("project/a").is_symlink());
    assert!(!fixture.path("project/d").symlink_metadata().is_ok_and(|facts| facts.file_type().is_fifo()));
}

/// The program waits at a pipe until the user has saved the file.
// P4
fn file_changed_by_the_user_during_the_run_is_stale() {
    let fixture = TestProject::new();
    fixture.write("project/other/file", "other\n");
    std::fs::create_dir(fixture.path("signal")).unwrap();
    let mut spec = fixture.shell(
        Filesystem::ReadWrite,
        &format!(
            "echo agent >>plain.txt; echo agent >>other/file; mkfifo {0}/wait; cat {0}/wait",
            fixture.path("signal").display()
        ),
    );
    spec.write = vec![fixture.path("signal")];
    let pipe = fixture.path("signal/wait");
    let user = std::thread::spawn({
        let (pipe, file) = (pipe, fixture.path("project/plain.txt"));
        move || {
            while !pipe.symlink_metadata().is_ok_and(|facts| facts.file_type().is_fifo()) {
                std::thread::yield_now();
            }
            std::fs::write(file, "user\n").unwrap();
            std::fs::write(pipe, "go\n").unwrap();
        }
    });
    let outcome = run(&spec);
    user.join().unwrap();
    check_out(&outcome, "go\n");
    assert_eq!(withheld(&outcome), [("plain.txt".to_owned(), WithheldReason::StaleBase)]);
    assert_eq!(changes(&outcome), ["modified other/file"]);
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("user\n"));
}

// T13
fn other_hard_links_of_a_file_keep_their_content() {
    let fixture = TestProject::new();
    std::fs::hard_link(fixture.path("outside/file"), fixture.path("project/hard")).unwrap();
    let outcome =
        run(&fixture.shell(Filesystem::ReadWrite, "echo agent >>hard; ln plain.txt second; echo x >>second"));
    check_out(&outcome, "");
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("outside/file").as_deref(), Some("in-the-outside-file\n"));
    assert_eq!(fixture.read("project/second").as_deref(), Some("plain\nx\n"));
}

fn sparse_files_and_large_trees_are_written_back() {
    let fixture = TestProject::new();
    let script = "truncate -s 200M sparse; echo end >>sparse; \
                  i=0; while [ $i -lt 40 ]; do mkdir d$i; j=0; while [ $j -lt 50 ]; do echo $i >d$i/f$j; j=$((j+1)); done; i=$((i+1)); done";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(write_back(&outcome).unwrap(), 2041);
    let facts = fixture.path("project/sparse").metadata().unwrap();
    assert_eq!(facts.len(), (200 << 20) + 4);
    assert!(facts.blocks() * 512 < 10 << 20, "{} blocks", facts.blocks());
    assert_eq!(fixture.read("project/d39/f49").as_deref(), Some("39\n"));
}

// P4
fn new_files_keep_content_and_mode() {
    let fixture = TestProject::new();
    let modes = [0o600, 0o666, 0o777, 0o444, 0o640, 0o755];
    let sizes = [0, 1, 65_535, 65_536, 65_537, 200_000];
    let make = |(size, mode): (&usize, &u32)| {
        format!("seq 50000 2>/dev/null | head -c {size} >f{mode:o}; chmod {mode:o} f{mode:o}; ")
    };
    let script: String = sizes.iter().zip(&modes).map(make).collect();
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, &script));
    check_out(&outcome, "");
    assert_eq!(write_back(&outcome).unwrap(), modes.len());
    let numbers: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
    for (size, wanted) in sizes.into_iter().zip(modes) {
        let path = fixture.project().join(format!("f{wanted:o}"));
        assert_eq!(mode(&path) & 0o7777, wanted, "{size}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(std::fs::read(&path).unwrap() == numbers.as_bytes()[..size], "{size}");
    }
}

// P4
fn set_id_bits_are_not_written_back() {
    let fixture = TestProject::new();
    let outcome = run(
        &fixture.shell(Filesystem::ReadWrite, "cp /bin/true t; chmod 6755 t; chmod 4644 plain.txt; true")
    );
    write_back(&outcome).unwrap();
    for name in ["project/t", "project/plain.txt"] {
        assert_eq!(fixture.path(name).metadata().unwrap().permissions().mode() & 0o7000, 0, "{name}");
    }
}

// P4
fn renamed_file_loses_its_set_id_bits() {
    let fixture = TestProject::new();
    for (name, mode) in [("a", 0o6755), ("b", 0o4700), ("c", 0o2755), ("d", 0o755)] {
        fixture.write(&format!("project/{name}"), &format!("content of {name}\n"));
        let path = fixture.project().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, "for n in a b c d; do mv $n moved-$n; done"));
    check_out(&outcome, "");
    let reported = changes(&outcome);
    assert!(
        reported.contains(&"deleted a".to_owned()) && reported.contains(&"renamed moved-d".to_owned()),
        "{reported:?}"
    );
    write_back(&outcome).unwrap();
    for (name, wanted) in [("a", 0o755), ("b", 0o700), ("c", 0o755), ("d", 0o755)] {
        let path = fixture.project().join(format!("moved-{name}"));
        assert_eq!(mode(&path) & 0o7777, wanted, "{name}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), format!("content of {name}\n"));
        assert!(!fixture.project().join(name).exists(), "{name}");
    }
}

fn closed_workspace_is_reported_as_dot() {
    let fixture = TestProject::new();
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, "chmod 000 ."));
    check_out(&outcome, "");
    // A broker of root can read it.
    let reported = if is_root() { Vec::new() } else { vec![(".".to_owned(), WithheldReason::Unreadable)] };
    assert_eq!(withheld(&outcome), reported);
}

fn new_files_belong_to_the_owner_of_the_workspace() {
    let fixture = TestProject::new();
    let owner = fixture.project().metadata().unwrap().uid();
    let outcome =
        run(&fixture
            .shell(Filesystem::ReadWrite, "id -u; mkdir n; echo x >n/f; echo x >>plain.txt; ln -s f n/l"));
    assert_ne!(out(&outcome), "0\n");
    write_back(&outcome).unwrap();
    for name in ["n", "n/f", "plain.txt", "n/l"] {
        let facts = fixture.path("project").join(name).symlink_metadata().unwrap();
        assert_eq!(facts.uid(), owner, "{name}");
    }
}

fn names_that_are_not_utf8_are_written_back() {
    let fixture = TestProject::new();
    let outcome = run(&fixture.shell(
        Filesystem::ReadWrite,
        "printf x >\"$(printf 'a\\377b')\"; printf y >'a:b,c\\d'; printf z >'new\nline'",
    ));
    check_out(&outcome, "");
    assert_eq!(write_back(&outcome).unwrap(), 3);
    assert_eq!(fixture.read("project/a:b,c\\d").as_deref(), Some("y"));
    assert!(outcome.changes.unwrap().list.iter().all(|change| change.kind == ChangeKind::Created));
}
