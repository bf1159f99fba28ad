//! poetry, uv and pip. Source packages run code when they are built, so without scripts only wheels are installed.

use super::{InstallDraft, InstallError, InstallSite};
use crate::lockfile::{python as python_lock, requirements};

/// The index and the archives of PyPI.
const PYPI: &[&str] = &["pypi.org", "files.pythonhosted.org"];

pub(super) fn poetry(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    python_lock::read_poetry(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    if let Some(text) = site.read("pyproject.toml") {
        python_lock::read_pyproject(&text, &mut draft.collector);
    }
    pypi(&mut draft);
    let mut step = site.command("poetry", &["install", "--no-interaction"]);
    if site.scripts_off() {
        step.arg("--no-root").set("POETRY_INSTALLER_ONLY_BINARY", ":all:");
        draft.notes.push("packages without a wheel are not installed, nor is the project itself".to_owned());
    }
    step.set("POETRY_VIRTUALENVS_CREATE", "true").set("POETRY_VIRTUALENVS_IN_PROJECT", "true");
    draft.steps.push(step);
    Ok(draft)
}

pub(super) fn uv(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    python_lock::read_uv(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    if let Some(text) = site.read("pyproject.toml") {
        python_lock::read_pyproject(&text, &mut draft.collector);
    }
    if let Some(text) = site.read("uv.toml") {
        python_lock::read_uv_toml(&text, &mut draft.collector);
    }
    pypi(&mut draft);
    let mut step = site.command("uv", &["sync", "--locked", "--no-progress"]);
    if site.scripts_off() {
        step.arg("--no-build").arg("--no-install-workspace");
        draft.notes.push("packages without a wheel are not installed, nor is the project itself".to_owned());
    }
    step.set("UV_PYTHON_DOWNLOADS", "never");
    draft.steps.push(step);
    Ok(draft)
}

pub(super) fn pip(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    let own_index = requirements::read(site.view, site.lockfile, &mut draft.collector)?;
    if !own_index {
        pypi(&mut draft);
    }
    if !site.exists(".venv/bin/python") {
        draft.steps.push(site.command("python3", &["-m", "venv", ".venv"]));
    }
    let mut step =
        site.command(".venv/bin/python", &["-m", "pip", "install", "--require-hashes", "--no-input"]);
    // The first step makes it; only the interpreter must be there before.
    step.programs = vec!["python3".to_owned()];
    step.arg("--disable-pip-version-check");
    if site.scripts_off() {
        step.arg("--only-binary=:all:");
        draft.notes.push("packages without a wheel are not installed".to_owned());
    }
    let file = step.relative(site.lockfile);
    step.arg("-r").arg(file).set("PIP_CONFIG_FILE", "/dev/null");
    draft.steps.push(step);
    Ok(draft)
}

fn pypi(draft: &mut InstallDraft) {
    for host in PYPI {
        draft.collector.default_host(host);
    }
}
