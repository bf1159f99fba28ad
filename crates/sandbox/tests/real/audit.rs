//! Landlock's audit records. If they cannot be read, nothing is reported from there and nothing else changes. Audit
//! affects the whole machine: once it was enabled, every later process is slower until the next boot. So these tests
//! enable it (and restore it) only on request: `VAMBRACE_SWITCH_AUDIT=1`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::net::netlink::{AUDIT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use vambrace_sandbox::{
    Certainty, DenialRule, DenialSource, DeniedOperation, FeatureKind, Filesystem, Input, Observe,
    RunOutcome, Sandbox, SandboxDenial, Spec, Tier,
};

use super::harness::{TestProject, in_tier, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "audit::landlock_denials_are_reported_by_the_kernel",
            landlock_denials_are_reported_by_the_kernel,
        ),
        test("audit::concurrent_runs_get_only_their_own_denials", concurrent_runs_get_only_their_own_denials),
    ]
}

/// A sandbox that can read the records; `None`, with a message, if that is impossible here.
fn hearing(fixture: &TestProject) -> Option<(Sandbox, Option<SwitchedOn>)> {
    let asked = std::env::var_os("VAMBRACE_SWITCH_AUDIT").is_some();
    let switched = asked.then(SwitchedOn::new);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let sandbox = start(&fixture.path("state"));
        let tried = &sandbox.features().unwrap().list;
        let audit = tried.iter().find(|feature| feature.kind == FeatureKind::Audit).unwrap();
        if audit.works {
            return Some((sandbox, switched));
        }
        if asked {
            // The kernel thread sends records with a delay.
            assert!(Instant::now() < until, "{}", audit.seen);
            continue;
        }
        vambrace_skip::skip(&format!("landlock audit: {}", audit.seen));
        let outcome = run(&sandbox, &reading(fixture, Tier::NoUserns, &fixture.path("outside/file")));
        let received = outcome.denials.iter().any(|denial| denial.source == DenialSource::Landlock);
        assert!(!received && !outcome.denials_missing, "{:?}", outcome.denials);
        return None;
    }
}

fn run(sandbox: &Sandbox, spec: &Spec) -> RunOutcome {
    sandbox.run(spec, Input::Nothing, &mut |_, _| {}).unwrap()
}

fn reading(fixture: &TestProject, tier: Tier, path: &Path) -> Spec {
    in_tier(fixture.spec(Filesystem::Read, "cat", &[path.to_str().unwrap()]), tier)
}

/// Repeats the run until no record was lost: the kernel may lose some, and reports it.
fn denied(sandbox: &Sandbox, spec: &Spec, path: &Path) -> Vec<SandboxDenial> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let outcome = run(sandbox, spec);
        let found: Vec<SandboxDenial> =
            outcome.denials.iter().filter(|denial| denial.path == path).cloned().collect();
        if !found.is_empty() {
            return found;
        }
        assert!(outcome.denials_missing && Instant::now() < until, "{path:?} in {:?}", outcome.denials);
    }
}

fn read_of(path: &Path, rule: DenialRule, right: &'static str) -> SandboxDenial {
    let (source, certainty) = (DenialSource::Landlock, Certainty::Denied);
    SandboxDenial {
        operation: DeniedOperation::Read,
        path: path.to_owned(),
        rule,
        right: Some(right),
        source,
        certainty,
    }
}

fn landlock_denials_are_reported_by_the_kernel() {
    let fixture = TestProject::new();
    let hostile = fixture.path("outside/x\" domain=1 blockers=ptrace\n\u{fc}");
    std::fs::write(&hostile, "x").unwrap();
    let Some((sandbox, _switched)) = hearing(&fixture) else { return };
    let tier = Tier::NoUserns;
    for path in [fixture.path("outside/file"), hostile] {
        let expected = read_of(&path, DenialRule::NotGranted, "fs.read_file");
        assert_eq!(denied(&sandbox, &reading(&fixture, tier, &path), &path), [expected]);
    }
    let dir = fixture.path("outside");
    let listing = in_tier(fixture.spec(Filesystem::Read, "ls", &[dir.to_str().unwrap()]), tier);
    let expected = read_of(&dir, DenialRule::NotGranted, "fs.read_dir");
    assert_eq!(denied(&sandbox, &listing, &dir), [expected]);
    // Predicted by the observer as well, and reported once.
    let secret = fixture.path("project/.env");
    for observe in [Observe::Writes, Observe::All] {
        let mut spec = reading(&fixture, tier, &secret);
        spec.observe = observe;
        let found = denied(&sandbox, &spec, &secret);
        assert_eq!(found, [read_of(&secret, DenialRule::Masked, "fs.read_file")], "{observe:?}");
    }
    let mut spec = reading(&fixture, tier, &secret);
    spec.observe = Observe::Off;
    assert_eq!(run(&sandbox, &spec).denials, []);
    // With namespaces Landlock is the second layer: not everything visible in `/etc` may be read.
    let rest = ["/etc/hostname", "/etc/fstab", "/etc/machine-id"].map(PathBuf::from);
    if let Some(path) = rest.iter().find(|path| path.is_file()) {
        let expected = read_of(path, DenialRule::NotGranted, "fs.read_file");
        assert_eq!(denied(&sandbox, &reading(&fixture, Tier::Full, path), path), [expected]);
    }
}

fn concurrent_runs_get_only_their_own_denials() {
    let fixture = TestProject::new();
    fixture.write("outside/other", "x");
    let Some((sandbox, _switched)) = hearing(&fixture) else { return };
    let paths = ["outside/file", "outside/other"].map(|name| fixture.path(name));
    std::thread::scope(|scope| {
        for (mine, others) in [(&paths[0], &paths[1]), (&paths[1], &paths[0])] {
            let (sandbox, fixture) = (&sandbox, &fixture);
            scope.spawn(move || {
                for _ in 0..3 {
                    denied(sandbox, &reading(fixture, Tier::NoUserns, mine), mine);
                    let outcome = run(sandbox, &reading(fixture, Tier::NoUserns, mine));
                    assert!(!outcome.denials.iter().any(|denial| denial.path == **others));
                }
            });
        }
    });
}

/// Enables audit until it is dropped; one process at a time.
struct SwitchedOn {
    before: u32,
    _lock: std::fs::File,
}

impl SwitchedOn {
    fn new() -> Self {
        let lock = std::fs::File::create(std::env::temp_dir().join("vambrace-switch-audit")).unwrap();
        lock.lock().unwrap();
        let before = ask(1000, &[]).expect("only root can enable audit");
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

/// Sends one message; returns the second number of the reply, unless the reply is an error.
fn ask(kind: u16, content: &[u8]) -> Option<u32> {
    let family = AddressFamily::NETLINK;
    let socket =
        rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(AUDIT)).unwrap();
    let length = u32::try_from(16 + content.len()).unwrap();
    // NLM_F_REQUEST, and NLM_F_ACK for messages without a reply of their own.
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
