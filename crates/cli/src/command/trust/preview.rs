//! What trusting would do: the files that are pinned, and the parts of the configuration that count only then. Those
//! are found by loading it both ways: a note that is gone when the project is trusted names a part that takes effect.

use std::path::Path;

use serde_json::{Value, json};
use vambrace_core::config::{FileConfig, Note};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;

use crate::command::audit::one_line;
use crate::desk::{self, Trust};
use crate::failure::Failure;
use crate::found::{combine, find, told};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};
use crate::project::ProjectFiles;

/// What would be trusted.
pub(super) struct Preview {
    files: Vec<(String, usize)>,
    parts: Vec<Part>,
}

/// A part that takes effect.
struct Part {
    key: String,
    at: String,
    value: String,
}

impl Preview {
    /// Loads the configuration as it would be; a faulty one cannot be trusted.
    pub(super) fn of(files: &ProjectFiles) -> Result<Self, Failure> {
        let now = combine(&find(files, false)?).map_err(|errors| faulty(&errors))?;
        let found = find(files, true)?;
        let then = combine(&found).map_err(|errors| faulty(&errors))?;
        let facts = desk::facts(&*desk::catalogue()?);
        Policy::compile(&then, None, None, &facts).map_err(|faults| faulty(&faults))?;
        let own =
            found.iter().find(|file| file.source.is_project()).and_then(|file| file.parsed.as_ref().ok());
        let same = |a: &Note, b: &Note| a.key == b.key && a.at.to_string() == b.at.to_string();
        let gone = now.notes.iter().filter(|note| !then.notes.iter().any(|other| same(note, other)));
        let parts = gone.map(|note| part(note, own)).collect();
        let files = files.listing().map(|(name, size)| (name.to_owned(), size)).collect();
        Ok(Self { files, parts })
    }

    pub(super) fn tell(&self, project: &Path, digest: Digest, trust: Trust, out: Out) {
        out.line(format!("{}  {}", paint(Tone::Strong, plain(&project.display().to_string())), told(trust)));
        for (name, size) in &self.files {
            out.line(format!("  {size:>8} bytes  {}", one_line(name)));
        }
        if self.parts.is_empty() {
            out.line("nothing in it widens what holds without it");
        } else {
            out.line("takes effect only when trusted:");
        }
        for part in &self.parts {
            let at = paint(Tone::Faint, format!("[{}]", plain(&part.at)));
            out.line(format!("  {}  {} {at}", paint(Tone::Care, one_line(&part.key)), one_line(&part.value)));
        }
        out.line(format!("digest  {digest}"));
    }

    pub(super) fn as_json(&self, project: &Path, digest: Digest, already: bool) -> Value {
        let files: Vec<Value> =
            self.files.iter().map(|(path, size)| json!({"path": path, "size": size})).collect();
        let part = |part: &Part| json!({"key": part.key, "at": part.at, "value": part.value});
        json!({
            "project": project.display().to_string(), "trusted": true, "already": already,
            "digest": digest.to_string(), "files": files, "takes_effect": self.parts.iter().map(part).collect::<Vec<_>>(),
        })
    }
}

/// A part in words: what the file says at that place.
fn part(note: &Note, own: Option<&FileConfig>) -> Part {
    let at = note.at.to_string();
    let said = own.and_then(|own| match note.key.as_str() {
        "approvals.rules" => own.rules.iter().find(|rule| rule.at.to_string() == at).map(|rule| {
            let about: Vec<&str> = [&rule.tools, &rule.paths, &rule.commands]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect();
            let about = if about.is_empty() { "everything".to_owned() } else { about.join(" ") };
            // Only rules that allow wait for trust.
            format!("rule `{}` allows {about}", rule.label())
        }),
        "roles.default" => own.roles.default.as_ref().map(|name| name.value.clone()),
        key if key.starts_with("roles.") => Some("declares this role".to_owned()),
        key => own.get(key).map(|value| match value.value.to_json() {
            Value::String(text) => text,
            other => other.to_string(),
        }),
    });
    Part { key: note.key.clone(), at, value: said.unwrap_or_else(|| note.message.clone()) }
}

fn faulty<E: ToString>(faults: &[E]) -> Failure {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let message = format!("a faulty configuration cannot be trusted:\n{}", list.join("\n"));
    Failure::denied(
        ErrorCode::PermissionDenied,
        message,
        "correct the places named; `vambrace policy check` tells them again",
    )
}
