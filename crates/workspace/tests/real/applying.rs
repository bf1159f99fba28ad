//! Applying changes: the checks in order with their codes, which attributes a file keeps, and races with other programs.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use vambrace_core::ErrorCode;
use vambrace_core::change::ChangeSet;
use vambrace_workspace::{ApplyError, ChangeSetState, EditRequest, WriteMode};

use crate::editing::limits;
use crate::fixtures::{CANARY, is_root, path};
use crate::harness::{Harness, applier};

impl Harness {
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

fn code(result: Result<impl Sized, ApplyError>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

// B3
#[test]
fn a_change_whose_base_changed_is_not_applied() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n").file("g", "a\n").file("h", "a\n");
    let (edit, delete, create, gone) = (
        harness.edit("f", "a", "b"),
        harness.delete("g"),
        harness.write("new", "x\n"),
        harness.edit("h", "a", "b"),
    );
    harness.tree.file("f", "changed\n").file("g", "changed\n").file("new", "there\n");
    std::fs::remove_file(harness.tree.at("h")).unwrap();
    for (changes, name, left) in [
        (&edit, "f", Some(&b"changed\n"[..])),
        (&delete, "g", Some(b"changed\n")),
        (&create, "new", Some(b"there\n")),
        (&gone, "h", None),
    ] {
        assert_eq!(code(harness.applier.apply(changes)), Some(ErrorCode::StaleBase), "{name}");
        assert_eq!(harness.read(name).as_deref(), left, "{name}");
    }
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}

// B3: checks 4, 5 and 6, each with its own code.
#[test]
fn blocked_names_links_and_special_files_are_also_denied_when_applying() {
    let harness = Harness::new();
    harness.tree.file("a/f", "a\n").file("g", "a\n").file("h", "a\n").file("i", "a\n");
    let (through, linked, twice, dir) = (
        harness.edit("a/f", "a", "b"),
        harness.edit("g", "a", "b"),
        harness.edit("h", "a", "b"),
        harness.delete("i"),
    );
    std::fs::rename(harness.tree.at("a"), harness.tree.at("real")).unwrap();
    harness.tree.link("a", "real");
    std::fs::remove_file(harness.tree.at("g")).unwrap();
    harness.tree.link("g", "h");
    std::fs::hard_link(harness.tree.at("h"), harness.tree.at("h2")).unwrap();
    std::fs::remove_file(harness.tree.at("i")).unwrap();
    std::fs::create_dir(harness.tree.at("i")).unwrap();
    assert_eq!(code(harness.applier.apply(&through)), Some(ErrorCode::ScopeViolation));
    assert_eq!(code(harness.applier.apply(&linked)), Some(ErrorCode::ScopeViolation));
    assert_eq!(code(harness.applier.apply(&twice)), Some(ErrorCode::ScopeViolation));
    assert_eq!(code(harness.applier.apply(&dir)), Some(ErrorCode::NotAFile));
    // A forged ChangeSet for a blocked name.
    let other = Harness::of_service("s");
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
    assert_eq!(code(harness.applier.apply(&forged)), Some(ErrorCode::BlockedPath));
    assert_eq!(harness.read("real/f").unwrap(), b"a\n");
    assert_eq!(harness.read("h").unwrap(), b"a\n");
    assert!(std::fs::symlink_metadata(harness.tree.at("g")).unwrap().is_symlink());
}

// T12: git recognises a repository by its contents
#[test]
fn hooks_and_settings_of_a_repository_of_any_name_are_not_written() {
    let harness = Harness::new();
    harness.tree.file("half/config", "was\n").file("led/commondir", "../x\n").file("app/config/x", "was\n");
    // Proposed while these are not recognisable as repositories.
    harness.tree.file("bare/config", "was\n").file("bare/hooks/update", "was\n");
    let late = [
        harness.edit("bare/config", "was", "is"),
        harness.delete("bare/hooks/update"),
        harness.write("bare/hooks/post-checkout", "x\n"),
        harness.write("bare/Config.worktree", "x\n"),
        harness.write("bare/info/attributes", "x\n"),
        harness.write("bare/modules/m/hooks/update", "x\n"),
    ];
    harness.tree.file("bare/objects/x", "x\n").file("bare/refs/x", "x\n");
    for changes in &late {
        assert_eq!(
            code(harness.applier.apply(changes)),
            Some(ErrorCode::BlockedPath),
            "{}",
            changes.summary()
        );
    }
    let add = |names: &[&str]| -> ChangeSet {
        let one = |name: &&str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n");
        harness.patch(&names.iter().map(one).collect::<String>())
    };
    // A complete new repository, and one around existing files.
    for names in [
        &["new/objects/o", "new/refs/r", "new/config"][..],
        &["half/objects/o", "half/refs/r"],
        &["away/HEAD", "away/commondir"],
    ] {
        let made = code(harness.applier.apply(&add(names)));
        assert_eq!(made, Some(ErrorCode::BlockedPath), "{names:?}");
    }
    let refused = harness.ws.draft_write(&path("led/HEAD"), b"x\n", WriteMode::Write, None, &limits());
    assert_eq!(refused.map(|_| ()).unwrap_err().code(), ErrorCode::BlockedPath);
    assert_eq!(harness.read("bare/config").unwrap(), b"was\n");
    assert!(harness.read("bare/hooks/update").is_some() && !harness.tree.at("new").exists());
    // Files that only share a name with them can be written, and so can the rest of a repository.
    for name in ["app/config/y", "hooks/use_it.ts", "bare/description", "refs/a", "half/objects/o"] {
        harness.applier.apply(&harness.write(name, "x\n")).unwrap();
    }
}

// B7
#[test]
fn several_files_change_together_or_not_at_all() {
    let harness = Harness::new();
    harness.tree.file("a", "a\n").file("b", "b\n").file("c", "c\n");
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+B\n\
                 --- a/c\n+++ /dev/null\n@@ -1 +0,0 @@\n-c\n--- /dev/null\n+++ b/d/e\n@@ -0,0 +1 @@\n+D\n";
    let changes = harness.patch(patch);
    harness.tree.file("b", "other\n");
    assert_eq!(code(harness.applier.apply(&changes)), Some(ErrorCode::StaleBase));
    assert_eq!((harness.read("a").unwrap(), harness.read("c").unwrap()), (b"a\n".to_vec(), b"c\n".to_vec()));
    assert!(!harness.tree.at("d").exists());
    harness.tree.file("b", "b\n");
    assert_eq!(harness.applier.state(&changes), Ok(ChangeSetState::Before));
    let (applied, back) = harness.applier.apply(&changes).unwrap();
    assert_eq!(applied.files.len(), 4);
    assert_eq!(harness.applier.state(&changes), Ok(ChangeSetState::After));
    assert_eq!(
        (harness.read("a").unwrap(), harness.read("c"), harness.read("d/e").unwrap()),
        (b"A\n".to_vec(), None, b"D\n".to_vec())
    );
    assert_eq!(code(harness.applier.apply(&changes)), Some(ErrorCode::StaleBase), "twice");
    let back = back.unwrap();
    harness.tree.file("a", "somebody\n");
    assert_eq!(code(harness.applier.apply(&back)), Some(ErrorCode::StaleBase), "a rollback refuses too");
    assert_eq!(harness.read("b").unwrap(), b"B\n");
    harness.tree.file("a", "A\n");
    harness.applier.apply(&back).unwrap();
    assert_eq!((harness.read("a").unwrap(), harness.read("c").unwrap()), (b"a\n".to_vec(), b"c\n".to_vec()));
    assert!(!harness.tree.at("d").exists());
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}

// B7: a conflict that appears after the checks, while files are already being changed.
#[test]
fn a_partly_applied_change_is_undone_when_the_rest_fails() {
    let harness = Harness::new();
    harness.tree.file("a", "a\n").file("z", "z\n");
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n--- a/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n";
    let changes = harness.patch(patch);
    let prepared = harness.applier.prepare(&changes).unwrap();
    // Another program that does not use our locks.
    std::fs::write(harness.tree.at("z"), "precious\n").unwrap();
    assert_eq!(code(prepared.commit("t")), Some(ErrorCode::StaleBase));
    assert_eq!(
        (harness.read("a").unwrap(), harness.read("z").unwrap()),
        (b"a\n".to_vec(), b"precious\n".to_vec())
    );
    assert_eq!(harness.leftovers(), Vec::<String>::new());
    // The same with one file.
    let changes = harness.edit("a", "a", "b");
    let prepared = harness.applier.prepare(&changes).unwrap();
    std::fs::write(harness.tree.at("a"), "x\n").unwrap();
    assert_eq!(code(prepared.commit("t")), Some(ErrorCode::StaleBase));
    assert_eq!(harness.read("a").unwrap(), b"x\n");
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}

// T8, T9
#[test]
fn one_edit_needs_two_fsyncs() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n");
    let (applied, _) = harness.applier.apply(&harness.edit("f", "a", "b")).unwrap();
    assert_eq!(applied.syncs, 2);
}

// T8
#[test]
fn a_changed_file_keeps_mode_owner_access_lists_and_attributes() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n");
    let at = harness.tree.at("f");
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
        vambrace_skip::skip_part(&format!("access list: {errno}"));
    }
    if is_root() {
        chown(&at, Some(1234), Some(4321)).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o4750)).unwrap();
    } else {
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    let before = std::fs::metadata(&at).unwrap();
    harness.applier.apply(&harness.edit("f", "a", "b")).unwrap();
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
    assert_eq!(harness.read("f").unwrap(), b"b\n");
}

// T8: a file without an access list does not get one from its directory.
#[test]
fn a_directorys_default_acl_does_not_apply_to_a_replaced_file() {
    let harness = Harness::new();
    harness.tree.file("d/f", "a\n");
    let acl: Vec<u8> =
        [(1_u16, 6_u16, u32::MAX), (2, 6, 12), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
            .iter()
            .fold(2_u32.to_le_bytes().to_vec(), |mut acl, (tag, perm, id)| {
                acl.extend(tag.to_le_bytes().iter().chain(&perm.to_le_bytes()).chain(&id.to_le_bytes()));
                acl
            });
    let dir = std::fs::File::open(harness.tree.at("d")).unwrap();
    if let Err(errno) = rustix::fs::fsetxattr(&dir, "system.posix_acl_default", &acl, XattrFlags::empty()) {
        vambrace_skip::skip(&format!("no access lists here: {errno}"));
        return;
    }
    harness.applier.apply(&harness.edit("d/f", "a", "b")).unwrap();
    let file = std::fs::File::open(harness.tree.at("d/f")).unwrap();
    let mut buffer = [0; 256];
    let got = rustix::fs::fgetxattr(&file, "system.posix_acl_access", &mut buffer);
    assert_eq!(got, Err(rustix::io::Errno::NODATA));
}

// T9
#[test]
fn a_locked_file_is_busy_after_the_timeout_and_free_after_release() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n").file("g", "a\n");
    let hasty = applier(&harness.ws, harness.tree.home.path()).lock_timeout(Duration::from_millis(30));
    let changes = harness.edit("f", "a", "b");
    let held = harness.applier.prepare(&changes).unwrap();
    let error = hasty.apply(&changes).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ResourceBusy);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    hasty.apply(&harness.edit("g", "a", "b")).unwrap();
    drop(held);
    hasty.apply(&changes).unwrap();
    // A file that only looks like a lock blocks nothing.
    harness.tree.file(".lock.f", "999999\n");
    hasty.apply(&harness.edit("f", "b", "c")).unwrap();
    assert_eq!(harness.read("f").unwrap(), b"c\n");
}

// T13: while a directory and a file are swapped for symlinks to the outside, nothing outside changes.
#[test]
fn nothing_outside_changes_while_symlinks_are_swapped_in() {
    let harness = Harness::new();
    harness.tree.file("d/secret.txt", "inside\n").file("f", "inside\n");
    harness
        .tree
        .link("swap_d", harness.tree.outside())
        .link("swap_f", harness.tree.outside().join("secret.txt"));
    let outside = harness.tree.outside().join("secret.txt");
    let done = AtomicBool::new(false);
    let mut applied = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (one, other) in [("d", "swap_d"), ("f", "swap_f")] {
                    let swapped = renameat_with(
                        CWD,
                        harness.tree.at(one),
                        CWD,
                        harness.tree.at(other),
                        RenameFlags::EXCHANGE,
                    );
                    swapped.unwrap();
                }
            }
        });
        for round in 0..4000 {
            for name in ["d/secret.txt", "f"] {
                let content = format!("inside {round}\n");
                let drafted = harness.ws.draft_write(
                    &path(name),
                    content.as_bytes(),
                    WriteMode::Write,
                    None,
                    &limits(),
                );
                let Ok(draft) = drafted else { continue };
                applied += u32::from(harness.applier.apply(&draft.changes).is_ok());
            }
            let new = format!("d/new{round}");
            if let Ok(draft) = harness.ws.draft_write(&path(&new), b"x\n", WriteMode::Write, None, &limits())
            {
                let _ = harness.applier.apply(&draft.changes);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(applied > 0, "nothing was ever applied: the test proves nothing");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), format!("{CANARY}\n"));
    let names: Vec<_> =
        std::fs::read_dir(harness.tree.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["secret.txt"]);
}

// T8: the system denies the write, and nothing is left behind.
#[test]
fn a_read_only_directory_is_reported_and_left_unchanged() {
    if is_root() {
        vambrace_skip::skip("root may write everywhere");
        return;
    }
    let harness = Harness::new();
    harness.tree.file("d/f", "a\n");
    let changes = harness.edit("d/f", "a", "b");
    std::fs::set_permissions(harness.tree.at("d"), std::fs::Permissions::from_mode(0o500)).unwrap();
    let error = harness.applier.apply(&changes).unwrap_err();
    std::fs::set_permissions(harness.tree.at("d"), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(error, ApplyError::NotAllowed { .. }), "{error}");
    assert_eq!(harness.read("d/f").unwrap(), b"a\n");
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}
