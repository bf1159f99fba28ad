//! The three configuration files (organisation, user, project), each with its content or its errors. Calls use all of them
//! or none (`Settings::load`); commands that report on single files use this module.
#![expect(
    clippy::disallowed_methods,
    reason = "the files of the organisation and the user are read by their path"
)]

use std::path::{Path, PathBuf};

use vambrace_core::config::{self, ConfigError, ConfigSource, EffectiveConfig, FileConfig};
use vambrace_core::error::ErrorCode;
use vambrace_core::network::NetworkRules;
use vambrace_store::{SqliteStore, Store as _, TrustRow};

use crate::failure::Failure;
use crate::paths::{self, Presence};
use crate::project_context::{ProjectTrust, project_key};
use crate::project_files::ProjectFiles;

/// A configuration file: its content, or its errors.
pub(crate) struct ConfigFile {
    pub(crate) source: ConfigSource,
    pub(crate) name: String,
    pub(crate) parsed: Result<FileConfig, Vec<ConfigError>>,
}

impl ConfigFile {
    fn parse(source: ConfigSource, name: String, bytes: &[u8]) -> Self {
        let parsed = config::parse_bytes(bytes, &name, source);
        Self { source, name, parsed }
    }
}

/// Reads the existing files: organisation, user, project.
pub(crate) fn find(project: &ProjectFiles, trusted: bool) -> Result<Vec<ConfigFile>, Failure> {
    let mut found = find_above()?;
    if let Some((name, bytes)) = project.configuration() {
        found.push(ConfigFile::parse(ConfigSource::Project { trusted }, name.to_owned(), bytes));
    }
    Ok(found)
}

/// Reads the existing files of the organisation and the user.
pub(crate) fn find_above() -> Result<Vec<ConfigFile>, Failure> {
    let mut found = Vec::new();
    for (source, path, presence) in paths_above() {
        if let Some(bytes) = read(&path, presence)? {
            found.push(ConfigFile::parse(source, path.display().to_string(), &bytes));
        }
    }
    Ok(found)
}

/// Paths of the organisation's and the user's file, whether they exist or not.
pub(crate) fn paths_above() -> Vec<(ConfigSource, PathBuf, Presence)> {
    let (organisation, presence) = paths::organisation();
    let user = paths::user().map(|path| (ConfigSource::User, path, Presence::Optional));
    std::iter::once((ConfigSource::Organisation, organisation, presence)).chain(user).collect()
}

/// Combines the files; errors are a failure of the command.
pub(crate) fn combine_or_fail(found: &[ConfigFile]) -> Result<EffectiveConfig, Failure> {
    combine(found).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let why = format!("invalid configuration:\n{}", list.join("\n"));
        Failure::denied(ErrorCode::PermissionDenied, why, "`vambrace policy check` lists the errors")
    })
}

/// Combines the files, or returns all their errors.
pub(crate) fn combine(found: &[ConfigFile]) -> Result<EffectiveConfig, Vec<ConfigError>> {
    let faults: Vec<ConfigError> =
        found.iter().filter_map(|file| file.parsed.as_ref().err()).flatten().cloned().collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let of = |fits: fn(ConfigSource) -> bool| {
        found.iter().find(|file| fits(file.source)).and_then(|file| file.parsed.as_ref().ok()).cloned()
    };
    let organisation = of(|source| source == ConfigSource::Organisation);
    let user = of(|source| source == ConfigSource::User);
    Ok(config::combine(organisation, user, of(ConfigSource::is_project)))
}

/// Compares the project's files with the trusted digest; returns the stored row too.
pub(crate) async fn trust_state(
    project: &Path,
    files: &ProjectFiles,
    store: &SqliteStore,
) -> Result<(ProjectTrust, Option<TrustRow<String>>), Failure> {
    let pinned = store.trust(project_key(project)).await?;
    let trust = match (files.digest(), &pinned) {
        (None, _) => ProjectTrust::NoFiles,
        (Some(digest), Some(pinned)) if pinned.digest == digest => ProjectTrust::Trusted,
        (Some(_), Some(_)) => ProjectTrust::Changed,
        (Some(_), None) => ProjectTrust::Untrusted,
    };
    Ok((trust, pinned))
}

/// Warnings about effective values that are probably mistakes.
pub(crate) fn warnings(settings: &EffectiveConfig) -> Vec<String> {
    let rules = NetworkRules::configured(&settings.network.allow, &[]);
    rules.iter().flat_map(NetworkRules::warnings).collect()
}

/// The trust state as text.
pub(crate) fn trust_label(trust: ProjectTrust) -> &'static str {
    match trust {
        ProjectTrust::NoFiles => "no files",
        ProjectTrust::Trusted => "trusted",
        ProjectTrust::Untrusted => "not trusted",
        ProjectTrust::Changed => "changed since it was trusted",
    }
}

fn read(path: &Path, presence: Presence) -> Result<Option<Vec<u8>>, Failure> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && presence == Presence::Optional => {
            Ok(None)
        }
        Err(error) => {
            let hint = "an unreadable configuration denies every call: fix its permissions";
            let why = format!("configuration `{}`: {error}", path.display());
            Err(Failure::denied(ErrorCode::PermissionDenied, why, hint))
        }
    }
}
