//! Test harness: a project, a home directory and a sandbox for one test.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libtest_mimic::Trial;
use tempfile::TempDir;
use vambrace_sandbox::{
    Exit, Filesystem, Input, JournaledWriteBack, RunOutcome, Sandbox, SandboxError, Spec, StateDirs, Tier,
    WithheldReason, WriteBackError,
};

pub(crate) struct TestProject {
    dir: TempDir,
}

/// One launcher for all tests of this process.
pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<(Sandbox, TempDir)> = OnceLock::new();
    let (sandbox, _) = SANDBOX.get_or_init(|| {
        let state = TempDir::new().unwrap();
        (start(state.path()), state)
    });
    sandbox
}

pub(crate) fn start(state: &Path) -> Sandbox {
    Sandbox::start(&std::env::current_exe().unwrap(), StateDirs::below(state)).unwrap()
}

pub(crate) fn test(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

impl TestProject {
    pub(crate) fn new() -> Self {
        let fixture = Self { dir: TempDir::new().unwrap() };
        // As root, the unprivileged program must be able to traverse the temporary directory (tier no-userns).
        std::fs::set_permissions(fixture.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["project", "home", "outside"] {
            std::fs::create_dir(fixture.path(name)).unwrap();
        }
        fixture.write("project/plain.txt", "plain\n");
        fixture.write("project/src/main.rs", "fn main() {}\n");
        fixture.write("project/.env", "TOKEN=in-the-env-file\n");
        fixture.write("project/deep/er/key.pem", "in-the-key-file\n");
        fixture.write("project/secrets/a", "in-the-secrets-directory\n");
        fixture.write("project/.git/config", "[core]\n");
        fixture.write("project/.git/hooks/sample", "#!/bin/sh\n");
        fixture.write("outside/file", "in-the-outside-file\n");
        fixture.write("home/.ssh/id_ed25519", "in-the-ssh-key\n");
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    pub(crate) fn spec(&self, filesystem: Filesystem, program: &str, arguments: &[&str]) -> Spec {
        let mut spec = Spec::new(program, self.project());
        spec.arguments = arguments.iter().map(OsString::from).collect();
        spec.filesystem = filesystem;
        spec.home = Some(self.path("home"));
        spec
    }

    pub(crate) fn shell(&self, filesystem: Filesystem, script: &str) -> Spec {
        self.spec(filesystem, "sh", &["-c", script])
    }

    /// Every path below, with mode and content: two equal listings mean that nothing was changed.
    pub(crate) fn listing(&self, name: &str) -> Vec<String> {
        let mut list = Vec::new();
        list_into(&self.path(name), &mut list);
        list.sort();
        list
    }
}

impl TestProject {
    /// Like [`Self::listing`]; empty if the directory does not exist.
    pub(crate) fn listing_shallow(&self, name: &str) -> Vec<String> {
        if self.path(name).exists() { self.listing(name) } else { Vec::new() }
    }
}

fn list_into(dir: &Path, list: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let facts = path.symlink_metadata().unwrap();
        let content = if facts.is_file() { format!("{:?}", std::fs::read(&path)) } else { String::new() };
        list.push(format!("{} {:o} {content}", path.display(), facts.permissions().mode()));
        if facts.is_dir() {
            list_into(&path, list);
        }
    }
}

pub(crate) fn run(spec: &Spec) -> RunOutcome {
    try_run(spec).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_run(spec: &Spec) -> Result<RunOutcome, SandboxError> {
    sandbox().run(spec, Input::Nothing, &mut |_, _| {})
}

pub(crate) fn out(outcome: &RunOutcome) -> String {
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

pub(crate) fn err(outcome: &RunOutcome) -> String {
    String::from_utf8_lossy(&outcome.stderr.bytes).into_owned()
}

/// Checks for exit code 0, this standard output and no standard error.
#[track_caller]
pub(crate) fn check_out(outcome: &RunOutcome, expected: &str) {
    assert_eq!((outcome.exit, out(outcome).as_str(), err(outcome).as_str()), (Exit::Code(0), expected, ""));
}

pub(crate) fn in_tier(mut spec: Spec, tier: Tier) -> Spec {
    spec.forced_tier = Some(tier);
    spec
}

pub(crate) const TIERS: [Tier; 2] = [Tier::Full, Tier::NoUserns];

pub(crate) fn changes(outcome: &RunOutcome) -> Vec<String> {
    let list = &outcome.changes.as_ref().unwrap().list;
    list.iter().map(|change| format!("{} {}", change.kind.as_str(), change.path.display())).collect()
}

pub(crate) fn withheld(outcome: &RunOutcome) -> Vec<(String, WithheldReason)> {
    let list = &outcome.changes.as_ref().unwrap().withheld;
    let mut list: Vec<_> = list.iter().map(|one| (one.path.display().to_string(), one.why)).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

pub(crate) fn write_back(outcome: &RunOutcome) -> Result<usize, WriteBackError> {
    let changes = outcome.changes.as_ref().unwrap();
    let state = TempDir::new().unwrap();
    let places = StateDirs::below(state.path());
    let done =
        JournaledWriteBack::new(changes, &places).unwrap().write_back(changes).map(|done| done.changes);
    let notes = std::fs::read_dir(places.write_backs).map_or(0, Iterator::count);
    assert_eq!(notes, 0, "no journal is left, whatever the result");
    done
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode()
}
