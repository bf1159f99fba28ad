//! The part of a proposal that a person agrees to, or other content for its files: what comes out is a plan like any other
//! and goes through the same checks as the whole.

use std::sync::Arc;

use vambrace_core::change::{BadChange, ChangeSet, FileChange, Kind, Splice, Target};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_workspace::{Draft, WriteMode, diff};

use crate::change::planned_instead;
use crate::instead::Instead;
use crate::sections::{lines, sections};
use crate::tool::{Prepared, Room};

/// The part of a proposal that a person agrees to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// Only these files.
    Files(Vec<String>),
    /// Only these hunks of a file, from 1; its other files are left out.
    Hunks(Vec<(String, Vec<usize>)>),
    /// With other content for some files, by path.
    Edited(Vec<(String, Vec<u8>)>),
}

/// The plan for the part of a change that a person agreed to. It goes through the same checks as the whole.
pub fn amend(room: &Room, whole: Prepared, part: &Part) -> Result<Prepared, CallError> {
    let usage = |why: String| CallError::new(ErrorCode::InvalidArguments, why);
    if *part == Part::Whole {
        return Ok(whole);
    }
    let draft = whole
        .work
        .change()
        .ok_or_else(|| usage("only a change of files can be agreed to in part or with edits".to_owned()))?;
    let has = |path: &str| draft.changes.files().iter().any(|file| is_at(file, path));
    let named: Vec<&String> = match part {
        Part::Whole => Vec::new(),
        Part::Files(paths) => paths.iter().collect(),
        Part::Hunks(hunks) => hunks.iter().map(|(path, _)| path).collect(),
        Part::Edited(edits) => edits.iter().map(|(path, _)| path).collect(),
    };
    if let Some(stranger) = named.iter().find(|path| !has(path)) {
        return Err(usage(format!("`{stranger}` is not a file of this proposal"))
            .suggest("`vambrace proposals show ID` lists its files"));
    }
    let amended = match part {
        Part::Whole => return Ok(whole),
        Part::Files(paths) => kept(draft, |file| paths.iter().any(|path| is_at(file, path)))?,
        Part::Hunks(hunks) => room.workspace.draft_patch(&picked(draft, hunks)?, &room.changes.limits)?,
        Part::Edited(edits) => edited(room, draft, edits)?,
    };
    if amended.changes.is_empty() {
        return Err(usage("nothing is left of the proposal".to_owned())
            .suggest("reject the proposal, with a reason, when nothing of it is wanted"));
    }
    let instead = Instead::of(draft, &amended, part, &*room.changes.redactor)?;
    planned_instead(room, None, amended, instead)
}

pub(crate) fn is_at(file: &FileChange, path: &str) -> bool {
    let asked = AskedPath::new(path).parse().ok();
    [Some(file.path()), file.after().map(|after| &after.path)]
        .into_iter()
        .flatten()
        .any(|own| asked.as_ref() == Some(own))
}

/// A change with what the file holds now.
type Based = (FileChange, Arc<Vec<u8>>);

fn drafted(draft: &Draft, files: Vec<Based>) -> Result<Draft, CallError> {
    let changes = ChangeSet::new(files.iter().map(|(file, _)| file.clone()).collect())?;
    let own = |file: &FileChange| files.iter().find(|(own, _)| own.path() == file.path());
    let base = |file: &FileChange| own(file).map(|(_, base)| base.as_slice());
    let diff = diff::of_changes(&changes, base, diff::Showing::New).map_err(BadChange::from)?;
    let bases = changes.files().iter().filter_map(own).map(|(_, base)| Arc::clone(base)).collect();
    Ok(Draft { changes, diff, notes: draft.notes.clone(), bases })
}

fn based(draft: &Draft) -> impl Iterator<Item = Based> {
    draft.changes.files().iter().cloned().zip(draft.bases.iter().cloned())
}

fn kept(draft: &Draft, wanted: impl Fn(&FileChange) -> bool) -> Result<Draft, CallError> {
    drafted(draft, based(draft).filter(|(file, _)| wanted(file)).collect())
}

/// The other content for some files; the rest stays as proposed.
fn edited(room: &Room, draft: &Draft, edits: &[(String, Vec<u8>)]) -> Result<Draft, CallError> {
    let mut files = Vec::new();
    for (file, base) in based(draft) {
        let mut own = edits.iter().filter(|(path, _)| is_at(&file, path));
        let Some((path, content)) = own.next() else {
            files.push((file, base));
            continue;
        };
        let refuse = |why: &str| CallError::new(ErrorCode::InvalidArguments, format!("`{path}` {why}"));
        if own.next().is_some() {
            return Err(refuse("is given other content twice"));
        }
        match (file.kind(), file.before(), file.after()) {
            (Kind::Delete, ..) => {
                return Err(refuse("is deleted by this proposal; there is no content to edit"));
            }
            (Kind::Mode, ..) => {
                return Err(refuse("gets other permissions and no other content in this proposal"));
            }
            (_, Some(before), Some(after)) if after.path != *file.path() || after.mode.is_some() => {
                // The place and the permissions stay as proposed.
                let target = Target {
                    hash: Digest::of(content),
                    size: content.len() as u64,
                    splices: Splice::between(&base, content),
                    ..after.clone()
                };
                files.push((FileChange::modify(file.path().clone(), *before, target)?, base));
            }
            (_, before, _) => {
                let (expected, limits) = (before.map(|before| before.hash), &room.changes.limits);
                let one =
                    room.workspace.draft_write(file.path(), content, WriteMode::Write, expected, limits)?;
                files.extend(based(&one));
            }
        }
    }
    drafted(draft, files)
}

/// A patch of some hunks of some files.
fn picked(draft: &Draft, hunks: &[(String, Vec<usize>)]) -> Result<Vec<u8>, CallError> {
    let mut out = Vec::new();
    let base = |file: &FileChange| {
        let own = draft.changes.files().iter().zip(&draft.bases).find(|(own, _)| own.path() == file.path());
        own.map(|(_, base)| base.as_slice())
    };
    // With what the draft's own diff leaves out.
    let whole = diff::of_changes(&draft.changes, base, diff::Showing::Whole).map_err(BadChange::from)?;
    for (file, section) in draft.changes.files().iter().zip(sections(&whole)) {
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
