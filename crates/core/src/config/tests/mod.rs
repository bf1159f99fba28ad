//! Tests of the whole configuration, by subject.

mod error_messages;
mod key_table;
mod layering;
mod never_panics;
mod older_layouts;

use super::check::PlannedKeys;
use super::file::parse_keys;
use super::{ConfigError, ConfigSource, EffectiveConfig, FileConfig, combine};

const FILE: &str = ".vambrace/config.yaml";

/// Parses a file that may set keys of later versions too.
fn parse(text: &str, file: &str, source: ConfigSource) -> Result<FileConfig, Vec<ConfigError>> {
    parse_keys(text, file, source, PlannedKeys::Accept)
}

fn errors(text: &str) -> Vec<ConfigError> {
    parse(text, FILE, ConfigSource::Project { trusted: true }).err().unwrap_or_default()
}

fn file(text: &str, source: ConfigSource) -> FileConfig {
    let name = match source {
        ConfigSource::Organisation => "org.yaml",
        ConfigSource::User => "user.yaml",
        ConfigSource::Project { .. } => "project.yaml",
    };
    match parse(text, name, source) {
        Ok(file) => file,
        Err(errors) => {
            panic!("{text}\n{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Combines the layers; an empty text means no file.
fn layers(organisation: &str, user: &str, project: &str, trusted: bool) -> EffectiveConfig {
    let read = |text: &str, source| (!text.is_empty()).then(|| file(text, source));
    combine(
        read(organisation, ConfigSource::Organisation),
        read(user, ConfigSource::User),
        read(project, ConfigSource::Project { trusted }),
    )
}

fn notes(effective: &EffectiveConfig) -> Vec<String> {
    effective.notes.iter().map(ToString::to_string).collect()
}
