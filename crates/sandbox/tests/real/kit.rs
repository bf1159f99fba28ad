//! A project, a home folder and a sandbox for one test.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libtest_mimic::Trial;
use tempfile::TempDir;
use vambrace_sandbox::{
    Exit, Filesystem, Input, Journaled, Outcome, Places, Promote as _, PromoteFault, Sandbox, SandboxFault,
    Spec, Tier, Why,
};

pub(crate) struct Room {
    folder: TempDir,
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
    Sandbox::start(&std::env::current_exe().unwrap(), Places::below(state)).unwrap()
}

pub(crate) fn test(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

impl Room {
    pub(crate) fn new() -> Self {
        let room = Self { folder: TempDir::new().unwrap() };
        // As root the temporary folder must be passable for the task folders of tier no-userns.
        std::fs::set_permissions(room.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["project", "home", "outside"] {
            std::fs::create_dir(room.path(name)).unwrap();
        }
        room.write("project/plain.txt", "plain\n");
        room.write("project/src/main.rs", "fn main() {}\n");
        room.write("project/.env", "TOKEN=in-the-env-file\n");
        room.write("project/deep/er/key.pem", "in-the-key-file\n");
        room.write("project/secrets/a", "in-the-secrets-folder\n");
        room.write("project/.git/config", "[core]\n");
        room.write("project/.git/hooks/sample", "#!/bin/sh\n");
        room.write("outside/file", "in-the-outside-file\n");
        room.write("home/.ssh/id_ed25519", "in-the-ssh-key\n");
        room
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
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

    /// Every path below with kind, mode and content: two equal listings mean that nothing was touched.
    pub(crate) fn listing(&self, name: &str) -> Vec<String> {
        let mut list = Vec::new();
        list_into(&self.path(name), &mut list);
        list.sort();
        list
    }
}

impl Room {
    /// Like [`Self::listing`], for folders with sockets in them.
    pub(crate) fn listing_shallow(&self, name: &str) -> Vec<String> {
        if self.path(name).exists() { self.listing(name) } else { Vec::new() }
    }
}

fn list_into(folder: &Path, list: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let facts = path.symlink_metadata().unwrap();
        let content = if facts.is_file() { format!("{:?}", std::fs::read(&path)) } else { String::new() };
        list.push(format!("{} {:o} {content}", path.display(), facts.permissions().mode()));
        if facts.is_dir() {
            list_into(&path, list);
        }
    }
}

pub(crate) fn run(spec: &Spec) -> Outcome {
    try_run(spec).unwrap_or_else(|fault| panic!("{fault}"))
}

pub(crate) fn try_run(spec: &Spec) -> Result<Outcome, SandboxFault> {
    sandbox().run(spec, Input::Nothing, &mut |_, _| {})
}

pub(crate) fn out(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

pub(crate) fn err(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stderr.bytes).into_owned()
}

/// Ended well, and said this.
#[track_caller]
pub(crate) fn check_out(outcome: &Outcome, expected: &str) {
    assert_eq!((outcome.exit, out(outcome).as_str(), err(outcome).as_str()), (Exit::Code(0), expected, ""));
}

pub(crate) fn in_tier(mut spec: Spec, tier: Tier) -> Spec {
    spec.only = Some(tier);
    spec
}

pub(crate) const TIERS: [Tier; 2] = [Tier::Full, Tier::NoUserns];

pub(crate) fn changes(outcome: &Outcome) -> Vec<String> {
    let list = &outcome.changes.as_ref().unwrap().list;
    list.iter().map(|change| format!("{} {}", change.kind.as_str(), change.path.display())).collect()
}

pub(crate) fn withheld(outcome: &Outcome) -> Vec<(String, Why)> {
    let list = &outcome.changes.as_ref().unwrap().withheld;
    let mut list: Vec<_> = list.iter().map(|one| (one.path.display().to_string(), one.why)).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

pub(crate) fn promote(outcome: &Outcome) -> Result<usize, PromoteFault> {
    let changes = outcome.changes.as_ref().unwrap();
    let state = TempDir::new().unwrap();
    let places = Places::below(state.path());
    let done = Journaled::over(changes, &places).unwrap().promote(changes).map(|done| done.changes);
    let notes = std::fs::read_dir(places.promotions).map_or(0, Iterator::count);
    assert_eq!(notes, 0, "whatever happened, nothing is left to be done");
    done
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode()
}
