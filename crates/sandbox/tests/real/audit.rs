//! What Landlock says itself. Where its records cannot be read, nothing is told from there and nothing else changes; where
//! they can, they are. Audit is the whole machine's, and once it was on every later process is slower until the next
//! start, so these tests switch it on (and back) only when asked to: `VAMBRACE_SWITCH_AUDIT=1`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::net::netlink::{AUDIT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use vambrace_sandbox::{
    Certainty, Denial, FeatureKind, Filesystem, Input, Observe, Operation, Outcome, Rule, Sandbox, Source,
    Spec, Tier,
};

use super::kit::{Room, in_tier, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("audit::what_landlock_refuses_is_told_by_the_kernel", told_by_the_kernel),
        test("audit::runs_beside_each_other_hear_only_of_themselves", beside_each_other),
    ]
}

/// A sandbox that hears; nothing, and a word about it, where none can.
fn hearing(room: &Room) -> Option<(Sandbox, Option<SwitchedOn>)> {
    let asked = std::env::var_os("VAMBRACE_SWITCH_AUDIT").is_some();
    let switched = asked.then(SwitchedOn::new);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let sandbox = start(&room.path("state"));
        let tried = &sandbox.features().unwrap().list;
        let audit = tried.iter().find(|feature| feature.kind == FeatureKind::Audit).unwrap();
        if audit.works {
            return Some((sandbox, switched));
        }
        if asked {
            // The kernel hands records out when it gets to it.
            assert!(Instant::now() < until, "{}", audit.seen);
            continue;
        }
        println!("skipped: landlock audit: {}", audit.seen);
        let outcome = run(&sandbox, &reading(room, Tier::NoUserns, &room.path("outside/file")));
        let heard = outcome.denials.iter().any(|denial| denial.source == Source::Landlock);
        assert!(!heard && !outcome.denials_missing, "{:?}", outcome.denials);
        return None;
    }
}

fn run(sandbox: &Sandbox, spec: &Spec) -> Outcome {
    sandbox.run(spec, Input::Nothing, &mut |_, _| {}).unwrap()
}

fn reading(room: &Room, tier: Tier, path: &Path) -> Spec {
    in_tier(room.spec(Filesystem::Read, "cat", &[path.to_str().unwrap()]), tier)
}

/// Runs until the kernel has kept everything: it may lose records, and then says so.
fn refused(sandbox: &Sandbox, spec: &Spec, path: &Path) -> Vec<Denial> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let outcome = run(sandbox, spec);
        let found: Vec<Denial> =
            outcome.denials.iter().filter(|denial| denial.path == path).cloned().collect();
        if !found.is_empty() {
            return found;
        }
        assert!(outcome.denials_missing && Instant::now() < until, "{path:?} in {:?}", outcome.denials);
    }
}

fn read_of(path: &Path, rule: Rule, right: &'static str) -> Denial {
    let (source, certainty) = (Source::Landlock, Certainty::Refused);
    Denial { operation: Operation::Read, path: path.to_owned(), rule, right: Some(right), source, certainty }
}

// Issue 6, 4
fn told_by_the_kernel() {
    let room = Room::new();
    let hostile = room.path("outside/x\" domain=1 blockers=ptrace\n\u{fc}");
    std::fs::write(&hostile, "x").unwrap();
    let Some((sandbox, _switched)) = hearing(&room) else { return };
    let tier = Tier::NoUserns;
    for path in [room.path("outside/file"), hostile] {
        let expected = read_of(&path, Rule::NotGranted, "fs.read_file");
        assert_eq!(refused(&sandbox, &reading(&room, tier, &path), &path), [expected]);
    }
    let folder = room.path("outside");
    let listing = in_tier(room.spec(Filesystem::Read, "ls", &[folder.to_str().unwrap()]), tier);
    let expected = read_of(&folder, Rule::NotGranted, "fs.read_dir");
    assert_eq!(refused(&sandbox, &listing, &folder), [expected]);
    // Seen by the observer as well, and told once.
    let secret = room.path("project/.env");
    for observe in [Observe::Writes, Observe::All] {
        let mut spec = reading(&room, tier, &secret);
        spec.observe = observe;
        let found = refused(&sandbox, &spec, &secret);
        assert_eq!(found, [read_of(&secret, Rule::Masked, "fs.read_file")], "{observe:?}");
    }
    let mut spec = reading(&room, tier, &secret);
    spec.observe = Observe::Off;
    assert_eq!(run(&sandbox, &spec).denials, []);
    // With namespaces it is the second wall: of what is shown of `/etc`, not everything may be read.
    let rest = ["/etc/hostname", "/etc/fstab", "/etc/machine-id"].map(PathBuf::from);
    if let Some(path) = rest.iter().find(|path| path.is_file()) {
        let expected = read_of(path, Rule::NotGranted, "fs.read_file");
        assert_eq!(refused(&sandbox, &reading(&room, Tier::Full, path), path), [expected]);
    }
}

fn beside_each_other() {
    let room = Room::new();
    room.write("outside/other", "x");
    let Some((sandbox, _switched)) = hearing(&room) else { return };
    let paths = ["outside/file", "outside/other"].map(|name| room.path(name));
    std::thread::scope(|scope| {
        for (mine, others) in [(&paths[0], &paths[1]), (&paths[1], &paths[0])] {
            let (sandbox, room) = (&sandbox, &room);
            scope.spawn(move || {
                for _ in 0..3 {
                    refused(sandbox, &reading(room, Tier::NoUserns, mine), mine);
                    let outcome = run(sandbox, &reading(room, Tier::NoUserns, mine));
                    assert!(!outcome.denials.iter().any(|denial| denial.path == **others));
                }
            });
        }
    });
}

/// Audit, switched on as long as this lives, by one process at a time.
struct SwitchedOn {
    before: u32,
    _lock: std::fs::File,
}

impl SwitchedOn {
    fn new() -> Self {
        let lock = std::fs::File::create(std::env::temp_dir().join("vambrace-switch-audit")).unwrap();
        lock.lock().unwrap();
        let before = ask(1000, &[]).expect("only root can switch audit on");
        switch(1);
        Self { before, _lock: lock }
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        switch(self.before);
    }
}

/// Sets `enabled`, the second number of `struct audit_status`; its mask is the first.
fn switch(enabled: u32) {
    let mut status = [0; 40];
    status[..4].copy_from_slice(&1_u32.to_ne_bytes());
    status[4..8].copy_from_slice(&enabled.to_ne_bytes());
    ask(1001, &status);
}

/// Sends one message; gives the second number of the answer, if there is one that is no refusal.
fn ask(kind: u16, content: &[u8]) -> Option<u32> {
    let family = AddressFamily::NETLINK;
    let socket =
        rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(AUDIT)).unwrap();
    let length = u32::try_from(16 + content.len()).unwrap();
    // A request, and for what is not answered otherwise a receipt.
    let flags: u16 = if content.is_empty() { 1 } else { 5 };
    let header = [length.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat();
    let mut message = [header, content.to_vec()].concat();
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
    let mut answer = vec![0; 4096];
    rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty()).unwrap();
    (answer[4..6] == kind.to_ne_bytes()).then(|| u32::from_ne_bytes(answer[20..24].try_into().unwrap()))
}
