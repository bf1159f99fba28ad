//! Machines that are not like this one: a container that masks `/proc`, a user who is neither root nor nobody, root that is
//! not root of everything.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, Tier};

use super::kit::{Room, out, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("tiers::a_masked_proc_leaves_everything_but_proc", masked_proc),
        test("tiers::a_container_that_refuses_clone3_and_namespaces_leaves_a_tier", filtered),
        test("tiers::a_broker_whose_process_group_is_outside_of_its_namespace_works", foreign_group),
        test("tiers::a_user_of_any_number_is_confined", any_user),
        test("tiers::a_broker_whose_process_group_is_out_of_sight_runs_programs", inner_processes),
        test("tiers::root_of_a_container_runs_nothing_as_root", no_root),
        test("tiers::the_user_keeps_most_of_his_inotify_instances", watches),
        test("tiers::a_run_is_born_into_a_group_of_version_2_and_ended_with_it", unified_groups),
    ]
}

fn masked_proc() {
    let expected = "full-no-proc\nno /proc\nplain\nspeculative 1\ndemanding full: refused\n";
    check("masked-proc", expected);
}

// `unshare --pid --fork`, bubblewrap: the group has no number in there.
fn foreign_group() {
    check("foreign-group", "full\nplain\n");
    // With the `/proc` of those outside nobody would know whom it ends.
    let (_room, said) = run_machine("foreign-proc");
    assert!(said.starts_with("sandbox tier `no-userns` is not available: /proc"), "{said}");
}

pub(crate) fn in_a_foreign_group(room: &str, own_proc: bool) -> ExitCode {
    become_user(None);
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["say-run", room]);
    let mount = move || match own_proc {
        true => Ok(rustix::mount::mount("proc", "/proc", "proc", rustix::mount::MountFlags::empty(), None)?),
        false => Ok(()),
    };
    let said = unsafe { inside.pre_exec(mount) }.status().unwrap();
    ExitCode::from(u8::from(!said.success()))
}

// What container programs do when nothing else was asked for.
fn filtered() {
    check("container-filter", "no-userns\nplain\n");
}

/// No namespaces, no mounts; `clone3`, whose arguments a filter cannot see, is said not to be there.
pub(crate) fn behind_a_filter(room: &str) -> ! {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let is = |call: i64, jt| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, 0, call as u32);
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let refuse = |errno: i32| answer(libc::SECCOMP_RET_ERRNO | errno as u32);
    let any_namespace = 0x7e02_0000;
    let mut filter = [
        load(0),
        is(libc::SYS_unshare, 6),
        is(libc::SYS_setns, 5),
        is(libc::SYS_mount, 4),
        is(libc::SYS_clone3, 4),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 4, libc::SYS_clone as u32),
        load(16),
        step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 2, any_namespace),
        refuse(libc::EPERM),
        refuse(libc::ENOSYS),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    assert_eq!(
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) },
        0
    );
    go_on("say-run", room)
}

pub(crate) fn say_run(room: &str) -> ExitCode {
    let room = Path::new(room);
    let spec = vambrace_sandbox::Spec::new("cat", room.join("project"));
    let spec = vambrace_sandbox::Spec { arguments: vec!["plain.txt".into()], ..spec };
    let places = vambrace_sandbox::Places::below(&room.join("state"));
    let sandbox = vambrace_sandbox::Sandbox::start(&std::env::current_exe().unwrap(), places);
    match sandbox.and_then(|sandbox| sandbox.run(&spec, Input::Nothing, &mut |_, _| {})) {
        Ok(outcome) => print!("{}\n{}", outcome.tier, out(&outcome)),
        Err(fault) => println!("{fault}"),
    }
    ExitCode::SUCCESS
}

// Nobody's number is what the kernel says to whoever is in a user namespace without maps.
fn any_user() {
    check("another-user", "full\nplain\nspeculative 1\ndemanding full: ran\n");
}

// Whoever is put into a container by somebody outside of it has a group without a number there.
fn inner_processes() {
    check("inner-processes", "full\nplain\nspeculative 1\ndemanding full: ran\n");
}

/// A pid namespace, with a `/proc` of its own, into which the group of this process does not reach.
pub(crate) fn with_inner_processes(room: &str) -> ExitCode {
    become_user(None);
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["say-tier", room]);
    let mount = || {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("proc", "/proc", "proc", flags, None).map_err(std::io::Error::from)
    };
    let ended = unsafe { inside.pre_exec(mount) }.status().unwrap();
    ExitCode::from(u8::from(!ended.success()))
}

fn watches() {
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let (_room, said) = run_machine("few-watches");
    let (full, without) = said.trim().split_once(' ').unwrap();
    assert!((1..=most / 4).contains(&full.parse().unwrap()), "{said}");
    assert_eq!(without, "0");
}

/// How many instances a run of an ordinary user gets, in either tier.
pub(crate) fn few_watches(room: &str) -> ! {
    become_user(Some(1234));
    go_on("say-watches", room)
}

pub(crate) fn say_watches(room: &str) -> ExitCode {
    let room = Path::new(room);
    let sandbox = start(&room.join("state"));
    let program = std::env::current_exe().unwrap();
    let mut spec = vambrace_sandbox::Spec::new(&program, room.join("project"));
    spec.arguments = vec!["hog".into(), "watches".into()];
    spec.read = vec![program];
    for tier in super::kit::TIERS {
        spec.only = Some(tier);
        print!("{} ", out(&sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap()).trim());
    }
    ExitCode::SUCCESS
}

// Root with the capabilities of a container, root of a user namespace with one id: neither is root inside or, where there
// is another id, outside.
fn no_root() {
    let owner = |room: &Room| std::fs::metadata(room.path("outside/made")).unwrap().uid();
    let me = unsafe { libc::geteuid() };
    let room = check("one-id", "full 1000\nplain\nspeculative 1\nno-userns: refused\n");
    assert_eq!(owner(&room), me);
    if me == 0 {
        let room = check("capabilities", "full 1000\nplain\nspeculative refused\nno-userns: ran, unseen\n");
        assert!(owner(&room) >= 1_990_000_000, "{}", owner(&room));
    } else {
        println!("skipped in part: only root can give up capabilities");
    }
}

/// The only id of a user namespace, and root in it.
pub(crate) fn with_one_id(room: &str) -> ! {
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, 0);
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
    go_on("say-who", room)
}

/// Root as container programs start it, but that user namespaces are allowed.
pub(crate) fn with_few_capabilities(room: &str) -> ! {
    // Those over owners and modes of files, signals, ids and capabilities: 0, 1, 3 to 8 and 31.
    for number in (0..41).filter(|number| !matches!(number, 0 | 1 | 3..=8 | 31)) {
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    go_on("say-who", room)
}

pub(crate) fn say_who(room: &str) -> ExitCode {
    let room = Path::new(room);
    let sandbox = start(&room.join("state"));
    let mut spec = vambrace_sandbox::Spec::new("sh", room.join("project"));
    let made = room.join("outside/made");
    spec.arguments = vec!["-c".into(), format!("id -u; cat plain.txt; echo x >{}", made.display()).into()];
    spec.write = vec![room.join("outside")];
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    print!("{} {}", outcome.tier, out(&outcome));
    spec.arguments = vec!["-c".into(), "echo x >new".into()];
    spec.filesystem = Filesystem::Speculative;
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {});
    let changes = |outcome: vambrace_sandbox::Outcome| outcome.changes.unwrap().list.len().to_string();
    println!("speculative {}", outcome.map_or_else(|_| "refused".to_owned(), changes));
    spec.filesystem = Filesystem::Read;
    spec.only = Some(Tier::NoUserns);
    let ran = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).map(|outcome| outcome.denials_missing);
    println!("no-userns: {}", ran.map_or("refused", |missing| if missing { "ran, unseen" } else { "ran" }));
    ExitCode::SUCCESS
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
pub(crate) fn check(machine: &str, expected: &str) -> Room {
    let (room, words) = run_machine(machine);
    assert_eq!(words, expected);
    room
}

#[track_caller]
fn run_machine(machine: &str) -> (Room, String) {
    let room = Room::new();
    std::fs::create_dir(room.path("state")).unwrap();
    for name in ["state", "outside"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(room.path(name), open).unwrap();
    }
    let program = std::env::current_exe().unwrap();
    let said = Command::new(program).arg(machine).arg(room.path("")).output().unwrap();
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success(), "{words}{}", String::from_utf8_lossy(&said.stderr));
    (room, words)
}

/// As an ordinary user in namespaces of a container: one file of `/proc` is covered, so no new one can be mounted.
pub(crate) fn behind_a_mask(room: &str) -> ! {
    become_user(None);
    let (from, to) = (c"/dev/null".as_ptr(), c"/proc/version".as_ptr());
    let bound = unsafe { libc::mount(from, to, std::ptr::null(), libc::MS_BIND, std::ptr::null()) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    go_on("say-tier", room)
}

pub(crate) fn as_another_user(room: &str) -> ! {
    become_user(Some(1234));
    go_on("say-tier", room)
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

fn go_on(words: &str, room: &str) -> ! {
    let failed = Command::new(std::env::current_exe().unwrap()).args([words, room]).exec();
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
