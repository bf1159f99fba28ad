//! Settings of npm, pnpm and yarn that come with the repository: registries, and what runs code or weakens checks.

use super::yaml_document::{YamlItem, read as read_yaml};
use super::{HostCollector, LockfileProblemKind};

/// Settings of `.npmrc` that name a program or code.
const NPMRC_CODE: &[&str] = &[
    "git",
    "script-shell",
    "shell",
    "node-options",
    "onload-script",
    "viewer",
    "editor",
    "pnpmfile",
    "global-pnpmfile",
];

/// Reads `.npmrc`; whether it names a registry for all packages.
pub(crate) fn read_npmrc(text: &str, collector: &mut HostCollector) -> bool {
    collector.file(".npmrc");
    let mut registry = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with([';', '#'])) {
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let last = key.rsplit(':').next().unwrap_or(key);
        match last {
            "registry" => {
                registry |= key == "registry";
                collector.url(value, key);
            }
            "proxy" | "https-proxy" | "http-proxy" => collector.url(value, key),
            // A reference to the environment is no credential.
            "_authToken" | "_auth" | "_password" | "password" if !value.starts_with("${") => {
                collector.problem(
                    LockfileProblemKind::Credentials,
                    last,
                    "the settings contain a credential",
                );
            }
            "strict-ssl" if value == "false" => {
                collector.problem(LockfileProblemKind::WeakenedChecks, key, "certificates are not checked");
            }
            "ca" | "cafile" => {
                collector.problem(
                    LockfileProblemKind::WeakenedChecks,
                    key,
                    "another certificate authority is trusted",
                );
            }
            key if NPMRC_CODE.contains(&key) => {
                collector.problem(LockfileProblemKind::RunsCode, key, "the setting names a program or code");
            }
            _ => {}
        }
    }
    registry
}

/// Reads `.yarnrc` of yarn 1; whether it names a registry.
pub(crate) fn read_yarnrc(text: &str, collector: &mut HostCollector) -> bool {
    collector.file(".yarnrc");
    let mut registry = false;
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once(' ') else { continue };
        let (key, value) = (key.trim_matches('"'), value.trim().trim_matches('"'));
        match key {
            "registry" => {
                registry = true;
                collector.url(value, key);
            }
            "proxy" | "https-proxy" => collector.url(value, key),
            "yarn-path" | "script-shell" => {
                collector.problem(LockfileProblemKind::RunsCode, key, "the setting names a program or code");
            }
            "strict-ssl" if value == "false" => {
                collector.problem(LockfileProblemKind::WeakenedChecks, key, "certificates are not checked");
            }
            _ => {}
        }
    }
    registry
}

/// Reads `.yarnrc.yml` of yarn 2 and later; whether it names a registry.
pub(crate) fn read_yarnrc_yml(text: &str, collector: &mut HostCollector) -> bool {
    collector.file(".yarnrc.yml");
    let Ok(settings) = read_yaml(text, ".yarnrc.yml") else {
        collector.problem(LockfileProblemKind::BadUrl, ".yarnrc.yml", "the settings cannot be read");
        return false;
    };
    let mut registry = false;
    // Settings of scopes and registries have the same names, one level deeper.
    let nested = settings
        .entries()
        .iter()
        .flat_map(|(_, value)| value.entries())
        .flat_map(|(_, value)| value.entries());
    for (key, value) in settings.entries().iter().chain(nested) {
        let text = value.text().unwrap_or_default();
        match key.as_str() {
            "npmRegistryServer" => {
                registry |= settings.text_at("npmRegistryServer").is_some();
                collector.url(text, key);
            }
            "httpProxy" | "httpsProxy" => collector.url(text, key),
            "npmAuthToken" | "npmAuthIdent" if !text.starts_with("${") => {
                collector.problem(LockfileProblemKind::Credentials, key, "the settings contain a credential");
            }
            "enableStrictSsl" if text == "false" => {
                collector.problem(LockfileProblemKind::WeakenedChecks, key, "certificates are not checked");
            }
            "unsafeHttpWhitelist" if !value.items().is_empty() => {
                collector.problem(LockfileProblemKind::WeakenedChecks, key, "http is allowed for some hosts");
            }
            "checksumBehavior" if text != "throw" => {
                collector.problem(LockfileProblemKind::WeakenedChecks, key, "wrong checksums are accepted");
            }
            "yarnPath" => {
                collector.problem(LockfileProblemKind::RunsCode, key, "the setting names a program or code")
            }
            "plugins" if !value.items().is_empty() => {
                collector.problem(LockfileProblemKind::RunsCode, key, "plugins are code of the repository");
            }
            _ => {}
        }
    }
    registry
}

/// Reads `pnpm-workspace.yaml`, which also holds settings.
pub(crate) fn read_pnpm_workspace(text: &str, collector: &mut HostCollector) {
    collector.file("pnpm-workspace.yaml");
    let Ok(settings) = read_yaml(text, "pnpm-workspace.yaml") else {
        return collector.problem(
            LockfileProblemKind::BadUrl,
            "pnpm-workspace.yaml",
            "the settings cannot be read",
        );
    };
    for key in ["registry", "httpsProxy", "httpProxy"] {
        if let Some(url) = settings.text_at(key) {
            collector.url(url, key);
        }
    }
    for (scope, url) in settings.get("registries").map(YamlItem::entries).unwrap_or_default() {
        collector.url(url.text().unwrap_or_default(), scope);
    }
    for (key, detail) in [
        ("configDependencies", "packages that configure pnpm run code"),
        ("pnpmfile", "the setting names code of the repository"),
    ] {
        if settings.get(key).is_some() {
            collector.problem(LockfileProblemKind::RunsCode, key, detail);
        }
    }
    if settings.text_at("dangerouslyAllowAllBuilds") == Some("true") {
        collector.problem(
            LockfileProblemKind::WeakenedChecks,
            "dangerouslyAllowAllBuilds",
            "every package may run scripts",
        );
    }
    if settings.text_at("strictSsl") == Some("false") {
        collector.problem(LockfileProblemKind::WeakenedChecks, "strictSsl", "certificates are not checked");
    }
}
