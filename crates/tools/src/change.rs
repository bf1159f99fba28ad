//! What the tools that change files have in common: a draft of the Loom becomes a plan, and a started plan is applied.
//! Planning reads only; the checks are made again under locks right before the start is recorded.

use serde_json::{Value, json};
use vambrace_core::change::{ChangeSet, FileChange, Kind};
use vambrace_core::digest::Digest;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{Applied, Draft, Note, Overdue, Prepared as Locked, WriteMode, diff};

use crate::fresh;
use crate::tool::{Output, Prepared, Room, Touched, Weight, Work};

/// The payload of every tool that changes files.
pub(crate) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "applied": {"type": "boolean", "description": "Whether the files are changed now; false while a person decides."},
            "summary": {"type": "string"},
            "files": {"type": "array", "items": {"type": "object", "properties": {
                "path": {"type": "string"}, "kind": {"enum": ["create", "modify", "delete", "rename", "mode"]},
                "before_hash": {"type": ["string", "null"]}, "after_hash": {"type": ["string", "null"]},
            }}},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
    })
}

/// A plan that would make the drafted change; of a draft that changes nothing, one that does nothing.
pub(crate) fn planned(room: &Room, asked: Option<ScopedPath>, draft: Draft) -> Result<Prepared, CallError> {
    let first = draft.changes.files().first().map(|file| file.path().clone());
    let path = first.or(asked);
    if draft.changes.is_empty() {
        return Ok(Prepared {
            effects: path.iter().cloned().map(Effect::read).collect(),
            risk: Risk::low("everything is already as asked"),
            path,
            weight: Weight::Light,
            work: Box::new(AsAsked),
        });
    }
    for file in draft.changes.files() {
        check_size(room, file)?;
    }
    fresh::check(&draft.diff, &*room.changes.redactor)?;
    Ok(Prepared {
        effects: draft.changes.effects(),
        risk: risk(&draft.changes),
        path,
        weight: Weight::Heavy,
        work: Box::new(Change { draft, locked: None }),
    })
}

/// B4: what is new of one file.
fn check_size(room: &Room, file: &FileChange) -> Result<(), CallError> {
    let new: u64 =
        file.after().iter().flat_map(|after| &after.splices).map(|splice| splice.insert.len() as u64).sum();
    let cap = room.changes.limits.write_bytes;
    if new > cap {
        let why = format!("the new content of `{}` has {new} bytes, over the cap of {cap}", file.path());
        return Err(CallError::new(ErrorCode::TooLarge, why).suggest("change the file in smaller parts"));
    }
    Ok(())
}

/// What the names do not tell: a file that is, or becomes, a program.
fn risk(changes: &ChangeSet) -> Risk {
    let runs = |bits: u32| bits & 0o111 != 0;
    for file in changes.files() {
        let is = file.before().is_some_and(|before| runs(before.mode));
        let becomes = file.after().and_then(|after| after.mode).is_some_and(runs);
        if (is || becomes) && file.kind() != Kind::Delete {
            return Risk::high(format!("`{}` is a program", file.path()));
        }
    }
    Risk::low("only names were looked at")
}

/// A draft that waits for its start.
struct Change {
    draft: Draft,
    /// Checked and locked.
    locked: Option<Locked>,
}

impl Work for Change {
    fn change(&self) -> Option<&Draft> {
        Some(&self.draft)
    }

    fn ready(&mut self, room: &Room, fence: &Fence) -> Result<Option<ChangeSet>, CallError> {
        for effect in self.draft.changes.effects() {
            if let Some(path) = effect.path().filter(|path| !fence.write.admits(path)) {
                let why = format!("`{path}` is outside what this call may change");
                return Err(CallError::new(ErrorCode::PermissionDenied, why));
            }
        }
        let applier =
            room.changes.applier.as_ref().ok_or_else(|| {
                CallError::new(ErrorCode::PermissionDenied, "nothing can be changed from here")
            })?;
        let locked = applier.prepare(&self.draft.changes)?;
        let back = locked.reverse().cloned();
        self.locked = Some(locked);
        Ok(back)
    }

    fn run(self: Box<Self>, _: &Room, _: &Fence, started: &StartReceipt) -> Result<Output, CallError> {
        let locked = self
            .locked
            .ok_or_else(|| CallError::new(ErrorCode::Internal, "the change was not made ready"))?;
        let tag = started.call().map(ToString::to_string).unwrap_or_default();
        let waited = locked.overdue().iter().map(late).collect();
        let applied = locked.commit(&tag)?;
        let mut output = output(&self.draft, applied);
        output.touched.warnings = waited;
        Ok(output)
    }
}

/// T9: somebody held a file for too long.
fn late(late: &Overdue) -> String {
    let Overdue { path, holder } = late;
    let ended = if holder.ended { "; it was a worker of ours and was ended" } else { "" };
    format!("process {} held `{path}` for {} s{ended}", holder.process, holder.held.as_secs())
}

fn output(draft: &Draft, applied: Applied) -> Output {
    let first = applied.files.first();
    let details = json!({
        "path": first.map(|file| file.path.to_string()),
        "created": draft.changes.files().first().is_some_and(|file| file.kind() == Kind::Create),
        "before_hash": first.and_then(|file| file.before_hash).map(|hash| hash.to_string()),
        "after_hash": first.and_then(|file| file.after_hash).map(|hash| hash.to_string()),
    });
    Output {
        data: payload(draft, true),
        details,
        text: Some(format!("applied: {}", draft.changes.summary())),
        note: None,
        provenance: Provenance::Broker,
        truncated: false,
        touched: Touched { files: applied.files, ..Touched::default() },
    }
}

/// What a caller is told of a change, made or proposed.
#[must_use]
pub fn payload(draft: &Draft, applied: bool) -> Value {
    let files: Vec<Value> = draft.changes.files().iter().map(file).collect();
    json!({
        "applied": applied, "summary": draft.changes.summary(), "files": files,
        "notes": draft.notes.iter().filter_map(note).collect::<Vec<_>>(),
    })
}

fn file(file: &FileChange) -> Value {
    let kind = match file.kind() {
        Kind::Create => "create",
        Kind::Modify => "modify",
        Kind::Delete => "delete",
        Kind::Rename => "rename",
        Kind::Mode => "mode",
    };
    json!({
        "path": file.after().map_or(file.path(), |after| &after.path).to_string(), "kind": kind,
        "before_hash": file.before().map(|before| before.hash.to_string()),
        "after_hash": file.after().map(|after| after.hash.to_string()),
    })
}

fn note(note: &Note) -> Option<String> {
    match note {
        Note::Moved { path, hunk, lines } => {
            Some(format!("hunk {hunk} of `{path}` was found {lines} lines away"))
        }
        Note::Parse { path, report } => report.worse().then(|| {
            format!(
                "`{path}` parses worse than before: {} places instead of {}",
                report.errors_after, report.errors_before
            )
        }),
    }
}

/// Nothing to do.
struct AsAsked;

impl Work for AsAsked {
    fn run(self: Box<Self>, _: &Room, _: &Fence, _: &StartReceipt) -> Result<Output, CallError> {
        Ok(Output {
            data: json!({"applied": false, "summary": "NOTHING", "files": [], "notes": ["everything is already as asked"]}),
            details: json!({}),
            text: Some("nothing to change: everything is already as asked".to_owned()),
            note: None,
            provenance: Provenance::Broker,
            truncated: false,
            touched: Touched::default(),
        })
    }
}

/// The plan that undoes a change. What comes back was there before, so it is not looked through for secrets.
pub fn undo(room: &Room, back: ChangeSet) -> Result<Prepared, CallError> {
    let mut bases = Vec::new();
    for file in back.files() {
        let base = match file.before() {
            Some(_) => room.workspace.content(file.path(), &room.changes.limits).map_err(|fault| {
                CallError::new(ErrorCode::StaleBase, fault.to_string())
                    .suggest("the file is not what the change made of it: look at it, and undo by hand")
            })?,
            None => Default::default(),
        };
        if file.before().is_some_and(|before| Digest::of(&base) != before.hash) {
            let why = format!("`{}` was changed since: it is not what the change made of it", file.path());
            return Err(CallError::new(ErrorCode::StaleBase, why)
                .suggest("look at the file, and undo by hand what is not wanted"));
        }
        bases.push((file.path().clone(), base));
    }
    let base_of = |file: &FileChange| {
        bases.iter().find(|(path, _)| path == file.path()).map(|(_, base)| base.as_slice())
    };
    let diff = diff::of_changes(&back, base_of).map_err(vambrace_core::change::BadChange::from)?;
    let path = back.files().first().map(|file| file.path().clone());
    Ok(Prepared {
        effects: back.effects(),
        risk: risk(&back),
        path,
        weight: Weight::Heavy,
        work: Box::new(Change { draft: Draft { changes: back, diff, notes: Vec::new() }, locked: None }),
    })
}

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
        Part::Files(paths) => kept(draft, |file| paths.iter().any(|path| is_at(file, path))),
        Part::Hunks(hunks) => {
            room.workspace.draft_patch(&picked(&draft.diff, hunks)?, &room.changes.limits)?
        }
        Part::Edited(edits) => edited(room, draft, edits)?,
    };
    if amended.changes.is_empty() {
        return Err(usage("nothing is left of the proposal".to_owned())
            .suggest("reject the proposal, with a reason, when nothing of it is wanted"));
    }
    planned(room, None, amended)
}

fn is_at(file: &FileChange, path: &str) -> bool {
    let asked = AskedPath::new(path).parse().ok();
    [Some(file.path()), file.after().map(|after| &after.path)]
        .into_iter()
        .flatten()
        .any(|own| asked.as_ref() == Some(own))
}

fn kept(draft: &Draft, wanted: impl Fn(&FileChange) -> bool) -> Draft {
    let changes = draft.changes.only(wanted);
    let sections = sections(&draft.diff);
    let mut diff = Vec::new();
    for (file, section) in draft.changes.files().iter().zip(&sections) {
        if changes.files().contains(file) {
            diff.extend_from_slice(section);
        }
    }
    Draft { changes, diff, notes: draft.notes.clone() }
}

/// The other content for some files; the rest stays as proposed.
fn edited(room: &Room, draft: &Draft, edits: &[(String, Vec<u8>)]) -> Result<Draft, CallError> {
    let mut all = kept(draft, |file| !edits.iter().any(|(path, _)| is_at(file, path)));
    let mut files = all.changes.files().to_vec();
    for (path, content) in edits {
        let own = draft.changes.files().iter().find(|file| is_at(file, path));
        if own.is_some_and(|file| matches!(file.kind(), Kind::Delete | Kind::Rename | Kind::Mode)) {
            let why = format!("`{path}` gets no new content in this proposal, so there is none to edit");
            return Err(CallError::new(ErrorCode::InvalidArguments, why));
        }
        let base = own.and_then(|file| file.before()).map(|before| before.hash);
        let place = AskedPath::new(path.as_str()).parse()?;
        let one =
            room.workspace.draft_write(&place, content, WriteMode::Write, base, &room.changes.limits)?;
        files.extend(one.changes.files().iter().cloned());
        all.diff.extend_from_slice(&one.diff);
    }
    all.changes = ChangeSet::new(files)?;
    Ok(all)
}

/// The diff of each file, in order.
fn sections(diff: &[u8]) -> Vec<Vec<u8>> {
    let mut sections: Vec<Vec<u8>> = Vec::new();
    for line in fresh::lines(diff) {
        if line.starts_section || sections.is_empty() {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.extend_from_slice(line.text);
        }
    }
    sections
}

/// A patch of some hunks of some files.
fn picked(diff: &[u8], hunks: &[(String, Vec<usize>)]) -> Result<Vec<u8>, CallError> {
    let mut out = Vec::new();
    for section in sections(diff) {
        let path = fresh::new_path(&section).unwrap_or_default();
        let Some((_, wanted)) = hunks.iter().find(|(asked, _)| *asked == path) else { continue };
        let (mut number, mut most) = (0, 0);
        for line in fresh::lines(&section) {
            if line.starts_hunk {
                number += 1;
                most = number;
            }
            if number == 0 || wanted.contains(&number) {
                out.extend_from_slice(line.text);
            }
        }
        if let Some(beyond) = wanted.iter().find(|number| **number == 0 || **number > most) {
            let why = format!("`{path}` has {most} hunks, there is no hunk {beyond}");
            return Err(CallError::new(ErrorCode::InvalidArguments, why));
        }
    }
    Ok(out)
}
