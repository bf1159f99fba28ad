//! `poetry.lock` and `uv.lock`, and the sources that `pyproject.toml` names for them.

use toml::{Table, Value};

use super::{HostCollector, LockfileError, LockfileProblemKind};

/// Reads `poetry.lock`.
pub(crate) fn read_poetry(
    text: &str,
    file: &str,
    collector: &mut HostCollector,
) -> Result<(), LockfileError> {
    collector.file(file);
    let lock: Table = text.parse().map_err(|error| LockfileError::new(file, error))?;
    // Before poetry 1.3 the hashes were in a table of their own.
    let old_files = lock.get("metadata").and_then(|metadata| metadata.get("files"));
    for package in packages(&lock) {
        collector.package();
        let name = text_of(package.get("name"));
        let source = package.get("source");
        let kind = text_of(source.and_then(|source| source.get("type")));
        if let Some(source) = source {
            let location = text_of(source.get("url"));
            match kind {
                "directory" | "file" => collector.local_path(location, name),
                _ => collector.location(location, name),
            }
        }
        let files = package.get("files").or_else(|| old_files.and_then(|files| files.get(name)));
        let hashed = files.and_then(Value::as_array).is_some_and(|files| {
            !files.is_empty() && files.iter().all(|file| !text_of(file.get("hash")).is_empty())
        });
        if !hashed && !matches!(kind, "git" | "directory") {
            collector.problem(LockfileProblemKind::MissingHash, name, "no hashes in `files`");
        }
    }
    Ok(())
}

/// Reads `uv.lock`.
pub(crate) fn read_uv(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    collector.file(file);
    let lock: Table = text.parse().map_err(|error| LockfileError::new(file, error))?;
    for package in packages(&lock) {
        let name = text_of(package.get("name"));
        let source = package.get("source");
        let of = |key: &str| source.and_then(|source| source.get(key)).and_then(Value::as_str);
        let local = ["editable", "virtual", "directory", "path"].iter().find_map(|key| of(key));
        if let Some(path) = local {
            collector.local_path(path, name);
        } else {
            collector.package();
        }
        for key in ["registry", "git", "url"] {
            if let Some(location) = of(key) {
                collector.location(location, name);
            }
        }
        let wheels = package.get("wheels").and_then(Value::as_array).into_iter().flatten();
        for archive in package.get("sdist").into_iter().chain(wheels) {
            if let Some(url) = archive.get("url").and_then(Value::as_str) {
                collector.location(url, name);
            }
            if let Some(path) = archive.get("path").and_then(Value::as_str) {
                collector.local_path(path, name);
            }
            if text_of(archive.get("hash")).is_empty() && local.is_none() {
                collector.problem(LockfileProblemKind::MissingHash, name, "an archive without `hash`");
            }
        }
    }
    Ok(())
}

/// Reads the package sources of `pyproject.toml`, and what runs code.
pub(crate) fn read_pyproject(text: &str, collector: &mut HostCollector) {
    collector.file("pyproject.toml");
    let Ok(project) = text.parse::<Table>() else {
        return collector.problem(
            LockfileProblemKind::BadUrl,
            "pyproject.toml",
            "the settings cannot be read",
        );
    };
    let tool = |name: &str| project.get("tool").and_then(|tool| tool.get(name));
    if let Some(poetry) = tool("poetry") {
        for source in poetry.get("source").and_then(Value::as_array).into_iter().flatten() {
            collector.location(text_of(source.get("url")), text_of(source.get("name")));
        }
        if poetry.get("requires-plugins").is_some() {
            collector.problem(
                LockfileProblemKind::RunsCode,
                "requires-plugins",
                "poetry installs and runs plugins",
            );
        }
    }
    if let Some(uv) = tool("uv").and_then(Value::as_table) {
        read_uv_settings(uv, collector);
    }
}

/// Reads `uv.toml`, which has the settings of `[tool.uv]`.
pub(crate) fn read_uv_toml(text: &str, collector: &mut HostCollector) {
    collector.file("uv.toml");
    match text.parse::<Table>() {
        Ok(settings) => read_uv_settings(&settings, collector),
        Err(_) => collector.problem(LockfileProblemKind::BadUrl, "uv.toml", "the settings cannot be read"),
    }
}

fn read_uv_settings(uv: &Table, collector: &mut HostCollector) {
    for key in ["index-url", "extra-index-url", "find-links"] {
        let value = uv.get(key);
        let list = value.and_then(Value::as_array).into_iter().flatten();
        for location in value.into_iter().chain(list).filter_map(Value::as_str) {
            collector.location(location, key);
        }
    }
    for index in uv.get("index").and_then(Value::as_array).into_iter().flatten() {
        collector.location(text_of(index.get("url")), text_of(index.get("name")));
    }
    if uv.contains_key("allow-insecure-host") {
        let detail = "certificates are not checked";
        collector.problem(LockfileProblemKind::WeakenedChecks, "allow-insecure-host", detail);
    }
}

fn packages(lock: &Table) -> impl Iterator<Item = &Value> {
    lock.get("package").and_then(Value::as_array).into_iter().flatten()
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}
