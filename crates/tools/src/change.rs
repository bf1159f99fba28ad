//! What the tools that change files have in common: a draft of the Loom becomes a plan, and a started plan is applied.
//! Planning reads only; the checks are made again under locks right before the start is recorded.

use serde_json::{Value, json};
use vambrace_core::change::{ChangeSet, FileChange, Kind};
use vambrace_core::digest::Digest;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::path::ScopedPath;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{Applied, Draft, Note, Overdue, Prepared as Locked, diff};

use crate::fresh;
use crate::instead::Instead;
use crate::tool::{Output, Prepared, Room, Touched, Weight, Work};

/// The payload of every tool that changes files.
pub(crate) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "applied": {"type": "boolean", "description": "Whether the files are changed now; false while a person decides."},
            "as_proposed": {"type": "boolean", "description": "False when a person agreed to a part only, or to other content: read the files again."},
            "summary": {"type": "string"},
            "files": {"type": "array", "items": {"type": "object", "properties": {
                "path": {"type": "string"}, "kind": {"enum": ["create", "modify", "delete", "rename", "mode"]},
                "before_hash": {"type": ["string", "null"]}, "after_hash": {"type": ["string", "null"]},
                "as_proposed": {"type": "boolean"},
            }}},
            "not_applied": {"type": "array", "items": {"type": "object", "properties": {
                "path": {"type": "string"}, "hunks": {"type": "array", "items": {"type": "integer"}},
            }}},
            "diff": {"type": "string", "description": "What was applied, where that is not what was proposed."},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
    })
}

/// A plan that would make the drafted change; of a draft that changes nothing, one that does nothing.
pub(crate) fn planned(room: &Room, asked: Option<ScopedPath>, draft: Draft) -> Result<Prepared, CallError> {
    planned_instead(room, asked, draft, None)
}

/// The same for what a person agreed to instead of the proposal.
pub(crate) fn planned_instead(
    room: &Room,
    asked: Option<ScopedPath>,
    draft: Draft,
    instead: Option<Instead>,
) -> Result<Prepared, CallError> {
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
        check_text(file)?;
    }
    if draft.bases.len() != draft.changes.files().len() {
        return Err(CallError::new(ErrorCode::Internal, "a draft without the content it starts from"));
    }
    for (file, base) in draft.changes.files().iter().zip(&draft.bases) {
        fresh::check(file, base, &*room.changes.redactor)?;
    }
    Ok(Prepared {
        effects: draft.changes.effects(),
        risk: risk(&draft.changes),
        path,
        weight: Weight::Heavy,
        work: Box::new(Change { draft, locked: None, instead }),
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

/// Only text is written: of anything else a diff says that it is there, and whoever agrees has seen nothing of it.
fn check_text(file: &FileChange) -> Result<(), CallError> {
    let mut new = file.after().into_iter().flat_map(|after| &after.splices);
    if new.any(|splice| memchr::memchr(0, &splice.insert).is_some()) {
        let why = format!("the new content of `{}` holds a NUL byte, and only text is written", file.path());
        return Err(CallError::new(ErrorCode::BinaryFile, why).suggest("write text"));
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
    /// How it differs from what was proposed.
    instead: Option<Instead>,
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
        let mut output = output(&self.draft, self.instead.as_ref(), applied);
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

fn output(draft: &Draft, instead: Option<&Instead>, applied: Applied) -> Output {
    let first = applied.files.first();
    let details = json!({
        "path": first.map(|file| file.path.to_string()),
        "created": draft.changes.files().first().is_some_and(|file| file.kind() == Kind::Create),
        "before_hash": first.and_then(|file| file.before_hash).map(|hash| hash.to_string()),
        "after_hash": first.and_then(|file| file.after_hash).map(|hash| hash.to_string()),
    });
    let mut data = payload(draft, true);
    let text = match instead {
        Some(instead) => instead.tell(draft, &mut data),
        None => {
            if let Some(fields) = data.as_object_mut() {
                fields.insert("as_proposed".to_owned(), true.into());
            }
            format!("applied: {}", draft.changes.summary())
        }
    };
    Output {
        data,
        details,
        text: Some(text),
        note: None,
        provenance: Provenance::Broker,
        truncated: false,
        touched: Touched { files: applied.files, ..Touched::default() },
    }
}

/// What a caller is told of a change, made or proposed.
#[must_use]
pub fn payload(draft: &Draft, applied: bool) -> Value {
    json!({
        "applied": applied, "summary": draft.changes.summary(), "files": files(&draft.changes),
        "notes": draft.notes.iter().filter_map(note).collect::<Vec<_>>(),
    })
}

/// What a caller is told of the files of a change.
#[must_use]
pub fn files(changes: &ChangeSet) -> Vec<Value> {
    changes.files().iter().map(file).collect()
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
        bases.push(base);
    }
    let base_of = |file: &FileChange| {
        let own = back.files().iter().zip(&bases).find(|(own, _)| own.path() == file.path());
        own.map(|(_, base)| base.as_slice())
    };
    let diff = diff::of_changes(&back, base_of, diff::Showing::Ends)
        .map_err(vambrace_core::change::BadChange::from)?;
    let path = back.files().first().map(|file| file.path().clone());
    Ok(Prepared {
        effects: back.effects(),
        risk: risk(&back),
        path,
        weight: Weight::Heavy,
        work: Box::new(Change {
            draft: Draft { changes: back, diff, notes: Vec::new(), bases },
            locked: None,
            instead: None,
        }),
    })
}
