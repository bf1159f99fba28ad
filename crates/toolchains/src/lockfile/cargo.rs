//! `Cargo.lock`, and the parts of `.cargo/config.toml` that name registries or run code.

use toml::{Table, Value};

use super::{HostCollector, LockfileError, LockfileProblemKind};

/// How lockfiles name crates.io.
const CRATES_IO: &[&str] =
    &["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

pub(crate) fn read(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    collector.file(file);
    let lock: Table = text.parse().map_err(|error| LockfileError::new(file, error))?;
    // Version 1 had the checksums in a table of their own.
    let old_checksums = lock.get("metadata").and_then(Value::as_table);
    for package in lock.get("package").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| package.get(key).and_then(Value::as_str);
        let Some(source) = text("source") else { continue };
        collector.package();
        let name = text("name").unwrap_or_default();
        let (kind, location) = source.split_once('+').unwrap_or(("", source));
        match kind {
            _ if CRATES_IO.contains(&source) => {}
            "registry" | "sparse" | "git" => {
                collector.location(location.split(['#', '?']).next().unwrap_or_default(), name);
            }
            "path" | "directory" | "local-registry" => {
                collector.local_path(location.trim_start_matches("file://"), name);
            }
            _ => collector.problem(LockfileProblemKind::BadUrl, name, "a source of unknown kind"),
        }
        let pinned = text("checksum").is_some_and(|sum| !sum.is_empty())
            || (kind == "git" && source.contains('#'))
            || old_checksums.is_some_and(|sums| !sums.is_empty());
        if !pinned {
            collector.problem(LockfileProblemKind::MissingHash, name, "no `checksum`");
        }
    }
    Ok(())
}

/// Reads `.cargo/config.toml`.
pub(crate) fn read_config(text: &str, file: &str, collector: &mut HostCollector) {
    collector.file(file);
    let Ok(config) = text.parse::<Table>() else {
        return collector.problem(LockfileProblemKind::BadUrl, file, "the settings cannot be read");
    };
    let table = |key: &str| config.get(key).and_then(Value::as_table);
    for (name, source) in table("source").into_iter().flatten() {
        for key in ["registry", "git"] {
            if let Some(location) = source.get(key).and_then(Value::as_str) {
                collector.location(location.trim_start_matches("sparse+"), name);
            }
        }
        for key in ["directory", "local-registry"] {
            if let Some(path) = source.get(key).and_then(Value::as_str) {
                collector.local_path(path, name);
            }
        }
    }
    let single = config.get("registry").into_iter().map(|registry| ("registry", registry));
    let several = table("registries").into_iter().flatten().map(|(name, registry)| (name.as_str(), registry));
    for (name, registry) in single.chain(several) {
        if let Some(index) = registry.get("index").and_then(Value::as_str) {
            collector.location(index.trim_start_matches("sparse+"), name);
        }
        if registry.get("token").is_some() {
            collector.problem(LockfileProblemKind::Credentials, name, "the settings contain a credential");
        }
        for key in ["credential-provider", "global-credential-providers"] {
            if registry.get(key).is_some() {
                collector.problem(LockfileProblemKind::RunsCode, key, "the setting names a program");
            }
        }
    }
    if let Some(proxy) = table("http").and_then(|http| http.get("proxy")).and_then(Value::as_str) {
        collector.url(proxy, "http.proxy");
    }
    // Even `cargo fetch` asks the compiler for its targets.
    for key in ["rustc", "rustc-wrapper", "rustc-workspace-wrapper"] {
        if table("build").is_some_and(|build| build.contains_key(key)) {
            collector.problem(
                LockfileProblemKind::RunsCode,
                &format!("build.{key}"),
                "the setting names a program",
            );
        }
    }
}
