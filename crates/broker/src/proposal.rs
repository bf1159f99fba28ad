//! A proposal: the approval request of a change. What is shown of it, its row and its ledger records (B2, B5).

use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_core::change::{FileChange, FileChangeKind};
use vambrace_core::digest::Digest;
use vambrace_core::error::CallError;
use vambrace_core::id::Id;
use vambrace_core::redacted::Redact;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{ApprovalChange, Entry, ProposalRow, ProposalState, SealedBlob, StateChange};
use vambrace_workspace::Draft;

use crate::broker::Broker;
use crate::call_record::CallRecord;

/// A planned change as it is shown, stored and recorded.
#[derive(Debug, Clone)]
pub(crate) struct ProposedChange {
    pub(crate) summary: String,
    /// Redacted diff.
    pub(crate) diff: String,
    pub(crate) patch_hash: Digest,
    pub(crate) files: Vec<ProposedFile>,
    pub(crate) payload: Value,
}

/// One file of a proposed change.
#[derive(Debug, Clone)]
pub(crate) struct ProposedFile {
    pub(crate) path: String,
    pub(crate) created: bool,
    pub(crate) base_hash: Option<Digest>,
}

impl ProposedChange {
    pub(crate) fn of(draft: &Draft, redactor: &Arc<dyn Redact>) -> Result<Self, CallError> {
        let file = |file: &FileChange| ProposedFile {
            path: file.after().map_or(file.path(), |after| &after.path).to_string(),
            created: file.kind() == FileChangeKind::Create,
            base_hash: file.before().map(|before| before.hash),
        };
        Ok(Self {
            summary: draft.changes.summary(),
            diff: vambrace_tools::redacted_diff(draft, redactor)?,
            patch_hash: draft.patch_hash(),
            files: draft.changes.files().iter().map(file).collect(),
            payload: vambrace_tools::change_payload(draft, false),
        })
    }

    /// The fields of the first file, for `details`; the payload has all files.
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
    /// Display data of a change, to be stored; includes the proposed diff if a different one was approved.
    pub(crate) fn shown(
        &self,
        change: &ProposedChange,
        proposed: Option<&str>,
    ) -> Result<Vec<u8>, CallError> {
        let files: Vec<Value> =
            change.files.iter().map(|file| json!({"path": file.path, "created": file.created})).collect();
        let shown = json!({
            "diff": change.diff, "files": files, "payload": change.payload, "details": change.details(),
            "proposed": proposed,
        });
        Ok(shown.to_string().into_bytes())
    }

    /// One ledger entry per file.
    pub(crate) fn propose_records(
        &self,
        record: &CallRecord,
        change: &ProposedChange,
        hitl: &Id,
        status: RecordStatus,
    ) -> Result<Vec<Entry>, CallError> {
        let mut entries = Vec::with_capacity(change.files.len());
        for (number, file) in change.files.iter().enumerate() {
            let mut entry = self.entry(Op::WriteFilePropose, record)?;
            entry.ts = self.parts.clock.now();
            entry.status = Some(status);
            entry.hitl_id = Some(hitl.clone());
            entry.path = Some(self.text(&file.path)?);
            entry.created = Some(file.created);
            entry.base_hash = file.base_hash;
            entry.patch_hash = Some(change.patch_hash);
            if number == 0 {
                entry.tool_args = Some(self.args(record)?);
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The row of a change. One that is about to be applied includes its content and rollback.
    pub(crate) fn proposal_row(
        &self,
        record: &CallRecord,
        change: &ProposedChange,
        hitl: &Id,
        begun: Option<(Option<SealedBlob>, Option<SealedBlob>)>,
        undoes: Option<Id>,
    ) -> Result<StateChange, CallError> {
        let now = self.parts.clock.now();
        let queries = self.parts.store.approval_queries();
        let shown = queries.blob_sealer().seal(hitl.as_str(), &self.shown(change, None)?);
        let path = change.files.first().map(|file| file.path.as_str()).unwrap_or_default();
        let state = if begun.is_some() { ProposalState::Applying } else { ProposalState::Proposed };
        let life = begun.is_some().then(|| queries.liveness().id().clone());
        let (changes, back) = begun.unwrap_or_default();
        Ok(ApprovalChange::Propose(ProposalRow {
            id: hitl.clone(),
            call: record.call.clone(),
            session: record.session.clone(),
            user: self.text(&record.principal.user)?,
            project: self.text(&self.parts.project)?,
            tool: self.text(&record.tool)?,
            path: self.text(path)?,
            summary: self.text(&change.summary)?,
            files: change.files.len() as u64,
            patch_hash: change.patch_hash,
            digest: record.plan_digest.unwrap_or(Digest::ZERO),
            state,
            created: now,
            changed: now,
            undoes,
            life,
            shown: shown.map_err(|error| CallError::from(&error))?,
            changes,
            undo: back,
            outcome: None,
        })
        .into())
    }
}
