//! The report to an agent whose proposal the user approved only in part or with other content: what was applied, what was
//! not, and that the files differ from what the agent expects.

use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_core::change::FileChange;
use vambrace_core::error::CallError;
use vambrace_core::redacted::Redact;
use vambrace_workspace::{Draft, diff};

use crate::amendment::{Amendment, is_at};
use crate::diff_sections::{lines, sections};
use crate::redacted_diff::redacted_diff;

/// Maximum files listed by name and hash.
const MAX_LISTED_FILES: usize = 10;

/// How an applied change differs from the proposed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AmendmentReport {
    /// Whether the user wrote other content; otherwise the user approved a part.
    edited: bool,
    /// Files that were not applied; with hunk numbers if only some hunks were not.
    missing: Vec<(String, Vec<usize>)>,
    /// Files with other content than proposed.
    other: Vec<String>,
    /// The redacted diff of the approved change.
    diff: String,
}

impl AmendmentReport {
    /// `None` when the approved change equals the proposed one.
    pub(crate) fn compare(
        proposed: &Draft,
        approved: &Draft,
        amendment: &Amendment,
        redactor: &Arc<dyn Redact>,
    ) -> Result<Option<Self>, CallError> {
        if proposed.changes == approved.changes {
            return Ok(None);
        }
        let mut report = Self {
            edited: matches!(amendment, Amendment::Edited(_)),
            missing: Vec::new(),
            other: Vec::new(),
            diff: redacted_diff(approved, redactor)?,
        };
        let approved_change =
            |file: &FileChange| approved.changes.files().iter().find(|own| own.path() == file.path());
        for (file, section) in proposed.changes.files().iter().zip(sections(&proposed.diff)) {
            match approved_change(file) {
                None => report.missing.push((name(file), Vec::new())),
                Some(own) if own == file => {}
                Some(_) => {
                    report.other.push(name(file));
                    let left = unapproved_hunks(file, &section, amendment);
                    if !left.is_empty() {
                        report.missing.push((name(file), left));
                    }
                }
            }
        }
        Ok(Some(report))
    }

    /// Adds the report to the payload; returns the text for a model.
    pub(crate) fn add_to_payload(&self, approved: &Draft, data: &mut Value) -> String {
        let missing: Vec<Value> = self
            .missing
            .iter()
            .map(|(path, hunks)| match hunks.as_slice() {
                [] => json!({"path": path}),
                some => json!({"path": path, "hunks": some}),
            })
            .collect();
        if let Some(fields) = data.as_object_mut() {
            fields.insert("as_proposed".to_owned(), false.into());
            fields.insert("not_applied".to_owned(), missing.into());
            fields.insert("diff".to_owned(), diff::preview(self.diff.as_bytes()).into());
            for file in fields.get_mut("files").and_then(Value::as_array_mut).into_iter().flatten() {
                let path = file.get("path").and_then(Value::as_str).unwrap_or_default();
                let same = !self.other.iter().any(|other| other == path);
                if let Some(file) = file.as_object_mut() {
                    file.insert("as_proposed".to_owned(), same.into());
                }
            }
        }
        self.text_for_model(approved)
    }

    fn text_for_model(&self, approved: &Draft) -> String {
        let how = if self.edited {
            "with other content than you proposed"
        } else {
            "only a part of what you proposed"
        };
        let mut text = format!("applied {how}, as the user decided: {}\n", approved.changes.summary());
        for (path, hunks) in self.missing.iter().take(MAX_LISTED_FILES) {
            let which: Vec<String> = hunks.iter().map(ToString::to_string).collect();
            text += &match which.as_slice() {
                [] => format!("not applied: `{path}`\n"),
                [one] => format!("not applied: hunk {one} of `{path}`\n"),
                several => format!("not applied: hunks {} of `{path}`\n", several.join(", ")),
            };
        }
        if let Some(more) = self.missing.len().checked_sub(MAX_LISTED_FILES).filter(|more| *more > 0) {
            text += &format!("not applied: {more} more\n");
        }
        for file in approved.changes.files().iter().take(MAX_LISTED_FILES) {
            text += &match file.after() {
                Some(after) => format!("`{}` is now {}\n", after.path, after.hash),
                None => format!("`{}` is deleted\n", file.path()),
            };
        }
        text + "read these files again before you change them; do not propose the rejected parts again"
    }
}

/// The path that the payload shows.
fn name(file: &FileChange) -> String {
    file.after().map_or(file.path(), |after| &after.path).to_string()
}

/// The hunks of a file that the user did not approve.
fn unapproved_hunks(file: &FileChange, section: &[u8], amendment: &Amendment) -> Vec<usize> {
    let Amendment::Hunks(hunks) = amendment else { return Vec::new() };
    let hunks_of = |line: crate::diff_sections::DiffLine<'_>| {
        let hidden =
            line.omission.map_or(0, |omission| usize::try_from(omission.hunks).unwrap_or(usize::MAX));
        hidden.saturating_add(line.starts_hunk.into())
    };
    let count = lines(section).map(hunks_of).sum();
    let wanted =
        |number: &usize| hunks.iter().any(|(path, numbers)| is_at(file, path) && numbers.contains(number));
    (1..=count).filter(|number| !wanted(number)).collect()
}
