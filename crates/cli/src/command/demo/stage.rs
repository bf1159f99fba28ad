//! The stage: a temporary folder with a project, what lies outside it, and a state folder of its own. Commands are run
//! as child processes of this very program, because where state and configuration lie is the environment's to say.
#![expect(
    clippy::disallowed_methods,
    reason = "the demo makes and removes a folder of its own and runs only this very program in it"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anstream::{AutoStream, ColorChoice};
use vambrace_core::clock::Chance as _;

use crate::failure::Failure;
use crate::machine::SystemChance;
use crate::out::Out;

/// Made up; in the environment and in a file, so that masking shows.
pub(super) const TOKEN: &str = "demo-token-5f1c90e2b7";
/// Made up; in a file that no agent reads.
pub(super) const SECRET: &str = "made-up-password-71";
/// Made up; what a person would type to decide.
const PASSPHRASE: &str = "the passphrase of the demo";
/// Outside the project.
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

/// A temporary folder, removed when this is dropped.
pub(super) struct Stage {
    root: PathBuf,
    program: PathBuf,
    colour: bool,
}

/// How a command ended.
pub(super) struct Ran {
    pub(super) exit: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Stage {
    pub(super) fn set_up(out: &Out) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| fault("the own program", &error))?;
        let root = std::env::temp_dir().join(format!("vambrace-demo-{:032x}", SystemChance.draw()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&root)
            .map_err(|error| fault("a temporary folder", &error))?;
        let colour = !out.is_json() && AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        let stage = Self { root, program, colour };
        stage.furnish().map_err(|error| fault("the files of the demo", &error))?;
        let ran = stage.run(&["init", "--json"])?;
        if ran.exit != Some(0) {
            return Err(Failure::failed(format!(
                "the demo's project cannot be set up: {}{}",
                ran.stdout, ran.stderr
            )));
        }
        Ok(stage)
    }

    fn furnish(&self) -> std::io::Result<()> {
        for (name, text) in FILES {
            let path = self.root.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, text)?;
        }
        std::os::unix::fs::symlink("../../outside/salaries.txt", self.root.join("project/docs/shortcut.txt"))
    }

    /// The state folder.
    pub(super) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// A place beside it.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Runs a command in the project, with an environment made of nothing.
    pub(super) fn run(&self, args: &[impl AsRef<OsStr>]) -> Result<Ran, Failure> {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.root.join("project")).stdin(Stdio::null());
        command.env_clear().envs(self.places()).env("USER", "demo").env("DEMO_API_TOKEN", TOKEN);
        // A person would type it.
        command.env("VAMBRACE_PASSPHRASE", PASSPHRASE);
        if self.colour {
            command.env("CLICOLOR_FORCE", "1");
        }
        let ran = command.output().map_err(|error| fault("the own program", &error))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ran { exit: ran.status.code(), stdout: text(ran.stdout), stderr: text(ran.stderr) })
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

impl Drop for Stage {
    fn drop(&mut self) {
        // Nothing can be done about a folder that does not go; it holds made-up things only.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Copies a folder of plain files and folders.
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
        .hint("the demo needs a folder for temporary files: set TMPDIR")
}
