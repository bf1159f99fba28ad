//! `package-lock.json` and `npm-shrinkwrap.json`, versions 1 to 3.

use serde_json::{Map, Value};

use super::{HostCollector, LockfileError, LockfileProblemKind};

/// Maximum number of packages that are read.
const MAX_PACKAGES: usize = 200_000;

pub(crate) fn read(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    collector.file(file);
    let lock: Value = serde_json::from_str(text).map_err(|error| LockfileError::new(file, error))?;
    if let Some(packages) = lock.get("packages").and_then(Value::as_object) {
        for (path, package) in packages.iter().filter(|(path, _)| !path.is_empty()).take(MAX_PACKAGES) {
            if path.contains("node_modules/") {
                read_package(path, package, collector);
            } else {
                // A workspace of the project itself.
                collector.local_path(path, path);
            }
        }
        return Ok(());
    }
    // Version 1 nests the dependencies of dependencies.
    let Some(top) = dependencies(&lock) else {
        let reason = "it has neither `packages` nor `dependencies`";
        let empty = lock.get("lockfileVersion").is_some();
        return if empty { Ok(()) } else { Err(LockfileError::new(file, reason)) };
    };
    let mut pending = vec![top];
    let mut left = MAX_PACKAGES;
    while let Some(level) = pending.pop() {
        for (name, package) in level {
            if left == 0 {
                return Err(LockfileError::new(file, "it has too many packages"));
            }
            left -= 1;
            read_package(name, package, collector);
            pending.extend(dependencies(package));
        }
    }
    Ok(())
}

fn dependencies(package: &Value) -> Option<&Map<String, Value>> {
    package.get("dependencies")?.as_object()
}

fn read_package(path: &str, package: &Value, collector: &mut HostCollector) {
    let flag = |name: &str| package.get(name).and_then(Value::as_bool) == Some(true);
    let text = |name: &str| package.get(name).and_then(Value::as_str);
    let name = path.rsplit_once("node_modules/").map_or(path, |(_, name)| name);
    collector.package();
    // Version 1 has the URL of a git dependency as its version.
    let location = text("resolved").or_else(|| text("version").filter(|version| version.contains(':')));
    if let Some(location) = location {
        collector.location(location, name);
    }
    let local = flag("link")
        || flag("inBundle")
        || flag("bundled")
        || location.is_some_and(|l| l.starts_with("file:"));
    if !local && text("integrity").is_none_or(str::is_empty) {
        collector.problem(LockfileProblemKind::MissingHash, name, "no `integrity`");
    }
}
