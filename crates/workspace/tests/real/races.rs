//! T13 under a race: while a thread swaps files and folders for links to the outside as fast as it can, nothing
//! from the outside is ever read, listed or found.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use vambrace_core::CallError;
use vambrace_workspace::{ListRequest, SearchRequest};

use crate::tree::{CANARY, Door, Tree, lines, path};

const SWAPS: u64 = 120_000;

fn swap(tree: &Tree, one: &str, other: &str) {
    renameat_with(CWD, tree.at(one), CWD, tree.at(other), RenameFlags::EXCHANGE).unwrap();
}

fn assert_clean(what: &str, said: &str) {
    assert!(!said.contains("CANARY") && !said.contains("canary-name"), "{what} told {said}");
}

fn tell<T: std::fmt::Debug>(result: Result<T, impl Into<CallError>>) -> (String, bool) {
    match result {
        Ok(value) => (format!("{value:?}"), true),
        Err(error) => (format!("{:?}", error.into()), false),
    }
}

fn probe(door: &Door, seen: &AtomicU64) {
    let want = SearchRequest { threads: 2, ..lines("CANARY|inside") };
    for asked in ["file", "folder/secret.txt", "alias", "link/secret.txt"] {
        let (said, ok) = tell(door.read(asked));
        assert_clean(asked, &said);
        seen.fetch_add(u64::from(ok), Ordering::Relaxed);
    }
    let all = ListRequest { recursive: true, ..ListRequest::default() };
    for asked in ["", "folder", "link"] {
        assert_clean("list", &tell(door.0.list(&path(asked), &all)).0);
    }
    for asked in ["", "folder", "file"] {
        let found = door.0.search(&path(asked), &want);
        // The pattern itself is not a find.
        let found = found.map(|result| result.matches);
        assert_clean("search", &tell(found).0);
    }
}

// T13
#[test]
fn nothing_from_outside_is_seen_while_links_are_swapped_in() {
    let tree = Tree::new();
    tree.file("file", "inside\n").file("folder/secret.txt", "inside\n");
    std::fs::write(tree.outside().join("canary-name"), CANARY).unwrap();
    tree.link("swap_file", tree.outside().join("secret.txt")).link("swap_folder", tree.outside());
    // Links inside the scope that lead over the swapped names.
    tree.link("alias", "file").link("link", "folder");
    let door = tree.open();
    let done = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..SWAPS / 2 {
                swap(&tree, "file", "swap_file");
                swap(&tree, "folder", "swap_folder");
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                probe(&door, &seen);
            }
        });
    });
    assert!(seen.load(Ordering::Relaxed) > 0, "nothing was ever read: the test proves nothing");
}

// T13: a name that runs ahead of the count must not be counted twice.
#[test]
fn a_hard_link_to_the_outside_cannot_hide_by_moving() {
    let tree = Tree::new();
    for folder in 0..20 {
        tree.file(&format!("d{folder:02}/x"), "x");
    }
    std::fs::hard_link(tree.outside().join("secret.txt"), tree.at("d00/moving")).unwrap();
    std::fs::hard_link(tree.outside().join("secret.txt"), tree.at("fixed")).unwrap();
    let door = tree.open();
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
            assert_clean("read", &tell(door.read("fixed")).0);
        }
        for _ in 0..100 {
            let found = door.0.search(&path(""), &lines("CANARY")).map(|found| found.matches);
            assert_clean("search", &tell(found).0);
        }
        done.store(true, Ordering::Relaxed);
    });
}
