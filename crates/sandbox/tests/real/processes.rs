//! Time, process trees, memory, disk, output: nothing hangs, nothing survives, everything is bounded.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, Input, Observe, OutputStream, Spec, StopHandle, Tier};

use super::harness::{TIERS, TestProject, check_out, err, in_tier, out, run, sandbox, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("processes::writes_to_build_directories_are_bounded", writes_to_build_directories_are_bounded),
        test("processes::timeout_kills_the_whole_process_tree", timeout_kills_the_whole_process_tree),
        test(
            "processes::program_that_ignores_sigterm_or_stops_itself_is_killed",
            program_that_ignores_sigterm_or_stops_itself_is_killed,
        ),
        test("processes::program_can_clean_up_after_sigterm", program_can_clean_up_after_sigterm),
        test("processes::run_can_be_stopped_early", run_can_be_stopped_early),
        test("processes::stopped_run_gets_its_full_grace_period", stopped_run_gets_its_full_grace_period),
        test("processes::idle_launcher_exits_at_once", idle_launcher_exits_at_once),
        test("processes::maximum_time_limit_does_not_overflow", maximum_time_limit_does_not_overflow),
        test(
            "processes::detached_grandchild_does_not_survive_the_call",
            detached_grandchild_does_not_survive_the_call,
        ),
        test(
            "processes::child_that_holds_the_pipe_does_not_hang_the_call",
            child_that_holds_the_pipe_does_not_hang_the_call,
        ),
        test("processes::endless_output_is_truncated_and_counted", endless_output_is_truncated_and_counted),
        test(
            "processes::output_is_streamed_while_the_program_runs",
            output_is_streamed_while_the_program_runs,
        ),
        test("processes::fork_bomb_is_bounded", fork_bomb_is_bounded),
        test(
            "processes::memory_hog_is_killed_and_reported_as_out_of_memory",
            memory_hog_is_killed_and_reported_as_out_of_memory,
        ),
        test(
            "processes::shared_orphaned_and_hidden_memory_is_counted",
            shared_orphaned_and_hidden_memory_is_counted,
        ),
        test("processes::number_of_files_is_bounded", number_of_files_is_bounded),
        test("processes::killed_zygote_is_replaced", killed_zygote_is_replaced),
        test(
            "processes::disk_file_size_and_descriptors_are_bounded",
            disk_file_size_and_descriptors_are_bounded,
        ),
        test(
            "processes::run_without_mounts_that_writes_too_much_is_killed",
            run_without_mounts_that_writes_too_much_is_killed,
        ),
        test(
            "processes::unreadable_directories_of_a_run_are_removed",
            unreadable_directories_of_a_run_are_removed,
        ),
        test("processes::killed_broker_leaves_nothing", killed_broker_leaves_nothing),
        test(
            "processes::broker_killed_before_it_notified_the_launcher_leaves_no_directory",
            broker_killed_before_it_notified_the_launcher_leaves_no_directory,
        ),
        test("processes::killed_launcher_leaves_no_process", killed_launcher_leaves_no_process),
        test("processes::concurrent_runs_do_not_see_each_other", concurrent_runs_do_not_see_each_other),
        test("processes::warm_cells_are_used_once_and_refilled", warm_cells_are_used_once_and_refilled),
        test("processes::warm_cell_with_other_options_is_not_used", warm_cell_with_other_options_is_not_used),
        test(
            "processes::late_init_kills_what_a_killed_launcher_left",
            late_init_kills_what_a_killed_launcher_left,
        ),
        test(
            "processes::processes_of_a_killed_init_are_killed_and_no_other_run",
            processes_of_a_killed_init_are_killed_and_no_other_run,
        ),
        test(
            "processes::killed_launcher_takes_waiting_cells_with_it",
            killed_launcher_takes_waiting_cells_with_it,
        ),
        test(
            "processes::launcher_does_not_spin_while_it_kills_a_run",
            launcher_does_not_spin_while_it_kills_a_run,
        ),
    ]
}

/// A mark that no other process on the machine has in its arguments.
fn mark(name: &str) -> String {
    format!("vambrace-test-{name}-{}", std::process::id())
}

/// Processes whose command line contains the mark, without zombies.
pub(crate) fn alive(mark: &str) -> Vec<u32> {
    let list = std::fs::read_dir("/proc").unwrap();
    list.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        (pid != std::process::id() && String::from_utf8_lossy(&line).contains(mark)).then_some(pid)
    })
    .collect()
}

fn limited(mut spec: Spec, millis: u64) -> Spec {
    spec.limits.time = Duration::from_millis(millis);
    spec.limits.grace = Duration::from_millis(300);
    spec
}

// P6
fn timeout_kills_the_whole_process_tree() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mark = mark("deadline");
        let script = format!(
            "(setsid sleep 1000 {mark} || sh -c 'sleep 1000; : {mark}') & sh -c 'sleep 1000; : {mark}'"
        );
        let start = Instant::now();
        let outcome = run(&limited(in_tier(fixture.shell(Filesystem::Read, &script), tier), 400));
        assert_eq!(outcome.exit, Exit::Timeout, "{tier}");
        // Within a second of the deadline; the machine may be busy, so the bound is loose here and the benchmark measures it.
        assert!(start.elapsed() < Duration::from_millis(400 + 1000 + 3000), "{:?}", start.elapsed());
        assert_eq!(alive(&mark), [0_u32; 0], "{tier}");
    }
}

// P6
fn program_that_ignores_sigterm_or_stops_itself_is_killed() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mark = mark("ignores");
        let script = format!("trap '' TERM; kill -STOP $$ & while :; do sleep 1; done; : {mark}");
        let outcome = run(&limited(in_tier(fixture.shell(Filesystem::Read, &script), tier), 200));
        assert_eq!(outcome.exit, Exit::Timeout, "{tier}");
        assert_eq!(alive(&mark), [0_u32; 0], "{tier}");
    }
}

fn program_can_clean_up_after_sigterm() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let script = "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done";
        let mut spec = limited(in_tier(fixture.shell(Filesystem::Read, script), tier), 600);
        spec.limits.grace = Duration::from_secs(5);
        let outcome = run(&spec);
        assert_eq!((outcome.exit, out(&outcome).as_str()), (Exit::Timeout, "cleaned\n"), "{tier}");
    }
}

// P6: as at the deadline; a run that had ended is not reported as stopped, and one that begins afterwards is stopped at once.
fn run_can_be_stopped_early() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mark = mark("stopped");
        let polite = format!("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done; : {mark}");
        let stubborn = format!("trap '' TERM; echo up; (sleep 1000 {mark}) & while :; do sleep 1; done");
        for (script, grace, printed) in [(polite, 60, "up\nbye\n"), (stubborn, 0, "up\n")] {
            let stop = StopHandle::new().unwrap();
            let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), tier);
            spec.limits.time = Duration::from_secs(600);
            spec.limits.grace = Duration::from_secs(grace);
            spec.stop = Some(stop.clone());
            for printed in [printed, ""] {
                let outcome = sandbox().run(&spec, Input::Nothing, &mut |_, _| stop.request(2)).unwrap();
                assert_eq!(outcome.exit, Exit::Stopped(2), "{tier} {script}");
                assert!(out(&outcome).starts_with(printed), "{tier} {script}: {}", out(&outcome));
                assert_eq!(alive(&mark), [0_u32; 0], "{tier}");
            }
        }
        let stop = StopHandle::new().unwrap();
        let mut spec = in_tier(fixture.shell(Filesystem::Read, "exit 7"), tier);
        spec.stop = Some(stop);
        assert_eq!(run(&spec).exit, Exit::Code(7), "{tier}");
    }
}

fn stopped_run_gets_its_full_grace_period() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let stop = StopHandle::new().unwrap();
        let script =
            "trap 'sleep 0.3; echo bye; exit 3' TERM; sleep 3.1; echo up; while :; do sleep 0.05; done";
        let mut spec = in_tier(fixture.shell(Filesystem::Read, script), tier);
        spec.limits.grace = Duration::from_secs(3);
        spec.stop = Some(stop.clone());
        let outcome = sandbox().run(&spec, Input::Nothing, &mut |_, _| stop.request(2)).unwrap();
        assert_eq!((outcome.exit, out(&outcome).as_str()), (Exit::Stopped(2), "up\nbye\n"), "{tier}");
    }
}

// Warm cells that were offered and not used must not look like a killed broker, whose end the launcher waits for.
fn idle_launcher_exits_at_once() {
    let fixture = TestProject::new();
    let late = (0..8).filter(|_| {
        let state = tempfile::TempDir::new().unwrap();
        let sandbox = start(state.path());
        let spec = in_tier(fixture.shell(Filesystem::Read, "sleep 0.1"), Tier::NoUserns);
        sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
        let start = Instant::now();
        drop(sandbox);
        start.elapsed() >= Duration::from_secs(3)
    });
    assert_eq!(late.count(), 0);
}

fn maximum_time_limit_does_not_overflow() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mut spec = in_tier(fixture.shell(Filesystem::Read, "sleep 0.1; echo done"), tier);
        spec.limits.time = Duration::MAX;
        check_out(&run(&spec), "done\n");
    }
}

// P6
fn detached_grandchild_does_not_survive_the_call() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mark = mark("detached");
        let script = format!(
            "setsid sh -c 'setsid sh -c \"sleep 1000; : {mark}\" </dev/null >/dev/null 2>&1 &' ; echo done"
        );
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, &script), tier));
        check_out(&outcome, "done\n");
        assert_eq!(alive(&mark), [0_u32; 0], "{tier}");
    }
}

// P6
fn child_that_holds_the_pipe_does_not_hang_the_call() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let start = Instant::now();
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, "sleep 1000 & echo done"), tier));
        check_out(&outcome, "done\n");
        assert!(start.elapsed() < Duration::from_secs(30), "{tier}");
    }
}

fn endless_output_is_truncated_and_counted() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mut spec =
            in_tier(fixture.shell(Filesystem::Read, "head -c 30000000 /dev/zero; echo end >&2"), tier);
        spec.limits.output = 100_000;
        let outcome = run(&spec);
        assert_eq!(outcome.stdout.bytes.len(), 100_000);
        assert_eq!(outcome.stdout.total, 30_000_000);
        assert!(outcome.stdout.truncated() && !outcome.stderr.truncated());
        assert_eq!(err(&outcome), "end\n");
    }
}

/// The program waits for an answer to its output: it would wait forever if output arrived only at the end.
fn output_is_streamed_while_the_program_runs() {
    let fixture = TestProject::new();
    let (read, write) = std::io::pipe().unwrap();
    let mut write = Some(write);
    let spec = fixture.shell(Filesystem::Read, "echo ready; read answer; echo got $answer");
    let outcome = sandbox().run(&spec, Input::From(std::os::fd::AsFd::as_fd(&read)), &mut |stream, bytes| {
        if stream == OutputStream::Out && bytes == b"ready\n" {
            std::io::Write::write_all(&mut write.take().unwrap(), b"it\n").unwrap();
        }
    });
    check_out(&outcome.unwrap(), "ready\ngot it\n");
}

fn fork_bomb_is_bounded() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let script = "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; echo all";
        let mut spec = limited(in_tier(fixture.shell(Filesystem::Read, script), tier), 20_000);
        spec.limits.processes = 60;
        let outcome = run(&spec);
        assert_ne!(out(&outcome), "all\n", "{tier}: {}", err(&outcome));
        let mut bomb =
            limited(in_tier(fixture.shell(Filesystem::Read, "b() { b | b & }; b; sleep 1000"), tier), 500);
        bomb.limits.processes = 60;
        run(&bomb);
    }
}

fn memory_hog_is_killed_and_reported_as_out_of_memory() {
    let fixture = TestProject::new();
    for tier in TIERS {
        // Only all processes together exceed the limit. A shell execs the last command of its script and loses its memory
        // then, perhaps before the memory is polled: so the last command is `:`.
        let script = "for i in 1 2 3 4 5 6; do (x=$(head -c 40000000 /dev/zero | tr '\\0' a); sleep 100; :) & done; wait";
        let mut spec = limited(in_tier(fixture.shell(Filesystem::Read, script), tier), 60_000);
        spec.limits.memory = 100 << 20;
        let outcome = run(&spec);
        assert_eq!(outcome.exit, Exit::OutOfMemory, "{tier}: {} {}", out(&outcome), err(&outcome));
    }
}

// One process alone, shared memory, orphans at a high rate, an odd process name, a process without its first thread.
fn shared_orphaned_and_hidden_memory_is_counted() {
    let fixture = TestProject::new();
    let program = std::env::current_exe().unwrap();
    for tier in TIERS {
        for how in ["alone", "shared", "orphans", "odd name", "first thread gone"] {
            let spec = fixture.spec(Filesystem::Read, program.to_str().unwrap(), &["hog", how]);
            let mut spec = limited(in_tier(spec, tier), 20_000);
            spec.read = vec![program.clone()];
            spec.limits.memory = 48 << 20;
            assert_eq!(run(&spec).exit, Exit::OutOfMemory, "{tier} {how}");
        }
        // If the machine runs out of memory, the OOM killer must choose the program before anything of the user.
        let script = "read first </proc/self/oom_score_adj; echo $first";
        check_out(&run(&in_tier(fixture.shell(Filesystem::Read, script), tier)), "1000\n");
    }
}

// Without a run, the launcher's children are zygotes and warm cells. The kernel kills a zygote when memory runs out in
// the cgroup that it shares with its run; the next run must not notice.
fn killed_zygote_is_replaced() {
    let (fixture, state) = (TestProject::new(), tempfile::TempDir::new().unwrap());
    let sandbox = start(state.path());
    let children = || -> Vec<u32> {
        let list = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.to_owned();
            (parent == sandbox.launcher_id().to_string()).then_some(pid)
        });
        list.collect()
    };
    let own_score = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    for tier in TIERS {
        let spec = in_tier(fixture.shell(Filesystem::Read, "echo works"), tier);
        for _ in 0..3 {
            let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
            check_out(&outcome, "works\n");
            let left = children();
            let score = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok();
            assert!(
                left.iter().any(|pid| score(pid).as_ref() == Some(&own_score)),
                "{tier}: a zygote is killed no earlier than the user's other processes"
            );
            // Not the warm subreapers: a run may have been sent to one that is about to die.
            for pid in left.into_iter().filter(|pid| score(pid).as_ref() == Some(&own_score)) {
                let killed = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
                let _ = rustix::process::kill_process(killed, rustix::process::Signal::KILL);
                let start = Instant::now();
                let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                while stat().rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")) {
                    assert!(start.elapsed().as_secs() < 60, "a killed zygote did not end");
                }
            }
        }
    }
}

// Empty files take no space, but memory.
fn number_of_files_is_bounded() {
    let fixture = TestProject::new();
    for (place, filesystem) in [("/tmp", Filesystem::Read), (".", Filesystem::ReadWrite)] {
        let script =
            format!("cd {place} && mkdir many && cd many && seq 20000 | xargs touch 2>/dev/null; ls | wc -l");
        let mut spec = limited(in_tier(fixture.shell(filesystem, &script), Tier::Full), 120_000);
        spec.limits.disk = 4 << 20;
        let made: usize = out(&run(&spec)).trim().parse().unwrap();
        assert!(made > 1000 && made < 16 << 10, "{place}: {made}");
    }
}

/// Allocates more memory than its limit, and waits.
pub(crate) fn hog(how: &str) -> ! {
    let hold = |bytes: usize, kind: i32| unsafe {
        let flags = kind | libc::MAP_ANONYMOUS;
        let held = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(held, libc::MAP_FAILED);
        libc::memset(held, 1, bytes);
    };
    match how {
        "alone" => hold(160 << 20, libc::MAP_PRIVATE),
        "shared" => hold(96 << 20, libc::MAP_SHARED),
        "odd name" => {
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_NAME, c"\xff\xfe".as_ptr()) }, 0);
            hold(160 << 20, libc::MAP_PRIVATE);
        }
        "first thread gone" => {
            std::thread::spawn(move || {
                hold(160 << 20, libc::MAP_PRIVATE);
                std::thread::sleep(Duration::from_secs(1000));
            });
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        "watches" => {
            let taken = (0..100_000).take_while(|_| unsafe { libc::inotify_init1(0) } >= 0).count();
            println!("{taken}");
            std::process::exit(0)
        }
        _ => {
            for _ in 0..4 {
                if unsafe { libc::fork() } == 0 {
                    hold(24 << 20, libc::MAP_PRIVATE);
                    unsafe { libc::pause() };
                }
            }
            loop {
                // The parent exits first, so that the child is reparented.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    unsafe { libc::fork() };
                    unsafe { libc::_exit(0) };
                }
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
        }
    }
    std::thread::sleep(Duration::from_secs(1000));
    std::process::exit(0)
}

fn run_without_mounts_that_writes_too_much_is_killed() {
    let fixture = TestProject::new();
    let script = "cd; while :; do mkdir -p d$((i+=1)); head -c 1000000 /dev/zero >d$i/f || exit 3; done";
    let mut spec = limited(in_tier(fixture.shell(Filesystem::Read, script), Tier::NoUserns), 20_000);
    spec.limits.disk = 8 << 20;
    let outcome = run(&spec);
    assert_eq!((outcome.exit, outcome.exit.code()), (Exit::OutOfDisk, 153), "{}", err(&outcome));
    // A single large file is stopped by the kernel (RLIMIT_FSIZE), or earlier by polling.
    spec.arguments = vec!["-c".into(), "exec head -c 9000000 /dev/zero >~/f".into()];
    assert_eq!(run(&spec).exit.code(), 153);
}

fn unreadable_directories_of_a_run_are_removed() {
    let fixture = TestProject::new();
    let sandbox = start(&fixture.path("state"));
    let script = "echo ~; mkdir -m 0300 ~/x && mkdir ~/x/y && echo x >~/x/y/f";
    let spec = in_tier(fixture.shell(Filesystem::Read, script), Tier::NoUserns);
    let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    let home = std::path::PathBuf::from(out(&outcome).trim());
    assert!(home.ends_with("home"), "{}", err(&outcome));
    drop((outcome, sandbox));
    assert!(home.parent().unwrap().symlink_metadata().is_err(), "{} is left", home.display());
}

fn disk_file_size_and_descriptors_are_bounded() {
    let fixture = TestProject::new();
    let mut spec = fixture.shell(
        Filesystem::ReadWrite,
        "head -c 40000000 /dev/zero >/tmp/big; head -c 40000000 /dev/zero >big; head -c 40000000 /dev/zero >~/big; \
         du -cb /tmp/big big ~/big | tail -1 | cut -f1",
    );
    spec.limits.disk = 32 << 20;
    spec.limits.file_size = 1 << 30;
    let outcome = run(&spec);
    let total: u64 = out(&outcome).trim().parse().unwrap();
    assert!(total <= 32 << 20, "{total}");
    for tier in TIERS {
        let mut spec = in_tier(
            fixture.shell(Filesystem::Write, "truncate -s 1T sparse; head -c 3000000 /dev/zero >big"),
            tier,
        );
        spec.limits.file_size = 1 << 20;
        let outcome = run(&spec);
        assert_ne!(outcome.exit, Exit::Code(0), "{tier}");
        let mut spec = in_tier(fixture.shell(Filesystem::Read, "ulimit -n; ulimit -c"), tier);
        spec.limits.open_files = 77;
        check_out(&run(&spec), "77\n0\n");
    }
}

/// The broker is another process of this test program; it is killed while its program runs.
// P6
fn killed_broker_leaves_nothing() {
    for tier in TIERS {
        let fixture = TestProject::new();
        let mark = mark("killed");
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut broker = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["broker", tier.as_str()])
            .arg(fixture.path(""))
            .arg(format!("(setsid sh -c 'sleep 1000; : {mark}' &) ; echo started; sleep 1000"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = [0; 8];
        std::io::Read::read_exact(broker.stdout.as_mut().unwrap(), &mut printed).unwrap();
        assert_eq!(&printed, b"started\n");
        assert_ne!(alive(&mark), [0_u32; 0]);
        let launcher = children(broker.id());
        assert_eq!(launcher.len(), 1, "{launcher:?}");
        broker.kill().unwrap();
        broker.wait().unwrap();
        let start = Instant::now();
        let run_dirs = fixture.path("state/runs");
        let left = || {
            let run_dirs = std::fs::read_dir(&run_dirs).map_or(0, Iterator::count);
            (alive(&mark), runs(launcher[0]), groups(launcher[0]), run_dirs)
        };
        while left() != (Vec::new(), false, Vec::new(), 0) {
            assert!(start.elapsed() < Duration::from_secs(20), "{tier}: {:?}", left());
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_to_string("/proc/self/mounts").unwrap(), mounts);
    }
}

// P6: the launcher is notified about a run in a warm cell a millisecond later.
fn broker_killed_before_it_notified_the_launcher_leaves_no_directory() {
    for _ in 0..4 {
        let fixture = TestProject::new();
        let mut broker = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["broker", Tier::NoUserns.as_str()])
            .arg(fixture.path(""))
            .args(["sleep 1000", "after another"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = [0; 8];
        std::io::Read::read_exact(broker.stdout.as_mut().unwrap(), &mut printed).unwrap();
        assert_eq!(&printed, b"another\n");
        let base =
            if rustix::process::geteuid().is_root() { "/tmp".into() } else { fixture.path("state/runs") };
        let prefix = format!("vambrace-run-{}-", broker.id());
        let dirs = || -> Vec<std::ffi::OsString> {
            let names = std::fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(&prefix))).collect()
        };
        let before = dirs();
        broker.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let begin = Instant::now();
        while dirs().iter().all(|one| before.contains(one)) {
            assert!(begin.elapsed() < Duration::from_secs(20), "no directory");
        }
        broker.kill().unwrap();
        broker.wait().unwrap();
        while !dirs().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(40), "{:?} is left", dirs());
            std::thread::yield_now();
        }
    }
}

/// The cgroups of one launcher.
pub(crate) fn groups(launcher: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = ahead.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&format!("vambrace-{launcher}-")) {
                    found.push(entry.path().display().to_string());
                }
                ahead.push(entry.path());
            }
        }
    }
    found
}

/// Whether a process exists and is not a zombie.
pub(crate) fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// The child processes of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let below = |child: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        status.contains(&format!("PPid:\t{pid}\n"))
    };
    list.filter(below).collect()
}

// P6
fn killed_launcher_leaves_no_process() {
    for tier in TIERS {
        let fixture = TestProject::new();
        let mark = mark("launcher");
        let state = tempfile::TempDir::new().unwrap();
        let sandbox = start(state.path());
        let spec = in_tier(
            fixture.shell(
                Filesystem::Read,
                &format!("(setsid sh -c 'sleep 1000; : {mark}' &) ; echo started; sleep 1000"),
            ),
            tier,
        );
        let launcher = sandbox.launcher_id();
        let ended = sandbox.run(&spec, Input::Nothing, &mut |_, _| {
            std::process::Command::new("kill").args(["-9", &launcher.to_string()]).status().unwrap();
        });
        assert!(ended.is_err());
        let start = Instant::now();
        while !alive(&mark).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20), "{tier}");
            std::thread::yield_now();
        }
        drop(sandbox);
        // The next launcher removes the cgroups that this one could not, once they are empty: the last process may still be
        // exiting after its entry in /proc is gone.
        loop {
            drop(self::start(state.path()));
            let left = groups(launcher);
            if left.is_empty() {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{tier}: {left:?}");
        }
    }
}

fn concurrent_runs_do_not_see_each_other() {
    let fixture = TestProject::new();
    let specs: Vec<Spec> = (0..6)
        .map(|number| {
            let script = format!("echo {number} >/tmp/x; echo {number} >mine; sleep 0.2; cat /tmp/x mine; ps ax 2>/dev/null | wc -l; ls");
            fixture.shell(Filesystem::Speculative, &script)
        })
        .collect();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = specs.iter().map(|spec| scope.spawn(|| run(spec))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for (number, outcome) in outcomes.iter().enumerate() {
        assert!(out(outcome).starts_with(&format!("{number}\n{number}\n")), "{}", out(outcome));
        assert_eq!(outcome.changes.as_ref().unwrap().list.len(), 1);
    }
}

fn warm_cells_are_used_once_and_refilled() {
    let state = tempfile::TempDir::new().unwrap();
    let sandbox = start(state.path());
    sandbox.keep_warm(2).unwrap();
    let fixture = TestProject::new();
    for _ in 0..12 {
        let spec = fixture
            .shell(Filesystem::ReadWrite, "ls -A /tmp ~ | wc -l; echo x >/tmp/x; echo x >~/x; cat plain.txt");
        let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
        let printed = out(&outcome);
        assert!(printed.ends_with("plain\n") && !printed.contains('x'), "{printed}");
        assert_eq!(outcome.tier, Tier::Full);
    }
}

/// Warm cells are prepared for a run like the last one; here no run is like the last one.
fn warm_cell_with_other_options_is_not_used() {
    let state = tempfile::TempDir::new().unwrap();
    let sandbox = start(state.path());
    sandbox.keep_warm(2).unwrap();
    let fixture = TestProject::new();
    fixture.write("other-home/x", "");
    for round in 0..24_u32 {
        let script = "echo $HOME; ls -A ~; ulimit -n; echo x 2>/dev/null >/etc/hosts; echo y >~/y";
        let mut spec = fixture.shell(Filesystem::Read, script);
        spec.home = Some(fixture.path(if round % 2 == 0 { "home" } else { "other-home" }));
        spec.observe = if round % 3 == 0 { Observe::Off } else { Observe::Writes };
        spec.limits.open_files = 100 + u64::from(round);
        spec.limits.memory = if round % 5 == 0 { 1 << 30 } else { 2 << 30 };
        let spec = in_tier(spec, TIERS[usize::from(round % 4 > 1)]);
        let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
        let printed = out(&outcome);
        let lines: Vec<&str> = printed.lines().collect();
        let [home, files] = lines.as_slice() else { panic!("{round}: {printed} {}", err(&outcome)) };
        assert_eq!(*files, spec.limits.open_files.to_string());
        if spec.forced_tier == Some(Tier::Full) {
            assert_eq!(std::path::Path::new(home), spec.home.unwrap());
        }
        let reported = outcome.denials.iter().any(|denial| denial.path.ends_with("hosts"));
        assert_eq!(reported, spec.observe == Observe::Writes, "{round}: {:?}", outcome.denials);
    }
}

/// The program starts at once; its init, which was stopped until then, runs later.
// P6
fn late_init_kills_what_a_killed_launcher_left() {
    let state = tempfile::TempDir::new().unwrap();
    let sandbox = start(state.path());
    let fixture = TestProject::new();
    let mark = mark("late");
    let run = |script: &str, output: &mut dyn FnMut(OutputStream, &[u8])| {
        let spec = in_tier(fixture.shell(Filesystem::Read, script), Tier::NoUserns);
        sandbox.run(&spec, Input::Nothing, output)
    };
    run("true", &mut |_, _| {}).unwrap();
    let launcher = sandbox.launcher_id();
    let begin = Instant::now();
    let init = loop {
        assert!(begin.elapsed() < Duration::from_secs(20), "no warm cell");
        if let Some(init) = children(launcher).into_iter().find(|child| !children(*child).is_empty()) {
            break i32::try_from(init).unwrap();
        }
    };
    unsafe { libc::kill(init, libc::SIGSTOP) };
    let script = format!("(setsid sh -c 'sleep 1000; : {mark}' &) ; echo started; sleep 1000; : {mark}");
    let ended = run(&script, &mut |_, piece| {
        if !piece.is_empty() {
            unsafe { libc::kill(i32::try_from(launcher).unwrap(), libc::SIGKILL) };
            unsafe { libc::kill(init, libc::SIGCONT) };
        }
    });
    assert!(ended.is_err(), "{ended:?}");
    while !alive(&mark).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", alive(&mark));
        std::thread::yield_now();
    }
}

// P6: only the launcher is left to kill the processes of a killed init.
fn processes_of_a_killed_init_are_killed_and_no_other_run() {
    let state = tempfile::TempDir::new().unwrap();
    let sandbox = start(state.path());
    let launcher = sandbox.launcher_id();
    let fixture = TestProject::new();
    let (kept, killed) = (mark("beside"), mark("init"));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (up, is_up) = std::sync::mpsc::channel();
    let spec = |script: &str| in_tier(fixture.shell(Filesystem::Read, script), Tier::NoUserns);
    let beside = spec(&format!("(sleep 1000; : {kept}) & echo up; read line; kill $!; echo $line"));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            sandbox.run(&beside, Input::From(reader.as_fd()), &mut |_, piece| {
                up.send(piece.to_vec()).unwrap();
            })
        });
        assert_eq!(is_up.recv().unwrap(), b"up\n");
        let script =
            format!("(setsid sh -c 'sleep 1000; : {killed}' &) ; echo started; sleep 1000; : {killed}");
        let ended = sandbox.run(&spec(&script), Input::Nothing, &mut |_, piece| {
            if piece.is_empty() {
                return;
            }
            let holds = |pid: &u32| {
                let below =
                    children(*pid).into_iter().flat_map(|child| [vec![child], children(child)].concat());
                let marked = alive(&killed);
                below.into_iter().any(|pid| marked.contains(&pid))
            };
            let init = children(launcher).into_iter().find(holds).unwrap();
            unsafe { libc::kill(i32::try_from(init).unwrap(), libc::SIGKILL) };
        });
        assert_eq!(ended.unwrap().exit, Exit::Signal(libc::SIGKILL));
        assert_eq!(alive(&killed), [0_u32; 0]);
        assert!(!alive(&kept).is_empty());
        writer.write_all(b"still here\n").unwrap();
        let other = other.join().unwrap().unwrap();
        assert_eq!((other.exit, out(&other).as_str()), (Exit::Code(0), "up\nstill here\n"));
    });
}

fn killed_launcher_takes_waiting_cells_with_it() {
    let state = tempfile::TempDir::new().unwrap();
    let sandbox = start(state.path());
    sandbox.keep_warm(1).unwrap();
    let fixture = TestProject::new();
    for tier in TIERS {
        let spec = in_tier(fixture.shell(Filesystem::Read, "true"), tier);
        sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
    }
    // A zygote for each tier, a cell, and an init with the process that will become the program.
    let launcher = sandbox.launcher_id();
    let below = || -> Vec<u32> {
        let mut found = children(launcher);
        found.extend(found.clone().into_iter().flat_map(children));
        found
    };
    let begin = Instant::now();
    while below().len() < 5 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", below());
        std::thread::yield_now();
    }
    let waiting = below();
    unsafe { libc::kill(i32::try_from(launcher).unwrap(), libc::SIGKILL) };
    while waiting.iter().any(|pid| runs(*pid)) {
        assert!(begin.elapsed() < Duration::from_secs(40), "{waiting:?}");
        std::thread::yield_now();
    }
    drop(sandbox);
    drop(start(state.path()));
    assert_eq!(groups(launcher), [""; 0]);
}

/// A launcher that spins at real-time priority would keep the processes that it kills from exiting.
fn launcher_does_not_spin_while_it_kills_a_run() {
    let state = tempfile::TempDir::new().unwrap();
    let sandbox = start(state.path());
    let fixture = TestProject::new();
    let mark = mark("spin");
    let script = format!("echo x; sleep 1000; : {mark}");
    let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), Tier::NoUserns);
    spec.observe = Observe::Off;
    let launcher = sandbox.launcher_id();
    let before = ticks(launcher);
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sandbox.run(&spec, Input::Nothing, &mut |_, _| {
            // The init cannot kill anything now, and the caller no longer waits for the run.
            for init in children(launcher).into_iter().filter(|child| !children(*child).is_empty()) {
                unsafe { libc::kill(i32::try_from(init).unwrap(), libc::SIGSTOP) };
            }
            panic!("the caller goes away");
        })
    }));
    assert!(left.is_err());
    let start = Instant::now();
    while !alive(&mark).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "the process tree was not killed");
        std::thread::yield_now();
    }
    let spent = ticks(launcher) - before;
    assert!(spent < 10, "{spent} ticks (10 ms) of CPU time for 0.4 s of waiting");
}

/// CPU time of a process, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after) = text.rsplit_once(')').unwrap();
    let numbers: Vec<u64> =
        after.split_ascii_whitespace().skip(11).take(2).map(|n| n.parse().unwrap()).collect();
    numbers.iter().sum()
}

/// The broker of [`killed_broker_leaves_nothing`] and [`broker_killed_before_it_notified_the_launcher_leaves_no_directory`]. Arguments: tier, project, script, and optionally a
/// fourth, with which it runs another program first and then waits for a line.
pub(crate) fn broker(arguments: &[String]) {
    let [tier, fixture, script, again @ ..] = arguments else { panic!("{arguments:?}") };
    let fixture = std::path::Path::new(fixture);
    let sandbox = start(&fixture.join("state"));
    let mut spec = Spec::new("sh", fixture.join("project"));
    spec.arguments = vec!["-c".into(), script.into()];
    spec.forced_tier = Tier::parse(tier);
    if !again.is_empty() {
        spec.filesystem = Filesystem::Write;
        spec.arguments = vec!["-c".into(), "true".into()];
        sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
        spec.arguments = vec!["-c".into(), script.into()];
        println!("another");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    let mut stdout = std::io::stdout();
    let ended = sandbox.run(&spec, Input::Nothing, &mut |_, bytes| {
        std::io::Write::write_all(&mut stdout, bytes).unwrap();
        std::io::Write::flush(&mut stdout).unwrap();
    });
    panic!("{ended:?}");
}

// T13: in every mode; only what the run itself writes counts
fn writes_to_build_directories_are_bounded() {
    let fixture = TestProject::new();
    let own = start(&fixture.path("state"));
    let run = |script: &str, most: u64| {
        let mut spec = limited(fixture.shell(Filesystem::Read, script), 60_000);
        spec.scratch = vec!["target".to_owned()];
        spec.limits.scratch = most;
        own.run(&in_tier(spec, Tier::Full), Input::Nothing, &mut |_, _| {}).unwrap().exit
    };
    let endless = "i=0; while :; do head -c 1000000 /dev/zero >target/$i; i=$((i+1)); sleep 0.02; done";
    assert_eq!(run(endless, 4 << 20), Exit::OutOfDisk);
    let hidden = "mkdir target/h; chmod 300 target/h; while :; do sleep 0.1; done";
    assert_eq!(run(hidden, 4 << 20), Exit::OutOfDisk);
    // What existed before does not count, readable or not.
    assert_eq!(run("echo x >target/new; sleep 0.25; chmod 700 target/h", 1 << 20), Exit::Code(0));
}
