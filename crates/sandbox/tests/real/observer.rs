//! The observer: whose memory it reads, what it reports, and that no run waits for it.

use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use vambrace_sandbox::{DeniedOperation, Exit, Filesystem, Tier};

use super::harness::{TIERS, TestProject, in_tier, is_root, out, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "observer::path_of_a_child_that_shared_memory_is_read_from_its_own_memory",
            path_of_a_child_that_shared_memory_is_read_from_its_own_memory,
        ),
        test(
            "observer::denial_of_an_undumpable_process_is_reported_or_counted_as_missing",
            denial_of_an_undumpable_process_is_reported_or_counted_as_missing,
        ),
        test(
            "observer::program_that_may_not_start_is_reported_in_every_tier",
            program_that_may_not_start_is_reported_in_every_tier,
        ),
        test(
            "observer::call_without_a_path_is_left_to_the_kernel",
            call_without_a_path_is_left_to_the_kernel,
        ),
        test(
            "observer::hanging_file_system_does_not_delay_the_run",
            hanging_file_system_does_not_delay_the_run,
        ),
    ]
}

fn program_that_may_not_start_is_reported_in_every_tier() {
    let fixture = TestProject::new();
    fixture.write("outside/tool", "#!/bin/sh\necho ran\n");
    let tool = fixture.path("outside/tool");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    for tier in TIERS {
        let spec = fixture.shell(Filesystem::Read, &format!("{}; true", tool.display()));
        let outcome = run(&in_tier(spec, tier));
        let reported: Vec<_> = outcome.denials.iter().map(|one| (one.operation, one.path.clone())).collect();
        assert_eq!(reported, [(DeniedOperation::Execute, tool.clone())], "{tier}");
        assert_eq!(out(&outcome), "", "{tier}");
        // Not reported: a program of the system, its own copy, one without a name (memfd), one that does not exist.
        let script = "cd ${TMPDIR:-/tmp}; cp /bin/echo own; ./own ran; ls >/dev/null; no-such-program; \
                      python3 -c 'import os; f = os.memfd_create(\"m\", 0); os.write(f, open(\"/bin/true\", \"rb\").read()); os.execve(f, [\"m\"], {})'";
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, script), tier));
        assert_eq!((outcome.exit, out(&outcome).as_str()), (Exit::Code(0), "ran\n"), "{tier}: {outcome:?}");
        assert_eq!((outcome.denials, outcome.denials_missing), (vec![], false), "{tier}");
    }
}

// Nothing is reported without a path
fn call_without_a_path_is_left_to_the_kernel() {
    let fixture = TestProject::new();
    let own = std::env::current_exe().unwrap();
    for tier in TIERS {
        let mut spec = in_tier(fixture.spec(Filesystem::Read, own.to_str().unwrap(), &["nameless"]), tier);
        spec.read = vec![own.clone()];
        let outcome = run(&spec);
        assert_eq!(out(&outcome), format!("{} {}\n", libc::ENOENT, libc::EFAULT), "{tier}");
        assert_eq!(outcome.denials, [], "{tier}");
    }
}

/// Opens an empty path, and one at an unreadable address.
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

// P6: inspecting a path on the host may hang; the run continues and ends in time.
fn hanging_file_system_does_not_delay_the_run() {
    let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let Some(fuse) = fuse.ok().filter(|_| is_root()) else {
        return vambrace_skip::skip("mounting a file system that never answers needs root and `/dev/fuse`");
    };
    let fixture = TestProject::new();
    let place = fixture.path("outside/stuck");
    std::fs::create_dir(&place).unwrap();
    let name = CString::new(place.to_str().unwrap()).unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
    let options = CString::new(options).unwrap();
    let kind = c"fuse".as_ptr();
    let mounted = unsafe { libc::mount(kind, name.as_ptr(), kind, libc::MS_NOSUID, options.as_ptr().cast()) };
    if mounted != 0 {
        return vambrace_skip::skip(&std::io::Error::last_os_error().to_string());
    }
    let mut found = Vec::new();
    for tier in TIERS {
        for script in ["echo said; echo x >STUCK/x/y", "echo said; STUCK/x/y", "echo said; mkdir STUCK"] {
            let script = script.replace("STUCK", place.to_str().unwrap());
            let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), tier);
            spec.limits.time = Duration::from_secs(1);
            let start = Instant::now();
            let outcome = run(&spec);
            found.push((tier, script, start.elapsed(), outcome));
        }
    }
    unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) };
    // Calls that still wait get an error.
    drop(fuse);
    for (tier, script, took, outcome) in found {
        assert!(took < Duration::from_secs(5), "{tier} {script}: {took:?}");
        assert_eq!(out(&outcome), "said\n", "{tier} {script}");
        let known = outcome.exit != Exit::Timeout;
        assert!(known || outcome.denials_missing, "{tier} {script}: {outcome:?}");
    }
}

// A child shares its parent's memory (vfork) until it execs.
fn path_of_a_child_that_shared_memory_is_read_from_its_own_memory() {
    let fixture = TestProject::new();
    let own = std::env::current_exe().unwrap();
    for tier in TIERS {
        let program = own.to_str().unwrap();
        let mut spec = in_tier(fixture.spec(Filesystem::Read, program, &["same-place", "parent"]), tier);
        spec.read = vec![own.clone()];
        let outcome = run(&spec);
        assert_eq!(out(&outcome), "denied denied\n", "{tier}");
        let paths: Vec<_> = outcome.denials.iter().map(|denial| denial.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/usr/parent", "/usr/child"], "{tier}");
    }
}

// The files in `/proc` of a process that is not dumpable belong to root.
fn denial_of_an_undumpable_process_is_reported_or_counted_as_missing() {
    let fixture = TestProject::new();
    let own = std::env::current_exe().unwrap();
    for tier in TIERS {
        let mut spec =
            in_tier(fixture.spec(Filesystem::Read, own.to_str().unwrap(), &["closed", "/usr/closed"]), tier);
        spec.read = vec![own.clone()];
        let outcome = run(&spec);
        assert_eq!(outcome.exit, Exit::Code(1), "{tier}");
        let paths: Vec<_> = outcome.denials.iter().map(|denial| denial.path.to_str().unwrap()).collect();
        // Without a user namespace, only root may read its memory.
        let received = tier == Tier::Full || is_root();
        assert_eq!(paths, if received { vec!["/usr/closed"] } else { vec![] }, "{tier}");
        assert_eq!(outcome.denials_missing, !received, "{tier}");
    }
}

/// Makes itself undumpable, and creates a file.
pub(crate) fn closed(path: &str) -> ! {
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
    std::process::exit(i32::from(std::fs::write(path, "x").is_err()));
}

/// Opens a path that is at the same address in parent and child.
pub(crate) fn same_place(who: &str) -> ! {
    let place = 0x2000_0000_0000_usize as *mut libc::c_void;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    assert_eq!(unsafe { libc::mmap(place, 4096, access, kind, -1, 0) }, place);
    let path = format!("/usr/{who}\0");
    unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), place.cast(), path.len()) };
    let denied = unsafe { libc::open(place.cast(), libc::O_WRONLY | libc::O_CREAT, 0o600) } < 0;
    if who == "parent" {
        let child = Command::new(std::env::current_exe().unwrap()).args(["same-place", "child"]).status();
        let reported = |denied: bool| if denied { "denied" } else { "open" };
        println!("{} {}", reported(denied), reported(child.unwrap().into_raw() == 0));
    }
    std::process::exit(i32::from(!denied));
}
