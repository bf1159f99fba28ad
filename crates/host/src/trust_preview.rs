//! The effect of trusting a project: its files, and the settings that take effect only then. They are found by loading the
//! configuration both ways: a note that disappears when the project is trusted names such a setting.

use serde_json::Value;
use vambrace_core::config::{ConfigNote, FileConfig};
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;

use crate::catalogue::built_in_tools;
use crate::config_files::{ConfigFiles, listed};
use crate::error::HostError;
use crate::paths::Paths;
use crate::project_files::ProjectFiles;

/// The files and settings that would be trusted.
#[derive(Debug)]
pub struct TrustPreview {
    /// Names and sizes of the files.
    pub files: Vec<(String, usize)>,
    /// The settings that take effect only when trusted.
    pub settings: Vec<TrustGatedSetting>,
}

/// A setting that takes effect only when the project is trusted.
#[derive(Debug)]
pub struct TrustGatedSetting {
    /// Its key.
    pub key: String,
    /// File and line.
    pub at: String,
    /// Its value, as text.
    pub value: String,
}

impl TrustPreview {
    /// Loads the configuration as if trusted; an invalid one cannot be trusted.
    pub fn of(paths: &Paths, files: &ProjectFiles) -> Result<Self, HostError> {
        let now = ConfigFiles::read(paths, files, false)?.combine().map_err(|errors| invalid(&errors))?;
        let found = ConfigFiles::read(paths, files, true)?;
        let then = found.combine().map_err(|errors| invalid(&errors))?;
        Policy::compile(&then, None, None, &built_in_tools()?).map_err(|faults| invalid(&faults))?;
        let own = found
            .list()
            .iter()
            .find(|file| file.source.is_project())
            .and_then(|file| file.parsed.as_ref().ok());
        let same = |a: &ConfigNote, b: &ConfigNote| a.key == b.key && a.at.to_string() == b.at.to_string();
        let gone = now.notes.iter().filter(|note| !then.notes.iter().any(|other| same(note, other)));
        let settings = gone.map(|note| setting(note, own)).collect();
        let files = files.listing().map(|(name, size)| (name.to_owned(), size)).collect();
        Ok(Self { files, settings })
    }
}

/// The setting with its value in the file.
fn setting(note: &ConfigNote, own: Option<&FileConfig>) -> TrustGatedSetting {
    let at = note.at.to_string();
    let said = own.and_then(|own| match note.key.as_str() {
        "approvals.rules" => own.rules.iter().find(|rule| rule.at.to_string() == at).map(|rule| {
            let about: Vec<&str> = [&rule.tools, &rule.paths, &rule.commands]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect();
            let about = if about.is_empty() { "everything".to_owned() } else { about.join(" ") };
            // Only allow rules need trust.
            format!("rule `{}` allows {about}", rule.label())
        }),
        "roles.default" => own.roles.default.as_ref().map(|name| name.value.clone()),
        key if key.starts_with("roles.") => Some("declares this role".to_owned()),
        key => own.get(key).map(|value| match value.value.to_json() {
            Value::String(text) => text,
            other => other.to_string(),
        }),
    });
    TrustGatedSetting { key: note.key.clone(), at, value: said.unwrap_or_else(|| note.message.clone()) }
}

fn invalid<E: ToString>(faults: &[E]) -> HostError {
    let hint = "fix the errors; `vambrace policy check` lists them";
    let message = listed("an invalid configuration cannot be trusted", faults);
    HostError::denied(ErrorCode::PermissionDenied, message, hint)
}
