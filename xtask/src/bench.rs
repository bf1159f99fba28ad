//! `cargo xtask bench`: builds the benches in the `dist` profile, installs their peers and runs them.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use crate::{
    error::{TaskError, TaskResult, WithContext},
    program::run_shown,
    project::Project,
    toolbox::Toolbox,
};

pub(crate) fn run(project: &Project, name: Option<&str>, json: bool) -> TaskResult<ExitCode> {
    let toolbox = Toolbox::open(project)?;
    toolbox.peers()?;
    let mut gitleaks = None;
    if name.is_none_or(|name| name == "redact") {
        toolbox.scanners()?;
        gitleaks = toolbox.gitleaks();
        if gitleaks.is_none() {
            println!("gitleaks cannot be installed: `redact` runs without that peer");
        }
    }
    if name.is_none_or(|name| name == "edit") && !toolbox.strace() {
        println!("strace cannot be installed: `edit` does not count the syncs of the whole program");
    }
    if name.is_none_or(|name| name == "spawn") && !toolbox.bubblewrap() {
        println!("bubblewrap cannot be installed: `spawn` runs without that peer");
    }
    // Both at once: another package selection could build their dependencies a second time.
    let packages = ["--profile", "dist", "--package", "vambrace", "--package", "vambrace-benches"];
    if !run_shown(project.cargo("build").args(packages))? {
        return Err(TaskError::new("the benches do not build"));
    }
    // On the project's disk, and ignored by git even if a run is interrupted.
    let dir =
        std::env::var_os("VAMBRACE_BENCH_DIR").map_or_else(|| project.built("bench", ""), PathBuf::from);
    std::fs::create_dir_all(&dir).when(|| format!("cannot create `{}`", dir.display()))?;
    let mut command = Command::new(project.built("dist", "vambrace-benches"));
    command
        .args(name)
        .args(json.then_some("--json"))
        .current_dir(project.root())
        .env("VAMBRACE_BENCH_DIR", dir)
        .env("VAMBRACE_BIN", project.built("dist", "vambrace"))
        .env("VAMBRACE_RG", toolbox.ripgrep())
        .env("VAMBRACE_AST_GREP", toolbox.ast_grep())
        .env("VAMBRACE_NODE", toolbox.node())
        .env("VAMBRACE_PEER_WITNESS_LOG", toolbox.witness_log())
        .env("VAMBRACE_PEER_KINGFISHER", toolbox.kingfisher())
        .env("VAMBRACE_BENCH_HELD_OUT", toolbox.held_out())
        .env("VAMBRACE_PEER_FILESYSTEM", toolbox.file_server());
    command.env_remove("VAMBRACE_PEER_GITLEAKS");
    command.envs(gitleaks.map(|program| ("VAMBRACE_PEER_GITLEAKS", program)));
    Ok(if run_shown(&mut command)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
