//! A project and a home directory for one test, isolated from those of the machine.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A value in the environment that must not appear in any output.
pub(crate) const CANARY: &str = "canary-7f3a9c11-env";

pub(crate) struct Home {
    temp: TempDir,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Home {
    /// A project without configuration.
    pub(crate) fn bare() -> Self {
        let home = Self { temp: TempDir::new().unwrap() };
        for (path, content) in [
            ("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
            ("docs/guide.md", "# Guide\n"),
            ("notes.txt", "token = canary-7f3a9c11-env\n"),
            (".env", "TOKEN=in-the-env-file\n"),
            ("secrets/key", "in-the-secrets-directory\n"),
        ] {
            home.write(path, content);
        }
        std::fs::write(home.path("outside.txt"), "in-the-outside-file\n").unwrap();
        std::os::unix::fs::symlink("../outside.txt", home.project().join("link")).unwrap();
        home
    }

    /// A project after `vambrace init`.
    pub(crate) fn new() -> Self {
        let home = Self::bare();
        let ran = home.run(["init"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        home
    }

    /// A project with this configuration, which is trusted.
    pub(crate) fn with(config: &str) -> Self {
        let home = Self::bare();
        home.write(".vambrace/config.yaml", config);
        let ran = home.run(["trust", "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.project().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn user_config(&self, content: &str) {
        let path = self.path("config/vambrace/config.yaml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The program with these arguments, in the project.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .current_dir(self.project())
            .env_clear()
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("VAMBRACE_HOME", self.state())
            .env("USER", "ada")
            .env("SOME_TOKEN", CANARY)
            .stdin(Stdio::null());
        if self.path("org.yaml").exists() {
            command.env("VAMBRACE_ORG_CONFIG", self.path("org.yaml"));
        }
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        let output = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// `vambrace call` with `--json`.
    pub(crate) fn call(&self, tool: &str, args: &str) -> (i32, Value) {
        let ran = self.run(["call", tool, args, "--json"]);
        (ran.code, ran.json())
    }

    /// Every record, oldest first.
    pub(crate) fn records(&self) -> Vec<Value> {
        let ran = self.run(["audit", "tail", "-n", "100000", "--json"]);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Appends to a file of the state directory.
    pub(crate) fn append(&self, name: &str, bytes: &[u8]) {
        let mut file = std::fs::OpenOptions::new().append(true).open(self.state().join(name)).unwrap();
        file.write_all(bytes).unwrap();
    }
}

/// The program: in the parent directory of the test executables unless `VAMBRACE_BIN` names another.
pub(crate) fn binary() -> PathBuf {
    let path = std::env::var_os("VAMBRACE_BIN").map(PathBuf::from).unwrap_or_else(|| {
        let here = std::env::current_exe().unwrap();
        here.ancestors().nth(2).unwrap().join("vambrace")
    });
    assert!(path.exists(), "`{}` is missing: run `cargo xtask test`, which builds it", path.display());
    path
}

/// The first file below a directory that contains a text.
pub(crate) fn file_containing(dir: &Path, text: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let found = if path.is_dir() {
            file_containing(&path, text)
        } else {
            let bytes = std::fs::read(&path).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes()).then_some(path)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}
