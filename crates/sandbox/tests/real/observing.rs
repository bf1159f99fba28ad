//! Whose memory the observer reads, what it tells of it, and who waits for it.

use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, Operation, Tier};

use super::kit::{Room, TIERS, in_tier, is_root, out, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("observing::who_was_started_in_anothers_memory_is_read_in_its_own", a_memory_that_was_shared),
        test("observing::who_closes_itself_to_others_is_heard_or_that_is_told", closed_programs),
        test("observing::a_program_that_may_not_start_is_told_in_every_tier", programs_that_may_not_start),
        test("observing::what_has_no_name_is_left_to_the_kernel", nameless_calls),
        test("observing::a_file_system_that_never_answers_delays_nobody", stuck_file_systems),
    ]
}

// Issue 6, 4
fn programs_that_may_not_start() {
    let room = Room::new();
    room.write("outside/tool", "#!/bin/sh\necho ran\n");
    let tool = room.path("outside/tool");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    for tier in TIERS {
        let spec = room.shell(Filesystem::Read, &format!("{}; true", tool.display()));
        let outcome = run(&in_tier(spec, tier));
        let told: Vec<_> = outcome.denials.iter().map(|one| (one.operation, one.path.clone())).collect();
        assert_eq!(told, [(Operation::Execute, tool.clone())], "{tier}");
        assert_eq!(out(&outcome), "", "{tier}");
        // What may start is not told: of the system, of its own, what has no name, what is nowhere.
        let script = "cd ${TMPDIR:-/tmp}; cp /bin/echo own; ./own ran; ls >/dev/null; no-such-program; \
                      python3 -c 'import os; f = os.memfd_create(\"m\", 0); os.write(f, open(\"/bin/true\", \"rb\").read()); os.execve(f, [\"m\"], {})'";
        let outcome = run(&in_tier(room.shell(Filesystem::Read, script), tier));
        assert_eq!((outcome.exit, out(&outcome).as_str()), (Exit::Code(0), "ran\n"), "{tier}: {outcome:?}");
        assert_eq!((outcome.denials, outcome.denials_missing), (vec![], false), "{tier}");
    }
}

// Issue 6, 4: nothing is told of a path that is none
fn nameless_calls() {
    let room = Room::new();
    let own = std::env::current_exe().unwrap();
    for tier in TIERS {
        let mut spec = in_tier(room.spec(Filesystem::Read, own.to_str().unwrap(), &["nameless"]), tier);
        spec.read = vec![own.clone()];
        let outcome = run(&spec);
        assert_eq!(out(&outcome), format!("{} {}\n", libc::ENOENT, libc::EFAULT), "{tier}");
        assert_eq!(outcome.denials, [], "{tier}");
    }
}

/// Opens what has no name, and what cannot be read.
pub(crate) fn nameless() -> ! {
    let (kind, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, std::ptr::null_mut());
    let closed = unsafe { libc::mmap(none, 4096, libc::PROT_NONE, kind, -1, 0) };
    let open = |text: *const libc::c_char| {
        assert!(unsafe { libc::openat(libc::AT_FDCWD, text, libc::O_WRONLY) } < 0);
        std::io::Error::last_os_error().raw_os_error().unwrap()
    };
    println!("{} {}", open(c"".as_ptr()), open(closed.cast()));
    std::process::exit(0);
}

fn skipped(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

// P6, issue 6, 4: whoever looks at the host for a program may hang; the run goes on and ends in time.
fn stuck_file_systems() {
    let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let Some(fuse) = fuse.ok().filter(|_| is_root()) else {
        return skipped("only root mounts a file system that never answers, where there is `/dev/fuse`");
    };
    let room = Room::new();
    let place = room.path("outside/stuck");
    std::fs::create_dir(&place).unwrap();
    let name = CString::new(place.to_str().unwrap()).unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
    let options = CString::new(options).unwrap();
    let kind = c"fuse".as_ptr();
    let mounted = unsafe { libc::mount(kind, name.as_ptr(), kind, libc::MS_NOSUID, options.as_ptr().cast()) };
    if mounted != 0 {
        return skipped(&std::io::Error::last_os_error().to_string());
    }
    let mut found = Vec::new();
    for tier in TIERS {
        for script in ["echo said; echo x >STUCK/x/y", "echo said; STUCK/x/y", "echo said; mkdir STUCK"] {
            let script = script.replace("STUCK", place.to_str().unwrap());
            let mut spec = in_tier(room.shell(Filesystem::Read, &script), tier);
            spec.limits.time = Duration::from_secs(1);
            let start = Instant::now();
            let outcome = run(&spec);
            found.push((tier, script, start.elapsed(), outcome));
        }
    }
    unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) };
    // Whoever still waits gets an error.
    drop(fuse);
    for (tier, script, took, outcome) in found {
        assert!(took < Duration::from_secs(5), "{tier} {script}: {took:?}");
        assert_eq!(out(&outcome), "said\n", "{tier} {script}");
        let known = outcome.exit != Exit::Timeout;
        assert!(known || outcome.denials_missing, "{tier} {script}: {outcome:?}");
    }
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
