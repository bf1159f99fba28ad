//! A repository in a temporary directory, programs that leave a marker when they run, and git with and without protection.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;
use vambrace_git::{
    GitInvocation, GitOperations, Repository, RepositoryError, RepositoryFile, RepositoryReader,
};

/// A version of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Git {
    pub(crate) program: PathBuf,
    pub(crate) version: (u32, u32),
}

/// Each version of git in the search path.
pub(crate) fn versions() -> Vec<Git> {
    let mut found: Vec<Git> = Vec::new();
    for directory in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        let program = directory.join("git");
        let Ok(output) = Command::new(&program).arg("--version").output() else { continue };
        let text = String::from_utf8(output.stdout).unwrap();
        let mut numbers =
            text.trim_start_matches("git version ").split('.').map(|part| part.parse().unwrap_or(0));
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        if !found.iter().any(|git| git.version == version) {
            found.push(Git { program, version });
        }
    }
    assert!(!found.is_empty(), "git is not installed");
    found
}

impl Git {
    pub(crate) fn has_http(&self) -> bool {
        let output = Command::new(&self.program).arg("--exec-path").output().unwrap();
        Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("git-remote-http").exists()
    }
}

pub(crate) struct Lab {
    _directory: TempDir,
    pub(crate) git: Git,
    /// Holds everything; the workspace is `ws` in it.
    pub(crate) root: PathBuf,
}

impl Lab {
    /// A repository with two branches, a remote, and changes that are not staged.
    pub(crate) fn new(git: &Git) -> Self {
        static TEMPLATES: Mutex<Vec<Lab>> = Mutex::new(Vec::new());
        let mut templates = TEMPLATES.lock().unwrap();
        if !templates.iter().any(|template| template.git == *git) {
            templates.push(Self::template(git));
        }
        let template = templates.iter().find(|template| template.git == *git).unwrap();
        let lab = Self::empty(git);
        copy_tree(&template.root, &lab.root);
        lab.write(".git/info/attributes", "*.evil filter=evil diff=evil merge=evil\n");
        lab.config(&format!(
            "[remote \"origin\"]\n\turl = ssh://localhost{}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            lab.root.join("remote.git").display()
        ));
        let ssh = format!(
            "#!/bin/sh\nfor last; do :; done\nexec env -i PATH={}:/usr/bin:/bin HOME={} sh -c \"$last\"\n",
            lab.git_directory().display(),
            lab.root.join("home").display()
        );
        lab.executable("programs/fake-ssh", &ssh);
        lab
    }

    fn empty(git: &Git) -> Self {
        let directory = tempfile::Builder::new().prefix("hostile").rand_bytes(8).tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        Self { _directory: directory, git: git.clone(), root }
    }

    fn template(git: &Git) -> Self {
        let lab = Self::empty(git);
        for directory in ["ws", "markers", "programs", "home"] {
            fs::create_dir(lab.root.join(directory)).unwrap();
        }
        let remote = lab.root.join("remote.git");
        lab.must(&["init", "-q", "--template=", "-b", "main", lab.repo().to_str().unwrap()]);
        lab.must(&["init", "-q", "--template=", "--bare", "-b", "main", remote.to_str().unwrap()]);
        lab.write("kept.txt", "one\ntwo\n");
        lab.write("data.evil", "payload\n");
        lab.git_must(&["add", "."]);
        lab.git_must(&["commit", "-q", "-m", "first"]);
        lab.git_must(&["switch", "-q", "-c", "other"]);
        lab.write("data.evil", "other content\n");
        lab.git_must(&["commit", "-q", "-a", "-m", "on the other branch"]);
        lab.git_must(&["switch", "-q", "main"]);
        lab.write("kept.txt", "one\nTWO\n");
        lab.write("data.evil", "changed here\n");
        lab.write("new.txt", "new\n");
        lab
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("ws")
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.root.join("ws/repo")
    }

    fn git_directory(&self) -> &Path {
        self.git.program.parent().unwrap()
    }

    /// Writes a file of the repository.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.repo().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.repo().join(path)).unwrap()
    }

    /// Appends to the repository's configuration.
    pub(crate) fn config(&self, text: &str) {
        let path = self.repo().join(".git/config");
        let old = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{old}\n{text}\n")).unwrap();
    }

    /// An executable file below the root.
    pub(crate) fn executable(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A program that leaves a marker.
    pub(crate) fn program(&self, name: &str) -> String {
        self.hostile_file(&format!("programs/{name}"))
    }

    pub(crate) fn hook(&self, name: &str) {
        self.hostile_file(&format!("ws/repo/.git/hooks/{name}"));
    }

    fn hostile_file(&self, path: &str) -> String {
        let marker = self.root.join("markers").join(Path::new(path).file_name().unwrap());
        let text = format!("#!/bin/sh\n: > {}\nexit 0\n", marker.display());
        self.executable(path, &text).to_str().unwrap().to_owned()
    }

    /// The programs that ran.
    pub(crate) fn markers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("markers")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Forgets what ran so far.
    pub(crate) fn clear_markers(&self) {
        for name in self.markers() {
            fs::remove_file(self.root.join("markers").join(name)).unwrap();
        }
    }

    pub(crate) fn search_path(&self) -> String {
        format!("{}:{}:/usr/bin:/bin", self.git_directory().display(), self.root.join("programs").display())
    }

    fn plain_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", self.search_path())
            .env("HOME", self.root.join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "Plain")))
            .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "plain@example.com")))
            .stdin(Stdio::null());
        command
    }

    /// Runs git without protection in the repository; its result does not matter.
    pub(crate) fn plain(&self, arguments: &[&str]) -> Output {
        self.plain_command(&self.git.program).current_dir(self.repo()).args(arguments).output().unwrap()
    }

    /// Runs git without protection on a terminal.
    pub(crate) fn plain_on_terminal(&self, arguments: &str) {
        let line = format!("{} {arguments}", self.git.program.display());
        let mut command = self.plain_command(Path::new("script"));
        command
            .current_dir(self.repo())
            .env("TERM", "xterm")
            .args(["-qec", &line, "/dev/null"])
            .output()
            .unwrap();
    }

    /// Runs git in the repository to set something up.
    pub(crate) fn git_must(&self, arguments: &[&str]) {
        let repo = self.repo();
        let mut all = vec!["-C", repo.to_str().unwrap()];
        all.extend(arguments);
        self.must(&all);
    }

    pub(crate) fn must(&self, arguments: &[&str]) {
        let output = self.plain_command(&self.git.program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn open(&self) -> Result<Repository, RepositoryError> {
        Repository::open(&self.workspace(), &self.repo(), &mut DirectReader)
    }

    pub(crate) fn operations<'r>(&self, repository: &'r Repository) -> GitOperations<'r> {
        GitOperations::new(repository, &self.git.program, self.search_path())
    }

    /// The standard output of an invocation, which must succeed.
    pub(crate) fn output(&self, invocation: &GitInvocation) -> Vec<u8> {
        let output = run(invocation);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?} {:?}: {error}", self.git.version, invocation.argv);
        output.stdout
    }
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs an invocation.
pub(crate) fn run(invocation: &GitInvocation) -> Output {
    run_under(&[], invocation)
}

/// Runs an invocation under another program.
pub(crate) fn run_under(wrapper: &[&str], invocation: &GitInvocation) -> Output {
    let words: Vec<_> =
        wrapper.iter().map(|word| (*word).into()).chain(invocation.argv.iter().cloned()).collect();
    let mut command = Command::new(&words[0]);
    let mut child = command
        .args(&words[1..])
        .env_clear()
        .envs(invocation.environment.iter().cloned())
        .current_dir(&invocation.working_directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write as _;
    // A program that ends early does not read it.
    let _ = child.stdin.take().unwrap().write_all(&invocation.stdin);
    child.wait_with_output().unwrap()
}

/// Reads files by path; the product reads them through a directory handle.
pub(crate) struct DirectReader;

impl RepositoryReader for DirectReader {
    fn read(&mut self, path: &Path, _max_bytes: usize) -> Result<RepositoryFile, String> {
        match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(RepositoryFile::Missing),
            Err(error) => Err(error.to_string()),
            Ok(metadata) if metadata.is_dir() => Ok(RepositoryFile::Directory),
            Ok(_) => fs::read(path).map(RepositoryFile::Content).map_err(|error| error.to_string()),
        }
    }
}
