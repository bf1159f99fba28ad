//! Whose memory the observer reads.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, Tier};

use super::kit::{Room, TIERS, in_tier, is_root, out, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("observing::who_was_started_in_anothers_memory_is_read_in_its_own", a_memory_that_was_shared),
        test("observing::who_closes_itself_to_others_is_heard_or_that_is_told", closed_programs),
    ]
}

// 6.4: a program is started by a child that has its parent's memory until then.
fn a_memory_that_was_shared() {
    let room = Room::new();
    let own = std::env::current_exe().unwrap();
    for tier in TIERS {
        let program = own.to_str().unwrap();
        let mut spec = in_tier(room.spec(Filesystem::Read, program, &["same-place", "parent"]), tier);
        spec.read = vec![own.clone()];
        let outcome = run(&spec);
        assert_eq!(out(&outcome), "refused refused\n", "{tier}");
        let paths: Vec<_> = outcome.denials.iter().map(|denial| denial.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/usr/parent", "/usr/child"], "{tier}");
    }
}

// 6.4: a process that is not to be dumped has files in `/proc` that are root's.
fn closed_programs() {
    let room = Room::new();
    let own = std::env::current_exe().unwrap();
    for tier in TIERS {
        let mut spec =
            in_tier(room.spec(Filesystem::Read, own.to_str().unwrap(), &["closed", "/usr/closed"]), tier);
        spec.read = vec![own.clone()];
        let outcome = run(&spec);
        assert_eq!(outcome.exit, Exit::Code(1), "{tier}");
        let paths: Vec<_> = outcome.denials.iter().map(|denial| denial.path.to_str().unwrap()).collect();
        // Without a namespace of its own, nobody but root may ask the kernel about it.
        let heard = tier == Tier::Full || is_root();
        assert_eq!(paths, if heard { vec!["/usr/closed"] } else { vec![] }, "{tier}");
        assert_eq!(outcome.denials_missing, !heard, "{tier}");
    }
}

/// Lets nobody look into it, and makes a file.
pub(crate) fn closed(path: &str) -> ! {
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
    std::process::exit(i32::from(std::fs::write(path, "x").is_err()));
}

/// Asks for a path that lies at the same address in every program that does so.
pub(crate) fn same_place(who: &str) -> ! {
    let place = 0x2000_0000_0000_usize as *mut libc::c_void;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    assert_eq!(unsafe { libc::mmap(place, 4096, access, kind, -1, 0) }, place);
    let path = format!("/usr/{who}\0");
    unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), place.cast(), path.len()) };
    let refused = unsafe { libc::open(place.cast(), libc::O_WRONLY | libc::O_CREAT, 0o600) } < 0;
    if who == "parent" {
        let child = Command::new(std::env::current_exe().unwrap()).args(["same-place", "child"]).status();
        let told = |refused: bool| if refused { "refused" } else { "open" };
        println!("{} {}", told(refused), told(child.unwrap().into_raw() == 0));
    }
    std::process::exit(i32::from(!refused));
}
