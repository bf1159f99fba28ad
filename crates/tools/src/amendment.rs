//! Amends a proposal: the user approves only a part of it, or other content for its files. The result is a plan that goes
//! through the same checks as the original.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use vambrace_core::change::{BadChange, ChangeSet, FileChange, FileChangeKind, Splice, TargetFile};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_workspace::{Draft, WriteMode, diff};

use crate::amendment_report::AmendmentReport;
use crate::change::plan_amended_change;
use crate::diff_sections::{lines, sections};
use crate::tool::{ToolContext, ToolPlan};

/// What the user approves of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amendment {
    /// All of it.
    Whole,
    /// Only these files.
    Files(Vec<String>),
    /// Only these hunks of these files, from 1.
    Hunks(Vec<(String, Vec<usize>)>),
    /// All of it, with other content for some files, by path.
    Edited(Vec<(String, Vec<u8>)>),
}

impl Amendment {
    /// As JSON, to be stored for the process that applies it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Whole => json!({"whole": true}),
            Self::Files(paths) => json!({"files": paths}),
            Self::Hunks(hunks) => json!({"hunks": hunks}),
            Self::Edited(edits) => {
                let edits: Vec<_> =
                    edits.iter().map(|(path, content)| (path, BASE64.encode(content))).collect();
                json!({"edited": edits})
            }
        }
    }

    /// Reads what [`Self::to_json`] returned.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let (key, inner) = value.as_object()?.iter().next()?;
        let inner = inner.clone();
        match key.as_str() {
            "whole" => Some(Self::Whole),
            "files" => serde_json::from_value(inner).ok().map(Self::Files),
            "hunks" => serde_json::from_value(inner).ok().map(Self::Hunks),
            "edited" => {
                let edits: Vec<(String, String)> = serde_json::from_value(inner).ok()?;
                let edits =
                    edits.into_iter().map(|(path, content)| Some((path, BASE64.decode(content).ok()?)));
                edits.collect::<Option<_>>().map(Self::Edited)
            }
            _ => None,
        }
    }
}

/// The plan for what the user approved. It goes through the same checks as the original plan.
pub fn amend(
    context: &ToolContext,
    proposed: ToolPlan,
    amendment: &Amendment,
) -> Result<ToolPlan, CallError> {
    let usage = |why: String| CallError::new(ErrorCode::InvalidArguments, why);
    if *amendment == Amendment::Whole {
        return Ok(proposed);
    }
    let draft = proposed
        .work
        .change()
        .ok_or_else(|| usage("only a file change can be approved in part or with edits".to_owned()))?;
    let has = |path: &str| draft.changes.files().iter().any(|file| is_at(file, path));
    let named: Vec<&String> = match amendment {
        Amendment::Whole => Vec::new(),
        Amendment::Files(paths) => paths.iter().collect(),
        Amendment::Hunks(hunks) => hunks.iter().map(|(path, _)| path).collect(),
        Amendment::Edited(edits) => edits.iter().map(|(path, _)| path).collect(),
    };
    if let Some(unknown) = named.iter().find(|path| !has(path)) {
        return Err(usage(format!("`{unknown}` is not a file of this proposal"))
            .suggest("`vambrace proposals show ID` lists its files"));
    }
    let amended = match amendment {
        Amendment::Whole => return Ok(proposed),
        Amendment::Files(paths) => only_files(draft, |file| paths.iter().any(|path| is_at(file, path)))?,
        Amendment::Hunks(hunks) => {
            context.workspace.draft_patch(&only_hunks(draft, hunks)?, &context.changes.limits)?
        }
        Amendment::Edited(edits) => with_edits(context, draft, edits)?,
    };
    if amended.changes.is_empty() {
        return Err(usage("nothing is left of the proposal".to_owned())
            .suggest("reject the proposal with a reason instead"));
    }
    let report = AmendmentReport::compare(draft, &amended, amendment, &context.changes.redactor)?;
    plan_amended_change(context, None, amended, report)
}

pub(crate) fn is_at(file: &FileChange, path: &str) -> bool {
    let asked = AskedPath::new(path).parse().ok();
    [Some(file.path()), file.after().map(|after| &after.path)]
        .into_iter()
        .flatten()
        .any(|own| asked.as_ref() == Some(own))
}

/// A change and its base content.
type BasedChange = (FileChange, Arc<Vec<u8>>);

fn draft_from(draft: &Draft, files: Vec<BasedChange>) -> Result<Draft, CallError> {
    let changes = ChangeSet::new(files.iter().map(|(file, _)| file.clone()).collect())?;
    let own = |file: &FileChange| files.iter().find(|(own, _)| own.path() == file.path());
    let base = |file: &FileChange| own(file).map(|(_, base)| base.as_slice());
    let diff = diff::of_changes(&changes, base, diff::DiffDetail::AllAdded).map_err(BadChange::from)?;
    let bases = changes.files().iter().filter_map(own).map(|(_, base)| Arc::clone(base)).collect();
    Ok(Draft { changes, diff, notes: draft.notes.clone(), bases })
}

fn with_bases(draft: &Draft) -> impl Iterator<Item = BasedChange> {
    draft.changes.files().iter().cloned().zip(draft.bases.iter().cloned())
}

fn only_files(draft: &Draft, wanted: impl Fn(&FileChange) -> bool) -> Result<Draft, CallError> {
    draft_from(draft, with_bases(draft).filter(|(file, _)| wanted(file)).collect())
}

/// A draft with other content for some files; the rest stays as proposed.
fn with_edits(context: &ToolContext, draft: &Draft, edits: &[(String, Vec<u8>)]) -> Result<Draft, CallError> {
    let mut files = Vec::new();
    for (file, base) in with_bases(draft) {
        let mut own = edits.iter().filter(|(path, _)| is_at(&file, path));
        let Some((path, content)) = own.next() else {
            files.push((file, base));
            continue;
        };
        let invalid = |why: &str| CallError::new(ErrorCode::InvalidArguments, format!("`{path}` {why}"));
        if own.next().is_some() {
            return Err(invalid("has other content twice"));
        }
        match (file.kind(), file.before(), file.after()) {
            (FileChangeKind::Delete, ..) => {
                return Err(invalid("is deleted by this proposal; there is no content to edit"));
            }
            (FileChangeKind::Mode, ..) => {
                return Err(invalid(
                    "only gets new permissions in this proposal; there is no content to edit",
                ));
            }
            (_, Some(before), Some(after)) if after.path != *file.path() || after.mode.is_some() => {
                // The path and the permissions stay as proposed.
                let target = TargetFile {
                    hash: Digest::of(content),
                    size: content.len() as u64,
                    splices: Splice::between(&base, content),
                    ..after.clone()
                };
                files.push((FileChange::modify(file.path().clone(), *before, target)?, base));
            }
            (_, before, _) => {
                let (expected, limits) = (before.map(|before| before.hash), &context.changes.limits);
                let one = context.workspace.draft_write(
                    file.path(),
                    content,
                    WriteMode::Write,
                    expected,
                    limits,
                )?;
                files.extend(with_bases(&one));
            }
        }
    }
    draft_from(draft, files)
}

/// A patch with only the given hunks.
fn only_hunks(draft: &Draft, hunks: &[(String, Vec<usize>)]) -> Result<Vec<u8>, CallError> {
    let mut out = Vec::new();
    let base = |file: &FileChange| {
        let own = draft.changes.files().iter().zip(&draft.bases).find(|(own, _)| own.path() == file.path());
        own.map(|(_, base)| base.as_slice())
    };
    // The draft's own diff omits long runs; this one is complete.
    let full_diff =
        diff::of_changes(&draft.changes, base, diff::DiffDetail::Full).map_err(BadChange::from)?;
    for (file, section) in draft.changes.files().iter().zip(sections(&full_diff)) {
        let mut own = hunks.iter().filter(|(path, _)| is_at(file, path)).peekable();
        if own.peek().is_none() {
            continue;
        }
        let wanted: Vec<usize> = own.flat_map(|(_, numbers)| numbers).copied().collect();
        let mut number = 0;
        for line in lines(&section) {
            number += usize::from(line.starts_hunk);
            if number == 0 || wanted.contains(&number) {
                out.extend_from_slice(line.text);
            }
        }
        if let Some(beyond) = wanted.iter().find(|wanted| **wanted == 0 || **wanted > number) {
            let why = format!("`{}` has {number} hunks, there is no hunk {beyond}", file.path());
            return Err(CallError::new(ErrorCode::InvalidArguments, why));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amendment_is_read_back_as_it_was_stored() {
        for amendment in [
            Amendment::Whole,
            Amendment::Files(vec!["a".to_owned(), "b \"c\"".to_owned()]),
            Amendment::Hunks(vec![("a".to_owned(), vec![1, 3]), ("b".to_owned(), vec![])]),
            Amendment::Edited(vec![("a".to_owned(), vec![0, 255, b'\n']), ("b".to_owned(), vec![])]),
        ] {
            let stored: Value = serde_json::from_str(&amendment.to_json().to_string()).unwrap();
            assert_eq!(Amendment::from_json(&stored), Some(amendment));
        }
        for damaged in
            [json!({}), json!([]), json!({"files": [1]}), json!({"edited": [["a", "%"]]}), json!({"x": 1})]
        {
            assert_eq!(Amendment::from_json(&damaged), None, "{damaged}");
        }
    }
}
