//! A secret laid bare: an edit that takes away the words by which the redactor knows a secret, and leaves the secret, or
//! that copies it to where nothing tells. Whoever made the edit would read it in the diff, without anybody's yes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use vambrace_core::change::FileChange;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_core::redacted::{Redact, RedactError, Secret};
use vambrace_workspace::{Draft, EditRequest, LoomFault, MatchMode, Operation, SecretFinder};

use crate::fresh::{bounds, places};
use crate::tool::Room;

/// Refuses edits after which a secret of the file is still there, or a piece of it, and no longer known for one.
pub(crate) fn check(draft: &Draft, redactor: &dyn Redact) -> Result<(), CallError> {
    for (file, base) in draft.changes.files().iter().zip(&draft.bases) {
        check_file(file, base, redactor)?;
    }
    Ok(())
}

fn check_file(file: &FileChange, base: &[u8], redactor: &dyn Redact) -> Result<(), CallError> {
    let Some(after) = file.after().filter(|after| !after.splices.is_empty()) else { return Ok(()) };
    // Each mark: how often it stands there and will not, and where one is that is not taken away as a whole.
    let mut lost: BTreeMap<String, (i64, Option<usize>)> = BTreeMap::new();
    for place in places(base, &after.splices) {
        let was = same_size(base.get(place.span.clone()).unwrap_or_default());
        let secrets = redactor.secrets(&was).map_err(failed)?;
        for Secret { span, mark } in secrets {
            let (start, end) = (place.span.start + span.start, place.span.start + span.end);
            let gone = place.splices.iter().any(|splice| {
                let (from, to) = bounds(splice);
                from <= start && end <= to
            });
            let (count, stays) = lost.entry(mark).or_default();
            if !gone {
                *count += 1;
                stays.get_or_insert(start);
            }
        }
        for Secret { mark, .. } in redactor.secrets(&same_size(&place.new_text(base))).map_err(failed)? {
            lost.entry(mark).or_default().0 -= 1;
        }
    }
    match lost.values().find_map(|(count, stays)| stays.filter(|_| *count > 0)) {
        Some(at) => Err(refused(base, at, &after.path.to_string())),
        None => Ok(()),
    }
}

/// Refuses edits whose content names parts of what they match, where that holds a secret. `matched` drafts the removal of
/// what an edit matches.
pub(crate) fn check_copies(
    base: &[u8],
    edits: &[EditRequest],
    matched: impl Fn(&EditRequest) -> Result<Draft, LoomFault>,
    redactor: &dyn Redact,
) -> Result<(), CallError> {
    let mut copying = edits.iter().filter(|edit| copies(edit)).peekable();
    if copying.peek().is_none() {
        return Ok(());
    }
    let secrets = redactor.secrets(&same_size(base)).map_err(failed)?;
    if secrets.is_empty() {
        return Ok(());
    }
    for edit in copying {
        let draft = matched(edit)?;
        for file in draft.changes.files() {
            for splice in file.after().iter().flat_map(|after| &after.splices) {
                let (from, to) = bounds(splice);
                if let Some(met) = secrets.iter().find(|met| met.span.start < to && from < met.span.end) {
                    return Err(refused(base, met.span.start, &file.path().to_string()));
                }
            }
        }
    }
    Ok(())
}

/// Whether the content takes something from the file: a group or a variable.
fn copies(edit: &EditRequest) -> bool {
    let takes = match edit.match_mode {
        MatchMode::Exact => false,
        MatchMode::Regex => edit.content.replace("$$", "").contains(['$', '\\']),
        MatchMode::Ast => edit.content.contains('$'),
    };
    takes && edit.operation != Operation::Delete
}

/// Why there is no draft, without the lines of the file that hold a secret: alone, cut, or with blanks made visible it could
/// not be known for one.
pub(crate) fn told(mut fault: LoomFault, room: &Room) -> CallError {
    let secret = |path: &str| -> Result<Vec<(u64, u64)>, CallError> {
        let path = AskedPath::new(path).parse()?;
        let base = room.workspace.content(&path, &room.changes.limits)?;
        let line =
            |at: usize| memchr::memchr_iter(b'\n', base.get(..at).unwrap_or_default()).count() as u64 + 1;
        let secrets = room.changes.redactor.secrets(&same_size(&base)).map_err(failed)?;
        Ok(secrets.iter().map(|secret| (line(secret.span.start), line(secret.span.end))).collect())
    };
    // What cannot be looked at is not told.
    let lines = |path: &str| secret(path).unwrap_or_else(|_| vec![(0, u64::MAX)]);
    if let LoomFault::Count { path, places, near, .. } = &mut fault
        && !(places.is_empty() && near.is_empty())
    {
        let lines = lines(path);
        let meets = |from: u64, to: u64| lines.iter().any(|(first, last)| *first <= to && from <= *last);
        for place in places.iter_mut().filter(|place| meets(place.line, place.line)) {
            place.text = "(a secret)".to_owned();
        }
        near.retain(|near| !meets(near.line, near.end_line));
    }
    fault.into()
}

/// Where the secrets of a file stand, for drafting without looking at them.
pub(crate) fn spans(bytes: &[u8], redactor: &dyn Redact) -> Result<Vec<Range<usize>>, RedactError> {
    Ok(redactor.secrets(&same_size(bytes))?.into_iter().map(|secret| secret.span).collect())
}

/// Finds the secrets of what is read in part or searched.
pub(crate) fn finder(room: &Room) -> SecretFinder {
    let redactor = Arc::clone(&room.changes.redactor);
    SecretFinder::new(move |bytes| match str::from_utf8(bytes) {
        Ok(text) => redactor.secrets(text),
        Err(_) => redactor.secrets(&same_size(bytes)),
    })
}

/// A text in which every byte stands where it stood.
pub(crate) fn same_size(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1a}'));
    }
    text
}

fn refused(base: &[u8], at: usize, path: &str) -> CallError {
    let line = memchr::memchr_iter(b'\n', base.get(..at).unwrap_or_default()).count() + 1;
    let why = format!(
        "line {line} of `{path}` holds a secret that would no longer be known for one: what names it changes, or parts of it are copied"
    );
    CallError::new(ErrorCode::SecretInContent, why)
        .suggest("edit around the secret, or take it away as a whole without `$1` or `$NAME`")
}

fn failed(error: RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
