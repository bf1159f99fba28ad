//! Starting, environment, output, exit codes, tiers.

use std::ops::ControlFlow;
use std::path::Path;

use libtest_mimic::Trial;
use vambrace_sandbox::{Certainty, Exit, Filesystem, Input, Observe, Operation, Rule, SandboxFault, Tier};

use super::kit::{Room, TIERS, check_out, err, in_tier, out, run, sandbox, test, try_run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("basics::no_file_can_give_a_program_a_capability", no_file_can_give_a_capability),
        test("basics::a_program_runs_and_its_code_comes_back", a_program_runs_and_its_code_comes_back),
        test("basics::the_strongest_tier_works_here", the_strongest_tier_works_here),
        test("basics::the_environment_is_built_from_nothing", the_environment_is_built_from_nothing),
        test("basics::new_files_have_the_modes_that_the_caller_wants", own_umask),
        test("basics::a_program_whose_reader_is_gone_learns_of_it", reader_gone),
        test("basics::a_folder_is_no_standard_input", folder_as_input),
        test("basics::a_missing_program_is_said_to_be_missing", a_missing_program_is_said_to_be_missing),
        test("basics::a_program_that_was_replaced_is_not_started", a_replaced_program),
        test("basics::a_refused_read_is_told_in_every_tier_when_all_is_observed", refused_reads),
        test("basics::nobody_has_a_terminal_and_who_looks_for_one_is_no_event", no_terminal),
        test("basics::a_program_can_make_terminals_and_sees_nobody_elses", own_terminals),
        test("basics::what_a_busy_program_is_refused_is_told_wherever_it_stands", a_busy_program),
    ]
}

fn a_program_runs_and_its_code_comes_back() {
    let room = Room::new();
    for tier in TIERS {
        let outcome = run(&in_tier(room.shell(Filesystem::Read, "echo hello; exit 7"), tier));
        assert_eq!((outcome.exit, out(&outcome).as_str(), outcome.tier), (Exit::Code(7), "hello\n", tier));
        let outcome = run(&in_tier(room.shell(Filesystem::Read, "kill -9 $$"), tier));
        assert_eq!(outcome.exit, Exit::Signal(9));
    }
}

// 6.4: also where only Landlock stands, by another way to the same file, and of what is there but not to be opened
fn refused_reads() {
    let room = Room::new();
    let outside = room.path("outside/file");
    let refused = Rule::NotGranted;
    let script = format!(
        "cat {0} <../outside/file; cat /proc/self/stat /dev/fd/0 </dev/null >&2; ls /etc; ls /home; \
         ls . ~ /tmp /usr /dev/shm",
        outside.display()
    );
    for (tier, rule) in TIERS.into_iter().zip([Rule::NotShown, Rule::NotGranted]) {
        let mut spec = in_tier(room.shell(Filesystem::Read, &script), tier);
        spec.observe = Observe::All;
        let told: Vec<_> =
            run(&spec).denials.into_iter().map(|one| (one.operation, one.path, one.rule)).collect();
        for (path, rule) in
            [(outside.as_path(), rule), (Path::new("/etc"), refused), (Path::new("/home"), refused)]
        {
            let expected = (Operation::Read, path.to_owned(), rule);
            assert!(told.contains(&expected), "{tier}: {expected:?} in {told:?}");
        }
        let (free, private) = (["/proc/self", "/dev/fd", "/usr"], ["/tmp", "/dev/shm"].map(Path::new));
        let own = |path: &Path| {
            free.iter().any(|own| path.starts_with(own))
                || path.starts_with(room.project())
                || (tier == Tier::Full && private.contains(&path))
        };
        assert!(!told.iter().any(|(_, path, _)| own(path)), "{tier}: {told:?}");
        spec.filesystem = Filesystem::Deny;
        spec.arguments =
            vec!["-c".into(), format!("cat {}", room.path("project/plain.txt").display()).into()];
        let denials = run(&spec).denials;
        assert!(denials.iter().any(|one| one.path.ends_with("project/plain.txt")), "{tier}: {denials:?}");
    }
}

// 6.4: every bash looks, and would fail so on a machine without walls. To change it is another thing.
fn no_terminal() {
    let room = Room::new();
    for tier in TIERS {
        for observe in [Observe::Writes, Observe::All] {
            let run = |script: &str| {
                let mut spec = in_tier(room.shell(Filesystem::Read, script), tier);
                spec.observe = observe;
                run(&spec)
            };
            let outcome = run("exec 3<>/dev/tty");
            assert!(err(&outcome).contains("No such device or address"), "{tier}: {}", err(&outcome));
            assert_eq!(outcome.denials, [], "{tier}");
            let outcome = run("read line </dev/tty");
            assert_ne!((err(&outcome).as_str(), outcome.exit), ("", Exit::Code(0)), "{tier}");
            assert_eq!(outcome.denials, [], "{tier}");
            assert_ne!(run("rm -f /dev/tty").denials, [], "{tier}");
        }
    }
}

// 6.1: as many as a terminal multiplexer needs, and none of the machine's
fn own_terminals() {
    let room = Room::new();
    let spec = |script: &str| in_tier(room.shell(Filesystem::Read, script), Tier::Full);
    let outcome = run(&spec("ls /dev/pts; script -qec 'test -t 0 && tty && stty size' /dev/null </dev/null"));
    check_out(&outcome, "ptmx\n/dev/pts/0\r\n0 0\r\n");
    assert_eq!(outcome.denials, []);
    let many = "bash -c 'for i in {1..100}; do exec {fd}<>/dev/ptmx || exit; done' 2>&1";
    let outcome = run(&spec(many));
    assert!(out(&outcome).contains("No space left on device"), "{}", out(&outcome));
    // Where there is no mount of our own there are the machine's, and no way to them.
    let outcome = run(&in_tier(room.shell(Filesystem::Read, "exec 3<>/dev/ptmx"), Tier::NoUserns));
    assert_ne!(outcome.exit, Exit::Code(0));
    assert_eq!(
        outcome.denials.iter().map(|one| one.path.as_path()).collect::<Vec<_>>(),
        [Path::new("/dev/ptmx")]
    );
}

// 6.4: after many calls another thread answers, and where the program stands is not looked up for each.
fn a_busy_program() {
    let room = Room::new();
    let script = "cd && mkdir d && i=0; while [ $i -lt 60 ]; do echo x >d/f$i; i=$((i+1)); done; echo x >/etc/hosts; \
                  (cd /usr && echo x >here); cd /usr/bin && echo x >there; ls ~/d | wc -l";
    for tier in TIERS {
        for observe in [Observe::Writes, Observe::All] {
            let mut spec = in_tier(room.shell(Filesystem::Read, script), tier);
            spec.observe = observe;
            let outcome = run(&spec);
            assert_eq!((outcome.exit, out(&outcome).as_str()), (Exit::Code(0), "60\n"), "{tier}");
            let refused: Vec<_> =
                outcome.denials.iter().filter(|one| one.operation == Operation::Write).collect();
            let paths: Vec<_> = refused.iter().map(|denial| denial.path.to_str().unwrap()).collect();
            assert_eq!(paths, ["/etc/hosts", "/usr/here", "/usr/bin/there"], "{tier}");
            assert!(refused.iter().all(|denial| denial.certainty == Certainty::Refused));
        }
    }
}

fn the_strongest_tier_works_here() {
    let features = sandbox().features().unwrap();
    assert_eq!(features.tier(), Some(Tier::Full), "{features:?}");
}

// P5
fn the_environment_is_built_from_nothing() {
    let room = Room::new();
    let mut spec = room.spec(Filesystem::Read, "env", &[]);
    spec.environment = vec![("AWS_REGION".into(), "eu".into())];
    let outcome = run(&spec);
    let mut names: Vec<String> =
        out(&outcome).lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
    names.sort();
    assert_eq!(names, ["AWS_REGION", "HOME", "LANG", "PATH", "PORT", "PWD"]);
    // Byte for byte: `pwd` and everybody who compares paths believe it.
    let pwd = format!("PWD={}", room.project().display());
    assert!(out(&outcome).lines().any(|line| line == pwd), "{}", out(&outcome));
    check_out(&run(&room.spec(Filesystem::Deny, "whoami", &[])), "agent\n");
}

// What is nobody else's business outside is not inside either.
fn own_umask() {
    for tier in TIERS {
        let room = Room::new();
        let mut spec =
            in_tier(room.shell(Filesystem::Write, "umask; mkdir d; echo x >f; stat -c %a d f"), tier);
        spec.umask = 0o027;
        check_out(&run(&spec), "0027\n750\n640\n");
    }
}

// `| head -1`: as without walls, and not at the deadline.
fn reader_gone() {
    let room = Room::new();
    for tier in TIERS {
        let mut seen = 0;
        let spec = in_tier(room.shell(Filesystem::Deny, "exec yes"), tier);
        let outcome = sandbox().run_while(&spec, Input::Nothing, &mut |_, bytes| {
            seen += bytes.len();
            if seen > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(outcome.unwrap().exit, Exit::Signal(libc::SIGPIPE), "{tier}");
    }
}

// P4: by the handle of a folder a program could change the modes and times of what lies below it
fn folder_as_input() {
    use std::os::fd::AsFd as _;
    let room = Room::new();
    let folder = std::fs::File::open(room.path("outside")).unwrap();
    let file = std::fs::File::open(room.path("outside/file")).unwrap();
    for tier in TIERS {
        let spec = in_tier(room.spec(Filesystem::Read, "cat", &[]), tier);
        let refused = sandbox().run(&spec, Input::From(folder.as_fd()), &mut |_, _| {});
        assert!(matches!(refused, Err(SandboxFault::Refused(_))), "{tier}: {refused:?}");
    }
    let spec = room.spec(Filesystem::Read, "cat", &[]);
    let outcome = sandbox().run(&spec, Input::From(file.as_fd()), &mut |_, _| {}).unwrap();
    check_out(&outcome, "in-the-outside-file\n");
}

fn a_missing_program_is_said_to_be_missing() {
    let room = Room::new();
    for tier in TIERS {
        let fault = try_run(&in_tier(room.spec(Filesystem::Read, "no-such-program", &[]), tier)).unwrap_err();
        assert!(matches!(fault, SandboxFault::CouldNotStart { .. }), "{fault}");
    }
}

// Research A 5, 123
fn a_replaced_program() {
    let room = Room::new();
    room.write("project/tool", "#!/bin/sh\necho agreed\n");
    let executable = || {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(room.path("project/tool"), mode).unwrap();
    };
    executable();
    let digest = <sha2::Sha256 as sha2::Digest>::digest(room.read("project/tool").unwrap().as_bytes());
    for tier in TIERS {
        let mut spec = in_tier(room.spec(Filesystem::Read, "./tool", &[]), tier);
        spec.digest = Some(digest.into());
        check_out(&run(&spec), "agreed\n");
        let mut system = in_tier(room.spec(Filesystem::Read, "/bin/echo", &["x"]), tier);
        let echo = std::fs::read("/bin/echo").unwrap();
        system.digest = Some(<sha2::Sha256 as sha2::Digest>::digest(echo).into());
        check_out(&run(&system), "x\n");
        room.write("project/tool", "#!/bin/sh\necho another\n");
        executable();
        let fault = try_run(&spec).unwrap_err();
        assert!(matches!(fault, SandboxFault::Replaced { .. }), "{fault}");
        room.write("project/tool", "#!/bin/sh\necho agreed\n");
        executable();
    }
}

// P4
fn no_file_can_give_a_capability() {
    let room = Room::new();
    for tier in TIERS {
        // An ordinary user without a namespace cannot bound itself; there no_new_privs stands alone.
        if tier == Tier::NoUserns && !rustix::process::geteuid().is_root() {
            continue;
        }
        let spec = in_tier(room.shell(Filesystem::Read, "exec grep CapBnd /proc/self/status"), tier);
        check_out(&run(&spec), "CapBnd:\t0000000000000000\n");
    }
}
