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
        test("tiers::a_run_is_born_into_a_group_of_version_2_and_ended_with_it", unified_groups),
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

fn unified_groups() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    if !rustix::process::geteuid().is_root() || !mounts.contains(" cgroup2 rw") {
        return println!("skipped: no control group of version 2 that this user can write");
    }
    check("unified-only", "grouped true, Timeout, left []\n");
}

/// Where the controllers of version 1 are out of sight.
pub(crate) fn unified_only(room: &str) -> ExitCode {
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    for line in mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup")) {
        rustix::mount::unmount(line.split(' ').nth(1).unwrap(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    let room = Path::new(room);
    let sandbox = start(&room.join("state"));
    let mut spec = vambrace_sandbox::Spec::new("sh", room.join("project"));
    spec.only = Some(Tier::NoUserns);
    spec.arguments = vec![
        "-c".into(),
        "while read line; do echo $line; done </proc/self/cgroup; (setsid sleep 1000 &); trap '' TERM; while :; do sleep 1000; done"
            .into(),
    ];
    spec.limits.time = std::time::Duration::from_millis(300);
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    let launcher = sandbox.launcher_id();
    // Cleaning up goes on after the answer.
    drop(sandbox);
    let grouped = out(&outcome).contains("/vambrace-");
    println!("grouped {grouped}, {:?}, left {:?}", outcome.exit, super::trees::groups(launcher));
    ExitCode::SUCCESS
}

#[track_caller]
pub(crate) fn check(machine: &str, expected: &str) {
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
pub(crate) fn become_user(number: Option<u32>) {
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
