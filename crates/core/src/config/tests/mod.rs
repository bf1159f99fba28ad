//! Tests of the configuration as a whole, by subject.

mod faults;
mod layering;
mod never_panics;
mod older_layouts;
mod table;

use super::{ConfigError, Effective, FileConfig, Source, combine, parse};

const FILE: &str = ".vambrace/config.yaml";

fn errors(text: &str) -> Vec<ConfigError> {
    parse(text, FILE, Source::Project { trusted: true }).err().unwrap_or_default()
}

fn file(text: &str, source: Source) -> FileConfig {
    let name = match source {
        Source::Organisation => "org.yaml",
        Source::User => "user.yaml",
        Source::Project { .. } => "project.yaml",
    };
    match parse(text, name, source) {
        Ok(file) => file,
        Err(errors) => {
            panic!("{text}\n{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Layers; an empty text is an absent file.
fn layers(organisation: &str, user: &str, project: &str, trusted: bool) -> Effective {
    let read = |text: &str, source| (!text.is_empty()).then(|| file(text, source));
    combine(
        read(organisation, Source::Organisation),
        read(user, Source::User),
        read(project, Source::Project { trusted }),
    )
}

fn notes(effective: &Effective) -> Vec<String> {
    effective.notes.iter().map(ToString::to_string).collect()
}
