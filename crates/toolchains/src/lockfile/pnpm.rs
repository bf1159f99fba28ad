//! `pnpm-lock.yaml`: packages come from the registry unless their resolution says otherwise.

use super::yaml_document::{YamlItem, read as read_yaml};
use super::{HostCollector, LockfileError, LockfileProblemKind};

pub(crate) fn read(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    collector.file(file);
    let lock = read_yaml(text, file)?;
    if lock.get("lockfileVersion").is_none() {
        return Err(LockfileError::new(file, "it has no `lockfileVersion`"));
    }
    for (name, package) in lock.get("packages").map(YamlItem::entries).unwrap_or_default() {
        collector.package();
        let name = name.trim_start_matches('/');
        let Some(resolution) = package.get("resolution") else {
            collector.problem(LockfileProblemKind::MissingHash, name, "no `resolution`");
            continue;
        };
        for key in ["tarball", "repo", "url"] {
            if let Some(location) = resolution.text_at(key) {
                collector.location(location, name);
            }
        }
        let directory = resolution.text_at("directory");
        if let Some(directory) = directory {
            collector.local_path(directory, name);
        }
        // A git commit pins its content.
        let pinned = resolution.text_at("integrity").is_some_and(|hash| !hash.is_empty())
            || resolution.text_at("commit").is_some()
            || directory.is_some();
        if !pinned {
            collector.problem(LockfileProblemKind::MissingHash, name, "no `integrity`");
        }
    }
    Ok(())
}
