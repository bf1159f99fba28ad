//! The escape suite: every probe under both tiers, with the verdict that must come, no trace on the host, and the
//! event that must appear, or why none can (`events`). `real table` prints it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use vambrace_sandbox::{Filesystem, Input, Observe, Operation, Outcome, Rule, Sandbox, Tier};

use super::events::{Due, due};
use super::probes::{all, segment_key};
use crate::real::kit::{self, Room, TIERS, in_tier, out, sandbox};
use crate::real::trees::{alive, children, groups, runs};

/// What gets through, in which tier, and why that is no hole.
const GETS_THROUGH: &[(&str, Option<Tier>, &str)] = &[
    ("list_home", Some(Tier::Full), "its own empty home folder; blocked where it is empty"),
    ("space_outside", Some(Tier::NoUserns), "how much room a file system has, which every path of it tells"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> =
        all().map(|(name, _)| Trial::test(format!("escape::{name}"), move || check(name))).collect();
    trials.push(Trial::test("escape::no_probe_gets_through_in_cells_made_in_advance", in_advance));
    trials.push(Trial::test("escape::nothing_is_left_on_the_host", nothing_is_left));
    trials.push(Trial::test("escape::a_signal_to_everybody_is_heard_by_no_other_run", everybody));
    trials.push(Trial::test(
        "escape::others_run_while_one_keeps_descriptors_on_their_way",
        descriptors_on_their_way,
    ));
    trials.push(Trial::test("escape::a_mode_is_changed_by_nobody_who_is_observed", observed_mode));
    trials.push(Trial::test("escape::a_link_swapped_while_it_is_followed", swapped_link));
    trials
}

/// A stage for a probe: what a hostile program would like to get at.
struct Stage {
    room: Room,
    _listeners: Vec<UnixListener>,
    _memory: Arc<Segment>,
}

impl Stage {
    fn new() -> Self {
        let room = Room::new();
        room.write("state/ledger", "in-the-ledger\n");
        // Only root can make one that would mean something.
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
            // Another test of this process may hold the name; then that one listens.
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()),
        ];
        Self {
            room,
            _listeners: listeners.into_iter().flatten().collect(),
            _memory: Segment::of_this_process(),
        }
    }

    fn run(&self, name: &str, tier: Tier) -> Outcome {
        self.run_in(sandbox(), name, tier, Observe::All)
    }

    fn run_in(&self, sandbox: &Sandbox, name: &str, tier: Tier, observe: Observe) -> Outcome {
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
    ) -> Outcome {
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
            .unwrap_or_else(|fault| panic!("{fault}"))
    }
}

/// Does something while another run of the same tier is on, given its process; gives also what that one said.
fn beside<T>(room: &Room, tier: Tier, act: impl FnOnce(u32) -> T) -> (T, String) {
    let script = "trap 'echo hit' WINCH; sleep 1000 & echo ready; while :; do wait; done";
    let words = ["sh", "-c", script, &mark()].map(str::to_owned);
    while_it_runs(room, tier, &words, "ready", |process, hear| {
        let done = act(process);
        // It hears who may.
        unsafe { libc::kill(process as i32, libc::SIGWINCH) };
        (done, hear("hit"))
    })
}

fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("vambrace-sibling-{}-{}-", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Does something while a program runs that has said it is ready. Its last word is a mark that no other has.
fn while_it_runs<T>(
    room: &Room,
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
            let mut hear = |_, piece: &[u8]| _ = say.send(String::from_utf8_lossy(piece).into_owned());
            sandbox().run(&spec, Input::Nothing, &mut hear).unwrap_or_else(|fault| panic!("{fault}"))
        });
        let mut heard = String::new();
        let mut hear = |awaited: &str| {
            while !heard.contains(awaited) {
                heard += &said.recv_timeout(Duration::from_secs(20)).expect("it says so");
            }
            heard.clone()
        };
        hear(ready);
        // What it starts has its words until it is another program.
        let start = Instant::now();
        let process = loop {
            match alive(&words[words.len() - 1]).as_slice() {
                [one] => break *one,
                found => assert!(start.elapsed() < Duration::from_secs(20), "{found:?}"),
            }
        };
        let done = act(process, &mut hear);
        unsafe { libc::kill(process as i32, libc::SIGKILL) };
        done
    })
}

/// Shared memory of the host, one for all tests of this process, gone after the last.
struct Segment(i32);

impl Segment {
    fn of_this_process() -> Arc<Self> {
        static SEGMENT: Mutex<Weak<Segment>> = Mutex::new(Weak::new());
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

impl Drop for Segment {
    fn drop(&mut self) {
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// What a probe came to: whether it was stopped, and its words.
fn verdict(outcome: &Outcome) -> (bool, String) {
    let said = out(outcome);
    let words = said
        .split_once(' ')
        .map_or_else(|| format!("{:?}", outcome.exit), |(_, words)| words.trim().to_owned());
    // One that is killed while trying is stopped as well.
    (!words.starts_with("REACHED"), words)
}

fn gets_through(name: &str, tier: Tier) -> bool {
    GETS_THROUGH.iter().any(|(one, only, _)| *one == name && only.is_none_or(|only| only == tier))
}

fn check(name: &'static str) -> Result<(), Failed> {
    let stage = Stage::new();
    let before = ["project", "outside", "home", "state"].map(|part| stage.room.listing_shallow(part));
    for tier in TIERS {
        let outcome = stage.run(name, tier);
        let (stopped, words) = verdict(&outcome);
        if !stopped && !gets_through(name, tier) {
            return Err(format!("{name} got through in tier {tier}").into());
        }
        let after = ["project", "outside", "home", "state"].map(|part| stage.room.listing_shallow(part));
        if before != after {
            return Err(format!("{name} left a trace in tier {tier}").into());
        }
        if let Due::Event(operation, rule) = due(name, tier)
            && !is_told(&outcome, operation, rule)
        {
            let told = &outcome.denials;
            return Err(format!(
                "{name} ({words}), tier {tier}: no event {operation:?} {rule:?} in {told:?}"
            )
            .into());
        }
    }
    Ok(())
}

fn is_told(outcome: &Outcome, operation: Operation, rule: Rule) -> bool {
    outcome.denials.iter().any(|denial| denial.operation == operation && denial.rule == rule)
}

/// When everything is observed nothing is made in advance, so the probes run once more as ordinary runs do.
fn in_advance() -> Result<(), Failed> {
    let state = tempfile::TempDir::new().unwrap();
    let own = kit::start(state.path());
    own.keep_warm(2).unwrap();
    let stage = Stage::new();
    let before = ["project", "outside", "home", "state"].map(|part| stage.room.listing_shallow(part));
    for (name, _) in all() {
        for tier in TIERS {
            let (stopped, words) = verdict(&stage.run_in(&own, name, tier, Observe::Writes));
            if !stopped && !gets_through(name, tier) {
                return Err(format!("{name} got through in tier {tier}: {words}").into());
            }
        }
    }
    let after = ["project", "outside", "home", "state"].map(|part| stage.room.listing_shallow(part));
    if before == after { Ok(()) } else { Err("a probe left a trace".into()) }
}

// T13
fn swapped_link() -> Result<(), Failed> {
    let stage = Stage::new();
    let program = std::env::current_exe().unwrap();
    for tier in TIERS {
        let mut spec =
            stage.room.spec(Filesystem::Read, program.to_str().unwrap(), &["probe", "swapped_link"]);
        spec.read = vec![program.clone()];
        spec.environment = vec![("ESCAPE_ROOM".into(), stage.room.path("").into())];
        // The tries are to be many, not told.
        spec.observe = Observe::Off;
        let outcome = kit::run(&in_tier(spec, tier));
        assert_eq!(outcome.exit, vambrace_sandbox::Exit::Code(0), "{tier}");
    }
    Ok(())
}

// Research A 5, 49
fn everybody() -> Result<(), Failed> {
    let stage = Stage::new();
    for tier in TIERS {
        let (outcome, heard) = beside(&stage.room, tier, |sibling| {
            stage.run_beside(sandbox(), "signal_everybody", tier, Observe::All, sibling)
        });
        assert_eq!(outcome.exit, vambrace_sandbox::Exit::Code(0), "{tier}");
        // What it heard came from us, after that.
        assert_eq!(heard.matches("hit").count(), 1, "{tier}: {heard}");
    }
    Ok(())
}

// Research A 5, 114: whatever one run leaves between sockets, others of the same user begin and end
fn descriptors_on_their_way() -> Result<(), Failed> {
    let stage = Stage::new();
    let program = std::env::current_exe().unwrap().display().to_string();
    for tier in TIERS {
        let words = [program.clone(), "probe".to_owned(), format!("hold_descriptors-{}", mark())];
        while_it_runs(&stage.room, tier, &words, "on their way", |_, _| {
            for tier in TIERS {
                let spec = stage.room.shell(Filesystem::Read, "echo begun");
                assert_eq!(out(&kit::run(&in_tier(spec, tier))), "begun\n", "{tier}");
            }
        });
    }
    Ok(())
}

/// Without namespaces only the filter protects modes of the user's files: a call that is asked about to be told is not let
/// go on because its path looks harmless.
fn observed_mode() -> Result<(), Failed> {
    let stage = Stage::new();
    let before = stage.room.listing_shallow("outside");
    let script = "cd \"${TMPDIR:-/tmp}\"; ln -s \"$ESCAPE_ROOM/outside/file\" link; chmod 777 link && echo changed; \
                  echo x >own; chmod 777 own && echo own; exit 0";
    for (tier, observe) in TIERS.into_iter().flat_map(|tier| [(tier, Observe::All), (tier, Observe::Writes)])
    {
        let mut spec = in_tier(stage.room.shell(Filesystem::Read, script), tier);
        spec.environment = vec![("ESCAPE_ROOM".into(), stage.room.path("").into())];
        spec.observe = observe;
        let expected = if tier == Tier::Full { "own\n" } else { "" };
        assert_eq!(out(&kit::run(&spec)), expected, "{tier} {observe:?}");
        assert_eq!(stage.room.listing_shallow("outside"), before, "{tier} {observe:?}");
    }
    Ok(())
}

/// After a whole pass: no process, control group, mount or folder.
fn nothing_is_left() -> Result<(), Failed> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let state = tempfile::TempDir::new().unwrap();
    let own = kit::start(state.path());
    own.keep_warm(2).unwrap();
    let room = Room::new();
    for tier in TIERS {
        for mode in [Filesystem::Deny, Filesystem::Read, Filesystem::Write] {
            let script = "(setsid sleep 1000 vambrace-left &) ; true";
            own.run(&in_tier(room.shell(mode, script), tier), Input::Nothing, &mut |_, _| {}).unwrap();
        }
    }
    let launcher = own.launcher_id();
    let helpers = children(launcher);
    assert!(!helpers.is_empty(), "stages live as long as the launcher");
    drop(own);
    for helper in helpers {
        assert!(!runs(helper), "{helper}");
    }
    assert_eq!(alive("vambrace-left"), [0_u32; 0]);
    assert_eq!(groups(launcher), [""; 0]);
    assert_eq!(std::fs::read_to_string("/proc/self/mounts").unwrap(), mounts);
    assert!(!runs(launcher));
    assert_eq!(std::fs::read_dir(state.path().join("tasks")).map_or(0, Iterator::count), 0);
    Ok(())
}

/// Every probe with what stopped it and what was told, for people.
pub(crate) fn table() {
    println!(
        "{:<34} {:<9} {:<11} {:<40} {:<32} why no event is due",
        "probe", "verdict", "tier", "stopped by", "event"
    );
    let (mut fine, mut events, mut count) = (0, 0, 0);
    for (name, _) in all() {
        let stage = Stage::new();
        for tier in TIERS {
            let outcome = stage.run(name, tier);
            let (stopped, words) = verdict(&outcome);
            let (told, event, why) = match due(name, tier) {
                Due::Event(operation, rule) => {
                    events += 1;
                    let event = format!("{}: {}", operation.as_str(), rule.as_str());
                    (is_told(&outcome, operation, rule), event, "")
                }
                Due::Silent(why) => (true, "-".to_owned(), why),
            };
            let verdict = match (stopped || gets_through(name, tier), told) {
                (true, true) => "expected",
                (true, false) => "UNTOLD",
                (false, _) => "ESCAPED",
            };
            count += 1;
            fine += usize::from(verdict == "expected");
            let words: String = words.lines().next().unwrap_or_default().chars().take(39).collect();
            println!("{name:<34} {verdict:<9} {:<11} {words:<40} {event:<32} {why}", tier.as_str());
        }
    }
    println!("{fine} of {count} as expected, {events} with an event");
}
