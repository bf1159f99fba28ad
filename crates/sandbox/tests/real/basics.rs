//! Starting, environment, output, exit codes, tiers.

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, SandboxFault, Tier};

use super::kit::{Room, TIERS, check_out, in_tier, out, run, sandbox, test, try_run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("basics::a_program_runs_and_its_code_comes_back", a_program_runs_and_its_code_comes_back),
        test("basics::the_strongest_tier_works_here", the_strongest_tier_works_here),
        test("basics::the_environment_is_built_from_nothing", the_environment_is_built_from_nothing),
        test("basics::a_missing_program_is_said_to_be_missing", a_missing_program_is_said_to_be_missing),
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
    check_out(&run(&room.spec(Filesystem::Deny, "whoami", &[])), "agent\n");
}

fn a_missing_program_is_said_to_be_missing() {
    let room = Room::new();
    for tier in TIERS {
        let fault = try_run(&in_tier(room.spec(Filesystem::Read, "no-such-program", &[]), tier)).unwrap_err();
        assert!(matches!(fault, SandboxFault::CouldNotStart { .. }), "{fault}");
    }
}
