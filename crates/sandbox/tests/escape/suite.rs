//! The escape suite: every probe in both tiers, with the expected verdict, no trace on the host, and the denial that
//! must be reported, or why none can be (`expected_denials`). `real table` prints it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use vambrace_sandbox::{DenialRule, DeniedOperation, Filesystem, Input, Observe, RunOutcome, Sandbox, Tier};

use super::expected_denials::{ExpectedDenial, expected_denial};
use super::probes::{all, segment_key};
use crate::real::harness::{self, TIERS, TestProject, in_tier, out, sandbox};
use crate::real::processes::{alive, children, groups, runs};

/// Probes that succeed, in which tier, and why that is not an escape.
const EXPECTED_SUCCESS: &[(&str, Option<Tier>, &str)] = &[
    ("list_home", Some(Tier::Full), "its own home directory; blocked where it is empty"),
    ("space_outside", Some(Tier::NoUserns), "free space of a file system, which every path on it reveals"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = all()
        .map(|(name, _)| {
            Trial::test(format!("escape::{name}"), move || {
                probe_is_stopped_leaves_no_trace_and_is_reported(name)
            })
        })
        .collect();
    trials.push(Trial::test("escape::no_probe_succeeds_in_warm_cells", no_probe_succeeds_in_warm_cells));
    trials.push(Trial::test("escape::nothing_is_left_on_the_host", nothing_is_left_on_the_host));
    trials.push(Trial::test(
        "escape::signal_to_all_processes_reaches_no_other_run",
        signal_to_all_processes_reaches_no_other_run,
    ));
    trials.push(Trial::test(
        "escape::other_runs_start_while_one_holds_descriptors_in_flight",
        other_runs_start_while_one_holds_descriptors_in_flight,
    ));
    trials.push(Trial::test(
        "escape::observed_chmod_of_a_host_file_is_denied",
        observed_chmod_of_a_host_file_is_denied,
    ));
    trials.push(Trial::test(
        "escape::symlink_swapped_while_it_is_followed_leads_nowhere",
        symlink_swapped_while_it_is_followed_leads_nowhere,
    ));
    trials
}

/// Targets on the host that a hostile program would attack.
struct EscapeTargets {
    room: TestProject,
    _listeners: Vec<UnixListener>,
    _memory: Arc<SharedMemorySegment>,
}

impl EscapeTargets {
    fn new() -> Self {
        let room = TestProject::new();
        room.write("state/ledger", "in-the-ledger\n");
        // It is effective only if root made it.
        std::fs::copy("/usr/bin/id", room.path("project/set-id")).unwrap();
        std::fs::set_permissions(
            room.path("project/set-id"),
            std::os::unix::fs::PermissionsExt::from_mode(0o4755),
        )
        .unwrap();
        let name = format!("vambrace-escape-{}", std::process::id());
        let listeners = [
            UnixListener::bind(room.path("outside/socket")),
            UnixListener::bind(room.path("project/socket")),
            // Another test of this process may have bound the name; then that one listens.
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()),
        ];
        Self {
            room,
            _listeners: listeners.into_iter().flatten().collect(),
            _memory: SharedMemorySegment::of_this_process(),
        }
    }

    fn run(&self, name: &str, tier: Tier) -> RunOutcome {
        self.run_in(sandbox(), name, tier, Observe::All)
    }

    fn run_in(&self, sandbox: &Sandbox, name: &str, tier: Tier, observe: Observe) -> RunOutcome {
        if name.contains("sibling") {
            return beside(&self.room, tier, |sibling| {
                self.run_beside(sandbox, name, tier, observe, sibling)
            })
            .0;
        }
        self.run_beside(sandbox, name, tier, observe, 0)
    }

    fn run_beside(
        &self,
        sandbox: &Sandbox,
        name: &str,
        tier: Tier,
        observe: Observe,
        sibling: u32,
    ) -> RunOutcome {
        let program = std::env::current_exe().unwrap();
        let mut spec = self.room.spec(Filesystem::Read, program.to_str().unwrap(), &["probe", name]);
        spec.read = vec![program];
        spec.environment = vec![
            ("ESCAPE_ROOM".into(), self.room.path("").into()),
            ("ESCAPE_BROKER".into(), std::process::id().to_string().into()),
            ("ESCAPE_SIBLING".into(), sibling.to_string().into()),
        ];
        if name == "spin_on_every_processor" {
            spec.limits.time = Duration::from_millis(300);
        }
        spec.limits.memory = 512 << 20;
        spec.observe = observe;
        sandbox
            .run(&in_tier(spec, tier), Input::Nothing, &mut |_, _| {})
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Calls `act` with the process of another run of the same tier; also returns the output of that run.
fn beside<T>(room: &TestProject, tier: Tier, act: impl FnOnce(u32) -> T) -> (T, String) {
    let script = "trap 'echo hit' WINCH; sleep 1000 & echo ready; while :; do wait; done";
    let words = ["sh", "-c", script, &mark()].map(str::to_owned);
    while_it_runs(room, tier, &words, "ready", |process, wait_for| {
        let done = act(process);
        // A permitted signal arrives.
        unsafe { libc::kill(process as i32, libc::SIGWINCH) };
        (done, wait_for("hit"))
    })
}

fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("vambrace-sibling-{}-{}-", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Calls `act` while a program runs that has printed `ready`. Its last argument is a unique mark.
fn while_it_runs<T>(
    room: &TestProject,
    tier: Tier,
    words: &[String],
    ready: &str,
    act: impl FnOnce(u32, &mut dyn FnMut(&str) -> String) -> T,
) -> T {
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut spec = in_tier(room.spec(Filesystem::Read, &words[0], &arguments), tier);
    spec.read = vec![std::env::current_exe().unwrap()];
    let (say, said) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut forward = |_, piece: &[u8]| _ = say.send(String::from_utf8_lossy(piece).into_owned());
            sandbox().run(&spec, Input::Nothing, &mut forward).unwrap_or_else(|error| panic!("{error}"))
        });
        let mut heard = String::new();
        let mut wait_for = |awaited: &str| {
            while !heard.contains(awaited) {
                heard += &said.recv_timeout(Duration::from_secs(20)).expect("no output");
            }
            heard.clone()
        };
        wait_for(ready);
        // Its children have the same arguments until they exec.
        let start = Instant::now();
        let process = loop {
            match alive(&words[words.len() - 1]).as_slice() {
                [one] => break *one,
                found => assert!(start.elapsed() < Duration::from_secs(20), "{found:?}"),
            }
        };
        let done = act(process, &mut wait_for);
        unsafe { libc::kill(process as i32, libc::SIGKILL) };
        done
    })
}

/// A shared memory segment of the host, one for all tests of this process, removed after the last.
struct SharedMemorySegment(i32);

impl SharedMemorySegment {
    fn of_this_process() -> Arc<Self> {
        static SEGMENT: Mutex<Weak<SharedMemorySegment>> = Mutex::new(Weak::new());
        let mut known = SEGMENT.lock().unwrap();
        known.upgrade().unwrap_or_else(|| {
            let key = segment_key(std::process::id());
            let made = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | 0o666) };
            assert!(made >= 0, "{}", std::io::Error::last_os_error());
            let made = Arc::new(Self(made));
            *known = Arc::downgrade(&made);
            made
        })
    }
}

impl Drop for SharedMemorySegment {
    fn drop(&mut self) {
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// Whether a probe was stopped, and its message.
fn verdict(outcome: &RunOutcome) -> (bool, String) {
    let said = out(outcome);
    let words = said
        .split_once(' ')
        .map_or_else(|| format!("{:?}", outcome.exit), |(_, words)| words.trim().to_owned());
    // A probe that is killed is stopped as well.
    (!words.starts_with("REACHED"), words)
}

fn may_succeed(name: &str, tier: Tier) -> bool {
    EXPECTED_SUCCESS.iter().any(|(one, only, _)| *one == name && only.is_none_or(|only| only == tier))
}

// P2, P4, P5: each probe is a trial of its own
fn probe_is_stopped_leaves_no_trace_and_is_reported(name: &'static str) -> Result<(), Failed> {
    let targets = EscapeTargets::new();
    let before = ["project", "outside", "home", "state"].map(|part| targets.room.listing_shallow(part));
    for tier in TIERS {
        let outcome = targets.run(name, tier);
        let (stopped, words) = verdict(&outcome);
        if !stopped && !may_succeed(name, tier) {
            return Err(format!("{name} succeeded in tier {tier}").into());
        }
        let after = ["project", "outside", "home", "state"].map(|part| targets.room.listing_shallow(part));
        if before != after {
            return Err(format!("{name} left a trace in tier {tier}").into());
        }
        if let ExpectedDenial::Event(operation, rule) = expected_denial(name, tier)
            && !is_reported(&outcome, operation, rule)
        {
            let reported = &outcome.denials;
            return Err(format!(
                "{name} ({words}), tier {tier}: no event {operation:?} {rule:?} in {reported:?}"
            )
            .into());
        }
    }
    Ok(())
}

fn is_reported(outcome: &RunOutcome, operation: DeniedOperation, rule: DenialRule) -> bool {
    outcome.denials.iter().any(|denial| denial.operation == operation && denial.rule == rule)
}

/// When everything is observed no warm cell is used, so the probes run once more as ordinary runs do.
// P2, P4
fn no_probe_succeeds_in_warm_cells() -> Result<(), Failed> {
    let state = tempfile::TempDir::new().unwrap();
    let own = harness::start(state.path());
    own.keep_warm(2).unwrap();
    let targets = EscapeTargets::new();
    let before = ["project", "outside", "home", "state"].map(|part| targets.room.listing_shallow(part));
    for (name, _) in all() {
        for tier in TIERS {
            let (stopped, words) = verdict(&targets.run_in(&own, name, tier, Observe::Writes));
            if !stopped && !may_succeed(name, tier) {
                return Err(format!("{name} succeeded in tier {tier}: {words}").into());
            }
        }
    }
    let after = ["project", "outside", "home", "state"].map(|part| targets.room.listing_shallow(part));
    if before == after { Ok(()) } else { Err("a probe left a trace".into()) }
}

// T13
fn symlink_swapped_while_it_is_followed_leads_nowhere() -> Result<(), Failed> {
    let targets = EscapeTargets::new();
    let program = std::env::current_exe().unwrap();
    for tier in TIERS {
        let mut spec =
            targets.room.spec(Filesystem::Read, program.to_str().unwrap(), &["probe", "swapped_link"]);
        spec.read = vec![program.clone()];
        spec.environment = vec![("ESCAPE_ROOM".into(), targets.room.path("").into())];
        // Many attempts, without reports.
        spec.observe = Observe::Off;
        let outcome = harness::run(&in_tier(spec, tier));
        assert_eq!(outcome.exit, vambrace_sandbox::Exit::Code(0), "{tier}");
    }
    Ok(())
}

// P6: a signal to every process must not reach another run.
fn signal_to_all_processes_reaches_no_other_run() -> Result<(), Failed> {
    let targets = EscapeTargets::new();
    for tier in TIERS {
        let (outcome, heard) = beside(&targets.room, tier, |sibling| {
            targets.run_beside(sandbox(), "signal_all_processes", tier, Observe::All, sibling)
        });
        assert_eq!(outcome.exit, vambrace_sandbox::Exit::Code(0), "{tier}");
        // The one signal that arrived is ours, sent after that.
        assert_eq!(heard.matches("hit").count(), 1, "{tier}: {heard}");
    }
    Ok(())
}

// P6: whatever one run leaves in flight between sockets, other runs of the same user start and end.
fn other_runs_start_while_one_holds_descriptors_in_flight() -> Result<(), Failed> {
    let targets = EscapeTargets::new();
    let program = std::env::current_exe().unwrap().display().to_string();
    for tier in TIERS {
        let words = [program.clone(), "probe".to_owned(), format!("hold_descriptors-{}", mark())];
        while_it_runs(&targets.room, tier, &words, "in flight", |_, _| {
            for tier in TIERS {
                let spec = targets.room.shell(Filesystem::Read, "echo begun");
                assert_eq!(out(&harness::run(&in_tier(spec, tier))), "begun\n", "{tier}");
            }
        });
    }
    Ok(())
}

/// Without namespaces only the filter protects the modes of the user's files: an observed call must not continue
/// because its path looks harmless.
// P4
fn observed_chmod_of_a_host_file_is_denied() -> Result<(), Failed> {
    let targets = EscapeTargets::new();
    let before = targets.room.listing_shallow("outside");
    let script = "cd \"${TMPDIR:-/tmp}\"; ln -s \"$ESCAPE_ROOM/outside/file\" link; chmod 777 link && echo changed; \
                  echo x >own; chmod 777 own && echo own; exit 0";
    for (tier, observe) in TIERS.into_iter().flat_map(|tier| [(tier, Observe::All), (tier, Observe::Writes)])
    {
        let mut spec = in_tier(targets.room.shell(Filesystem::Read, script), tier);
        spec.environment = vec![("ESCAPE_ROOM".into(), targets.room.path("").into())];
        spec.observe = observe;
        let expected = if tier == Tier::Full { "own\n" } else { "" };
        assert_eq!(out(&harness::run(&spec)), expected, "{tier} {observe:?}");
        assert_eq!(targets.room.listing_shallow("outside"), before, "{tier} {observe:?}");
    }
    Ok(())
}

/// After a complete pass: no process, cgroup, mount or directory is left.
// P4, P6
fn nothing_is_left_on_the_host() -> Result<(), Failed> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let state = tempfile::TempDir::new().unwrap();
    let own = harness::start(state.path());
    own.keep_warm(2).unwrap();
    let room = TestProject::new();
    for tier in TIERS {
        for mode in [Filesystem::Deny, Filesystem::Read, Filesystem::Write] {
            let script = "(setsid sleep 1000 vambrace-left &) ; true";
            own.run(&in_tier(room.shell(mode, script), tier), Input::Nothing, &mut |_, _| {}).unwrap();
        }
    }
    let launcher = own.launcher_id();
    let helpers = children(launcher);
    assert!(!helpers.is_empty(), "zygotes live as long as the launcher");
    drop(own);
    for helper in helpers {
        assert!(!runs(helper), "{helper}");
    }
    assert_eq!(alive("vambrace-left"), [0_u32; 0]);
    assert_eq!(groups(launcher), [""; 0]);
    assert_eq!(std::fs::read_to_string("/proc/self/mounts").unwrap(), mounts);
    assert!(!runs(launcher));
    assert_eq!(std::fs::read_dir(state.path().join("runs")).map_or(0, Iterator::count), 0);
    Ok(())
}

/// Prints every probe with what stopped it and what was reported.
pub(crate) fn table() {
    println!(
        "{:<34} {:<9} {:<11} {:<40} {:<32} why no event is due",
        "probe", "verdict", "tier", "stopped by", "event"
    );
    let (mut fine, mut expected_denials, mut count) = (0, 0, 0);
    for (name, _) in all() {
        let targets = EscapeTargets::new();
        for tier in TIERS {
            let outcome = targets.run(name, tier);
            let (stopped, words) = verdict(&outcome);
            let (reported, event, why) = match expected_denial(name, tier) {
                ExpectedDenial::Event(operation, rule) => {
                    expected_denials += 1;
                    let event = format!("{}: {}", operation.as_str(), rule.as_str());
                    (is_reported(&outcome, operation, rule), event, "")
                }
                ExpectedDenial::Silent(why) => (true, "-".to_owned(), why),
            };
            let verdict = match (stopped || may_succeed(name, tier), reported) {
                (true, true) => "expected",
                (true, false) => "NO EVENT",
                (false, _) => "ESCAPED",
            };
            count += 1;
            fine += usize::from(verdict == "expected");
            let words: String = words.lines().next().unwrap_or_default().chars().take(39).collect();
            println!("{name:<34} {verdict:<9} {:<11} {words:<40} {event:<32} {why}", tier.as_str());
        }
    }
    println!("{fine} of {count} as expected, {expected_denials} with an event");
}
