//! The three files of a configuration, each with what it holds or what is wrong with it. Settings are loaded all or
//! nothing; this is for the commands that tell about files one by one.
#![expect(
    clippy::disallowed_methods,
    reason = "the files of the organisation and the user are read by their path"
)]

use std::path::{Path, PathBuf};

use vambrace_core::config::{self, ConfigError, Effective, FileConfig, Source};
use vambrace_core::error::ErrorCode;
use vambrace_core::network::Rules;
use vambrace_store::{SqliteStore, Store as _, TrustRow};

use crate::desk::{Trust, project_key};
use crate::failure::Failure;
use crate::places::{self, Presence};
use crate::project::ProjectFiles;

/// One file.
pub(crate) struct Found {
    pub(crate) source: Source,
    pub(crate) name: String,
    pub(crate) parsed: Result<FileConfig, Vec<ConfigError>>,
}

impl Found {
    fn parse(source: Source, name: String, bytes: &[u8]) -> Self {
        let parsed = config::parse_bytes(bytes, &name, source);
        Self { source, name, parsed }
    }
}

/// The files that exist, from the organisation's down.
pub(crate) fn find(project: &ProjectFiles, trusted: bool) -> Result<Vec<Found>, Failure> {
    let mut found = find_above()?;
    if let Some((name, bytes)) = project.configuration() {
        found.push(Found::parse(Source::Project { trusted }, name.to_owned(), bytes));
    }
    Ok(found)
}

/// Those above the project.
pub(crate) fn find_above() -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for (source, path, presence) in above() {
        if let Some(bytes) = read(&path, presence)? {
            found.push(Found::parse(source, path.display().to_string(), &bytes));
        }
    }
    Ok(found)
}

/// Where the files above the project lie, whether they exist or not.
pub(crate) fn above() -> Vec<(Source, PathBuf, Presence)> {
    let (organisation, presence) = places::organisation();
    let user = places::user().map(|path| (Source::User, path, Presence::Optional));
    std::iter::once((Source::Organisation, organisation, presence)).chain(user).collect()
}

/// The files put together, for a command that does nothing without them.
pub(crate) fn settled(found: &[Found]) -> Result<Effective, Failure> {
    combine(found).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let why = format!("the configuration cannot be used:\n{}", list.join("\n"));
        Failure::denied(ErrorCode::PermissionDenied, why, "`vambrace policy check` tells it again")
    })
}

/// The files put together, or every fault in them.
pub(crate) fn combine(found: &[Found]) -> Result<Effective, Vec<ConfigError>> {
    let faults: Vec<ConfigError> =
        found.iter().filter_map(|file| file.parsed.as_ref().err()).flatten().cloned().collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let of = |fits: fn(Source) -> bool| {
        found.iter().find(|file| fits(file.source)).and_then(|file| file.parsed.as_ref().ok()).cloned()
    };
    let organisation = of(|source| source == Source::Organisation);
    let user = of(|source| source == Source::User);
    Ok(config::combine(organisation, user, of(Source::is_project)))
}

/// How the project's files stand, and what was pinned.
pub(crate) async fn standing(
    project: &Path,
    files: &ProjectFiles,
    store: &SqliteStore,
) -> Result<(Trust, Option<TrustRow<String>>), Failure> {
    let pinned = store.trust(project_key(project)).await?;
    let trust = match (files.digest(), &pinned) {
        (None, _) => Trust::NoFiles,
        (Some(digest), Some(pinned)) if pinned.digest == digest => Trust::Trusted,
        (Some(_), Some(_)) => Trust::Changed,
        (Some(_), None) => Trust::Untrusted,
    };
    Ok((trust, pinned))
}

/// What the writer of a value in force may not have meant.
pub(crate) fn warnings(settings: &Effective) -> Vec<String> {
    let rules = Rules::configured(&settings.network.allow, &[]);
    rules.iter().flat_map(Rules::warnings).collect()
}

/// In words.
pub(crate) fn told(trust: Trust) -> &'static str {
    match trust {
        Trust::NoFiles => "no files",
        Trust::Trusted => "trusted",
        Trust::Untrusted => "not trusted",
        Trust::Changed => "changed since it was trusted",
    }
}

fn read(path: &Path, presence: Presence) -> Result<Option<Vec<u8>>, Failure> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && presence == Presence::Optional => {
            Ok(None)
        }
        Err(error) => {
            let hint = "a configuration that cannot be read denies everything: correct its permissions";
            let why = format!("configuration `{}`: {error}", path.display());
            Err(Failure::denied(ErrorCode::PermissionDenied, why, hint))
        }
    }
}
