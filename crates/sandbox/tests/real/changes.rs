//! What a program changes in the workspace: told, and taken over.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use libtest_mimic::Trial;
use vambrace_sandbox::{ChangeKind, Filesystem, Outcome, Why};

use super::kit::{Room, changes, check_out, is_root, mode, out, promote, run, test, withheld};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("changes::every_kind_of_change_is_told_and_taken_over", every_kind_of_change),
        test("changes::opaque_folders_hide_nothing_from_the_list", opaque_folders),
        test("changes::folders_made_anew_are_as_they_would_be_without_walls", folders_made_anew),
        test("changes::folders_and_files_change_places", folders_and_files_change_places),
        test("changes::a_folder_with_something_in_it_that_stays_is_kept", folders_that_stay),
        test("changes::what_leaves_a_folder_that_is_replaced_is_taken_along", moved_out_of_a_replaced_folder),
        test("changes::links_out_of_the_workspace_and_special_files_are_withheld", links_and_special_files),
        test("changes::a_file_changed_meanwhile_is_stale", a_file_changed_meanwhile_is_stale),
        test("changes::hard_links_are_never_written_through", hard_links),
        test("changes::sparse_and_large_trees_come_over", sparse_and_large_trees),
        test("changes::new_files_have_their_content_and_their_mode", content_and_mode),
        test("changes::set_id_bits_are_not_taken_over", set_id_bits),
        test("changes::a_file_that_moves_leaves_its_set_id_bits_behind", moved_set_id_bits),
        test("changes::a_workspace_that_was_closed_is_told_by_a_name", closed_workspace),
        test("changes::owners_stay_the_workspaces", owners_stay),
        test("changes::names_that_are_no_text_come_over", names_that_are_no_text),
        test("changes::a_folder_that_was_closed_does_not_hide_the_rest", closed_folders),
        test("changes::git_and_patch_make_of_a_diff_what_the_program_made", diffs_are_applied),
    ]
}

// P4: a diff that is told is one
fn diffs_are_applied() {
    let lines = |from: usize, to: usize| (from..=to).map(|line| format!("{line}\n")).collect::<String>();
    let script = "echo 6 >>added; rm gone; rm gone-empty; echo n >new; printf n >new-unended; : >new-empty; mkdir -p in/to; \
        echo n >in/to/new; printf '#!/bin/sh\\n' >tool; chmod 755 tool; chmod 755 both; echo x >>both; printf more >>unended; \
        echo >>ended; sed -i '3d; 30s/.*/x/; 60,61d' far; printf 'a\\r\\nc\\r\\n' >dos; : >emptied; echo n >was-empty; \
        sed -i 1d first; echo n >'with blank'; : >'an empty one '; rm 'gone too '; \
        echo n >>'an other'; echo n >'\"q\\'; echo n >'\u{e9}'; printf ' \\n\\n-- x\\n' >signs";
    let room = || {
        let room = Room::new();
        let tails =
            [("added", lines(1, 5)), ("gone", lines(1, 3)), ("far", lines(1, 90)), ("first", lines(1, 9))];
        tails.iter().for_each(|(name, text)| room.write(&format!("project/{name}"), text));
        for name in ["gone-empty", "was-empty", "gone too "] {
            room.write(&format!("project/{name}"), "");
        }
        for name in ["both", "emptied", "an other", "signs"] {
            room.write(&format!("project/{name}"), "-- old\n");
        }
        room.write("project/unended", "a\nb");
        room.write("project/ended", "a\nb");
        room.write("project/dos", "a\r\nb\r\n");
        room
    };
    let made = room();
    let outcome = run(&made.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    let list = outcome.changes.as_ref().unwrap();
    let mut diffs = list.diffs();
    let told: Vec<String> = list.list.iter().map(|change| diffs.next(change).1).collect();
    promote(&outcome).unwrap();
    let of = |room: &Room| -> Vec<String> {
        let here = room.project().display().to_string();
        room.listing("project").iter().map(|line| line.replace(&here, "")).collect()
    };
    for program in ["git apply --check -", "git apply -", "patch -sp1 --dry-run", "patch -sp1"] {
        let other = room();
        for diff in told.iter().filter(|diff| !diff.starts_with("created in")) {
            apply(&other, program, diff);
        }
        let whole = room();
        apply(&whole, program, &told.concat());
        // Folders have no diff; a new one comes with what is in it.
        if !program.contains("--") {
            assert_eq!(of(&whole), of(&made), "{program}");
        }
    }
}

#[track_caller]
fn apply(room: &Room, program: &str, diff: &str) {
    use std::io::Write as _;
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {program} 2>&1")])
        .current_dir(room.project())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(diff.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{program}: {}\n{diff}", String::from_utf8_lossy(&done.stdout));
}

// Issue 6, 2: root's broker can look into all of them
fn closed_folders() {
    for (script, closed) in [
        ("mkdir d; echo x >d/f; chmod 600 d", "d"),
        ("mkdir d; echo x >d/f; chmod 000 d", "d"),
        ("chmod 444 src", "src"),
        ("echo x >src/more; chmod 444 src", "src"),
        ("rm -r src; mkdir src; chmod 600 src", "src"),
        ("rm -r src; mkdir src; echo x >src/f; chmod 600 src", "src"),
        // To an ordinary user it is masked.
        ("chmod 755 shut 2>/dev/null || mkdir shut; echo x >shut/x; rm -f shut/y", "shut"),
    ] {
        let room = Room::new();
        room.write("project/shut/y", "y\n");
        let shut = room.path("project/shut");
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o000)).unwrap();
        let outcome =
            run(&room.shell(Filesystem::ReadWrite, &format!("{script}; echo keep >other; echo said")));
        check_out(&outcome, "said\n");
        assert!(changes(&outcome).contains(&"created other".to_owned()), "{script}: {:?}", changes(&outcome));
        let told = withheld(&outcome);
        let was_read = is_root() || script == "chmod 444 src";
        let why = if closed == "shut" { Why::Masked } else { Why::Unreadable };
        assert!(was_read || told.iter().any(|one| one.0 == closed && one.1 == why), "{script}: {told:?}");
        promote(&outcome).unwrap();
        assert_eq!(room.read("project/other").as_deref(), Some("keep\n"), "{script}");
        for folder in [shut, room.path("project/src"), room.path("project/d")] {
            if folder.exists() {
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let stays = is_root() || room.read("project/shut/y").is_some();
        assert!(stays, "{script}: what could not be seen is not deleted");
    }
}

fn every_kind_of_change() {
    let room = Room::new();
    for name in ["gone", "touched", "moved", "program", "same"] {
        room.write(&format!("project/{name}"), &format!("content of {name}\n"));
    }
    std::fs::write(room.path("project/binary"), [0, 1, 2, 255]).unwrap();
    room.write("project/old/deep/file", "deep\n");
    let script = "echo more >>plain.txt; rm gone; touch touched; mv moved there; chmod 755 program; \
                  mkdir -p made/er; echo n >made/er/file; ln -s plain.txt link; rm -r old; \
                  printf '\\377\\0' >binary; cat same >/dev/null; cp same copied";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
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
    assert_eq!(promote(&outcome).unwrap(), 13);
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("plain\nmore\n"));
    assert_eq!(room.read("project/gone"), None);
    assert_eq!(room.read("project/there").as_deref(), Some("content of moved\n"));
    assert_eq!(room.read("project/moved"), None);
    assert_eq!(room.read("project/made/er/file").as_deref(), Some("n\n"));
    assert!(!room.path("project/old").exists());
    assert_eq!(std::fs::read_link(room.path("project/link")).unwrap().to_str(), Some("plain.txt"));
    assert_eq!(room.path("project/program").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(room.read("project/.env").as_deref(), Some("TOKEN=in-the-env-file\n"));
    // No residue beside what was asked for.
    assert!(!room.listing("project").iter().any(|line| line.contains("unfinished")));
}

/// A folder that was removed and made again holds no whiteouts, and still what was in it is gone.
fn opaque_folders() {
    let room = Room::new();
    room.write("project/d/one", "1\n");
    room.write("project/d/two", "2\n");
    room.write("project/d/.env", "kept\n");
    let outcome =
        run(&room.shell(Filesystem::ReadWrite, "rm -r d && mkdir d && echo new >d/one && echo 3 >d/three"));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["modified d/one", "created d/three", "deleted d/two"]);
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/d/one").as_deref(), Some("new\n"));
    assert_eq!(room.read("project/d/.env").as_deref(), Some("kept\n"));
    assert!(!room.path("project/d/two").exists());
}

/// The kernel marks only the outermost of the folders that were made anew. The model is the same script in a copy.
fn folders_made_anew() {
    let outcome = made_anew(
        "rm -rf dist && mkdir -p dist/assets && echo new >dist/assets/new.js && echo new >dist/index.html",
    );
    let told = changes(&outcome);
    for name in ["assets/old.js", "assets/img/same", "assets/img/a/deep", "plain", "plain/a/b/c"] {
        assert!(told.contains(&format!("deleted dist/{name}")), "{name}: {told:?}");
    }
    let kept = ["dist/assets/img", "dist/assets/img/.vscode", "dist/assets/img/.vscode/tasks.json"];
    let kept = kept.iter().zip([Why::NotEmpty, Why::Protected, Why::Protected]);
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

/// Runs a script on a tree with much that stays, and holds what comes of it against a copy of the tree without walls.
fn made_anew(script: &str) -> Outcome {
    const STAYS: [&str; 4] = ["/.env", "/.vscode", "/.git", "/secrets"];
    let room = Room::new();
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
        room.write(&format!("project/{name}"), &format!("{name}\n"));
    }
    let (project, model) = (room.project(), room.path("model"));
    assert!(Command::new("cp").arg("-a").args([&project, &model]).status().unwrap().success());
    let tree = |name: &str| -> Vec<String> {
        let root = room.path(name);
        let named = |line: String| line.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        room.listing(name).into_iter().map(named).collect()
    };
    let stays = |line: &String| STAYS.iter().any(|name| line.contains(name));
    let before = tree("project");
    let mut spec = room.shell(Filesystem::ReadWrite, script);
    spec.scratch = Vec::new();
    let outcome = run(&spec);
    promote(&outcome).unwrap();
    assert!(Command::new("sh").args(["-c", script]).current_dir(&model).status().unwrap().success());
    // What stays does so with the folders that it lies in.
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

fn folders_and_files_change_places() {
    let room = Room::new();
    room.write("project/d/one", "1\n");
    room.write("project/d/sub/two", "2\n");
    let outcome = run(&room.shell(
        Filesystem::ReadWrite,
        "rm -r d && echo file >d && rm plain.txt && mkdir plain.txt && echo x >plain.txt/x",
    ));
    check_out(&outcome, "");
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/d").as_deref(), Some("file\n"));
    assert_eq!(room.read("project/plain.txt/x").as_deref(), Some("x\n"));
}

// A6, T12
fn folders_that_stay() {
    let room = Room::new();
    for folder in ["gone", "file"] {
        room.write(&format!("project/{folder}/in/.env"), "mine\n");
        room.write(&format!("project/{folder}/in/a"), "a\n");
    }
    let script = "rm -rf gone file; echo x >file; echo y >other; echo z >plain.txt";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    let kept = ["file", "gone", "gone/in"].map(|path| (path.to_owned(), Why::NotEmpty));
    assert_eq!(
        withheld(&outcome).into_iter().filter(|(path, _)| path != "file/in").collect::<Vec<_>>(),
        kept
    );
    promote(&outcome).unwrap();
    for folder in ["gone", "file"] {
        assert_eq!(room.read(&format!("project/{folder}/in/.env")).as_deref(), Some("mine\n"));
        assert_eq!(room.read(&format!("project/{folder}/in/a")), None);
    }
    assert_eq!(room.read("project/other").as_deref(), Some("y\n"));
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("z\n"));
}

// A6
fn moved_out_of_a_replaced_folder() {
    let room = Room::new();
    room.write("project/d/in/a", "moves\n");
    let outcome = run(&room.shell(Filesystem::ReadWrite, "mkdir o; mv d/in/a o/z; rm -r d; echo file >d"));
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/o/z").as_deref(), Some("moves\n"));
    assert_eq!(room.read("project/d").as_deref(), Some("file\n"));
}

fn links_and_special_files() {
    let room = Room::new();
    let script = "ln -s /etc/passwd a; ln -s ../outside/file b; ln -s src/main.rs c; mkfifo d; mkdir e; ln -s ../src e/f; \
                  ln -s ../../outside e/g";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["created c", "created e", "created e/f"]);
    let outside = |name: &str| (name.to_owned(), Why::LeadsOutside);
    assert_eq!(
        withheld(&outcome),
        [outside("a"), outside("b"), ("d".to_owned(), Why::Special), outside("e/g")]
    );
    promote(&outcome).unwrap();
    assert!(!room.path("project/a").is_symlink());
    assert!(!room.path("project/d").symlink_metadata().is_ok_and(|facts| facts.file_type().is_fifo()));
}

/// The program waits at a pipe until the user has saved.
fn a_file_changed_meanwhile_is_stale() {
    let room = Room::new();
    room.write("project/other/file", "other\n");
    std::fs::create_dir(room.path("signal")).unwrap();
    let mut spec = room.shell(
        Filesystem::ReadWrite,
        &format!(
            "echo agent >>plain.txt; echo agent >>other/file; mkfifo {0}/wait; cat {0}/wait",
            room.path("signal").display()
        ),
    );
    spec.write = vec![room.path("signal")];
    let pipe = room.path("signal/wait");
    let user = std::thread::spawn({
        let (pipe, file) = (pipe, room.path("project/plain.txt"));
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
    assert_eq!(withheld(&outcome), [("plain.txt".to_owned(), Why::StaleBase)]);
    assert_eq!(changes(&outcome), ["modified other/file"]);
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("user\n"));
}

// T13
fn hard_links() {
    let room = Room::new();
    std::fs::hard_link(room.path("outside/file"), room.path("project/hard")).unwrap();
    let outcome =
        run(&room.shell(Filesystem::ReadWrite, "echo agent >>hard; ln plain.txt second; echo x >>second"));
    check_out(&outcome, "");
    promote(&outcome).unwrap();
    assert_eq!(room.read("outside/file").as_deref(), Some("in-the-outside-file\n"));
    assert_eq!(room.read("project/second").as_deref(), Some("plain\nx\n"));
}

fn sparse_and_large_trees() {
    let room = Room::new();
    let script = "truncate -s 200M sparse; echo end >>sparse; \
                  i=0; while [ $i -lt 40 ]; do mkdir d$i; j=0; while [ $j -lt 50 ]; do echo $i >d$i/f$j; j=$((j+1)); done; i=$((i+1)); done";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(promote(&outcome).unwrap(), 2041);
    let facts = room.path("project/sparse").metadata().unwrap();
    assert_eq!(facts.len(), (200 << 20) + 4);
    assert!(facts.blocks() * 512 < 10 << 20, "{} blocks", facts.blocks());
    assert_eq!(room.read("project/d39/f49").as_deref(), Some("39\n"));
}

// P4
fn content_and_mode() {
    let room = Room::new();
    let modes = [0o600, 0o666, 0o777, 0o444, 0o640, 0o755];
    let sizes = [0, 1, 65_535, 65_536, 65_537, 200_000];
    let make = |(size, mode): (&usize, &u32)| {
        format!("seq 50000 2>/dev/null | head -c {size} >f{mode:o}; chmod {mode:o} f{mode:o}; ")
    };
    let script: String = sizes.iter().zip(&modes).map(make).collect();
    let outcome = run(&room.shell(Filesystem::ReadWrite, &script));
    check_out(&outcome, "");
    assert_eq!(promote(&outcome).unwrap(), modes.len());
    let numbers: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
    for (size, wanted) in sizes.into_iter().zip(modes) {
        let path = room.project().join(format!("f{wanted:o}"));
        assert_eq!(mode(&path) & 0o7777, wanted, "{size}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(std::fs::read(&path).unwrap() == numbers.as_bytes()[..size], "{size}");
    }
}

fn set_id_bits() {
    let room = Room::new();
    let outcome =
        run(&room.shell(Filesystem::ReadWrite, "cp /bin/true t; chmod 6755 t; chmod 4644 plain.txt; true"));
    promote(&outcome).unwrap();
    for name in ["project/t", "project/plain.txt"] {
        assert_eq!(room.path(name).metadata().unwrap().permissions().mode() & 0o7000, 0, "{name}");
    }
}

fn moved_set_id_bits() {
    let room = Room::new();
    for (name, mode) in [("a", 0o6755), ("b", 0o4700), ("c", 0o2755), ("d", 0o755)] {
        room.write(&format!("project/{name}"), &format!("content of {name}\n"));
        let path = room.project().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let outcome = run(&room.shell(Filesystem::ReadWrite, "for n in a b c d; do mv $n moved-$n; done"));
    check_out(&outcome, "");
    let told = changes(&outcome);
    assert!(
        told.contains(&"deleted a".to_owned()) && told.contains(&"renamed moved-d".to_owned()),
        "{told:?}"
    );
    promote(&outcome).unwrap();
    for (name, wanted) in [("a", 0o755), ("b", 0o700), ("c", 0o755), ("d", 0o755)] {
        let path = room.project().join(format!("moved-{name}"));
        assert_eq!(mode(&path) & 0o7777, wanted, "{name}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), format!("content of {name}\n"));
        assert!(!room.project().join(name).exists(), "{name}");
    }
}

fn closed_workspace() {
    let room = Room::new();
    let outcome = run(&room.shell(Filesystem::ReadWrite, "chmod 000 ."));
    check_out(&outcome, "");
    // Root's broker can look into it.
    let told = if is_root() { Vec::new() } else { vec![(".".to_owned(), Why::Unreadable)] };
    assert_eq!(withheld(&outcome), told);
}

fn owners_stay() {
    let room = Room::new();
    let owner = room.project().metadata().unwrap().uid();
    let outcome =
        run(&room
            .shell(Filesystem::ReadWrite, "id -u; mkdir n; echo x >n/f; echo x >>plain.txt; ln -s f n/l"));
    assert_ne!(out(&outcome), "0\n");
    promote(&outcome).unwrap();
    for name in ["n", "n/f", "plain.txt", "n/l"] {
        let facts = room.path("project").join(name).symlink_metadata().unwrap();
        assert_eq!(facts.uid(), owner, "{name}");
    }
}

fn names_that_are_no_text() {
    let room = Room::new();
    let outcome = run(&room.shell(
        Filesystem::ReadWrite,
        "printf x >\"$(printf 'a\\377b')\"; printf y >'a:b,c\\d'; printf z >'new\nline'",
    ));
    check_out(&outcome, "");
    assert_eq!(promote(&outcome).unwrap(), 3);
    assert_eq!(room.read("project/a:b,c\\d").as_deref(), Some("y"));
    assert!(outcome.changes.unwrap().list.iter().all(|change| change.kind == ChangeKind::Created));
}
