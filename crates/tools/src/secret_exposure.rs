//! Rejects edits that would expose a secret: by removing the text by which the redactor recognises it, or by copying the
//! secret to where it is not recognised. The agent could then read it in the diff without any approval.
//!
//! Not here: finding and masking secrets, which is `vambrace_workspace::SecretFinder` for every tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use vambrace_core::change::FileChange;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_core::redacted::{RedactError, SecretSpan};
use vambrace_workspace::{Draft, EditError, EditOperation, EditRequest, MatchMode, SecretFinder};

use crate::new_secrets::{changed_regions, splice_range};
use crate::tool::ToolContext;

/// Rejects edits after which a secret of the file, or a part of it, is still there but no longer detected.
pub(crate) fn check(draft: &Draft, finder: &SecretFinder) -> Result<(), CallError> {
    for (file, base) in draft.changes.files().iter().zip(&draft.bases) {
        check_file(file, base, finder)?;
    }
    Ok(())
}

fn check_file(file: &FileChange, base: &[u8], finder: &SecretFinder) -> Result<(), CallError> {
    let Some(after) = file.after().filter(|after| !after.splices.is_empty()) else { return Ok(()) };
    // Per placeholder: occurrences that would no longer be detected, and the offset of one that is not removed as a whole.
    let mut lost: BTreeMap<String, (i64, Option<usize>)> = BTreeMap::new();
    for region in changed_regions(base, &after.splices) {
        for SecretSpan { span, placeholder } in finder.find(region.old_text(base)).map_err(failed)?.iter() {
            let (start, end) = (region.span.start + span.start, region.span.start + span.end);
            let removed =
                region.splices.iter().map(splice_range).any(|cut| cut.start <= start && end <= cut.end);
            let (count, stays) = lost.entry(placeholder.clone()).or_default();
            if !removed {
                *count += 1;
                stays.get_or_insert(start);
            }
        }
        for SecretSpan { placeholder, .. } in finder.find(&region.new_text(base)).map_err(failed)?.iter() {
            lost.entry(placeholder.clone()).or_default().0 -= 1;
        }
    }
    match lost.values().find_map(|(count, stays)| stays.filter(|_| *count > 0)) {
        Some(at) => Err(exposure_error(base, at, &after.path.to_string())),
        None => Ok(()),
    }
}

/// Rejects edits whose content refers to parts of their match if the match contains a secret. `matched` drafts the removal
/// of what an edit matches.
pub(crate) fn check_copies(
    base: &[u8],
    edits: &[EditRequest],
    matched: impl Fn(&EditRequest) -> Result<Draft, EditError>,
    finder: &SecretFinder,
) -> Result<(), CallError> {
    let mut copying = edits.iter().filter(|edit| copies(edit)).peekable();
    if copying.peek().is_none() {
        return Ok(());
    }
    let secrets = finder.find(base).map_err(failed)?;
    if secrets.is_empty() {
        return Ok(());
    }
    for edit in copying {
        let draft = matched(edit)?;
        for file in draft.changes.files() {
            for splice in file.after().iter().flat_map(|after| &after.splices) {
                let cut = splice_range(splice);
                let met = secrets.iter().find(|met| met.span.start < cut.end && cut.start < met.span.end);
                if let Some(met) = met {
                    return Err(exposure_error(base, met.span.start, &file.path().to_string()));
                }
            }
        }
    }
    Ok(())
}

/// Whether the content copies text from the file: it refers to a group or a variable.
fn copies(edit: &EditRequest) -> bool {
    let takes = match edit.match_mode {
        MatchMode::Exact => false,
        MatchMode::Regex => edit.content.replace("$$", "").contains(['$', '\\']),
        MatchMode::Ast => edit.content.contains('$'),
    };
    takes && edit.operation != EditOperation::Delete
}

/// The error of a draft without the lines of the file that contain a secret: the redactor would not detect a secret
/// that has lost its context, is truncated, or has its whitespace made visible.
pub(crate) fn without_secret_lines(mut fault: EditError, context: &ToolContext) -> CallError {
    let secret = |path: &str| -> Result<Vec<(u64, u64)>, CallError> {
        let path = AskedPath::new(path).parse()?;
        let base = context.workspace.content(&path, &context.changes.limits)?;
        let line =
            |at: usize| memchr::memchr_iter(b'\n', base.get(..at).unwrap_or_default()).count() as u64 + 1;
        let secrets = secret_finder(context).find(&base).map_err(failed)?;
        Ok(secrets.iter().map(|secret| (line(secret.span.start), line(secret.span.end))).collect())
    };
    // If detection fails, no line is shown.
    let lines = |path: &str| secret(path).unwrap_or_else(|_| vec![(0, u64::MAX)]);
    if let EditError::MatchCount { path, matches, near, .. } = &mut fault
        && !(matches.is_empty() && near.is_empty())
    {
        let lines = lines(path);
        let meets = |from: u64, to: u64| lines.iter().any(|(first, last)| *first <= to && from <= *last);
        for found in matches.iter_mut().filter(|found| meets(found.line, found.line)) {
            found.text = "(a secret)".to_owned();
        }
        near.retain(|near| !meets(near.line, near.end_line));
    }
    fault.into()
}

/// The secret finder of every tool.
pub(crate) fn secret_finder(context: &ToolContext) -> SecretFinder {
    SecretFinder::new(Arc::clone(&context.changes.redactor))
}

fn exposure_error(base: &[u8], at: usize, path: &str) -> CallError {
    let line = memchr::memchr_iter(b'\n', base.get(..at).unwrap_or_default()).count() + 1;
    let why = format!(
        "line {line} of `{path}` contains a secret that would be exposed: the edit changes the text that identifies it, or copies parts of it"
    );
    CallError::new(ErrorCode::SecretInContent, why)
        .suggest("edit around the secret, or remove it as a whole without `$1` or `$NAME`")
}

pub(crate) fn failed(error: RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
