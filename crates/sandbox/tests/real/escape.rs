//! The escape suite: every probe under both tiers, with the verdict that must come, no trace on the host, and the
//! event that must appear where one is promised. `real table` prints it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, Mutex, Weak};

use libtest_mimic::{Failed, Trial};
use vambrace_sandbox::{Denial, Filesystem, Input, Observe, Operation, Outcome, Rule, Sandbox, Tier};

use super::kit::{Room, TIERS, in_tier, out, sandbox};
use super::probes::{all, segment_key};
use super::trees::{alive, children, groups, runs};

/// What gets through, in which tier, and why that is no hole.
const GETS_THROUGH: &[(&str, Option<Tier>, &str)] = &[
    ("mkfifo_in_read_mode", None, "never"),
    ("list_home", Some(Tier::Full), "its own empty home folder; blocked where it is empty"),
];

/// Events that must appear when everything is observed, in tier full.
const EVENTS: &[(&str, Operation, Rule)] = &[
    ("read_ssh_key", Operation::Read, Rule::NotShown),
    ("read_outside_by_full_path", Operation::Read, Rule::NotShown),
    ("read_outside_by_parent", Operation::Read, Rule::NotShown),
    ("read_state", Operation::Read, Rule::NotShown),
    ("read_secret_in_workspace", Operation::Read, Rule::Masked),
    ("read_nested_secret", Operation::Read, Rule::Masked),
    ("write_etc", Operation::Write, Rule::ReadOnly),
    ("write_usr", Operation::Write, Rule::ReadOnly),
    ("create_in_read_mode", Operation::Write, Rule::ReadOnly),
    ("mkdir_in_read_mode", Operation::Write, Rule::ReadOnly),
    ("symlink_in_read_mode", Operation::Write, Rule::ReadOnly),
    ("truncate_existing", Operation::Write, Rule::ReadOnly),
    ("chmod_existing", Operation::Write, Rule::ReadOnly),
    ("mmap_write_existing", Operation::Write, Rule::ReadOnly),
    ("internet_socket", Operation::Call, Rule::Filter),
    ("multipath_socket", Operation::Call, Rule::Filter),
    ("datagram_socket", Operation::Call, Rule::Filter),
    ("fast_open", Operation::Call, Rule::Filter),
    ("mount_tmpfs", Operation::Call, Rule::Filter),
    ("unshare_user", Operation::Call, Rule::Filter),
    ("ptrace_child", Operation::Call, Rule::Filter),
    ("add_key", Operation::Call, Rule::Filter),
    ("bpf", Operation::Call, Rule::Filter),
    ("set_id_bits", Operation::Call, Rule::Filter),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> =
        all().map(|(name, _)| Trial::test(format!("escape::{name}"), move || check(name))).collect();
    trials.push(Trial::test("escape::no_probe_gets_through_in_cells_made_in_advance", in_advance));
    trials.push(Trial::test("escape::nothing_is_left_on_the_host", nothing_is_left));
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
        let program = std::env::current_exe().unwrap();
        let mut spec = self.room.spec(Filesystem::Read, program.to_str().unwrap(), &["probe", name]);
        spec.read = vec![program];
        spec.environment = vec![
            ("ESCAPE_ROOM".into(), self.room.path("").into()),
            ("ESCAPE_BROKER".into(), std::process::id().to_string().into()),
        ];
        spec.limits.memory = 512 << 20;
        spec.observe = observe;
        sandbox
            .run(&in_tier(spec, tier), Input::Nothing, &mut |_, _| {})
            .unwrap_or_else(|fault| panic!("{fault}"))
    }
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
    GETS_THROUGH
        .iter()
        .any(|(one, only, why)| *one == name && *why != "never" && only.is_none_or(|only| only == tier))
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
        if tier == Tier::Full
            && let Some((_, operation, rule)) = EVENTS.iter().find(|(one, ..)| *one == name)
        {
            let hit = |denial: &Denial| denial.operation == *operation && denial.rule == *rule;
            if !outcome.denials.iter().any(hit) {
                return Err(format!(
                    "{name} ({words}): no event {operation:?} {rule:?} in {:?}",
                    outcome.denials
                )
                .into());
            }
        }
    }
    Ok(())
}

/// When everything is observed nothing is made in advance, so the probes run once more as ordinary runs do.
fn in_advance() -> Result<(), Failed> {
    let state = tempfile::TempDir::new().unwrap();
    let own = super::kit::start(state.path());
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
        let outcome = super::kit::run(&in_tier(spec, tier));
        assert_eq!(outcome.exit, vambrace_sandbox::Exit::Code(0), "{tier}");
    }
    Ok(())
}

/// After a whole pass: no process, control group, mount or folder.
fn nothing_is_left() -> Result<(), Failed> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let state = tempfile::TempDir::new().unwrap();
    let own = super::kit::start(state.path());
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

/// Every probe with what stopped it, for people.
pub(crate) fn table() {
    println!("{:<36} {:<9} {:<44} no-userns", "probe", "verdict", "full");
    let (mut stopped_all, mut count) = (0, 0);
    for (name, _) in all() {
        let stage = Stage::new();
        let told = TIERS.map(|tier| verdict(&stage.run(name, tier)));
        let fine = told.iter().zip(TIERS).all(|((stopped, _), tier)| *stopped || gets_through(name, tier));
        count += 1;
        stopped_all += usize::from(fine);
        let words = |at: usize| told[at].1.chars().take(43).collect::<String>();
        println!("{name:<36} {:<9} {:<44} {}", if fine { "expected" } else { "ESCAPED" }, words(0), words(1));
    }
    println!("{stopped_all} of {count} as expected");
}
