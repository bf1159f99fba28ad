//! Starting, environment, output, exit codes, tiers.

use std::ops::ControlFlow;
use std::path::Path;

use libtest_mimic::Trial;
use vambrace_sandbox::{
    Certainty, DenialRule, DeniedOperation, Exit, Filesystem, Input, Observe, SandboxError, Tier,
};

use super::harness::{TIERS, TestProject, check_out, err, in_tier, out, run, sandbox, test, try_run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("basics::file_capabilities_have_no_effect", file_capabilities_have_no_effect),
        test(
            "basics::exit_code_and_signal_of_the_program_are_returned",
            exit_code_and_signal_of_the_program_are_returned,
        ),
        test("basics::strongest_tier_works_here", strongest_tier_works_here),
        test("basics::environment_is_built_from_scratch", environment_is_built_from_scratch),
        test("basics::umask_of_the_spec_applies_to_new_files", umask_of_the_spec_applies_to_new_files),
        test(
            "basics::program_gets_sigpipe_when_its_reader_is_gone",
            program_gets_sigpipe_when_its_reader_is_gone,
        ),
        test("basics::directory_as_standard_input_is_denied", directory_as_standard_input_is_denied),
        test(
            "basics::missing_program_is_reported_as_not_started",
            missing_program_is_reported_as_not_started,
        ),
        test(
            "basics::program_with_another_digest_is_not_started",
            program_with_another_digest_is_not_started,
        ),
        test(
            "basics::denied_read_is_reported_in_every_tier_when_all_is_observed",
            denied_read_is_reported_in_every_tier_when_all_is_observed,
        ),
        test(
            "basics::opening_the_controlling_terminal_fails_without_a_denial",
            opening_the_controlling_terminal_fails_without_a_denial,
        ),
        test(
            "basics::program_can_create_terminals_and_sees_no_others",
            program_can_create_terminals_and_sees_no_others,
        ),
        test(
            "basics::denials_of_a_busy_program_are_reported_from_any_working_directory",
            denials_of_a_busy_program_are_reported_from_any_working_directory,
        ),
    ]
}

fn exit_code_and_signal_of_the_program_are_returned() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, "echo hello; exit 7"), tier));
        assert_eq!((outcome.exit, out(&outcome).as_str(), outcome.tier), (Exit::Code(7), "hello\n", tier));
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, "kill -9 $$"), tier));
        assert_eq!(outcome.exit, Exit::Signal(9));
    }
}

// Also in the tier with Landlock only, by another path to the same file, and for what exists but must not be opened
fn denied_read_is_reported_in_every_tier_when_all_is_observed() {
    let fixture = TestProject::new();
    let outside = fixture.path("outside/file");
    let denied = DenialRule::NotGranted;
    let script = format!(
        "cat {0} <../outside/file; cat /proc/self/stat /dev/fd/0 </dev/null >&2; ls /etc; ls /home; \
         ls . ~ /tmp /usr /dev/shm",
        outside.display()
    );
    for (tier, rule) in TIERS.into_iter().zip([DenialRule::NotShown, DenialRule::NotGranted]) {
        let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), tier);
        spec.observe = Observe::All;
        let reported: Vec<_> =
            run(&spec).denials.into_iter().map(|one| (one.operation, one.path, one.rule)).collect();
        for (path, rule) in
            [(outside.as_path(), rule), (Path::new("/etc"), denied), (Path::new("/home"), denied)]
        {
            let expected = (DeniedOperation::Read, path.to_owned(), rule);
            assert!(reported.contains(&expected), "{tier}: {expected:?} in {reported:?}");
        }
        let (free, private) = (["/proc/self", "/dev/fd", "/usr"], ["/tmp", "/dev/shm"].map(Path::new));
        let own = |path: &Path| {
            free.iter().any(|own| path.starts_with(own))
                || path.starts_with(fixture.project())
                || (tier == Tier::Full && private.contains(&path))
        };
        assert!(!reported.iter().any(|(_, path, _)| own(path)), "{tier}: {reported:?}");
        spec.filesystem = Filesystem::Deny;
        spec.arguments =
            vec!["-c".into(), format!("cat {}", fixture.path("project/plain.txt").display()).into()];
        let denials = run(&spec).denials;
        assert!(denials.iter().any(|one| one.path.ends_with("project/plain.txt")), "{tier}: {denials:?}");
    }
}

// Every bash opens it, and would fail the same way without a sandbox. Deleting it is reported.
fn opening_the_controlling_terminal_fails_without_a_denial() {
    let fixture = TestProject::new();
    for tier in TIERS {
        for observe in [Observe::Writes, Observe::All] {
            let run = |script: &str| {
                let mut spec = in_tier(fixture.shell(Filesystem::Read, script), tier);
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

// As many as a terminal multiplexer needs, and none of the host's
fn program_can_create_terminals_and_sees_no_others() {
    let fixture = TestProject::new();
    let spec = |script: &str| in_tier(fixture.shell(Filesystem::Read, script), Tier::Full);
    let outcome = run(&spec("ls /dev/pts; script -qec 'test -t 0 && tty && stty size' /dev/null </dev/null"));
    check_out(&outcome, "ptmx\n/dev/pts/0\r\n0 0\r\n");
    assert_eq!(outcome.denials, []);
    let many = "bash -c 'for i in {1..100}; do exec {fd}<>/dev/ptmx || exit; done' 2>&1";
    let outcome = run(&spec(many));
    assert!(out(&outcome).contains("No space left on device"), "{}", out(&outcome));
    // Without its own mount there are only the host's, and they are denied.
    let outcome = run(&in_tier(fixture.shell(Filesystem::Read, "exec 3<>/dev/ptmx"), Tier::NoUserns));
    assert_ne!(outcome.exit, Exit::Code(0));
    assert_eq!(
        outcome.denials.iter().map(|one| one.path.as_path()).collect::<Vec<_>>(),
        [Path::new("/dev/ptmx")]
    );
}

// After many calls another thread answers, and it caches the working directory.
fn denials_of_a_busy_program_are_reported_from_any_working_directory() {
    let fixture = TestProject::new();
    let script = "cd && mkdir d && i=0; while [ $i -lt 60 ]; do echo x >d/f$i; i=$((i+1)); done; echo x >/etc/hosts; \
                  (cd /usr && echo x >here); cd /usr/bin && echo x >there; ls ~/d | wc -l";
    for tier in TIERS {
        for observe in [Observe::Writes, Observe::All] {
            let mut spec = in_tier(fixture.shell(Filesystem::Read, script), tier);
            spec.observe = observe;
            let outcome = run(&spec);
            assert_eq!((outcome.exit, out(&outcome).as_str()), (Exit::Code(0), "60\n"), "{tier}");
            let denied: Vec<_> =
                outcome.denials.iter().filter(|one| one.operation == DeniedOperation::Write).collect();
            let paths: Vec<_> = denied.iter().map(|denial| denial.path.to_str().unwrap()).collect();
            assert_eq!(paths, ["/etc/hosts", "/usr/here", "/usr/bin/there"], "{tier}");
            assert!(denied.iter().all(|denial| denial.certainty == Certainty::Denied));
        }
    }
}

fn strongest_tier_works_here() {
    let features = sandbox().features().unwrap();
    assert_eq!(features.tier(), Some(Tier::Full), "{features:?}");
}

// P5
fn environment_is_built_from_scratch() {
    let fixture = TestProject::new();
    let mut spec = fixture.spec(Filesystem::Read, "env", &[]);
    spec.environment = vec![("AWS_REGION".into(), "eu".into())];
    let outcome = run(&spec);
    let mut names: Vec<String> =
        out(&outcome).lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
    names.sort();
    assert_eq!(names, ["AWS_REGION", "HOME", "LANG", "PATH", "PORT", "PWD"]);
    // Byte for byte: `pwd` and every program that compares paths rely on it.
    let pwd = format!("PWD={}", fixture.project().display());
    assert!(out(&outcome).lines().any(|line| line == pwd), "{}", out(&outcome));
    check_out(&run(&fixture.spec(Filesystem::Deny, "whoami", &[])), "agent\n");
}

// The caller's umask also applies inside.
fn umask_of_the_spec_applies_to_new_files() {
    for tier in TIERS {
        let fixture = TestProject::new();
        let mut spec =
            in_tier(fixture.shell(Filesystem::Write, "umask; mkdir d; echo x >f; stat -c %a d f"), tier);
        spec.umask = 0o027;
        check_out(&run(&spec), "0027\n750\n640\n");
    }
}

// `| head -1`: the program ends by SIGPIPE as without a sandbox, not at the deadline.
fn program_gets_sigpipe_when_its_reader_is_gone() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let mut seen = 0;
        let spec = in_tier(fixture.shell(Filesystem::Deny, "exec yes"), tier);
        let outcome = sandbox().run_while(&spec, Input::Nothing, &mut |_, bytes| {
            seen += bytes.len();
            if seen > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(outcome.unwrap().exit, Exit::Signal(libc::SIGPIPE), "{tier}");
    }
}

// P4: through a directory descriptor a program could change modes and times of everything below it
fn directory_as_standard_input_is_denied() {
    use std::os::fd::AsFd as _;
    let fixture = TestProject::new();
    let dir = std::fs::File::open(fixture.path("outside")).unwrap();
    let file = std::fs::File::open(fixture.path("outside/file")).unwrap();
    for tier in TIERS {
        let spec = in_tier(fixture.spec(Filesystem::Read, "cat", &[]), tier);
        let denied = sandbox().run(&spec, Input::From(dir.as_fd()), &mut |_, _| {});
        assert!(matches!(denied, Err(SandboxError::Refused(_))), "{tier}: {denied:?}");
    }
    let spec = fixture.spec(Filesystem::Read, "cat", &[]);
    let outcome = sandbox().run(&spec, Input::From(file.as_fd()), &mut |_, _| {}).unwrap();
    check_out(&outcome, "in-the-outside-file\n");
}

fn missing_program_is_reported_as_not_started() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let error =
            try_run(&in_tier(fixture.spec(Filesystem::Read, "no-such-program", &[]), tier)).unwrap_err();
        assert!(matches!(error, SandboxError::CouldNotStart { .. }), "{error}");
    }
}

fn program_with_another_digest_is_not_started() {
    let fixture = TestProject::new();
    fixture.write("project/tool", "#!/bin/sh\necho agreed\n");
    let executable = || {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(fixture.path("project/tool"), mode).unwrap();
    };
    executable();
    let digest = <sha2::Sha256 as sha2::Digest>::digest(fixture.read("project/tool").unwrap().as_bytes());
    for tier in TIERS {
        let mut spec = in_tier(fixture.spec(Filesystem::Read, "./tool", &[]), tier);
        spec.digest = Some(digest.into());
        check_out(&run(&spec), "agreed\n");
        let mut system = in_tier(fixture.spec(Filesystem::Read, "/bin/echo", &["x"]), tier);
        let echo = std::fs::read("/bin/echo").unwrap();
        system.digest = Some(<sha2::Sha256 as sha2::Digest>::digest(echo).into());
        check_out(&run(&system), "x\n");
        fixture.write("project/tool", "#!/bin/sh\necho another\n");
        executable();
        let error = try_run(&spec).unwrap_err();
        assert!(matches!(error, SandboxError::Replaced { .. }), "{error}");
        fixture.write("project/tool", "#!/bin/sh\necho agreed\n");
        executable();
    }
}

// P4
fn file_capabilities_have_no_effect() {
    let fixture = TestProject::new();
    for tier in TIERS {
        // Without a user namespace an ordinary user cannot drop its bounding set; only no_new_privs protects there.
        if tier == Tier::NoUserns && !rustix::process::geteuid().is_root() {
            continue;
        }
        let spec = in_tier(fixture.shell(Filesystem::Read, "exec grep CapBnd /proc/self/status"), tier);
        check_out(&run(&spec), "CapBnd:\t0000000000000000\n");
    }
}
