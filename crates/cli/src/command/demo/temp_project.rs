//! The demo's temporary directory: a project, files outside it, and a state directory. Commands run as child processes of this
//! program, because the environment determines the paths of state and configuration.
#![expect(
    clippy::disallowed_methods,
    reason = "the demo creates and removes its own directory and runs only this program in it"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anstream::{AutoStream, ColorChoice};
use vambrace_core::clock::RandomSource as _;
use vambrace_host::system::SystemRandom;

use crate::failure::Failure;
use crate::output::Out;

/// Made up; in the environment and in a file, to show redaction.
pub(super) const TOKEN: &str = "demo-token-5f1c90e2b7";
/// Made up; in a file that agents cannot read.
pub(super) const SECRET: &str = "made-up-password-71";
/// Made up; passphrase of the approver key.
const PASSPHRASE: &str = "the passphrase of the demo";
/// Content of a file outside the project.
pub(super) const OUTSIDE: &str = "not for agents";

const FILES: &[(&str, &str)] = &[
    (
        "project/src/greet.py",
        "import os\n\nTOKEN = \"demo-token-5f1c90e2b7\"  # TODO: read it from the environment\n\n\ndef greet(name):\n    return f\"hello {name}\"\n",
    ),
    ("project/docs/plan.md", "# Plan\n\nTODO: greet in other languages too\n"),
    ("project/.env", "DATABASE_PASSWORD=made-up-password-71  # TODO: rotate\n"),
    ("project/secrets/note.txt", "TODO: made-up-password-71\n"),
    ("project/pyproject.toml", "[project]\nname = \"greet\"\n"),
    ("outside/salaries.txt", "not for agents\n"),
];

/// A temporary directory, removed on drop.
pub(super) struct DemoProject {
    root: PathBuf,
    program: PathBuf,
    colour: bool,
}

/// Output and exit code of a command.
pub(super) struct CommandOutput {
    pub(super) exit: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl DemoProject {
    pub(super) fn set_up(out: &Out) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| fault("path of this program", &error))?;
        let root = std::env::temp_dir().join(format!("vambrace-demo-{:032x}", SystemRandom.random_u128()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&root)
            .map_err(|error| fault("temporary directory", &error))?;
        let colour = !out.is_json() && AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        let project = Self { root, program, colour };
        project.write_files().map_err(|error| fault("files of the demo", &error))?;
        let ran = project.run(&["init", "--json"])?;
        if ran.exit != Some(0) {
            return Err(Failure::failed(format!(
                "cannot set up the demo project: {}{}",
                ran.stdout, ran.stderr
            )));
        }
        Ok(project)
    }

    fn write_files(&self) -> std::io::Result<()> {
        for (name, text) in FILES {
            let path = self.root.join(name);
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            fs::write(path, text)?;
        }
        std::os::unix::fs::symlink("../../outside/salaries.txt", self.root.join("project/docs/shortcut.txt"))
    }

    /// The state directory.
    pub(super) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// A path next to it.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Runs a command in the project with a clean environment.
    pub(super) fn run(&self, args: &[impl AsRef<OsStr>]) -> Result<CommandOutput, Failure> {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.root.join("project")).stdin(Stdio::null());
        command.env_clear().envs(self.places()).env("USER", "demo").env("DEMO_API_TOKEN", TOKEN);
        // An approver would type it.
        command.env("VAMBRACE_PASSPHRASE", PASSPHRASE);
        if self.colour {
            command.env("CLICOLOR_FORCE", "1");
        }
        let ran = command.output().map_err(|error| fault("start of this program", &error))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(CommandOutput { exit: ran.status.code(), stdout: text(ran.stdout), stderr: text(ran.stderr) })
    }

    fn places(&self) -> [(&'static str, PathBuf); 4] {
        let home = self.root.join("home");
        [
            ("HOME", home.clone()),
            ("XDG_CONFIG_HOME", home.join("config")),
            ("TMPDIR", self.root.clone()),
            ("VAMBRACE_HOME", self.state()),
        ]
    }
}

impl Drop for DemoProject {
    fn drop(&mut self) {
        // If it cannot be removed, it contains only made-up data.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Copies a directory of regular files and directories.
pub(super) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

pub(super) fn fault(what: &str, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{what}: {error}"))
        .hint("the demo needs a directory for temporary files: set TMPDIR")
}
