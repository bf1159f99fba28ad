//! Applying: the checks in their order with a code each, what a file keeps, what is left of an attack in the last moment.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use vambrace_core::ErrorCode;
use vambrace_core::change::ChangeSet;
use vambrace_workspace::{ApplyFault, EditRequest, State, WriteMode};

use crate::bench::{Bench, applier};
use crate::editing::limits;
use crate::tree::{CANARY, is_root, path};

impl Bench {
    fn edit(&self, name: &str, spec: &str, content: &str) -> ChangeSet {
        let edit = [EditRequest::replace(spec, content)];
        self.ws.draft_edit(&path(name), &edit, None, &limits()).unwrap().changes
    }

    fn write(&self, name: &str, content: &str) -> ChangeSet {
        self.ws
            .draft_write(&path(name), content.as_bytes(), WriteMode::Write, None, &limits())
            .unwrap()
            .changes
    }

    fn delete(&self, name: &str) -> ChangeSet {
        self.ws.draft_delete(&path(name), None, &limits()).unwrap().changes
    }

    fn patch(&self, patch: &str) -> ChangeSet {
        self.ws.draft_patch(patch.as_bytes(), &limits()).unwrap().changes
    }
}

fn code(result: Result<impl Sized, ApplyFault>) -> Option<ErrorCode> {
    result.err().map(|fault| fault.code())
}

// B3
#[test]
fn what_changed_since_the_proposal_is_not_applied() {
    let bench = Bench::new();
    bench.tree.file("f", "a\n").file("g", "a\n").file("h", "a\n");
    let (edit, delete, create, gone) =
        (bench.edit("f", "a", "b"), bench.delete("g"), bench.write("new", "x\n"), bench.edit("h", "a", "b"));
    bench.tree.file("f", "changed\n").file("g", "changed\n").file("new", "there\n");
    std::fs::remove_file(bench.tree.at("h")).unwrap();
    for (changes, name, left) in [
        (&edit, "f", Some(&b"changed\n"[..])),
        (&delete, "g", Some(b"changed\n")),
        (&create, "new", Some(b"there\n")),
        (&gone, "h", None),
    ] {
        assert_eq!(code(bench.applier.apply(changes)), Some(ErrorCode::StaleBase), "{name}");
        assert_eq!(bench.read(name).as_deref(), left, "{name}");
    }
    assert_eq!(bench.litter(), Vec::<String>::new());
}

// B3: checks 4, 5 and 6, each with its own code.
#[test]
fn denied_names_links_and_odd_files_are_refused_when_applying_too() {
    let bench = Bench::new();
    bench.tree.file("a/f", "a\n").file("g", "a\n").file("h", "a\n").file("i", "a\n");
    let (through, linked, twice, folder) = (
        bench.edit("a/f", "a", "b"),
        bench.edit("g", "a", "b"),
        bench.edit("h", "a", "b"),
        bench.delete("i"),
    );
    std::fs::rename(bench.tree.at("a"), bench.tree.at("real")).unwrap();
    bench.tree.link("a", "real");
    std::fs::remove_file(bench.tree.at("g")).unwrap();
    bench.tree.link("g", "h");
    std::fs::hard_link(bench.tree.at("h"), bench.tree.at("h2")).unwrap();
    std::fs::remove_file(bench.tree.at("i")).unwrap();
    std::fs::create_dir(bench.tree.at("i")).unwrap();
    assert_eq!(code(bench.applier.apply(&through)), Some(ErrorCode::ScopeViolation));
    assert_eq!(code(bench.applier.apply(&linked)), Some(ErrorCode::ScopeViolation));
    assert_eq!(code(bench.applier.apply(&twice)), Some(ErrorCode::ScopeViolation));
    assert_eq!(code(bench.applier.apply(&folder)), Some(ErrorCode::NotAFile));
    // A ChangeSet from elsewhere, for a name that is denied here.
    let other = Bench::of_service("s");
    let denied = other.write("x", "x\n");
    let bytes = denied.to_bytes();
    let at = bytes.windows(9).position(|window| window == b"\0\0\0\0\0\0\0\x01x").unwrap();
    let mut forged = bytes;
    while let Some(at) = forged.windows(9).position(|window| window == b"\0\0\0\0\0\0\0\x01x") {
        forged.splice(at..at + 9, b"\0\0\0\0\0\0\0\x04.env".iter().copied());
    }
    assert!(at > 0);
    let forged = ChangeSet::from_bytes(&forged).unwrap();
    assert_eq!(forged.summary(), "CREATE FILE .env");
    assert_eq!(code(bench.applier.apply(&forged)), Some(ErrorCode::BlockedPath));
    assert_eq!(bench.read("real/f").unwrap(), b"a\n");
    assert_eq!(bench.read("h").unwrap(), b"a\n");
    assert!(std::fs::symlink_metadata(bench.tree.at("g")).unwrap().is_symlink());
}

// T12: git takes a folder for a repository by what lies in it
#[test]
fn what_runs_or_configures_a_repository_of_any_name_is_not_written() {
    let bench = Bench::new();
    bench.tree.file("half/config", "was\n").file("led/commondir", "../x\n").file("app/config/x", "was\n");
    // Proposed while nothing tells that these are repositories.
    bench.tree.file("bare/config", "was\n").file("bare/hooks/update", "was\n");
    let late = [
        bench.edit("bare/config", "was", "is"),
        bench.delete("bare/hooks/update"),
        bench.write("bare/hooks/post-checkout", "x\n"),
        bench.write("bare/Config.worktree", "x\n"),
        bench.write("bare/info/attributes", "x\n"),
        bench.write("bare/modules/m/hooks/update", "x\n"),
    ];
    bench.tree.file("bare/objects/x", "x\n").file("bare/refs/x", "x\n");
    for changes in &late {
        assert_eq!(code(bench.applier.apply(changes)), Some(ErrorCode::BlockedPath), "{}", changes.summary());
    }
    let add = |names: &[&str]| -> ChangeSet {
        let one = |name: &&str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n");
        bench.patch(&names.iter().map(one).collect::<String>())
    };
    // All at once, and around what was there before.
    for names in [
        &["new/objects/o", "new/refs/r", "new/config"][..],
        &["half/objects/o", "half/refs/r"],
        &["away/HEAD", "away/commondir"],
    ] {
        let made = code(bench.applier.apply(&add(names)));
        assert_eq!(made, Some(ErrorCode::BlockedPath), "{names:?}");
    }
    let refused = bench.ws.draft_write(&path("led/HEAD"), b"x\n", WriteMode::Write, None, &limits());
    assert_eq!(refused.map(|_| ()).unwrap_err().code(), ErrorCode::BlockedPath);
    assert_eq!(bench.read("bare/config").unwrap(), b"was\n");
    assert!(bench.read("bare/hooks/update").is_some() && !bench.tree.at("new").exists());
    // What only shares a name with them is written, and so is the rest of a repository.
    for name in ["app/config/y", "hooks/use_it.ts", "bare/description", "refs/a", "half/objects/o"] {
        bench.applier.apply(&bench.write(name, "x\n")).unwrap();
    }
}

// B7
#[test]
fn several_files_change_together_or_not_at_all() {
    let bench = Bench::new();
    bench.tree.file("a", "a\n").file("b", "b\n").file("c", "c\n");
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+B\n\
                 --- a/c\n+++ /dev/null\n@@ -1 +0,0 @@\n-c\n--- /dev/null\n+++ b/d/e\n@@ -0,0 +1 @@\n+D\n";
    let changes = bench.patch(patch);
    bench.tree.file("b", "other\n");
    assert_eq!(code(bench.applier.apply(&changes)), Some(ErrorCode::StaleBase));
    assert_eq!((bench.read("a").unwrap(), bench.read("c").unwrap()), (b"a\n".to_vec(), b"c\n".to_vec()));
    assert!(!bench.tree.at("d").exists());
    bench.tree.file("b", "b\n");
    assert_eq!(bench.applier.state(&changes), Ok(State::Before));
    let (applied, back) = bench.applier.apply(&changes).unwrap();
    assert_eq!(applied.files.len(), 4);
    assert_eq!(bench.applier.state(&changes), Ok(State::After));
    assert_eq!(
        (bench.read("a").unwrap(), bench.read("c"), bench.read("d/e").unwrap()),
        (b"A\n".to_vec(), None, b"D\n".to_vec())
    );
    assert_eq!(code(bench.applier.apply(&changes)), Some(ErrorCode::StaleBase), "twice");
    let back = back.unwrap();
    bench.tree.file("a", "somebody\n");
    assert_eq!(code(bench.applier.apply(&back)), Some(ErrorCode::StaleBase), "a rollback refuses too");
    assert_eq!(bench.read("b").unwrap(), b"B\n");
    bench.tree.file("a", "A\n");
    bench.applier.apply(&back).unwrap();
    assert_eq!((bench.read("a").unwrap(), bench.read("c").unwrap()), (b"a\n".to_vec(), b"c\n".to_vec()));
    assert!(!bench.tree.at("d").exists());
    assert_eq!(bench.litter(), Vec::<String>::new());
}

// B7: something in the way that no check could see is found while files are already changing.
#[test]
fn what_is_half_done_goes_back_when_the_rest_cannot_be_done() {
    let bench = Bench::new();
    bench.tree.file("a", "a\n").file("z", "z\n");
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n--- a/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n";
    let changes = bench.patch(patch);
    let prepared = bench.applier.prepare(&changes).unwrap();
    // An outside writer who knows nothing of locks.
    std::fs::write(bench.tree.at("z"), "precious\n").unwrap();
    assert_eq!(code(prepared.commit("t")), Some(ErrorCode::StaleBase));
    assert_eq!(
        (bench.read("a").unwrap(), bench.read("z").unwrap()),
        (b"a\n".to_vec(), b"precious\n".to_vec())
    );
    assert_eq!(bench.litter(), Vec::<String>::new());
    // And of one file.
    let changes = bench.edit("a", "a", "b");
    let prepared = bench.applier.prepare(&changes).unwrap();
    std::fs::write(bench.tree.at("a"), "x\n").unwrap();
    assert_eq!(code(prepared.commit("t")), Some(ErrorCode::StaleBase));
    assert_eq!(bench.read("a").unwrap(), b"x\n");
    assert_eq!(bench.litter(), Vec::<String>::new());
}

// T8, T9
#[test]
fn one_edit_waits_for_the_disk_twice() {
    let bench = Bench::new();
    bench.tree.file("f", "a\n");
    let (applied, _) = bench.applier.apply(&bench.edit("f", "a", "b")).unwrap();
    assert_eq!(applied.syncs, 2);
}

// T8
#[test]
fn a_changed_file_keeps_mode_owner_access_lists_and_attributes() {
    let bench = Bench::new();
    bench.tree.file("f", "a\n");
    let at = bench.tree.at("f");
    let file = std::fs::File::open(&at).unwrap();
    rustix::fs::fsetxattr(&file, "user.note", b"kept", XattrFlags::empty()).unwrap();
    // user::rw-, user:12:r--, group::r--, mask::r--, other::---
    let acl: Vec<u8> =
        [(1_u16, 6_u16, u32::MAX), (2, 4, 12), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
            .iter()
            .fold(2_u32.to_le_bytes().to_vec(), |mut acl, (tag, perm, id)| {
                acl.extend(tag.to_le_bytes().iter().chain(&perm.to_le_bytes()).chain(&id.to_le_bytes()));
                acl
            });
    let has_acl = rustix::fs::fsetxattr(&file, "system.posix_acl_access", &acl, XattrFlags::empty());
    if let Err(errno) = has_acl {
        eprintln!("SKIPPED the access list: {errno}");
    }
    if is_root() {
        chown(&at, Some(1234), Some(4321)).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o4750)).unwrap();
    } else {
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    let before = std::fs::metadata(&at).unwrap();
    bench.applier.apply(&bench.edit("f", "a", "b")).unwrap();
    let after = std::fs::metadata(&at).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    let file = std::fs::File::open(&at).unwrap();
    let value = |name: &str| {
        let mut buffer = [0; 256];
        rustix::fs::fgetxattr(&file, name, &mut buffer).map(|length| buffer[..length].to_vec())
    };
    assert_eq!(value("user.note").unwrap(), b"kept");
    if has_acl.is_ok() {
        let now = value("system.posix_acl_access").unwrap();
        assert_eq!(now.len(), acl.len());
        assert_eq!(now[12..20], acl[12..20], "the entry of user 12");
    }
    assert_eq!(bench.read("f").unwrap(), b"b\n");
}

// T8: a file without an access list does not get one from its folder.
#[test]
fn a_folders_default_access_list_does_not_reach_a_replaced_file() {
    let bench = Bench::new();
    bench.tree.file("d/f", "a\n");
    let acl: Vec<u8> =
        [(1_u16, 6_u16, u32::MAX), (2, 6, 12), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
            .iter()
            .fold(2_u32.to_le_bytes().to_vec(), |mut acl, (tag, perm, id)| {
                acl.extend(tag.to_le_bytes().iter().chain(&perm.to_le_bytes()).chain(&id.to_le_bytes()));
                acl
            });
    let folder = std::fs::File::open(bench.tree.at("d")).unwrap();
    if let Err(errno) = rustix::fs::fsetxattr(&folder, "system.posix_acl_default", &acl, XattrFlags::empty())
    {
        eprintln!("SKIPPED: no access lists here: {errno}");
        return;
    }
    bench.applier.apply(&bench.edit("d/f", "a", "b")).unwrap();
    let file = std::fs::File::open(bench.tree.at("d/f")).unwrap();
    let mut buffer = [0; 256];
    let got = rustix::fs::fgetxattr(&file, "system.posix_acl_access", &mut buffer);
    assert_eq!(got, Err(rustix::io::Errno::NODATA));
}

// T9
#[test]
fn a_held_file_is_busy_after_the_patience_and_free_when_the_holder_goes() {
    let bench = Bench::new();
    bench.tree.file("f", "a\n").file("g", "a\n");
    let hasty = applier(&bench.ws, bench.tree.home.path()).patience(Duration::from_millis(30));
    let changes = bench.edit("f", "a", "b");
    let held = bench.applier.prepare(&changes).unwrap();
    let fault = hasty.apply(&changes).unwrap_err();
    assert_eq!(fault.code(), ErrorCode::ResourceBusy);
    assert!(fault.to_string().contains(&format!("process {}", std::process::id())), "{fault}");
    hasty.apply(&bench.edit("g", "a", "b")).unwrap();
    drop(held);
    hasty.apply(&changes).unwrap();
    // A name that only looks like a lock blocks nobody.
    bench.tree.file(".lock.f", "999999\n");
    hasty.apply(&bench.edit("f", "b", "c")).unwrap();
    assert_eq!(bench.read("f").unwrap(), b"c\n");
}

// T13: while a folder and a file are swapped for links to the outside, nothing outside changes.
#[test]
fn nothing_outside_changes_while_links_are_swapped_in() {
    let bench = Bench::new();
    bench.tree.file("d/secret.txt", "inside\n").file("f", "inside\n");
    bench.tree.link("swap_d", bench.tree.outside()).link("swap_f", bench.tree.outside().join("secret.txt"));
    let outside = bench.tree.outside().join("secret.txt");
    let done = AtomicBool::new(false);
    let mut applied = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (one, other) in [("d", "swap_d"), ("f", "swap_f")] {
                    let swapped = renameat_with(
                        CWD,
                        bench.tree.at(one),
                        CWD,
                        bench.tree.at(other),
                        RenameFlags::EXCHANGE,
                    );
                    swapped.unwrap();
                }
            }
        });
        for round in 0..4000 {
            for name in ["d/secret.txt", "f"] {
                let content = format!("inside {round}\n");
                let drafted =
                    bench.ws.draft_write(&path(name), content.as_bytes(), WriteMode::Write, None, &limits());
                let Ok(draft) = drafted else { continue };
                applied += u32::from(bench.applier.apply(&draft.changes).is_ok());
            }
            let new = format!("d/new{round}");
            if let Ok(draft) = bench.ws.draft_write(&path(&new), b"x\n", WriteMode::Write, None, &limits()) {
                let _ = bench.applier.apply(&draft.changes);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(applied > 0, "nothing was ever applied: the test proves nothing");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), format!("{CANARY}\n"));
    let names: Vec<_> =
        std::fs::read_dir(bench.tree.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["secret.txt"]);
}

// T8: the system says no, and nothing is left behind.
#[test]
fn a_folder_that_cannot_be_written_is_told_and_left_alone() {
    if is_root() {
        eprintln!("SKIPPED as root: root may write everywhere");
        return;
    }
    let bench = Bench::new();
    bench.tree.file("d/f", "a\n");
    let changes = bench.edit("d/f", "a", "b");
    std::fs::set_permissions(bench.tree.at("d"), std::fs::Permissions::from_mode(0o500)).unwrap();
    let fault = bench.applier.apply(&changes).unwrap_err();
    std::fs::set_permissions(bench.tree.at("d"), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(fault, ApplyFault::NotAllowed { .. }), "{fault}");
    assert_eq!(bench.read("d/f").unwrap(), b"a\n");
    assert_eq!(bench.litter(), Vec::<String>::new());
}
