//! Test harness: runs a program in a sandbox with an egress gate and collects output, events and what the servers saw.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use vambrace_egress::{EgressEvent, EgressGate, GateConfig, NetworkReason, NetworkRules};
use vambrace_sandbox::{Input, NetworkMode, RunOutcome, Sandbox, SandboxError, Spec, StateDirs};

use super::test_network;

pub(crate) struct Harness {
    sandbox: Sandbox,
    runtime: Runtime,
    dir: TempDir,
}

/// The outcome of a run.
pub(crate) struct ProbeRun {
    pub(crate) out: String,
    pub(crate) outcome: RunOutcome,
    pub(crate) events: Vec<EgressEvent>,
    /// Connections that reached the internet during the run: address and port.
    pub(crate) reached: Vec<String>,
    /// Names that the name server was asked for during the run.
    pub(crate) asked: Vec<String>,
}

/// The harness, with one sandbox for all tests of this process.
pub(crate) fn harness() -> &'static Harness {
    static HARNESS: OnceLock<Harness> = OnceLock::new();
    HARNESS.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("project")).unwrap();
        let places = StateDirs::below(&dir.path().join("state"));
        let sandbox = Sandbox::start(&std::env::current_exe().unwrap(), places).unwrap();
        // The first runs use cells that are made on demand, later ones mostly cells of the warm pool.
        sandbox.keep_warm(1).unwrap();
        Harness { sandbox, runtime: Runtime::new().unwrap(), dir }
    })
}

impl Harness {
    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("project")
    }

    pub(crate) fn gate(&self, setting: GateConfig) -> Arc<EgressGate> {
        EgressGate::new(setting, self.runtime.handle().clone())
    }

    pub(crate) fn try_run(&self, spec: &Spec) -> Result<RunOutcome, SandboxError> {
        self.sandbox.run(spec, Input::Nothing, &mut |_, _| {})
    }

    pub(crate) fn probe(&self, rules: &[&str], words: &[&str]) -> ProbeRun {
        let program = std::env::current_exe().unwrap();
        let words: Vec<&str> = ["probe"].iter().chain(words).copied().collect();
        self.run(setting(rules), program.to_str().unwrap(), &words)
    }

    pub(crate) fn run(&self, setting: GateConfig, program: &str, words: &[&str]) -> ProbeRun {
        self.run_with(setting, program, words, |_| {})
    }

    pub(crate) fn run_with(
        &self,
        setting: GateConfig,
        program: &str,
        words: &[&str],
        more: impl FnOnce(&mut Spec),
    ) -> ProbeRun {
        let mut spec = Spec::new(program, self.project());
        spec.arguments = words.iter().map(OsString::from).collect();
        spec.read = vec![std::env::current_exe().unwrap()];
        more(&mut spec);
        spec.network = NetworkMode::Gated;
        spec.limits.open_files = 4096;
        // One run at a time, so that the servers' logs belong to it.
        static RUN_LOCK: Mutex<()> = Mutex::new(());
        let _alone = RUN_LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let gate = self.gate(setting);
        spec.gate = Some(gate.clone());
        let before = ["connections", "names"].map(lines);
        let outcome =
            self.sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
        let (events, _) = gate.close();
        // A dialled connection may reach the server only after the program has exited.
        let dialled =
            events.iter().filter(|event| event.address.is_some_and(|address| !address.is_loopback()));
        let expected = before[0].len() + dialled.count();
        let start = std::time::Instant::now();
        while lines("connections").len() < expected && start.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let [reached, asked] = ["connections", "names"].map(lines);
        let new = |now: Vec<String>, before: &Vec<String>| now[before.len()..].to_vec();
        ProbeRun {
            out: String::from_utf8_lossy(&outcome.stdout.bytes).trim().to_owned(),
            reached: new(reached, &before[0]),
            asked: new(asked, &before[1]),
            outcome,
            events,
        }
    }
}

pub(crate) fn setting(rules: &[&str]) -> GateConfig {
    GateConfig::new(NetworkRules::parse(rules.iter().copied()).unwrap())
}

fn lines(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(test_network::dir().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

impl ProbeRun {
    /// Everything about the run, for a failure message.
    pub(crate) fn report(&self) -> String {
        let mut events: Vec<String> = self.events.iter().map(line).collect();
        events.dedup();
        let mut reached = self.reached.clone();
        reached.dedup();
        format!(
            "stdout `{}`; stderr `{}`; reached {:?}; resolved {:?}; events {events:#?}",
            self.out,
            String::from_utf8_lossy(&self.outcome.stderr.bytes),
            reached,
            self.asked
        )
    }
}

/// An event in one line.
pub(crate) fn line(event: &EgressEvent) -> String {
    let reason = match &event.reason {
        Some(reason @ NetworkReason::Unreachable(_)) => format!("{} ({reason})", reason.code()),
        Some(reason) => reason.code().to_owned(),
        None => String::new(),
    };
    let port = if event.port == 0 { String::new() } else { format!(" {}", event.port) };
    format!("{} {}{port} {} {reason}", event.action.as_str(), event.host, event.verdict())
        .trim_end()
        .to_owned()
}
