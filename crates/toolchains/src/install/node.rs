//! npm, pnpm and yarn.

use super::{InstallDraft, InstallError, InstallSite};
use crate::lockfile::yarn::YarnFlavour;
use crate::lockfile::{
    LockfileProblemKind, node_settings, npm as npm_lock, pnpm as pnpm_lock, yarn as yarn_lock,
};

const NPM_REGISTRY: &str = "registry.npmjs.org";
const YARN_REGISTRY: &str = "registry.yarnpkg.com";

pub(super) fn npm(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    npm_lock::read(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    registry(site, &mut draft, NPM_REGISTRY);
    let mut step = site.command("npm", &["ci", "--no-audit", "--no-fund"]);
    if site.scripts_off() {
        step.arg("--ignore-scripts");
    }
    step.set("npm_config_update_notifier", "false");
    draft.steps.push(step);
    Ok(draft)
}

pub(super) fn pnpm(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    pnpm_lock::read(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    registry(site, &mut draft, NPM_REGISTRY);
    if let Some(text) = site.read("pnpm-workspace.yaml") {
        node_settings::read_pnpm_workspace(&text, &mut draft.collector);
    }
    let mut step = site.command("pnpm", &["install", "--frozen-lockfile"]);
    if site.scripts_off() {
        step.arg("--ignore-scripts").arg("--ignore-pnpmfile");
        if site.exists(".pnpmfile.cjs") {
            draft.notes.push("`.pnpmfile.cjs` is ignored: it is code of the repository".to_owned());
        }
    } else if site.exists(".pnpmfile.cjs") {
        draft.collector.file(".pnpmfile.cjs");
        draft.collector.problem(
            LockfileProblemKind::RunsCode,
            ".pnpmfile.cjs",
            "code of the repository runs during the install",
        );
    }
    // `packageManager` of package.json would download another pnpm and run it.
    step.set("npm_config_manage_package_manager_versions", "false")
        .set("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0");
    draft.steps.push(step);
    Ok(draft)
}

pub(super) fn yarn(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    let flavour = yarn_lock::read(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    let mut own_registry = false;
    if let Some(text) = site.read(".npmrc") {
        own_registry |=
            node_settings::read_npmrc(&text, &mut draft.collector) && flavour == YarnFlavour::Classic;
    }
    let mut step = match flavour {
        YarnFlavour::Classic => {
            if let Some(text) = site.read(".yarnrc") {
                own_registry |= node_settings::read_yarnrc(&text, &mut draft.collector);
            }
            let mut step = site.command("yarn", &["install", "--frozen-lockfile", "--non-interactive"]);
            if site.scripts_off() {
                step.arg("--ignore-scripts");
            }
            step
        }
        YarnFlavour::Berry => {
            if let Some(text) = site.read(".yarnrc.yml") {
                own_registry |= node_settings::read_yarnrc_yml(&text, &mut draft.collector);
            }
            let mut step = site.command("yarn", &["install", "--immutable"]);
            if site.scripts_off() {
                step.arg("--mode=skip-build").set("YARN_ENABLE_SCRIPTS", "0");
            }
            step.set("YARN_ENABLE_TELEMETRY", "0");
            step
        }
    };
    if site.scripts_off() {
        // `yarn-path` and `yarnPath` name a copy of yarn in the repository.
        step.set("YARN_IGNORE_PATH", "1");
        if flavour == YarnFlavour::Berry {
            draft.notes.push(
                "this lockfile needs yarn 2 or later; a copy of yarn in the repository is not used"
                    .to_owned(),
            );
        }
    }
    step.set("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0");
    if !own_registry {
        draft.collector.default_host(YARN_REGISTRY);
    }
    draft.steps.push(step);
    Ok(draft)
}

/// The registry of `.npmrc`, else the public one.
fn registry(site: &InstallSite<'_>, draft: &mut InstallDraft, default: &str) {
    let own = site.read(".npmrc").is_some_and(|text| node_settings::read_npmrc(&text, &mut draft.collector));
    if !own {
        draft.collector.default_host(default);
    }
}
