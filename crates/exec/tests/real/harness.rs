//! A project, its configuration, an applier and a sandbox for one test.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use vambrace_core::change::ChangeSet;
use vambrace_core::config::{ConfigSource, EffectiveConfig, combine, parse};
use vambrace_core::effect::{Effect, Extent, PathAccess};
use vambrace_core::fence::Fence;
use vambrace_core::id::ToolName;
use vambrace_core::path::{AskedPath, ScopedPath, Zone};
use vambrace_core::plan::Plan;
use vambrace_core::policy::Policy;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::session::SessionView;
use vambrace_core::tool::{ToolDescriptor, ToolGroup, ToolPolicy};
use vambrace_exec::{
    ExecError, Inherited, PreparedRun, PreparedWriteBack, RunIo, RunReport, RunRequest, RunSettings,
    SecretSource, WriteBackFailure, WrittenBack, prepare_write_back,
};
use vambrace_redact::{KnownValue, Redactor, RuleSet, SecretBytes};
use vambrace_sandbox::{Exit, Filesystem, Input, Sandbox, StateDirs, WithheldReason};
use vambrace_workspace::{Applier, EditLimits, ScopeRules, Workspace, WriteMode, open_state_dir};

/// A secret that the redactor knows.
pub(crate) const SECRET: &str = "canary-51f0c2aa-known";

pub(crate) struct TestProject {
    dir: Directory,
    pub(crate) settings: RunSettings,
    pub(crate) fence: Fence,
    pub(crate) applier: Applier,
    pub(crate) inherited: Inherited,
}

enum Directory {
    Own(TempDir),
    Given(PathBuf),
}

struct NoSecrets;

impl SecretSource for NoSecrets {
    fn value(&self, _: &str) -> Option<SecretBytes> {
        None
    }
    fn file(&self, _: &str) -> Option<PathBuf> {
        None
    }
    fn all(&self) -> Vec<KnownValue> {
        Vec::new()
    }
}

pub(crate) fn test(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

pub(crate) fn sandbox(state: &Path) -> Sandbox {
    Sandbox::start(&std::env::current_exe().unwrap(), StateDirs::below(state)).unwrap()
}

/// One launcher for all tests of this process.
fn shared_sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<(Sandbox, TempDir)> = OnceLock::new();
    let (sandbox, _) = SANDBOX.get_or_init(|| {
        let state = TempDir::new().unwrap();
        (sandbox(state.path()), state)
    });
    sandbox
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

pub(crate) fn redactor() -> Redactor {
    let known = KnownValue { kind: "test".to_owned(), value: SecretBytes::from(SECRET) };
    Redactor::new(RuleSet::built_in().unwrap(), &[known], &[], &[7; 32])
}

/// The fence that the rules of a configuration set for a program.
fn fence(config: &EffectiveConfig) -> Fence {
    let tool = Arc::new(tool());
    let policy = Policy::for_user(config, Default::default(), &[Arc::clone(&tool)]).unwrap();
    let tree = |access| Effect::Path { access, extent: Extent::Tree, path: ScopedPath::root(Zone::Service) };
    let plan = Plan {
        tool,
        args: serde_json::Value::Null,
        effects: vec![tree(PathAccess::Read), tree(PathAccess::Modify)],
        content_digest: None,
        risk: Risk::low("a test"),
        workspace_denial: None,
    };
    policy.decide(&plan, &SessionView::OPEN).fence
}

impl TestProject {
    /// A project with this configuration of the user.
    pub(crate) fn with(config: &str) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["project", "home", "state"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        for (name, content) in [
            ("notes.txt", "notes\n"),
            ("src/main.rs", "fn main() {}\n"),
            ("docs/guide.md", "guide\n"),
            ("docs/private/plan.md", "denied-by-a-rule\n"),
            ("private/key.txt", "blocked-by-the-user\n"),
            (".env", "in-the-env-file\n"),
            ("conf/prod/k", "in-the-configuration\n"),
            ("svc/conf/prod/k", "in-the-configuration\n"),
            ("svc/other/conf/prod/k", "in-the-configuration\n"),
        ] {
            let path = dir.path().join("project").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self::open(Directory::Own(dir), config)
    }

    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// The project that another process made.
    pub(crate) fn at(dir: &Path) -> Self {
        Self::open(Directory::Given(dir.to_owned()), "")
    }

    fn open(dir: Directory, config: &str) -> Self {
        let user = parse(config, "user.yaml", ConfigSource::User).unwrap();
        let config = combine(None, Some(user.clone()), None);
        let fence = fence(&config);
        let settings = RunSettings::of(&config, &[&user], Default::default());
        let root = dir.path().canonicalize().unwrap();
        let rules = ScopeRules::new(config.service_root.clone(), config.block_list().unwrap());
        let workspace = Workspace::open(&root.join("project"), rules).unwrap();
        let applier = applier(workspace, &root.join("state"));
        let inherited = Inherited {
            variables: vec![("VAMBRACE_PASSPHRASE".into(), "never".into()), ("SHOWN".into(), "yes".into())],
            home: Some(root.join("home")),
            path: Vec::new(),
            umask: 0o022,
        };
        Self { dir, settings, fence, applier, inherited }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join("project").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    pub(crate) fn places(&self) -> StateDirs {
        StateDirs::below(&self.root().join("state"))
    }

    pub(crate) fn request(&self, filesystem: Filesystem, script: &str) -> RunRequest {
        let mut request = RunRequest::new("sh", self.path("").canonicalize().unwrap());
        request.arguments = vec!["-c".into(), script.into()];
        request.filesystem = filesystem;
        request
    }

    pub(crate) fn try_run(&self, request: &RunRequest) -> Result<RunReport, ExecError> {
        self.try_run_in(shared_sandbox(), request)
    }

    pub(crate) fn try_run_in(&self, sandbox: &Sandbox, request: &RunRequest) -> Result<RunReport, ExecError> {
        let runtime = runtime().handle();
        let prepared = PreparedRun::new(
            request,
            &self.settings,
            &self.fence,
            &self.inherited,
            sandbox.places(),
            &NoSecrets,
            runtime,
        )?;
        let redactor = redactor();
        prepared.run(sandbox, RunIo { input: Input::Nothing, output: None, redactor: &redactor, stop: None })
    }

    /// Runs a script, which must end with 0.
    #[track_caller]
    pub(crate) fn run(&self, filesystem: Filesystem, script: &str) -> RunReport {
        let report = self.try_run(&self.request(filesystem, script)).unwrap();
        assert_eq!(report.outcome.exit, Exit::Code(0), "{}", out(&report));
        report
    }

    pub(crate) fn prepare(&self, report: &RunReport) -> Result<PreparedWriteBack, WriteBackFailure> {
        prepare_write_back(report.changes().unwrap(), &self.applier, &self.places(), self.inherited.umask)
    }

    pub(crate) fn write_back(&self, report: &RunReport) -> Result<WrittenBack, WriteBackFailure> {
        self.prepare(report)?.commit("test")
    }

    /// What the tool `write_file` would change.
    pub(crate) fn draft(&self, name: &str, content: &str) -> ChangeSet {
        let workspace = self.applier.workspace();
        workspace
            .draft_write(&scoped(name), content.as_bytes(), WriteMode::Write, None, &EditLimits::default())
            .unwrap()
            .changes
    }

    /// Every entry of the project, with mode and content.
    pub(crate) fn listing(&self) -> BTreeMap<PathBuf, String> {
        let mut list = BTreeMap::new();
        list_into(&self.path(""), &mut list);
        list
    }
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Own(dir) => dir.path(),
            Self::Given(path) => path,
        }
    }
}

fn applier(workspace: Workspace, state: &Path) -> Applier {
    let state = rustix::fs::openat(CWD, state, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let dir = |name| open_state_dir(&state, name).unwrap();
    Applier::new(workspace, dir("locks"), dir("journals")).lock_timeout(Duration::from_millis(50))
}

fn tool() -> ToolDescriptor {
    ToolDescriptor {
        name: ToolName::new("execute_command"),
        aliases: Default::default(),
        group: ToolGroup::Shell,
        policy: ToolPolicy::EDIT_FILES,
        required_role: None,
        risk: RiskLevel::High,
        read_only: false,
    }
}

pub(crate) fn scoped(name: &str) -> ScopedPath {
    AskedPath::new(name).parse().unwrap()
}

fn list_into(dir: &Path, list: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let facts = path.symlink_metadata().unwrap();
        let content = match facts.file_type() {
            kind if kind.is_symlink() => format!("-> {}", path.read_link().unwrap().display()),
            kind if kind.is_file() => String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
            _ => String::new(),
        };
        if facts.is_dir() {
            list_into(&path, list);
        }
        list.insert(path, format!("{:o} {content}", facts.permissions().mode()));
    }
}

/// Both streams.
pub(crate) fn out(report: &RunReport) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&report.outcome.stdout.bytes) + &text(&report.outcome.stderr.bytes)
}

pub(crate) fn withheld(report: &RunReport) -> Vec<(String, WithheldReason)> {
    let list = report.changes().unwrap().withheld.iter();
    let mut list: Vec<_> = list.map(|one| (one.path.display().to_string(), one.why)).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}
