//! What a program sees and changes of the workspace, and what becomes of it.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};

use libtest_mimic::Trial;
use vambrace_sandbox::{
    ChangeKind, Exit, Filesystem, Journaled, Observe, Outcome, Places, Promote as _, PromoteFault,
    SandboxFault, Tier, Why,
};

use super::kit::{Room, TIERS, check_out, err, in_tier, out, run, sandbox, start, test, try_run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("files::no_file_of_the_host_gets_a_set_id_bit", no_set_id),
        test("files::a_path_around_the_workspace_does_not_open_it", around_the_workspace),
        test("files::a_workspace_with_a_set_group_id_bit_can_be_worked_in", set_group_id_workspace),
        test("files::masked_names_do_not_exist_in_any_mode", masked_names_do_not_exist_in_any_mode),
        test("files::a_secret_made_while_a_program_runs_is_not_shown", secrets_made_meanwhile),
        test("files::deny_shows_nothing", deny_shows_nothing),
        test("files::read_shows_and_changes_nothing", read_shows_and_changes_nothing),
        test("files::write_sees_an_empty_folder_and_only_new_names_are_taken", write_sees_an_empty_folder),
        test("files::every_kind_of_change_is_told_and_taken_over", every_kind_of_change),
        test("files::opaque_folders_hide_nothing_from_the_list", opaque_folders),
        test("files::folders_and_files_change_places", folders_and_files_change_places),
        test("files::a_folder_with_something_in_it_that_stays_is_kept", folders_that_stay),
        test("files::what_leaves_a_folder_that_is_replaced_is_taken_along", moved_out_of_a_replaced_folder),
        test("files::folders_that_are_closed_in_the_end_are_filled_before", closed_folders),
        test("files::what_cannot_be_finished_is_not_begun", not_begun),
        test("files::a_file_changed_while_others_are_written_is_stale", changed_while_others_are_written),
        test("files::speculative_changes_nothing", speculative_changes_nothing),
        test("files::protected_and_secret_names_are_never_promoted", protected_names),
        test("files::protected_names_of_a_repository_further_down_are_never_promoted", nested_repositories),
        test("files::hooks_and_settings_of_a_bare_repository_are_never_promoted", bare_repositories),
        test("files::hooks_that_lie_elsewhere_are_never_promoted", hooks_elsewhere),
        test("files::exchanging_names_with_a_protected_one_changes_it_not", exchange),
        test("files::links_out_of_the_workspace_and_special_files_are_withheld", links_and_special_files),
        test("files::a_file_changed_meanwhile_is_stale", a_file_changed_meanwhile_is_stale),
        test("files::a_promotion_checks_again_and_writes_nothing_when_stale", promotion_checks_again),
        test("files::hard_links_are_never_written_through", hard_links),
        test("files::sparse_and_large_trees_come_over", sparse_and_large_trees),
        test("files::set_id_bits_are_not_taken_over", set_id_bits),
        test("files::owners_stay_the_workspaces", owners_stay),
        test("files::scratch_folders_outlive_a_run_and_are_never_promoted", scratch_folders),
        test("files::toolchains_are_shown_without_credentials_and_nothing_else_of_home", toolchains),
        test("files::credentials_of_toolchains_are_empty_at_any_depth", deep_credentials),
        test("files::no_run_is_shown_the_state_folder", state_folder),
        test("files::what_lies_in_a_folder_of_the_root_does_not_cover_it", folders_of_the_root),
        test("files::extra_paths_are_readable_or_writable", extra_paths),
        test("files::names_that_are_no_text_come_over", names_that_are_no_text),
        test("files::a_crash_while_changes_are_taken_over_leaves_all_or_none", crash_leaves_all_or_none),
        test("files::after_a_crash_a_later_change_of_somebody_else_stays", later_changes_stay),
        test("files::a_folder_that_looks_like_a_journals_is_never_promoted", forged_journal),
        test("files::a_pinned_script_that_is_changed_while_it_runs_stays_as_it_was", pinned_script),
        test("files::tier_no_userns_refuses_what_it_cannot_do", no_userns_refuses),
    ]
}

pub(crate) fn changes(outcome: &Outcome) -> Vec<String> {
    let list = &outcome.changes.as_ref().unwrap().list;
    list.iter().map(|change| format!("{} {}", change.kind.as_str(), change.path.display())).collect()
}

pub(crate) fn withheld(outcome: &Outcome) -> Vec<(String, Why)> {
    let list = &outcome.changes.as_ref().unwrap().withheld;
    let mut list: Vec<_> = list.iter().map(|one| (one.path.display().to_string(), one.why)).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

pub(crate) fn promote(outcome: &Outcome) -> Result<usize, PromoteFault> {
    let changes = outcome.changes.as_ref().unwrap();
    let state = tempfile::TempDir::new().unwrap();
    let places = Places::below(state.path());
    let done = Journaled::over(changes, &places).unwrap().promote(changes).map(|done| done.changes);
    let notes = std::fs::read_dir(places.promotions).map_or(0, Iterator::count);
    assert_eq!(notes, 0, "whatever happened, nothing is left to be done");
    done
}

// T12
fn masked_names_do_not_exist_in_any_mode() {
    let room = Room::new();
    let script = "cat .env deep/er/key.pem secrets/a; ls -A . deep/er; mv deep moved 2>/dev/null; \
                  find . -name '*.pem' -o -name .env -o -name secrets";
    for mode in [Filesystem::Read, Filesystem::ReadWrite, Filesystem::Speculative] {
        let outcome = run(&room.shell(mode, script));
        let said = out(&outcome) + &err(&outcome);
        assert!(!said.contains("in-the-"), "{mode:?}: {said}");
        assert_eq!(out(&outcome), ".:\n.git\ndeep\nplain.txt\nsrc\n\ndeep/er:\n", "{mode:?}");
    }
    let outcome = run(&in_tier(
        room.shell(Filesystem::Read, "cat .env deep/er/key.pem secrets/a; cat plain.txt"),
        Tier::NoUserns,
    ));
    let said = out(&outcome) + &err(&outcome);
    assert!(!said.contains("in-the-") && said.contains("plain\n"), "{said}");
}

// P4
// T12: fixed names of the workspace's own folder
fn secrets_made_meanwhile() {
    for (filesystem, shown) in
        [(Filesystem::Read, false), (Filesystem::ReadWrite, false), (Filesystem::Read, true)]
    {
        let room = Room::new();
        std::fs::remove_file(room.path("project/.env")).unwrap();
        std::fs::remove_dir_all(room.path("project/secrets")).unwrap();
        let script = "echo up; read line; cat .env secrets/a later.txt 2>/dev/null; ls -A | grep -c -e env -e later -e secrets; \
                      cat plain.txt";
        let mut spec = room.shell(filesystem, script);
        spec.masked.push("later.txt".to_owned());
        if shown {
            // Who does not want a name masked sees it.
            spec.masked = vec!["later.txt".to_owned()];
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let outcome = sandbox().run(&spec, vambrace_sandbox::Input::From(reader.as_fd()), &mut |_, piece| {
            if piece == b"up\n" {
                for name in [".env", "secrets/a", "later.txt"] {
                    room.write(&format!("project/{name}"), &format!("secret {name}\n"));
                }
                writer.write_all(b"go on\n").unwrap();
            }
        });
        let outcome = outcome.unwrap();
        let expected = match shown {
            true => "up\nsecret .env\nsecret secrets/a\n2\nplain\n",
            false => "up\n0\nplain\n",
        };
        check_out(&outcome, expected);
    }
}

fn deny_shows_nothing() {
    let room = Room::new();
    for tier in TIERS {
        let script = format!("cat {0}/plain.txt {0}/src/main.rs; ls {0}/src", room.project().display());
        let outcome = run(&in_tier(room.shell(Filesystem::Deny, &script), tier));
        assert_eq!(out(&outcome), "", "{tier}");
        assert_ne!(outcome.exit, Exit::Code(0));
    }
}

// P4
fn read_shows_and_changes_nothing() {
    let room = Room::new();
    let before = room.listing("project");
    for tier in TIERS {
        let script = "cat plain.txt; echo x >plain.txt; echo x >new; rm plain.txt; mkdir d; mv src s; \
                      chmod 777 plain.txt; ln -s a b; ln plain.txt c; touch plain.txt; mkfifo f";
        let outcome = run(&in_tier(room.shell(Filesystem::Read, script), tier));
        assert_eq!(out(&outcome), "plain\n", "{}", err(&outcome));
        assert_eq!(room.listing("project"), before, "{tier}");
    }
}

// P4
fn write_sees_an_empty_folder() {
    for tier in TIERS {
        write_in(tier);
    }
}

fn write_in(tier: Tier) {
    let room = Room::new();
    let script = "ls -A; echo new >new.txt; echo mine >plain.txt; mkdir -p src/sub; echo x >src/sub/x; \
                  echo y >src/main.rs; echo own >>new.txt; echo s >.env";
    let outcome = run(&in_tier(room.shell(Filesystem::Write, script), tier));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["created new.txt", "created src/sub", "created src/sub/x"]);
    assert_eq!(
        withheld(&outcome),
        [
            (".env".to_owned(), Why::Masked),
            ("plain.txt".to_owned(), Why::Exists),
            ("src/main.rs".to_owned(), Why::Exists)
        ]
    );
    assert_eq!(promote(&outcome).unwrap(), 3);
    assert_eq!(room.read("project/new.txt").as_deref(), Some("new\nown\n"));
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("plain\n"));
    assert_eq!(room.read("project/src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(room.read("project/src/sub/x").as_deref(), Some("x\n"));
    assert_eq!(room.read("project/.env").as_deref(), Some("TOKEN=in-the-env-file\n"));
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
        |path: &str| list.diffs().next(list.list.iter().find(|one| one.path.as_os_str() == path).unwrap());
    assert_eq!(diff("plain.txt"), "--- a/plain.txt\n+++ b/plain.txt\n@@ -1,1 +1,2 @@\n plain\n+more\n");
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

// A6; as an ordinary user
fn closed_folders() {
    let room = Room::new();
    room.write("project/old/a", "a\n");
    room.write("project/old/b", "b\n");
    room.write("project/was/a", "a\n");
    let mode = |path: &str| room.path(path).metadata().unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(room.path("project/was"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let script = "mkdir -p new/in; echo x >new/in/x; chmod 555 new/in new; rm old/a; echo n >old/b; echo c >old/c; \
                  chmod 555 old; chmod 755 was; rm was/a; echo b >was/b";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/new/in/x").as_deref(), Some("x\n"));
    assert_eq!([mode("project/new"), mode("project/new/in"), mode("project/old")], [0o555; 3]);
    assert_eq!([room.read("project/old/a"), room.read("project/was/a")], [None, None]);
    assert_eq!(room.read("project/old/c").as_deref(), Some("c\n"));
    assert_eq!(room.read("project/was/b").as_deref(), Some("b\n"));
    for folder in ["new", "new/in", "old"] {
        let path = room.path(&format!("project/{folder}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

// A6; as an ordinary user
fn not_begun() {
    if rustix_root() {
        return;
    }
    let room = Room::new();
    room.write("project/was/a", "a\n");
    std::fs::set_permissions(room.path("project/was"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let before = room.listing("project");
    let script = "echo x >first; chmod 755 was; echo b >was/b; chmod 555 was";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert!(matches!(promote(&outcome), Err(PromoteFault::Write { written: 0, .. })));
    assert_eq!(room.listing("project"), before);
    std::fs::set_permissions(room.path("project/was"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

// A6
fn changed_while_others_are_written() {
    let room = Room::new();
    let script = "echo program >plain.txt; head -c 200000000 /dev/zero | tr '\\0' x >zz";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!(changes(&outcome), ["modified plain.txt", "created zz"]);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = |name: &str| name.starts_with(".vambrace-unfinished");
            let names = || std::fs::read_dir(room.project()).unwrap().map(|entry| entry.unwrap().file_name());
            while !names().any(|name| begun(&name.to_string_lossy())) && !room.path("project/zz").exists() {}
            room.write("project/plain.txt", "mine\n");
        });
        promote(&outcome)
    });
    assert!(matches!(&done, Err(PromoteFault::StaleBase(path)) if path.ends_with("plain.txt")), "{done:?}");
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("mine\n"));
    assert!(!room.path("project/zz").exists());
}

fn speculative_changes_nothing() {
    let room = Room::new();
    let before = room.listing("project");
    let outcome =
        run(&room.shell(Filesystem::Speculative, "echo x >plain.txt; rm -r src; mkdir n; cat plain.txt"));
    check_out(&outcome, "x\n");
    assert_eq!(changes(&outcome), ["created n", "modified plain.txt", "deleted src", "deleted src/main.rs"]);
    assert_eq!(room.listing("project"), before);
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("x\n"));
}

// Research A 5, 30
fn exchange() {
    let room = Room::new();
    let program = std::env::current_exe().unwrap();
    let mut spec = room.spec(Filesystem::ReadWrite, program.to_str().unwrap(), &["probe", "exchange"]);
    spec.read = vec![program];
    let outcome = run(&spec);
    // Inside it may succeed; what counts is what is taken over.
    assert!(matches!(out(&outcome).as_str(), "exchanged\n" | "refused\n"), "{}", out(&outcome));
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/.git/config").as_deref(), Some("[core]\n"));
}

fn protected_names() {
    let room = Room::new();
    let before = room.listing("project");
    let script = "echo x >.git/hooks/pre-commit; echo x >>.git/config; mkdir -p .vscode; echo x >.vscode/tasks.json; \
                  echo x >.mcp.json; echo x >.bashrc; mkdir .git/rebase-merge .devcontainer .vambrace; \
                  for name in .git/rebase-merge/git-rebase-todo .devcontainer/x sub.code-workspace .nvim.lua; do echo x >$name; done; \
                  echo x >.vambrace/config.yaml; \
                  echo x >.env; mkdir secrets; echo x >secrets/b; mkdir .GIT 2>/dev/null; mkdir -p sub/.Vscode; \
                  echo x >.EnV; rm .git/hooks/sample; mv .git/hooks .git/gone 2>/dev/null; true";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!(outcome.exit, Exit::Code(0));
    let names: Vec<String> = withheld(&outcome).into_iter().map(|(path, _)| path).collect();
    for name in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".vscode",
        ".mcp.json",
        ".bashrc",
        ".git/rebase-merge/git-rebase-todo",
        ".devcontainer",
        "sub.code-workspace",
        ".nvim.lua",
        ".vambrace",
        ".env",
        "secrets",
        ".EnV",
        "sub/.Vscode",
    ] {
        assert!(
            names.iter().any(|one| one == name || name.starts_with(&format!("{one}/"))),
            "{name} in {names:?}"
        );
    }
    promote(&outcome).unwrap();
    let after: Vec<String> = room.listing("project");
    for line in &before {
        assert!(after.contains(line), "{line}");
    }
    for line in &after {
        let harmless = ["/.GIT ", "/sub ", "/.git/gone", "/.git/rebase-merge "];
        assert!(before.contains(line) || harmless.iter().any(|name| line.contains(name)), "{line}");
    }
}

// P4
fn nested_repositories() {
    let room = Room::new();
    room.write("project/sub/.git/config", "[core]\n");
    room.write("project/sub/.git/HEAD", "ref\n");
    let before = room.listing("project");
    // Hooks and settings in another repository, and ways to lead one to hooks and settings under another name.
    let script = "echo x >>sub/.git/config; mkdir -p sub/.git/hooks new/.git/hooks file link evil; echo x >sub/.git/hooks/post-checkout; \
                  echo x >new/.git/config; echo ../../evil >sub/.git/commondir; echo 'gitdir: ../evil' >file/.git; \
                  ln -s ../evil link/.GIT; cp -r .git/. evil; rm -rf .git; ln -s evil .git; mkdir -p sub/.git/worktrees/w; \
                  echo ../../../../evil >sub/.git/worktrees/w/commondir";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
    let names: Vec<String> = withheld(&outcome).into_iter().map(|(path, _)| path).collect();
    let expected = [
        ".git",
        "file/.git",
        "link/.GIT",
        "new/.git/config",
        "new/.git/hooks",
        "sub/.git/commondir",
        "sub/.git/config",
        "sub/.git/hooks",
        "sub/.git/worktrees",
    ];
    assert_eq!(names, expected);
    promote(&outcome).unwrap();
    let after = room.listing("project");
    for line in &before {
        assert!(after.contains(line), "{line}");
    }
}

fn hooks_elsewhere() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let room = Room::new();
        room.write("project/.git/config", "[core]\n\thooksPath = ./tools/hooks/\n");
        let script = "mkdir -p tools/hooks/d tools/hooksmith .husky; \
            for name in tools/hooks/pre-commit tools/hooks/d/x tools/hooksmith/x .husky/pre-push; do echo x >$name; done";
        let outcome = run(&room.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        promote(&outcome).unwrap();
        let there = |name: &str| room.path("project").join(name).exists();
        assert!(there("tools/hooksmith/x") && !there("tools/hooks") && !there(".husky"), "{filesystem:?}");
    }
}

// P4: git takes a folder for a repository by what lies in it
fn bare_repositories() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let room = Room::new();
        for name in ["HEAD", "config", "objects/x", "refs/x", "hooks/sample"] {
            room.write(&format!("project/bare/{name}"), "was\n");
        }
        // Settings that an earlier run left; this one makes repositories around them.
        room.write("project/half/config", "was\n");
        room.write("project/led/commondir", "../new\n");
        room.write("project/app/config/plain", "was\n");
        let before = room.listing("project");
        let script = "mkdir -p bare/hooks bare/info new/objects new/refs new/hooks half/objects half/refs led app/config away/d; \
            echo x >bare/config; echo x >bare/hooks/post-checkout; echo x >bare/info/attributes; echo x >bare/refs-log; \
            echo x >new/config; echo x >new/hooks/update; echo x >new/objects/o; echo x >new/CONFIG.worktree; \
            echo x >half/objects/o; echo x >half/refs/r; echo x >led/HEAD; echo x >app/config/other; \
            echo ../new >away/d/commondir; echo x >away/d/HEAD; rm -rf bare/hooks/sample";
        let outcome = run(&room.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        let names: Vec<String> = withheld(&outcome).into_iter().map(|(path, _)| path).collect();
        for name in [
            "away/d/commondir",
            "half/objects",
            "half/refs",
            "led/HEAD",
            "new/CONFIG.worktree",
            "new/config",
            "new/hooks",
        ] {
            assert!(names.iter().any(|known| known == name), "{filesystem:?} {name}: {names:?}");
        }
        promote(&outcome).unwrap();
        let after = room.listing("project");
        for line in &before {
            assert!(after.contains(line), "{filesystem:?} {line}");
        }
        for name in [
            "bare/hooks/post-checkout",
            "bare/info/attributes",
            "new/config",
            "new/hooks/update",
            "half/refs",
            "led/HEAD",
            "away/d/commondir",
        ] {
            assert!(!room.path("project").join(name).exists(), "{filesystem:?} {name}");
        }
        // What only shares a name with them is taken over.
        for name in ["app/config/other", "new/objects/o", "away/d/HEAD", "bare/refs-log"] {
            assert!(room.path("project").join(name).exists(), "{filesystem:?} {name}: {names:?}");
        }
    }
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

fn promotion_checks_again() {
    let room = Room::new();
    let outcome = run(&room.shell(Filesystem::Speculative, "echo agent >>plain.txt; echo a >src/a.rs"));
    room.write("project/plain.txt", "user\n");
    let fault = promote(&outcome).unwrap_err();
    assert!(matches!(fault, PromoteFault::StaleBase(_)), "{fault}");
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("user\n"));
    assert_eq!(room.read("project/src/a.rs"), None);
    let outcome = run(&room.shell(Filesystem::Speculative, "echo agent >new"));
    room.write("project/new", "user\n");
    assert!(matches!(promote(&outcome).unwrap_err(), PromoteFault::StaleBase(_)));
    assert_eq!(room.read("project/new").as_deref(), Some("user\n"));
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

fn set_id_bits() {
    let room = Room::new();
    let outcome =
        run(&room.shell(Filesystem::ReadWrite, "cp /bin/true t; chmod 6755 t; chmod 4644 plain.txt; true"));
    promote(&outcome).unwrap();
    for name in ["project/t", "project/plain.txt"] {
        assert_eq!(room.path(name).metadata().unwrap().permissions().mode() & 0o7000, 0, "{name}");
    }
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

fn scratch_folders() {
    let room = Room::new();
    let mut spec = room
        .shell(Filesystem::ReadWrite, "mkdir -p target; cat target/built; echo 1 >>target/built; echo x >y");
    spec.scratch = vec!["target".to_owned()];
    let first = run(&spec);
    assert_eq!(out(&first), "");
    assert_eq!(changes(&first), ["created y"]);
    let second = run(&spec);
    assert_eq!(out(&second), "1\n");
    assert!(!room.path("project/target").exists());
    // Read-only runs have it as well.
    let mut read = room.shell(Filesystem::Read, "cat target/built; echo 3 >target/three; echo x >y");
    read.scratch = spec.scratch.clone();
    assert_eq!(out(&run(&read)), "1\n1\n");
    // Dependencies that are installed are seen, and what is added to them is dropped.
    room.write("project/node_modules/dep/index.js", "dep\n");
    let mut node =
        room.shell(Filesystem::ReadWrite, "cat node_modules/dep/index.js; echo x >node_modules/new");
    node.scratch = vec!["node_modules".to_owned()];
    let outcome = run(&node);
    assert_eq!(out(&outcome), "dep\n");
    assert_eq!(changes(&outcome), [""; 0]);
    // Where the project has a link of that name, it is followed nowhere.
    std::os::unix::fs::symlink("../outside", room.path("project/target")).unwrap();
    run(&spec);
    assert_eq!(room.listing("outside").len(), 1);
}

fn toolchains() {
    let room = Room::new();
    room.write("home/.cargo/bin/tool", "#!/bin/sh\necho tool\n");
    std::fs::set_permissions(room.path("home/.cargo/bin/tool"), std::fs::Permissions::from_mode(0o700))
        .unwrap();
    std::fs::set_permissions(room.path("home/.cargo"), std::fs::Permissions::from_mode(0o700)).unwrap();
    room.write("home/.cargo/credentials.toml", "in-the-credentials\n");
    room.write("home/.local/share/uv/credentials/credentials.toml", "in-a-folder-of-credentials\n");
    room.write("home/.cargo/config.toml", "[net]\n");
    room.write("home/bin/mine", "#!/bin/sh\necho mine\n");
    std::fs::set_permissions(room.path("home/bin/mine"), std::fs::Permissions::from_mode(0o755)).unwrap();
    room.write("home/.bashrc", "in-the-bashrc\n");
    let script = "tool; mine; cat ~/.local/share/uv/*/* ~/.cargo/credentials.toml ~/.bashrc ~/.ssh/id_ed25519; cat ~/.cargo/config.toml; \
                  echo x >~/.cargo/bin/evil; echo x >~/own && cat ~/own";
    for tier in [Tier::Full, Tier::NoUserns] {
        if tier == Tier::NoUserns && rustix_root() {
            // Root's own files are not shown to an unprivileged user without mounts.
            continue;
        }
        let mut spec = room.shell(Filesystem::Read, script);
        spec.path = vec![room.path("home/.cargo/bin"), room.path("home/bin")];
        if tier == Tier::NoUserns {
            spec.arguments[1] = script.replace('~', room.path("home").to_str().unwrap()).into();
        }
        let outcome = run(&in_tier(spec, tier));
        let said = out(&outcome);
        let own = if tier == Tier::Full { "x\n" } else { "" };
        assert_eq!(said, format!("tool\nmine\n[net]\n{own}"), "{tier}: {}", err(&outcome));
        assert!(!room.path("home/.cargo/bin/evil").exists());
        assert!(!room.path("home/own").exists());
    }
}

// T12; issue 6, 2
fn deep_credentials() {
    let room = Room::new();
    let hidden = [
        "go/src/p/.env",
        "go/src/p/key.pem",
        ".cargo/config.toml",
        ".cargo/id_rsa",
        ".cargo/sub/credentials.toml",
        ".cargo/token",
        ".nvm/versions/node/v1/etc/npmrc",
        ".nvm/.git/config",
        ".local/share/uv/credentials/one",
        ".local/lib/tool/.netrc",
    ];
    let shown = [
        "go/bin/p",
        "go/pkg/mod/m/cacert.pem",
        ".cargo/bin/token",
        ".cargo/registry/src/c/tests/key.pem",
        ".pyenv/versions/3/lib/python3.11/site-packages/certifi/cacert.pem",
        ".rustup/settings.toml",
        ".pyenv/versions/3/openssl/ssl/cert.pem",
        ".asdf/.git/config",
        ".local/lib/tool/main",
        ".local/share/pipx/venvs/t/bin/t",
        ".local/share/uv/tools/t/bin/t",
    ];
    for name in hidden {
        room.write(&format!("home/{name}"), "url = https://u:in-a-secret@host/\n");
    }
    for name in shown {
        room.write(&format!("home/{name}"), "url = https://host/\n");
    }
    let key = ".pyenv/versions/4/openssl/ssl/cert.pem";
    room.write(&format!("home/{key}"), "-----BEGIN PRIVATE KEY-----\nin-a-secret\n");
    // Named like nothing, and leading to one.
    std::os::unix::fs::symlink("id_rsa", room.path("home/.cargo/link")).unwrap();
    std::fs::create_dir(room.path("home/.cargo/credentials")).unwrap();
    std::os::unix::fs::symlink("/usr", room.path("home/.cargo/secrets")).unwrap();
    let own = start(&room.path("state"));
    let said = |tier: Tier, names: &[&str], files: &dyn Fn(&str) -> String| {
        let list: String = names.iter().map(|name| format!(" {}", files(name))).collect();
        let spec = room.shell(Filesystem::Read, &format!("cat{list}; ls /usr >/dev/null && echo end"));
        let outcome =
            own.run(&in_tier(spec, tier), vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
        (out(&outcome), err(&outcome))
    };
    let at = |name: &str| room.path(&format!("home/{name}")).display().to_string();
    for tier in TIERS {
        // Twice: walked, and known.
        for _ in 0..2 {
            let (words, _) = said(tier, &[&hidden[..], &[".cargo/link", key]].concat(), &at);
            assert_eq!(words, "end\n", "{tier}");
            let (words, faults) = said(tier, &shown, &at);
            assert_eq!(words.matches("url").count(), shown.len(), "{tier}: {words}{faults}");
        }
        // What is new since then, and what changed without a trace in its folder.
        room.write("home/.rustup/new/.npmrc", "in-a-secret\n");
        room.write("home/.asdf/.git/config", "url = https://u:in-a-secret@host/\n");
        let (words, _) = said(tier, &[".rustup/new/.npmrc", ".asdf/.git/config"], &at);
        assert_eq!(words, "end\n", "{tier}");
        std::fs::remove_dir_all(room.path("home/.rustup/new")).unwrap();
        room.write("home/.asdf/.git/config", "url = https://host/\n");
    }
}

fn rustix_root() -> bool {
    std::path::Path::new("/proc/self").metadata().unwrap().uid() == 0
}

// Whoever runs a program makes this wall: no caller has to think of it.
fn state_folder() {
    let room = Room::new();
    for name in ["home/.cargo/state/keys", "outside/state/keys", "project/state/keys"] {
        room.write(&format!("{name}/ledger.key"), "the-key");
        let state = room.path(name).parent().unwrap().to_owned();
        std::os::unix::fs::symlink(&state, room.path(&format!("{name}-link"))).unwrap();
        let sandbox = start(&room.path(&format!("{name}-link")));
        let script = format!("cat {}/keys/ledger.key", state.display());
        for tier in TIERS {
            let mut spec = in_tier(room.shell(Filesystem::Read, &script), tier);
            spec.read = [room.path("outside")].into_iter().filter(|outer| state.starts_with(outer)).collect();
            let fault = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap_err();
            assert!(matches!(fault, SandboxFault::ShowsState { .. }), "{name} {tier}: {fault}");
            spec.write = std::mem::take(&mut spec.read);
            let refused = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {});
            assert!(matches!(refused, Err(SandboxFault::ShowsState { .. })), "{name} {tier}: {refused:?}");
        }
    }
    // What is lent is shown alone.
    room.write("state/keys/ledger.key", "the-key");
    room.write("state/certificates/one.pem", "for all");
    let sandbox = start(&room.path("state"));
    let script = format!("cd {}; cat certificates/* keys/*", room.path("state").display());
    let mut spec = in_tier(room.shell(Filesystem::Read, &script), Tier::Full);
    spec.read = vec![room.path("state/certificates/one.pem")];
    let outcome = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
    assert_eq!(out(&outcome), "for all");
    spec.read = vec![room.path("state/certificates")];
    assert!(sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).is_err());
}

fn extra_paths() {
    let room = Room::new();
    std::fs::create_dir(room.path("shared")).unwrap();
    let script = format!(
        "cat {0}/outside/file; echo x >{0}/outside/new; echo y >{0}/shared/new; cat {0}/shared/new",
        room.path("").display()
    );
    let mut spec = room.shell(Filesystem::Deny, &script);
    spec.read = vec![room.path("outside")];
    spec.write = vec![room.path("shared")];
    let outcome = run(&spec);
    assert_eq!(out(&outcome), "in-the-outside-file\ny\n", "{}", err(&outcome));
    assert_eq!(room.read("shared/new").as_deref(), Some("y\n"));
    assert!(!room.path("outside/new").exists());
    for path in ["/", "/proc", "/sys/kernel", "/dev"] {
        spec.read = vec![path.into()];
        assert!(try_run(&spec).is_err(), "{path}");
    }
}

// `/root` with toolchains in it; a workspace `/app` with a further path in it
fn folders_of_the_root() {
    let room = Room::new();
    let mut spec =
        room.shell(Filesystem::Read, "echo mine >$HOME/new && cat $HOME/new && ls /var/lib >$HOME/list");
    spec.home = Some("/var".into());
    spec.read = vec!["/var/lib".into()];
    check_out(&run(&spec), "mine\n");
    let mut spec = room.shell(Filesystem::Read, "ls -d /var/log && ls /var/lib >/dev/null");
    spec.read = vec!["/var".into(), "/var/lib".into()];
    check_out(&run(&spec), "/var/log\n");
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

fn no_userns_refuses() {
    let room = Room::new();
    for mode in [Filesystem::ReadWrite, Filesystem::Speculative] {
        let fault = try_run(&in_tier(room.shell(mode, "true"), Tier::NoUserns)).unwrap_err();
        assert!(fault.to_string().contains("needs an overlay"), "{fault}");
    }
    let mut spec = in_tier(room.shell(Filesystem::Read, "true"), Tier::NoUserns);
    spec.least = Tier::Full;
    let fault = try_run(&spec).unwrap_err();
    assert!(fault.to_string().contains("`full` is not available"), "{fault}");
}

/// How many files of each kind the promoter changes.
const MANY: usize = 150;

/// The process of [`crash_leaves_all_or_none`]: changes a project and takes that over.
pub(crate) fn promoter(room: &str) {
    let room = std::path::Path::new(room);
    let sandbox = start(&room.join("state"));
    let script = "for i in $(seq MANY); do echo new >new/$i; echo new >old/$i; rm gone/$i; done; mkdir made; ln -s x link; mv a b"
        .replace("MANY", &MANY.to_string());
    let mut spec = vambrace_sandbox::Spec::new("sh", room.join("project"));
    spec.arguments = vec!["-c".into(), script.into()];
    spec.filesystem = Filesystem::ReadWrite;
    let outcome = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
    let changes = outcome.changes.as_ref().unwrap();
    let promotion = Journaled::over(changes, sandbox.places()).unwrap();
    println!("promoting");
    std::io::stdout().flush().unwrap();
    promotion.promote(changes).unwrap();
}

/// A project for it, with its files.
fn many_files() -> Room {
    let room = Room::new();
    for number in 1..=MANY {
        room.write(&format!("project/old/{number}"), "old\n");
        let gone = format!("project/gone/{number}");
        // Some are one file with two names.
        if number % 2 == 0 {
            let other = room.path(&format!("project/gone/{}", number - 1));
            std::fs::hard_link(other, room.path(&gone)).unwrap();
        } else {
            room.write(&gone, "gone\n");
        }
    }
    std::fs::create_dir(room.path("project/new")).unwrap();
    room.write("project/a", "moves\n");
    room
}

/// Starts the promoter and ends it at a moment.
fn kill_promoter(room: &Room, when: impl Fn() -> bool) {
    use std::io::BufRead as _;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["promoter", room.path("").to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "promoting\n");
    while !when() && child.try_wait().unwrap().is_none() {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn state_of(room: &Room) -> [usize; 4] {
    let count = |folder: &str| std::fs::read_dir(room.path(folder)).unwrap().count();
    let new =
        (1..=MANY).filter(|n| room.read(&format!("project/old/{n}")).as_deref() == Some("new\n")).count();
    let others = ["project/made", "project/link", "project/b"];
    let there = others.iter().filter(|name| room.path(name).symlink_metadata().is_ok()).count();
    [count("project/new"), new, MANY - count("project/gone"), there]
}

// A6
fn crash_leaves_all_or_none() {
    let (mut all, mut none, mut recovered) = (0, 0, 0);
    // From before anything is written to after the end, and surely in the middle.
    for round in 0..15_u64 {
        let room = many_files();
        let begin = std::cell::OnceCell::new();
        let half = room.path(&format!("project/new/{}", 1 + round % 100));
        kill_promoter(&room, || match round % 3 {
            0 => half.exists(),
            _ => {
                begin.get_or_init(std::time::Instant::now).elapsed()
                    > std::time::Duration::from_micros(round * 700)
            }
        });
        recovered += Journaled::recover(&Places::below(&room.path("state")));
        match state_of(&room) {
            [0, 0, 0, 0] => none += 1,
            [MANY, MANY, MANY, 3] => all += 1,
            half => panic!("round {round}: {half:?}"),
        }
        let left = std::fs::read_dir(room.project()).unwrap().filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".vambrace-unfinished")
        });
        assert_eq!(left.count(), 0);
        assert_eq!(std::fs::read_dir(room.path("state/promotions")).map_or(0, Iterator::count), 0);
    }
    println!("all {all}, none {none}, recovered {recovered}");
    assert!(none > 0 && recovered > 0, "all {all}, none {none}, recovered {recovered}");
}

fn later_changes_stay() {
    // Until a kill fell between the note and the end.
    for _ in 0..30 {
        let room = many_files();
        kill_promoter(&room, || room.read("project/old/1").as_deref() == Some("new\n"));
        let [_, new, ..] = state_of(&room);
        let unfinished = new > 0 && new < MANY;
        if !unfinished {
            continue;
        }
        let untouched =
            (1..=MANY).find(|n| room.read(&format!("project/old/{n}")).as_deref() == Some("old\n"));
        let mine = format!("project/old/{}", untouched.unwrap());
        room.write(&mine, "mine\n");
        assert_eq!(Journaled::recover(&Places::below(&room.path("state"))), 1);
        assert_eq!(room.read(&mine).as_deref(), Some("mine\n"));
        let [added, new, gone, others] = state_of(&room);
        assert_eq!((added, new, gone, others), (MANY, MANY - 1, MANY, 3));
        return;
    }
    panic!("no kill fell into the middle");
}

/// What lies there is put into place by whoever recovers, so no program may leave any.
fn forged_journal() {
    let room = Room::new();
    let script = "mkdir .vambrace-unfinished-1-1 src/.vambrace-unfinished-2; echo x >.vambrace-unfinished-1-1/0; \
                  echo x >src/.vambrace-unfinished-2/0; echo y >fine";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    promote(&outcome).unwrap();
    assert_eq!(changes(&outcome), ["created fine"]);
    assert!(!room.path("project/.vambrace-unfinished-1-1").exists());
    assert!(!room.path("project/src/.vambrace-unfinished-2").exists());
}

/// A shell reads its script piece by piece.
fn pinned_script() {
    use sha2::Digest as _;
    for tier in TIERS {
        let room = Room::new();
        let go = room.path("outside/go");
        let wait = format!("#!/bin/sh\necho $1\nwhile [ ! -e {} ]; do sleep 0.01; done\n", go.display());
        let script = format!("{wait}#{}\necho as agreed\n", "x".repeat(100_000));
        room.write("project/script", &script);
        let path = room.path("project/script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut spec = in_tier(room.spec(Filesystem::Read, "./script", &["begun"]), tier);
        spec.digest = Some(sha2::Sha256::digest(script.as_bytes()).into());
        spec.read = vec![room.path("outside")];
        let mut begun = |_, piece: &[u8]| {
            if piece == b"begun\n" {
                use std::os::unix::fs::FileExt as _;
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                let at = script.find("as agreed").unwrap() as u64;
                file.write_all_at(b"otherwise", at).unwrap();
                std::fs::write(&go, "").unwrap();
            }
        };
        let outcome = sandbox().run(&spec, vambrace_sandbox::Input::Nothing, &mut begun).unwrap();
        check_out(&outcome, "begun\nas agreed\n");
    }
}

// S3: whoever starts such a file becomes the broker's user
fn no_set_id() {
    let room = Room::new();
    let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(room.path("outside"), open(0o777)).unwrap();
    for (tier, observe) in TIERS.into_iter().flat_map(|tier| [(tier, Observe::Off), (tier, Observe::Writes)])
    {
        let made = room.path(&format!("outside/{tier}-{observe:?}"));
        let path = made.display();
        let script = format!("cp /usr/bin/id {path}; chmod 6755 {path} 2>/dev/null || echo refused");
        let mut spec = in_tier(room.shell(Filesystem::Read, &script), tier);
        (spec.write, spec.observe) = (vec![room.path("outside")], observe);
        check_out(&run(&spec), "refused\n");
        assert_eq!(mode(&made) & 0o7000, 0, "{tier}");
    }
    let script = "cp /usr/bin/id target/; chmod u+s target/id 2>/dev/null || ls -l target/id";
    let mut spec = room.shell(Filesystem::Read, script);
    (spec.scratch, spec.observe) = (vec!["target".to_owned()], Observe::Off);
    assert!(out(&run(&spec)).starts_with("-rwxr-xr-x "));
}

// T12: in either tier, whatever is granted around it
fn around_the_workspace() {
    let room = Room::new();
    let script = "cat .env 2>/dev/null; echo x 2>/dev/null >>plain.txt; true";
    for (mode, writes) in [(Filesystem::Read, true), (Filesystem::Write, true), (Filesystem::Write, false)] {
        for tier in TIERS {
            let script = script.replace(".env", &room.path("project/.env").display().to_string());
            let mut spec = in_tier(room.shell(mode, &script), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(room.path(""));
            match (tier, try_run(&spec)) {
                (Tier::NoUserns, ran) => assert!(matches!(ran, Err(SandboxFault::Refused(_))), "{ran:?}"),
                (_, ran) => assert_eq!(out(&ran.unwrap()), "", "{tier}"),
            }
            assert_eq!(room.read("project/plain.txt").as_deref(), Some("plain\n"), "{tier}");
        }
    }
}

fn set_group_id_workspace() {
    let room = Room::new();
    let bit = || std::os::unix::fs::PermissionsExt::from_mode(0o2775);
    for folder in ["project", "project/deep", "project/src"] {
        std::fs::set_permissions(room.path(folder), bit()).unwrap();
    }
    let script = "mkdir src/new && echo x >src/new/file && echo y >>plain.txt && echo done";
    let outcome = run(&room.shell(Filesystem::Speculative, script));
    check_out(&outcome, "done\n");
    assert_eq!(outcome.changes.unwrap().list.len(), 3);
}

fn mode(path: &std::path::Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions())
}
