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

use crate::error::HostError;
use crate::paths::{Paths, Presence};
use crate::project_files::ProjectFiles;

/// A configuration file: its content, or its errors.
#[derive(Debug)]
pub struct ConfigFile {
    /// Whose file it is.
    pub source: ConfigSource,
    /// Its path, for messages.
    pub name: String,
    /// Its content, or all its errors.
    pub parsed: Result<FileConfig, Vec<ConfigError>>,
}

impl ConfigFile {
    fn parse(source: ConfigSource, name: String, bytes: &[u8]) -> Self {
        let parsed = config::parse_bytes(bytes, &name, source);
        Self { source, name, parsed }
    }
}

/// The existing configuration files: organisation, user, project.
#[derive(Debug)]
pub struct ConfigFiles(Vec<ConfigFile>);

impl ConfigFiles {
    /// Reads the files for a project; `trusted` says whether the project's own file counts in full.
    pub fn read(paths: &Paths, project: &ProjectFiles, trusted: bool) -> Result<Self, HostError> {
        let Self(mut found) = Self::without_project(paths)?;
        if let Some((name, bytes)) = project.configuration() {
            found.push(ConfigFile::parse(ConfigSource::Project { trusted }, name.to_owned(), bytes));
        }
        Ok(Self(found))
    }

    /// Reads the files of the organisation and the user.
    pub fn without_project(paths: &Paths) -> Result<Self, HostError> {
        let mut found = Vec::new();
        for (source, path, presence) in paths_above(paths) {
            if let Some(bytes) = read(&path, presence)? {
                found.push(ConfigFile::parse(source, path.display().to_string(), &bytes));
            }
        }
        Ok(Self(found))
    }

    /// The files.
    #[must_use]
    pub fn list(&self) -> &[ConfigFile] {
        &self.0
    }

    /// Combines the files, or returns all their errors.
    pub fn combine(&self) -> Result<EffectiveConfig, Vec<ConfigError>> {
        let faults: Vec<ConfigError> =
            self.0.iter().filter_map(|file| file.parsed.as_ref().err()).flatten().cloned().collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        let of = |fits: fn(ConfigSource) -> bool| {
            self.0.iter().find(|file| fits(file.source)).and_then(|file| file.parsed.as_ref().ok()).cloned()
        };
        let organisation = of(|source| source == ConfigSource::Organisation);
        let user = of(|source| source == ConfigSource::User);
        Ok(config::combine(organisation, user, of(ConfigSource::is_project)))
    }

    /// Combines the files; errors in one of them are a denial.
    pub fn effective(&self) -> Result<EffectiveConfig, HostError> {
        self.combine().map_err(|errors| {
            let hint = "`vambrace policy check` lists the errors";
            HostError::denied(
                ErrorCode::PermissionDenied,
                listed("invalid configuration", errors.as_slice()),
                hint,
            )
        })
    }
}

/// A message with one line per error.
pub(crate) fn listed<E: ToString>(title: &str, errors: &[E]) -> String {
    let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("{title}:\n{}", list.join("\n"))
}

/// Paths of the organisation's and the user's file, whether they exist or not.
pub(crate) fn paths_above(paths: &Paths) -> Vec<(ConfigSource, PathBuf, Presence)> {
    let (organisation, presence) = paths.organisation();
    let user = paths.user_config().map(|path| (ConfigSource::User, path.to_owned(), Presence::Optional));
    std::iter::once((ConfigSource::Organisation, organisation.to_owned(), presence)).chain(user).collect()
}

/// Warnings about effective values that are probably mistakes.
#[must_use]
pub fn config_warnings(settings: &EffectiveConfig) -> Vec<String> {
    let rules = NetworkRules::configured(&settings.network.allow, &[]);
    rules.iter().flat_map(NetworkRules::warnings).collect()
}

fn read(path: &Path, presence: Presence) -> Result<Option<Vec<u8>>, HostError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && presence == Presence::Optional => {
            Ok(None)
        }
        Err(error) => {
            let hint = "an unreadable configuration denies every call: fix its permissions";
            let why = format!("configuration `{}`: {error}", path.display());
            Err(HostError::denied(ErrorCode::PermissionDenied, why, hint))
        }
    }
}

/// The bytes of a file for a digest; an unreadable file counts as its error.
pub(crate) fn bytes_or_error(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| error.to_string().into_bytes())
}
