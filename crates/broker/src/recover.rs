//! Recovery after a crash: a change that was begun without a recorded end is compared with the files and gets its
//! end. Changes of processes that still run are left alone.

use serde_json::{Value, json};
use vambrace_core::change::ChangeSet;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_ledger::{Op, RecordLevel, RecordStatus};
use vambrace_store::{
    ApprovalChange, ApprovalFilter, Batch, CallFinish, CallState, Entry, ProposalRow, ProposalState,
    SealedBlob, StateChange,
};
use vambrace_workspace::ChangeSetState;

use crate::approval_view::display_data;
use crate::broker::Broker;

impl Broker {
    /// Settles changes that a crash left unfinished, and expires overdue requests. Safe at any time, and in several
    /// processes.
    pub async fn recover(&self) -> Result<(), CallError> {
        let queries = self.parts.store.approval_queries();
        if let Some(applier) = self.parts.tool_context.changes.applier.clone() {
            let project = self.text(&self.parts.project)?;
            let left = queries.unfinished(project.get()).await.map_err(|error| CallError::from(&error))?;
            let gone = |row: &&ProposalRow<String>| {
                row.life.as_ref().is_none_or(|life| !queries.liveness().is_alive(life))
            };
            let left: Vec<ProposalRow<String>> = left.iter().filter(gone).cloned().collect();
            let settle = applier.clone();
            let journals = tokio::task::spawn_blocking(move || settle.recover());
            journals.await.map_err(|_| broken())?;
            for row in left {
                let changes = match &row.undoes {
                    Some(undone) => self.way_back(undone).await?,
                    None => row
                        .changes
                        .as_ref()
                        .and_then(|kept| self.opened(&format!("{}/changes", row.id), kept)),
                };
                let applier = applier.clone();
                let state = match changes.clone() {
                    Some(changes) => tokio::task::spawn_blocking(move || applier.state(&changes))
                        .await
                        .map_err(|_| broken())?
                        .unwrap_or(ChangeSetState::Between),
                    None => ChangeSetState::Between,
                };
                self.settle_left(&row, changes.as_ref(), state).await?;
            }
        }
        let open = ApprovalFilter { open: true, ..ApprovalFilter::default() };
        for row in queries.approvals(open).await.map_err(|error| CallError::from(&error))? {
            self.expire(&row).await?;
        }
        Ok(())
    }

    async fn settle_left(
        &self,
        row: &ProposalRow<String>,
        changes: Option<&ChangeSet>,
        found: ChangeSetState,
    ) -> Result<(), CallError> {
        let now = self.parts.clock.now();
        let (state, call, status, words) = match found {
            ChangeSetState::After => {
                let words = "the process ended after the change was made; recovery found it applied";
                (ProposalState::Applied, CallState::Completed, RecordStatus::Success, words)
            }
            ChangeSetState::Before => {
                let words = "the process ended before anything was changed";
                (ProposalState::Failed, CallState::Failed, RecordStatus::Cancelled, words)
            }
            ChangeSetState::Between => {
                let words =
                    "the process ended, and the files match neither the state before nor after the change";
                (ProposalState::Unknown, CallState::Failed, RecordStatus::Unknown, words)
            }
        };
        let code = match state {
            ProposalState::Applied => None,
            ProposalState::Failed => Some(ErrorCode::Cancelled),
            _ => Some(ErrorCode::OutcomeUnknown),
        };
        let mut entries = Vec::new();
        for file in changes.into_iter().flat_map(ChangeSet::files) {
            let op = if state == ProposalState::Applied { Op::WriteFileApply } else { Op::Recovery };
            let mut entry = Entry::new(op, now);
            entry.event_type = Some("apply.recovered");
            entry.level = RecordLevel::Warn;
            entry.status = Some(status);
            entry.user = Some(self.text(&row.user)?);
            entry.session = Some(row.session.clone());
            entry.execution_id = Some(row.call.clone());
            entry.tool_name = Some(self.text(&row.tool)?);
            entry.hitl_id = Some(row.id.clone());
            entry.plan_digest = Some(row.digest);
            let path = file.after().map_or(file.path(), |after| &after.path);
            entry.path = Some(self.text(&path.to_string())?);
            entry.before_hash = file.before().map(|before| before.hash);
            entry.after_hash = file.after().map(|after| after.hash);
            entry.error_code = code;
            entry.message = Some(self.text(words)?);
            entries.push(entry);
        }
        let outcome = match code {
            None => self.found_applied(row, changes, words),
            Some(code) => {
                json!({"error": {"code": code.as_str(), "message": words, "suggestion": code.suggestion()}})
            }
        };
        let outcome = Some(self.seal(row.id.as_str(), outcome.to_string().as_bytes())?);
        let finish = CallFinish { id: row.call.clone(), state: call, at: now, error: code };
        let mut moves: Vec<StateChange> = vec![
            ApprovalChange::Settle { id: row.id.clone(), state, outcome, at: now }.into(),
            StateChange::FinishCall(finish),
        ];
        if let (Some(id), ProposalState::Applied) = (row.undoes.clone(), state) {
            moves.push(ApprovalChange::RolledBack { id, at: now }.into());
        }
        match self.parts.store.commit(Batch::durable(entries, moves).from_reserve()).await {
            Ok(_) => Ok(()),
            // Another process settled it first.
            Err(error) if error.concerns_batch_only() => Ok(()),
            Err(error) => Err(CallError::from(&error)),
        }
    }
}

impl Broker {
    /// The rollback of a change; `None` if it was too large to store or cannot be decrypted.
    pub(crate) async fn way_back(&self, id: &Id) -> Result<Option<ChangeSet>, CallError> {
        let kept = self.parts.store.approval_queries().undo_data(id.as_str()).await;
        let kept = kept.map_err(|error| CallError::from(&error))?;
        Ok(kept.and_then(|kept| self.opened(&format!("{id}/back"), &kept)))
    }

    fn opened(&self, place: &str, kept: &SealedBlob) -> Option<ChangeSet> {
        let bytes = self.parts.store.approval_queries().blob_sealer().unseal(place, kept)?;
        ChangeSet::from_bytes(&bytes).ok()
    }

    /// The stored outcome of a change that recovery found applied: as it was approved, which may differ from what was
    /// proposed.
    fn found_applied(&self, row: &ProposalRow<String>, changes: Option<&ChangeSet>, words: &str) -> Value {
        let summary = changes.map_or_else(|| row.summary.clone(), ChangeSet::summary);
        let shown = display_data(row, self.parts.store.approval_queries());
        let as_proposed = shown.is_ok_and(|shown| shown.get("proposed").is_none_or(Value::is_null));
        let text = if as_proposed {
            format!("applied: {summary}")
        } else {
            format!(
                "applied only in part or with different content than you proposed, as the user decided: {summary}\nread the files again"
            )
        };
        let files = changes.map(vambrace_tools::changed_files).unwrap_or_default();
        json!({
            "data": {"applied": true, "as_proposed": as_proposed, "summary": summary, "files": files, "notes": [words]},
            "details": {"path": row.path, "hitl_id": row.id.as_str()}, "text": text,
        })
    }
}

fn broken() -> CallError {
    CallError::new(ErrorCode::Internal, "recovery after a crash failed")
}
