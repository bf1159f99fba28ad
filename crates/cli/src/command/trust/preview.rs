//! The effect of trusting a project: its files, and the settings that take effect only then. They are found by loading the
//! configuration both ways: a note that disappears when the project is trusted names such a setting.

use std::path::Path;

use serde_json::{Value, json};
use vambrace_core::config::{ConfigNote, FileConfig};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;

use crate::command::audit::one_line;
use crate::config_files::{combine, find, trust_label};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::project_context::{self, ProjectTrust};
use crate::project_files::ProjectFiles;
use crate::terminal_escape::sanitize;

/// The files and settings that would be trusted.
pub(super) struct TrustPreview {
    files: Vec<(String, usize)>,
    parts: Vec<TrustGatedSetting>,
}

/// A setting that takes effect only when the project is trusted.
struct TrustGatedSetting {
    key: String,
    at: String,
    value: String,
}

impl TrustPreview {
    /// Loads the configuration as if trusted; an invalid one cannot be trusted.
    pub(super) fn of(files: &ProjectFiles) -> Result<Self, Failure> {
        let now = combine(&find(files, false)?).map_err(|errors| invalid(&errors))?;
        let found = find(files, true)?;
        let then = combine(&found).map_err(|errors| invalid(&errors))?;
        let facts = project_context::facts(&*project_context::catalogue()?);
        Policy::compile(&then, None, None, &facts).map_err(|faults| invalid(&faults))?;
        let own =
            found.iter().find(|file| file.source.is_project()).and_then(|file| file.parsed.as_ref().ok());
        let same = |a: &ConfigNote, b: &ConfigNote| a.key == b.key && a.at.to_string() == b.at.to_string();
        let gone = now.notes.iter().filter(|note| !then.notes.iter().any(|other| same(note, other)));
        let parts = gone.map(|note| part(note, own)).collect();
        let files = files.listing().map(|(name, size)| (name.to_owned(), size)).collect();
        Ok(Self { files, parts })
    }

    pub(super) fn print(&self, project: &Path, digest: Digest, trust: ProjectTrust, out: Out) {
        out.line(format!(
            "{}  {}",
            paint(Tone::Strong, sanitize(&project.display().to_string())),
            trust_label(trust)
        ));
        for (name, size) in &self.files {
            out.line(format!("  {size:>8} bytes  {}", one_line(name)));
        }
        if self.parts.is_empty() {
            out.line("no setting needs trust to take effect");
        } else {
            out.line("takes effect only when trusted:");
        }
        for part in &self.parts {
            let at = paint(Tone::Faint, format!("[{}]", sanitize(&part.at)));
            out.line(format!("  {}  {} {at}", paint(Tone::Care, one_line(&part.key)), one_line(&part.value)));
        }
        out.line(format!("digest  {digest}"));
    }

    pub(super) fn as_json(&self, project: &Path, digest: Digest, already: bool) -> Value {
        let files: Vec<Value> =
            self.files.iter().map(|(path, size)| json!({"path": path, "size": size})).collect();
        let part = |part: &TrustGatedSetting| json!({"key": part.key, "at": part.at, "value": part.value});
        json!({
            "project": project.display().to_string(), "trusted": true, "already": already,
            "digest": digest.to_string(), "files": files, "takes_effect": self.parts.iter().map(part).collect::<Vec<_>>(),
        })
    }
}

/// The setting with its value in the file.
fn part(note: &ConfigNote, own: Option<&FileConfig>) -> TrustGatedSetting {
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

fn invalid<E: ToString>(faults: &[E]) -> Failure {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let message = format!("an invalid configuration cannot be trusted:\n{}", list.join("\n"));
    Failure::denied(
        ErrorCode::PermissionDenied,
        message,
        "fix the errors; `vambrace policy check` lists them",
    )
}
