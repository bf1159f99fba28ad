//! Machines that are not like this one: a container that masks `/proc`, a user who is neither root nor nobody.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, Tier};

use super::kit::{Room, out, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("tiers::a_masked_proc_leaves_everything_but_proc", masked_proc),
        test("tiers::a_user_of_any_number_is_confined", any_user),
    ]
}

fn masked_proc() {
    let expected = "full-no-proc\nno /proc\nplain\nspeculative 1\ndemanding full: refused\n";
    check("masked-proc", expected);
}

// Nobody's number is what the kernel says to whoever is in a user namespace without maps.
fn any_user() {
    check("another-user", "full\nplain\nspeculative 1\ndemanding full: ran\n");
}

#[track_caller]
fn check(machine: &str, expected: &str) {
    let room = Room::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::create_dir(room.path("state")).unwrap();
    std::fs::set_permissions(room.path("state"), open).unwrap();
    let program = std::env::current_exe().unwrap();
    let said = Command::new(program).arg(machine).arg(room.path("")).output().unwrap();
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(words, expected, "{}", String::from_utf8_lossy(&said.stderr));
}

/// As an ordinary user in namespaces of a container: one file of `/proc` is covered, so no new one can be mounted.
pub(crate) fn behind_a_mask(room: &str) -> ! {
    become_user(None);
    let (from, to) = (c"/dev/null".as_ptr(), c"/proc/version".as_ptr());
    let bound = unsafe { libc::mount(from, to, std::ptr::null(), libc::MS_BIND, std::ptr::null()) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    go_on(room)
}

pub(crate) fn as_another_user(room: &str) -> ! {
    become_user(Some(1234));
    go_on(room)
}

/// An ordinary user, under another number where one is given.
fn become_user(number: Option<u32>) {
    let (uid, gid) = if unsafe { libc::geteuid() } == 0 {
        assert_eq!(unsafe { libc::setgroups(0, std::ptr::null()) }, 0);
        assert_eq!(unsafe { libc::setresgid(65534, 65534, 65534) }, 0);
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        (65534, 65534)
    } else {
        unsafe { (libc::geteuid(), libc::getegid()) }
    };
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) }, 0);
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    let (inner, group) = number.map_or((uid, gid), |number| (number, number));
    std::fs::write("/proc/self/uid_map", format!("{inner} {uid} 1")).unwrap();
    std::fs::write("/proc/self/gid_map", format!("{group} {gid} 1")).unwrap();
}

fn go_on(room: &str) -> ! {
    let failed = Command::new(std::env::current_exe().unwrap()).args(["say-tier", room]).exec();
    panic!("{failed}");
}

pub(crate) fn say_tier(room: &str) -> ExitCode {
    let room = Path::new(room);
    let sandbox = start(&room.join("state"));
    let mut spec = vambrace_sandbox::Spec::new("sh", room.join("project"));
    spec.arguments =
        vec!["-c".into(), "ls /proc/self >/dev/null 2>&1 || echo no /proc; cat plain.txt".into()];
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    print!("{}\n{}", outcome.tier, out(&outcome));
    spec.arguments = vec!["-c".into(), "echo x >new".into()];
    spec.filesystem = Filesystem::Speculative;
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    println!("speculative {}", outcome.changes.unwrap().list.len());
    spec.least = Tier::Full;
    let refused = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).is_err();
    println!("demanding full: {}", if refused { "refused" } else { "ran" });
    ExitCode::SUCCESS
}
