//! Other environments than this machine: a container that masks `/proc`, a user who is neither root nor nobody, root with few
//! capabilities.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, Tier};

use super::harness::{TestProject, out, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("tiers::masked_proc_leaves_tier_full_no_proc", masked_proc_leaves_tier_full_no_proc),
        test(
            "tiers::container_that_denies_clone3_and_namespaces_leaves_tier_no_userns",
            container_that_denies_clone3_and_namespaces_leaves_tier_no_userns,
        ),
        test(
            "tiers::broker_whose_process_group_is_outside_its_pid_namespace_works",
            broker_whose_process_group_is_outside_its_pid_namespace_works,
        ),
        test("tiers::user_with_any_uid_is_confined", user_with_any_uid_is_confined),
        test(
            "tiers::broker_whose_process_group_has_no_pid_runs_programs",
            broker_whose_process_group_has_no_pid_runs_programs,
        ),
        test("tiers::root_of_a_container_runs_nothing_as_root", root_of_a_container_runs_nothing_as_root),
        test("tiers::user_keeps_most_inotify_instances", user_keeps_most_inotify_instances),
        test(
            "tiers::run_starts_in_a_cgroup_v2_and_is_killed_with_it",
            run_starts_in_a_cgroup_v2_and_is_killed_with_it,
        ),
    ]
}

// P4
fn masked_proc_leaves_tier_full_no_proc() {
    let expected = "full-no-proc\nno /proc\nplain\nspeculative 1\ndemanding full: denied\n";
    check("masked-proc", expected);
}

// P4: `unshare --pid --fork`, bubblewrap: the process group has no id inside.
fn broker_whose_process_group_is_outside_its_pid_namespace_works() {
    check("foreign-group", "full\nplain\n");
    // With the outer `/proc`, process ids would name the wrong processes.
    let (_room, printed) = run_machine("foreign-proc");
    assert!(printed.starts_with("sandbox tier `no-userns` is not available: /proc"), "{printed}");
}

pub(crate) fn in_a_foreign_group(fixture: &str, own_proc: bool) -> ExitCode {
    become_user(None);
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["say-run", fixture]);
    let mount = move || match own_proc {
        true => Ok(rustix::mount::mount("proc", "/proc", "proc", rustix::mount::MountFlags::empty(), None)?),
        false => Ok(()),
    };
    let printed = unsafe { inside.pre_exec(mount) }.status().unwrap();
    ExitCode::from(u8::from(!printed.success()))
}

// P4: the default seccomp filter of container engines.
fn container_that_denies_clone3_and_namespaces_leaves_tier_no_userns() {
    check("container-filter", "no-userns\nplain\n");
}

/// No namespaces, no mounts; `clone3`, whose arguments a filter cannot see, fails with ENOSYS.
pub(crate) fn behind_a_filter(fixture: &str) -> ! {
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
    go_on("say-run", fixture)
}

pub(crate) fn say_run(fixture: &str) -> ExitCode {
    let fixture = Path::new(fixture);
    let spec = vambrace_sandbox::Spec::new("cat", fixture.join("project"));
    let spec = vambrace_sandbox::Spec { arguments: vec!["plain.txt".into()], ..spec };
    let places = vambrace_sandbox::StateDirs::below(&fixture.join("state"));
    let sandbox = vambrace_sandbox::Sandbox::start(&std::env::current_exe().unwrap(), places);
    match sandbox.and_then(|sandbox| sandbox.run(&spec, Input::Nothing, &mut |_, _| {})) {
        Ok(outcome) => print!("{}\n{}", outcome.tier, out(&outcome)),
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}

// P4: UID 65534 is also what the kernel reports in a user namespace without maps.
fn user_with_any_uid_is_confined() {
    check("another-user", "full\nplain\nspeculative 1\ndemanding full: ran\n");
}

// A process that is moved into a container from outside has a process group without an id there.
fn broker_whose_process_group_has_no_pid_runs_programs() {
    check("inner-processes", "full\nplain\nspeculative 1\ndemanding full: ran\n");
}

/// A pid namespace with its own `/proc`, in which this process's group does not exist.
pub(crate) fn with_inner_processes(fixture: &str) -> ExitCode {
    become_user(None);
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["say-tier", fixture]);
    let mount = || {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("proc", "/proc", "proc", flags, None).map_err(std::io::Error::from)
    };
    let ended = unsafe { inside.pre_exec(mount) }.status().unwrap();
    ExitCode::from(u8::from(!ended.success()))
}

fn user_keeps_most_inotify_instances() {
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let (_room, printed) = run_machine("few-watches");
    let (full, without) = printed.trim().split_once(' ').unwrap();
    assert!((1..=most / 4).contains(&full.parse().unwrap()), "{printed}");
    assert_eq!(without, "0");
}

/// Prints how many inotify instances a run of an ordinary user gets, in either tier.
pub(crate) fn few_watches(fixture: &str) -> ! {
    become_user(Some(1234));
    go_on("say-watches", fixture)
}

pub(crate) fn say_watches(fixture: &str) -> ExitCode {
    let fixture = Path::new(fixture);
    let sandbox = start(&fixture.join("state"));
    let program = std::env::current_exe().unwrap();
    let mut spec = vambrace_sandbox::Spec::new(&program, fixture.join("project"));
    spec.arguments = vec!["hog".into(), "watches".into()];
    spec.read = vec![program];
    for tier in super::harness::TIERS {
        spec.forced_tier = Some(tier);
        print!("{} ", out(&sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap()).trim());
    }
    ExitCode::SUCCESS
}

// P4: root with the capabilities of a container, and root of a user namespace with a single id: the program is root neither inside
// nor, if there is another id, outside.
fn root_of_a_container_runs_nothing_as_root() {
    let owner = |fixture: &TestProject| std::fs::metadata(fixture.path("outside/made")).unwrap().uid();
    let me = unsafe { libc::geteuid() };
    let fixture = check("one-id", "full 1000\nplain\nspeculative 1\nno-userns: denied\n");
    assert_eq!(owner(&fixture), me);
    if me == 0 {
        let fixture =
            check("capabilities", "full 1000\nplain\nspeculative denied\nno-userns: ran, unobserved\n");
        assert!(owner(&fixture) >= 1_990_000_000, "{}", owner(&fixture));
    } else {
        vambrace_skip::skip_part("only root can drop capabilities");
    }
}

/// Root of a user namespace with a single id.
pub(crate) fn with_one_id(fixture: &str) -> ! {
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, 0);
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
    go_on("say-who", fixture)
}

/// Root as container engines start it, except that user namespaces are allowed.
pub(crate) fn with_few_capabilities(fixture: &str) -> ! {
    // Kept: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP and SETFCAP (0, 1, 3 to 8, 31).
    for number in (0..41).filter(|number| !matches!(number, 0 | 1 | 3..=8 | 31)) {
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    go_on("say-who", fixture)
}

pub(crate) fn say_who(fixture: &str) -> ExitCode {
    let fixture = Path::new(fixture);
    let sandbox = start(&fixture.join("state"));
    let mut spec = vambrace_sandbox::Spec::new("sh", fixture.join("project"));
    let made = fixture.join("outside/made");
    spec.arguments = vec!["-c".into(), format!("id -u; cat plain.txt; echo x >{}", made.display()).into()];
    spec.write = vec![fixture.join("outside")];
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    print!("{} {}", outcome.tier, out(&outcome));
    spec.arguments = vec!["-c".into(), "echo x >new".into()];
    spec.filesystem = Filesystem::Speculative;
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {});
    let changes = |outcome: vambrace_sandbox::RunOutcome| outcome.changes.unwrap().list.len().to_string();
    println!("speculative {}", outcome.map_or_else(|_| "denied".to_owned(), changes));
    spec.filesystem = Filesystem::Read;
    spec.forced_tier = Some(Tier::NoUserns);
    let ran = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).map(|outcome| outcome.denials_missing);
    println!(
        "no-userns: {}",
        ran.map_or("denied", |missing| if missing { "ran, unobserved" } else { "ran" })
    );
    ExitCode::SUCCESS
}

// P6
fn run_starts_in_a_cgroup_v2_and_is_killed_with_it() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    if !rustix::process::geteuid().is_root() || !mounts.contains(" cgroup2 rw") {
        return vambrace_skip::skip("no cgroup v2 hierarchy that this user can write");
    }
    check("unified-only", "grouped true, Timeout, left []\n");
}

/// With the controllers of cgroup v1 unmounted.
pub(crate) fn unified_only(fixture: &str) -> ExitCode {
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    for line in mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup")) {
        rustix::mount::unmount(line.split(' ').nth(1).unwrap(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    let fixture = Path::new(fixture);
    let sandbox = start(&fixture.join("state"));
    let mut spec = vambrace_sandbox::Spec::new("sh", fixture.join("project"));
    spec.forced_tier = Some(Tier::NoUserns);
    spec.arguments = vec![
        "-c".into(),
        "while read line; do echo $line; done </proc/self/cgroup; (setsid sleep 1000 &); trap '' TERM; while :; do sleep 1000; done"
            .into(),
    ];
    spec.limits.time = std::time::Duration::from_millis(300);
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    let launcher = sandbox.launcher_id();
    // The launcher still cleans up after it has answered.
    drop(sandbox);
    let grouped = out(&outcome).contains("/vambrace-");
    println!("grouped {grouped}, {:?}, left {:?}", outcome.exit, super::processes::groups(launcher));
    ExitCode::SUCCESS
}

#[track_caller]
pub(crate) fn check(machine: &str, expected: &str) -> TestProject {
    let (fixture, words) = run_machine(machine);
    assert_eq!(words, expected);
    fixture
}

#[track_caller]
fn run_machine(machine: &str) -> (TestProject, String) {
    let fixture = TestProject::new();
    std::fs::create_dir(fixture.path("state")).unwrap();
    for name in ["state", "outside"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(fixture.path(name), open).unwrap();
    }
    let program = std::env::current_exe().unwrap();
    let printed = Command::new(program).arg(machine).arg(fixture.path("")).output().unwrap();
    let words = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.status.success(), "{words}{}", String::from_utf8_lossy(&printed.stderr));
    (fixture, words)
}

/// An ordinary user in the namespaces of a container: one file of `/proc` is masked, so no new `/proc` can be mounted.
pub(crate) fn behind_a_mask(fixture: &str) -> ! {
    become_user(None);
    let (from, to) = (c"/dev/null".as_ptr(), c"/proc/version".as_ptr());
    let bound = unsafe { libc::mount(from, to, std::ptr::null(), libc::MS_BIND, std::ptr::null()) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    go_on("say-tier", fixture)
}

pub(crate) fn as_another_user(fixture: &str) -> ! {
    become_user(Some(1234));
    go_on("say-tier", fixture)
}

/// Becomes an ordinary user, with another UID inside if one is given.
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

fn go_on(words: &str, fixture: &str) -> ! {
    let failed = Command::new(std::env::current_exe().unwrap()).args([words, fixture]).exec();
    panic!("{failed}");
}

pub(crate) fn say_tier(fixture: &str) -> ExitCode {
    let fixture = Path::new(fixture);
    let sandbox = start(&fixture.join("state"));
    let mut spec = vambrace_sandbox::Spec::new("sh", fixture.join("project"));
    spec.arguments =
        vec!["-c".into(), "ls /proc/self >/dev/null 2>&1 || echo no /proc; cat plain.txt".into()];
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    print!("{}\n{}", outcome.tier, out(&outcome));
    spec.arguments = vec!["-c".into(), "echo x >new".into()];
    spec.filesystem = Filesystem::Speculative;
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    println!("speculative {}", outcome.changes.unwrap().list.len());
    spec.min_tier = Tier::Full;
    let denied = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).is_err();
    println!("demanding full: {}", if denied { "denied" } else { "ran" });
    ExitCode::SUCCESS
}
