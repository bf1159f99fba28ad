//! Finds the project's directories, and runs cargo in them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    error::{TaskError, TaskResult},
    program::{path_with, run_captured},
};

/// The directories of the project.
#[derive(Debug)]
pub(crate) struct Project {
    root: PathBuf,
    target: PathBuf,
}

impl Project {
    pub(crate) fn find() -> TaskResult<Self> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = here
            .parent()
            .ok_or_else(|| TaskError::new("cannot find the project").hint("run `cargo xtask` inside it"))?
            .to_path_buf();
        let mut project = Self { root, target: PathBuf::new() };
        let metadata = run_captured(project.cargo("metadata").args([
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ]))?;
        let metadata: Value = serde_json::from_str(&metadata).unwrap_or_default();
        let target = metadata.get("target_directory").and_then(Value::as_str);
        project.target = target.map_or_else(|| project.root.join("target"), PathBuf::from);
        Ok(project)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The ignored directory for third-party programs.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join(".tools")
    }

    /// A path in the given profile's target directory.
    pub(crate) fn built(&self, profile: &str, name: &str) -> PathBuf {
        self.target.join(profile).join(name)
    }

    /// A cargo command in the project.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.arg(subcommand).current_dir(&self.root).env("PATH", path_with(&self.tools().join("bin")));
        // `cargo run` sets variables about xtask's own package; passed on to another cargo, build scripts would see changed
        // variables and run again.
        for (name, _) in std::env::vars_os() {
            let spelled = name.to_string_lossy();
            if spelled.starts_with("CARGO_PKG_") || spelled.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }
}
