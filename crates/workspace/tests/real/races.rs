//! T13 under a race: while a thread swaps files and directories for symlinks to the outside as fast as it can, nothing from
//! the outside is ever read, listed or found.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use vambrace_core::CallError;
use vambrace_workspace::{ListRequest, SearchRequest};

use crate::fixtures::{CANARY, TestProject, TestWorkspace, lines, path};

const SWAPS: u64 = 120_000;

fn swap(tree: &TestProject, one: &str, other: &str) {
    renameat_with(CWD, tree.at(one), CWD, tree.at(other), RenameFlags::EXCHANGE).unwrap();
}

fn assert_clean(what: &str, reported: &str) {
    assert!(!reported.contains("CANARY") && !reported.contains("canary-name"), "{what} returned {reported}");
}

fn debug_text<T: std::fmt::Debug>(result: Result<T, impl Into<CallError>>) -> (String, bool) {
    match result {
        Ok(value) => (format!("{value:?}"), true),
        Err(error) => (format!("{:?}", error.into()), false),
    }
}

fn probe(workspace: &TestWorkspace, seen: &AtomicU64) {
    let request = SearchRequest { threads: 2, ..lines("CANARY|inside") };
    for asked in ["file", "dir/secret.txt", "alias", "link/secret.txt"] {
        let (reported, ok) = debug_text(workspace.read(asked));
        assert_clean(asked, &reported);
        seen.fetch_add(u64::from(ok), Ordering::Relaxed);
    }
    let all = ListRequest { recursive: true, ..ListRequest::default() };
    for asked in ["", "dir", "link"] {
        assert_clean("list", &debug_text(workspace.0.list(&path(asked), &all)).0);
    }
    for asked in ["", "dir", "file"] {
        let found = workspace.0.search(&path(asked), &request);
        // Only the matches: an error may quote the pattern.
        let found = found.map(|result| result.matches);
        assert_clean("search", &debug_text(found).0);
    }
}

// T13
#[test]
fn nothing_from_outside_is_returned_while_symlinks_are_swapped_in() {
    let tree = TestProject::new();
    tree.file("file", "inside\n").file("dir/secret.txt", "inside\n");
    std::fs::write(tree.outside().join("canary-name"), CANARY).unwrap();
    tree.link("swap_file", tree.outside().join("secret.txt")).link("swap_dir", tree.outside());
    // Symlinks inside the scope that lead through the swapped names.
    tree.link("alias", "file").link("link", "dir");
    let workspace = tree.open();
    let done = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..SWAPS / 2 {
                swap(&tree, "file", "swap_file");
                swap(&tree, "dir", "swap_dir");
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                probe(&workspace, &seen);
            }
        });
    });
    assert!(seen.load(Ordering::Relaxed) > 0, "nothing was ever read: the test proves nothing");
}

// T13: a hard link that is moved ahead of the walk must not be counted twice.
#[test]
fn a_hard_link_to_the_outside_cannot_hide_by_moving() {
    let tree = TestProject::new();
    for dir in 0..20 {
        tree.file(&format!("d{dir:02}/x"), "x");
    }
    std::fs::hard_link(tree.outside().join("secret.txt"), tree.at("d00/moving")).unwrap();
    std::fs::hard_link(tree.outside().join("secret.txt"), tree.at("fixed")).unwrap();
    let workspace = tree.open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !done.load(Ordering::Relaxed) {
                let next = (at + 7) % 20;
                std::fs::rename(tree.at(&format!("d{at:02}/moving")), tree.at(&format!("d{next:02}/moving")))
                    .unwrap();
                at = next;
            }
        });
        for _ in 0..3000 {
            assert_clean("read", &debug_text(workspace.read("fixed")).0);
        }
        for _ in 0..100 {
            let found = workspace.0.search(&path(""), &lines("CANARY")).map(|found| found.matches);
            assert_clean("search", &debug_text(found).0);
        }
        done.store(true, Ordering::Relaxed);
    });
}
