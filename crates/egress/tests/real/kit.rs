//! A run with a gate, and what became of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use vambrace_egress::{Event, Gate, Reason, Rules, Setting};
use vambrace_sandbox::{Input, Network, Outcome, Places, Sandbox, SandboxFault, Spec};

use super::world;

pub(crate) struct Stage {
    sandbox: Sandbox,
    runtime: Runtime,
    folder: TempDir,
}

/// What a run came to.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) outcome: Outcome,
    pub(crate) events: Vec<Event>,
    /// Connections that reached the internet meanwhile: address and port.
    pub(crate) reached: Vec<String>,
    /// Names that the name server was asked for meanwhile.
    pub(crate) asked: Vec<String>,
}

/// One sandbox for all tests of this process.
pub(crate) fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    STAGE.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("project")).unwrap();
        let places = Places::below(&folder.path().join("state"));
        let sandbox = Sandbox::start(&std::env::current_exe().unwrap(), places).unwrap();
        // The first runs are in cells of their own, later ones mostly in such as were made in advance.
        sandbox.keep_warm(1).unwrap();
        Stage { sandbox, runtime: Runtime::new().unwrap(), folder }
    })
}

impl Stage {
    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("project")
    }

    pub(crate) fn gate(&self, setting: Setting) -> Arc<Gate> {
        Gate::new(setting, self.runtime.handle().clone())
    }

    pub(crate) fn try_run(&self, spec: &Spec) -> Result<Outcome, SandboxFault> {
        self.sandbox.run(spec, Input::Nothing, &mut |_, _| {})
    }

    pub(crate) fn probe(&self, rules: &[&str], words: &[&str]) -> Ran {
        let program = std::env::current_exe().unwrap();
        let words: Vec<&str> = ["probe"].iter().chain(words).copied().collect();
        self.run(setting(rules), program.to_str().unwrap(), &words)
    }

    pub(crate) fn run(&self, setting: Setting, program: &str, words: &[&str]) -> Ran {
        self.run_with(setting, program, words, |_| {})
    }

    pub(crate) fn run_with(
        &self,
        setting: Setting,
        program: &str,
        words: &[&str],
        more: impl FnOnce(&mut Spec),
    ) -> Ran {
        let mut spec = Spec::new(program, self.project());
        spec.arguments = words.iter().map(OsString::from).collect();
        spec.read = vec![std::env::current_exe().unwrap()];
        more(&mut spec);
        spec.network = Network::Gated;
        spec.limits.open_files = 4096;
        // What reaches the internet meanwhile is this run's.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let gate = self.gate(setting);
        spec.door = Some(gate.clone());
        let before = ["connections", "names"].map(lines);
        let outcome =
            self.sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap_or_else(|fault| panic!("{fault}"));
        let (events, _) = gate.close();
        // What was dialled arrives there, perhaps after the program has ended.
        let dialled =
            events.iter().filter(|event| event.address.is_some_and(|address| !address.is_loopback()));
        let expected = before[0].len() + dialled.count();
        let start = std::time::Instant::now();
        while lines("connections").len() < expected && start.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let [reached, asked] = ["connections", "names"].map(lines);
        let new = |now: Vec<String>, before: &Vec<String>| now[before.len()..].to_vec();
        Ran {
            out: String::from_utf8_lossy(&outcome.stdout.bytes).trim().to_owned(),
            reached: new(reached, &before[0]),
            asked: new(asked, &before[1]),
            outcome,
            events,
        }
    }
}

pub(crate) fn setting(rules: &[&str]) -> Setting {
    Setting::new(Rules::parse(rules.iter().copied()).unwrap())
}

fn lines(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(world::folder().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

impl Ran {
    /// Everything, for a message.
    pub(crate) fn told(&self) -> String {
        let mut events: Vec<String> = self.events.iter().map(line).collect();
        events.dedup();
        let mut reached = self.reached.clone();
        reached.dedup();
        format!(
            "said `{}`; stderr `{}`; reached {:?}; asked {:?}; events {events:#?}",
            self.out,
            String::from_utf8_lossy(&self.outcome.stderr.bytes),
            reached,
            self.asked
        )
    }
}

/// An event in one line.
pub(crate) fn line(event: &Event) -> String {
    let reason = match &event.reason {
        Some(reason @ Reason::Unreachable(_)) => format!("{} ({reason})", reason.code()),
        Some(reason) => reason.code().to_owned(),
        None => String::new(),
    };
    let port = if event.port == 0 { String::new() } else { format!(" {}", event.port) };
    format!("{} {}{port} {} {reason}", event.action.as_str(), event.host, event.verdict())
        .trim_end()
        .to_owned()
}
