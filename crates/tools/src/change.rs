//! Common code of the tools that change files: a draft of the edit engine becomes a plan, and a started plan is applied.
//! Planning only reads; the checks are repeated under locks right before the start is recorded.

use serde_json::{Value, json};
use vambrace_core::change::{ChangeSet, FileChange, FileChangeKind};
use vambrace_core::digest::Digest;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::path::ScopedPath;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::Risk;
use vambrace_store::StartReceipt;
use vambrace_workspace::{Applied, Draft, DraftNote, OverdueLock, PreparedChange, diff};

use crate::amendment_report::AmendmentReport;
use crate::new_secrets;
use crate::secret_exposure::secret_finder;
use crate::tool::{ToolContext, ToolOutput, ToolPlan, ToolWork, TouchedFiles, Weight};

/// The payload of every tool that changes files.
pub(crate) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "applied": {"type": "boolean", "description": "Whether the files are changed now; false while approval is pending."},
            "as_proposed": {"type": "boolean", "description": "False when the user approved only a part, or other content: read the files again."},
            "summary": {"type": "string"},
            "files": {"type": "array", "items": {"type": "object", "properties": {
                "path": {"type": "string"}, "kind": {"enum": ["create", "modify", "delete", "rename", "mode"]},
                "before_hash": {"type": ["string", "null"]}, "after_hash": {"type": ["string", "null"]},
                "as_proposed": {"type": "boolean"},
            }}},
            "not_applied": {"type": "array", "items": {"type": "object", "properties": {
                "path": {"type": "string"}, "hunks": {"type": "array", "items": {"type": "integer"}},
            }}},
            "diff": {"type": "string", "description": "The applied change, if it is not the proposed one."},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
    })
}

/// The plan of a drafted change; for an empty draft, a plan that does nothing.
pub(crate) fn plan_change(
    context: &ToolContext,
    asked: Option<ScopedPath>,
    draft: Draft,
) -> Result<ToolPlan, CallError> {
    plan_amended_change(context, asked, draft, None)
}

/// Like [`plan_change`], for a change that the user approved with amendments.
pub(crate) fn plan_amended_change(
    context: &ToolContext,
    asked: Option<ScopedPath>,
    draft: Draft,
    report: Option<AmendmentReport>,
) -> Result<ToolPlan, CallError> {
    let first = draft.changes.files().first().map(|file| file.path().clone());
    let path = first.or(asked);
    if draft.changes.is_empty() {
        return Ok(ToolPlan {
            effects: path.iter().cloned().map(Effect::read).collect(),
            risk: Risk::low("the files are already as requested"),
            path,
            weight: Weight::Light,
            work: Box::new(NoChangeWork),
        });
    }
    for file in draft.changes.files() {
        check_size(context, file)?;
        check_text(file)?;
    }
    if draft.bases.len() != draft.changes.files().len() {
        return Err(CallError::new(ErrorCode::Internal, "the draft lacks base content"));
    }
    let finder = secret_finder(context);
    for (file, base) in draft.changes.files().iter().zip(&draft.bases) {
        new_secrets::check(file, base, &finder)?;
    }
    Ok(ToolPlan {
        effects: draft.changes.effects(),
        risk: risk(&draft.changes),
        path,
        weight: Weight::Heavy,
        work: Box::new(FileChangeWork { draft, prepared: None, report }),
    })
}

/// B4: limits the new content of one file.
fn check_size(context: &ToolContext, file: &FileChange) -> Result<(), CallError> {
    let new: u64 =
        file.after().iter().flat_map(|after| &after.splices).map(|splice| splice.insert.len() as u64).sum();
    let cap = context.changes.limits.write_bytes;
    if new > cap {
        let why = format!("the new content of `{}` has {new} bytes, over the cap of {cap}", file.path());
        return Err(CallError::new(ErrorCode::TooLarge, why).suggest("change the file in smaller parts"));
    }
    Ok(())
}

/// Only text is written: a diff does not show binary content, so an approver could not review it.
fn check_text(file: &FileChange) -> Result<(), CallError> {
    let mut new = file.after().into_iter().flat_map(|after| &after.splices);
    if new.any(|splice| memchr::memchr(0, &splice.insert).is_some()) {
        let why =
            format!("the new content of `{}` contains a NUL byte; only text can be written", file.path());
        return Err(CallError::new(ErrorCode::BinaryFile, why).suggest("write text without NUL bytes"));
    }
    Ok(())
}

/// High risk for a file that is or becomes executable; policy rates the paths.
fn risk(changes: &ChangeSet) -> Risk {
    let runs = |bits: u32| bits & 0o111 != 0;
    for file in changes.files() {
        let is = file.before().is_some_and(|before| runs(before.mode));
        let becomes = file.after().and_then(|after| after.mode).is_some_and(runs);
        if (is || becomes) && file.kind() != FileChangeKind::Delete {
            return Risk::high(format!("`{}` is executable", file.path()));
        }
    }
    Risk::low("changes no executable file")
}

/// A drafted change that is not started yet.
struct FileChangeWork {
    draft: Draft,
    /// Set by `ready`: the checked change, with its locks.
    prepared: Option<PreparedChange>,
    /// How it differs from the proposal.
    report: Option<AmendmentReport>,
}

impl ToolWork for FileChangeWork {
    fn change(&self) -> Option<&Draft> {
        Some(&self.draft)
    }

    fn ready(&mut self, context: &ToolContext, fence: &Fence) -> Result<Option<ChangeSet>, CallError> {
        for effect in self.draft.changes.effects() {
            if let Some(path) = effect.path().filter(|path| !fence.write.admits(path)) {
                let why = format!("this call is not allowed to change `{path}`");
                return Err(CallError::new(ErrorCode::PermissionDenied, why));
            }
        }
        let applier = context
            .changes
            .applier
            .as_ref()
            .ok_or_else(|| CallError::new(ErrorCode::PermissionDenied, "files are read-only here"))?;
        let prepared = applier.prepare(&self.draft.changes)?;
        let reverse = prepared.reverse().cloned();
        self.prepared = Some(prepared);
        Ok(reverse)
    }

    fn run(
        self: Box<Self>,
        _: &ToolContext,
        _: &Fence,
        started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let prepared = self
            .prepared
            .ok_or_else(|| CallError::new(ErrorCode::Internal, "the change was not prepared"))?;
        let tag = started.call().map(ToString::to_string).unwrap_or_default();
        let waited = prepared.overdue().iter().map(overdue_warning).collect();
        let applied = prepared.commit(&tag)?;
        let mut output = output(&self.draft, self.report.as_ref(), applied);
        output.touched.warnings = waited;
        Ok(output)
    }
}

/// T9: a process held a lock for too long.
fn overdue_warning(lock: &OverdueLock) -> String {
    let OverdueLock { path, holder } = lock;
    let ended = if holder.ended { "; it was a worker process and was killed" } else { "" };
    format!("process {} held the lock of `{path}` for {} s{ended}", holder.process, holder.held.as_secs())
}

fn output(draft: &Draft, report: Option<&AmendmentReport>, applied: Applied) -> ToolOutput {
    let first = applied.files.first();
    let details = json!({
        "path": first.map(|file| file.path.to_string()),
        "created": draft.changes.files().first().is_some_and(|file| file.kind() == FileChangeKind::Create),
        "before_hash": first.and_then(|file| file.before_hash).map(|hash| hash.to_string()),
        "after_hash": first.and_then(|file| file.after_hash).map(|hash| hash.to_string()),
    });
    let mut data = change_payload(draft, true);
    let text = match report {
        Some(report) => report.add_to_payload(draft, &mut data),
        None => {
            if let Some(fields) = data.as_object_mut() {
                fields.insert("as_proposed".to_owned(), true.into());
            }
            format!("applied: {}", draft.changes.summary())
        }
    };
    ToolOutput {
        data,
        details,
        text: Some(text),
        note: None,
        provenance: Provenance::Broker,
        truncated: false,
        touched: TouchedFiles { files: applied.files, ..TouchedFiles::default() },
    }
}

/// The payload about a change, applied or proposed.
#[must_use]
pub fn change_payload(draft: &Draft, applied: bool) -> Value {
    json!({
        "applied": applied, "summary": draft.changes.summary(), "files": changed_files(&draft.changes),
        "notes": draft.notes.iter().filter_map(note_text).collect::<Vec<_>>(),
    })
}

/// The payload about the files of a change.
#[must_use]
pub fn changed_files(changes: &ChangeSet) -> Vec<Value> {
    changes.files().iter().map(file).collect()
}

fn file(file: &FileChange) -> Value {
    let kind = match file.kind() {
        FileChangeKind::Create => "create",
        FileChangeKind::Modify => "modify",
        FileChangeKind::Delete => "delete",
        FileChangeKind::Rename => "rename",
        FileChangeKind::Mode => "mode",
    };
    json!({
        "path": file.after().map_or(file.path(), |after| &after.path).to_string(), "kind": kind,
        "before_hash": file.before().map(|before| before.hash.to_string()),
        "after_hash": file.after().map(|after| after.hash.to_string()),
    })
}

fn note_text(note: &DraftNote) -> Option<String> {
    match note {
        DraftNote::Moved { path, hunk, lines } => {
            Some(format!("hunk {hunk} of `{path}` matched {lines} lines away from the stated line"))
        }
        DraftNote::Parse { path, report } => report.worse().then(|| {
            format!(
                "`{path}` has more syntax errors than before: {} instead of {}",
                report.errors_after, report.errors_before
            )
        }),
    }
}

/// The files are already as requested.
struct NoChangeWork;

impl ToolWork for NoChangeWork {
    fn run(self: Box<Self>, _: &ToolContext, _: &Fence, _: &StartReceipt) -> Result<ToolOutput, CallError> {
        Ok(ToolOutput {
            data: json!({"applied": false, "summary": "NOTHING", "files": [], "notes": ["the files are already as requested"]}),
            details: json!({}),
            text: Some("nothing to change: the files are already as requested".to_owned()),
            note: None,
            provenance: Provenance::Broker,
            truncated: false,
            touched: TouchedFiles::default(),
        })
    }
}

/// The plan that rolls back a change. The restored content was there before, so it is not checked for new secrets.
pub fn plan_undo(context: &ToolContext, reverse: ChangeSet) -> Result<ToolPlan, CallError> {
    let draft = draft_of(context, reverse).map_err(|error| {
        error.suggest("it changed after the change was applied: review it and undo by hand")
    })?;
    Ok(plan_draft(draft))
}

/// The plan that applies what a program changed over its overlay.
pub fn plan_held_change(context: &ToolContext, changes: ChangeSet) -> Result<ToolPlan, CallError> {
    let draft = draft_of(context, changes)
        .map_err(|error| error.suggest("it changed since the program ran: run the program again"))?;
    let finder = secret_finder(context);
    for (file, base) in draft.changes.files().iter().zip(&draft.bases) {
        new_secrets::check(file, base, &finder)?;
    }
    Ok(plan_draft(draft))
}

/// The draft of a finished change, over the files as they are now.
fn draft_of(context: &ToolContext, changes: ChangeSet) -> Result<Draft, CallError> {
    let stale = |why: String| CallError::new(ErrorCode::StaleBase, why);
    let mut bases = Vec::new();
    for file in changes.files() {
        let base = match file.before() {
            Some(_) => context
                .workspace
                .content(file.path(), &context.changes.limits)
                .map_err(|fault| stale(fault.to_string()))?,
            None => Default::default(),
        };
        if file.before().is_some_and(|before| Digest::of(&base) != before.hash) {
            return Err(stale(format!("`{}` was changed meanwhile", file.path())));
        }
        bases.push(base);
    }
    let base_of = |file: &FileChange| {
        let own = changes.files().iter().zip(&bases).find(|(own, _)| own.path() == file.path());
        own.map(|(_, base)| base.as_slice())
    };
    let diff = diff::of_changes(&changes, base_of, diff::DiffDetail::RunEnds)
        .map_err(vambrace_core::change::BadChange::from)?;
    Ok(Draft { changes, diff, notes: Vec::new(), bases })
}

fn plan_draft(draft: Draft) -> ToolPlan {
    ToolPlan {
        effects: draft.changes.effects(),
        risk: risk(&draft.changes),
        path: draft.changes.files().first().map(|file| file.path().clone()),
        weight: Weight::Heavy,
        work: Box::new(FileChangeWork { draft, prepared: None, report: None }),
    }
}
