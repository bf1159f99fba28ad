//! A proposal: the question about a change. What is told of it, and its records (B2, B5).

use serde_json::{Value, json};
use vambrace_core::change::{FileChange, Kind};
use vambrace_core::digest::Digest;
use vambrace_core::error::CallError;
use vambrace_core::id::Id;
use vambrace_core::redacted::Redact;
use vambrace_ledger::{Op, Status};
use vambrace_store::{AskChange, Change, Entry, Kept, ProposalRow, ProposalState};
use vambrace_workspace::Draft;

use crate::broker::Broker;
use crate::trail::Trail;

/// What is told of a drafted change.
#[derive(Debug, Clone)]
pub(crate) struct Drafted {
    pub(crate) summary: String,
    /// The diff as it may be shown.
    pub(crate) diff: String,
    pub(crate) patch_hash: Digest,
    pub(crate) files: Vec<DraftedFile>,
    pub(crate) payload: Value,
}

/// One file of it.
#[derive(Debug, Clone)]
pub(crate) struct DraftedFile {
    pub(crate) path: String,
    pub(crate) created: bool,
    pub(crate) base_hash: Option<Digest>,
}

impl Drafted {
    pub(crate) fn of(draft: &Draft, redactor: &dyn Redact) -> Result<Self, CallError> {
        let file = |file: &FileChange| DraftedFile {
            path: file.after().map_or(file.path(), |after| &after.path).to_string(),
            created: file.kind() == Kind::Create,
            base_hash: file.before().map(|before| before.hash),
        };
        Ok(Self {
            summary: draft.changes.summary(),
            diff: vambrace_tools::shown_diff(draft, redactor)?,
            patch_hash: draft.patch_hash(),
            files: draft.changes.files().iter().map(file).collect(),
            payload: vambrace_tools::payload(draft, false),
        })
    }

    /// 003: the fields beside the payload, of the first file; the payload has them all.
    pub(crate) fn details(&self) -> Value {
        let first = self.files.first();
        json!({
            "path": first.map(|file| file.path.as_str()), "created": first.is_some_and(|file| file.created),
            "base_hash": first.and_then(|file| file.base_hash).map(|hash| hash.to_string()),
            "patch_hash": self.patch_hash.to_string(), "patch_format": "unified_diff",
        })
    }
}

impl Broker {
    /// What is kept to be shown of a change; with the diff that was proposed where another one was agreed to.
    pub(crate) fn shown(&self, change: &Drafted, proposed: Option<&str>) -> Result<Vec<u8>, CallError> {
        let files: Vec<Value> =
            change.files.iter().map(|file| json!({"path": file.path, "created": file.created})).collect();
        let shown = json!({
            "diff": change.diff, "files": files, "payload": change.payload, "details": change.details(),
            "proposed": proposed,
        });
        Ok(shown.to_string().into_bytes())
    }

    /// One record for each file.
    pub(crate) fn propose_records(
        &self,
        trail: &Trail,
        change: &Drafted,
        hitl: &Id,
        status: Status,
    ) -> Result<Vec<Entry>, CallError> {
        let mut entries = Vec::with_capacity(change.files.len());
        for (number, file) in change.files.iter().enumerate() {
            let mut entry = self.entry(Op::WriteFilePropose, trail)?;
            entry.ts = self.parts.clock.now();
            entry.status = Some(status);
            entry.hitl_id = Some(hitl.clone());
            entry.path = Some(self.text(&file.path)?);
            entry.created = Some(file.created);
            entry.base_hash = file.base_hash;
            entry.patch_hash = Some(change.patch_hash);
            if number == 0 {
                entry.tool_args = Some(self.args(trail)?);
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The row of a change; one that is about to be applied has what it takes.
    pub(crate) fn proposal_row(
        &self,
        trail: &Trail,
        change: &Drafted,
        hitl: &Id,
        begun: Option<(Option<Kept>, Option<Kept>)>,
        undoes: Option<Id>,
    ) -> Result<Change, CallError> {
        let now = self.parts.clock.now();
        let questions = self.parts.store.questions();
        let shown = questions.vault().seal(hitl.as_str(), &self.shown(change, None)?);
        let path = change.files.first().map(|file| file.path.as_str()).unwrap_or_default();
        let state = if begun.is_some() { ProposalState::Applying } else { ProposalState::Proposed };
        let life = begun.is_some().then(|| questions.life().clone());
        let (changes, back) = begun.unwrap_or_default();
        Ok(AskChange::Propose(ProposalRow {
            id: hitl.clone(),
            call: trail.call.clone(),
            session: trail.session.clone(),
            user: self.text(&trail.principal.user)?,
            project: self.text(&self.parts.project)?,
            tool: self.text(&trail.tool)?,
            path: self.text(path)?,
            summary: self.text(&change.summary)?,
            files: change.files.len() as u64,
            patch_hash: change.patch_hash,
            digest: trail.plan_digest.unwrap_or(Digest::ZERO),
            state,
            created: now,
            changed: now,
            undoes,
            life,
            shown: shown.map_err(|error| CallError::from(&error))?,
            changes,
            back,
            outcome: None,
        })
        .into())
    }
}
