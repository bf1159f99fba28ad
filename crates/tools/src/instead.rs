//! What the agent is told when a person agreed to a part of its proposal, or to other content: what was applied, what was
//! not, and that the files hold something else than it believes.

use serde_json::{Value, json};
use vambrace_core::change::FileChange;
use vambrace_core::error::CallError;
use vambrace_core::redacted::Redact;
use vambrace_workspace::{Draft, diff};

use crate::part::{Part, is_at};
use crate::sections::{lines, sections};
use crate::shown::shown_diff;

/// So many files are told by name and hash.
const TOLD: usize = 10;

/// How an applied change differs from the proposed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instead {
    /// Whether somebody wrote other content; else it is a part of the proposal.
    edited: bool,
    /// What was left out, with the hunks where some of the file were applied.
    missing: Vec<(String, Vec<usize>)>,
    /// The files that hold other content than was proposed.
    other: Vec<String>,
    /// The diff of what is agreed to, without secrets.
    diff: String,
}

impl Instead {
    /// `None` when what is agreed to comes to the whole after all.
    pub(crate) fn of(
        whole: &Draft,
        agreed: &Draft,
        part: &Part,
        redactor: &dyn Redact,
    ) -> Result<Option<Self>, CallError> {
        if whole.changes == agreed.changes {
            return Ok(None);
        }
        let mut instead = Self {
            edited: matches!(part, Part::Edited(_)),
            missing: Vec::new(),
            other: Vec::new(),
            diff: shown_diff(agreed, redactor)?,
        };
        let agreed_to =
            |file: &FileChange| agreed.changes.files().iter().find(|own| own.path() == file.path());
        for (file, section) in whole.changes.files().iter().zip(sections(&whole.diff)) {
            match agreed_to(file) {
                None => instead.missing.push((name(file), Vec::new())),
                Some(own) if own == file => {}
                Some(_) => {
                    instead.other.push(name(file));
                    let left = left_out(file, &section, part);
                    if !left.is_empty() {
                        instead.missing.push((name(file), left));
                    }
                }
            }
        }
        Ok(Some(instead))
    }

    /// Adds it to the payload; the words for a model.
    pub(crate) fn tell(&self, agreed: &Draft, data: &mut Value) -> String {
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
        self.words(agreed)
    }

    fn words(&self, agreed: &Draft) -> String {
        let how = if self.edited {
            "with other content than you proposed"
        } else {
            "only a part of what you proposed"
        };
        let mut words = format!("applied {how}, as the user decided: {}\n", agreed.changes.summary());
        for (path, hunks) in self.missing.iter().take(TOLD) {
            let which: Vec<String> = hunks.iter().map(ToString::to_string).collect();
            words += &match which.as_slice() {
                [] => format!("not applied: `{path}`\n"),
                [one] => format!("not applied: hunk {one} of `{path}`\n"),
                several => format!("not applied: hunks {} of `{path}`\n", several.join(", ")),
            };
        }
        if let Some(more) = self.missing.len().checked_sub(TOLD).filter(|more| *more > 0) {
            words += &format!("not applied: {more} more\n");
        }
        for file in agreed.changes.files().iter().take(TOLD) {
            words += &match file.after() {
                Some(after) => format!("`{}` is now {}\n", after.path, after.hash),
                None => format!("`{}` is gone\n", file.path()),
            };
        }
        words
            + "read these files again before you change them further; do not propose again what the user left out"
    }
}

/// As the payload names it.
fn name(file: &FileChange) -> String {
    file.after().map_or(file.path(), |after| &after.path).to_string()
}

/// The hunks of a file that nobody agreed to.
fn left_out(file: &FileChange, section: &[u8], part: &Part) -> Vec<usize> {
    let Part::Hunks(hunks) = part else { return Vec::new() };
    let hunks_of = |line: crate::sections::DiffLine<'_>| {
        let hidden = line.gap.map_or(0, |gap| usize::try_from(gap.hunks).unwrap_or(usize::MAX));
        hidden.saturating_add(line.starts_hunk.into())
    };
    let count = lines(section).map(hunks_of).sum();
    let wanted =
        |number: &usize| hunks.iter().any(|(path, numbers)| is_at(file, path) && numbers.contains(number));
    (1..=count).filter(|number| !wanted(number)).collect()
}
