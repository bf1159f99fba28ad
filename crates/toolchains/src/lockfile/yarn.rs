//! `yarn.lock` of yarn 1, a format of its own, and of yarn 2 and later, which is YAML.

use super::yaml_document::read as read_yaml;
use super::{HostCollector, LockfileError, LockfileProblemKind};

/// Which yarn wrote a lockfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum YarnFlavour {
    /// Version 1.
    Classic,
    /// Version 2 and later.
    Berry,
}

impl YarnFlavour {
    pub(crate) fn of(text: &str) -> Self {
        let berry = text.lines().any(|line| line.starts_with("__metadata:"));
        if berry { Self::Berry } else { Self::Classic }
    }
}

pub(crate) fn read(
    text: &str,
    file: &str,
    collector: &mut HostCollector,
) -> Result<YarnFlavour, LockfileError> {
    collector.file(file);
    let flavour = YarnFlavour::of(text);
    match flavour {
        YarnFlavour::Classic => read_classic(text, file, collector)?,
        YarnFlavour::Berry => read_berry(text, file, collector)?,
    }
    Ok(flavour)
}

/// Entries begin at the margin and end with a colon; their fields are indented by two spaces.
fn read_classic(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    let mut open: Option<(String, bool, bool)> = None;
    let close = |open: &mut Option<(String, bool, bool)>, collector: &mut HostCollector| {
        if let Some((name, located, pinned)) = open.take()
            && located
            && !pinned
        {
            collector.problem(LockfileProblemKind::MissingHash, &name, "no `integrity`");
        }
    };
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(field) = line.strip_prefix("  ").filter(|field| !field.starts_with(' ')) {
            let Some((name, located, pinned)) = &mut open else {
                return Err(LockfileError::new(file, "a field before the first entry"));
            };
            match field.split_once(' ') {
                Some(("resolved", value)) => {
                    let location = unquoted(value);
                    // The fragment is a hash of the archive or a commit.
                    *pinned |= location.split_once('#').is_some_and(|(_, hash)| hash.len() >= 40);
                    *located = true;
                    collector.location(location.split('#').next().unwrap_or_default(), name);
                }
                Some(("integrity", value)) => *pinned |= !unquoted(value).is_empty(),
                _ => {}
            }
        } else if !line.starts_with(' ') {
            close(&mut open, collector);
            let Some(names) = line.strip_suffix(':') else {
                return Err(LockfileError::new(file, "a line that is no entry of yarn 1"));
            };
            collector.package();
            open = Some((unquoted(names.split(',').next().unwrap_or_default()).to_owned(), false, false));
        }
    }
    close(&mut open, collector);
    Ok(())
}

fn read_berry(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    let lock = read_yaml(text, file)?;
    for (key, entry) in lock.entries().iter().filter(|(key, _)| key != "__metadata") {
        let name = key.split(", ").next().unwrap_or(key);
        let Some(resolution) = entry.text_at("resolution") else {
            collector.problem(LockfileProblemKind::MissingHash, name, "no `resolution`");
            continue;
        };
        if resolution.contains("@workspace:") {
            continue;
        }
        collector.package();
        berry_location(resolution, name, collector);
        let local = ["@link:", "@portal:"].iter().any(|protocol| resolution.contains(protocol));
        if !local && entry.text_at("checksum").is_none_or(str::is_empty) {
            collector.problem(LockfileProblemKind::MissingHash, name, "no `checksum`");
        }
    }
    Ok(())
}

/// `name@npm:1.0.0`, `name@npm:1.0.0::__archiveUrl=https%3A%2F%2F...`, `name@https://...`, `name@patch:...`
fn berry_location(resolution: &str, name: &str, collector: &mut HostCollector) {
    // The name may have a scope: the separator is the first `@` after the first character.
    let reference = resolution
        .char_indices()
        .skip(1)
        .find(|(_, c)| *c == '@')
        .and_then(|(at, _)| resolution.get(at + 1..));
    let Some(reference) = reference else {
        return collector.problem(LockfileProblemKind::BadUrl, name, "a resolution without a reference");
    };
    if let Some((_, bindings)) = reference.split_once("::") {
        for (key, value) in url::form_urlencoded::parse(bindings.as_bytes()) {
            if key == "__archiveUrl" {
                collector.url(&value, name);
            }
        }
    }
    match reference.split_once(':') {
        Some(("npm" | "virtual" | "workspace" | "exec" | "patch", _)) => {}
        Some(_) => collector.location(reference.split("::").next().unwrap_or_default(), name),
        None => collector.local_path(reference, name),
    }
    if reference.starts_with("exec:") {
        collector.problem(
            LockfileProblemKind::RunsCode,
            name,
            "the package is made by a script of the repository",
        );
    }
}

fn unquoted(value: &str) -> &str {
    value.trim().trim_matches('"')
}
