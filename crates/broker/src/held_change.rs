//! A held change: what a program changed over its overlay. The run is recorded first. Then the change is judged as an edit
//! would be: where policy allows it, it is applied at once; where policy asks, it becomes a proposal with the program's
//! output; where policy denies it, it is dropped and the answer says so.
//!
//! What waits is the change itself, not the command: a command that runs again may do something else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vambrace_core::change::ChangeSet;
use vambrace_core::error::CallError;
use vambrace_core::redacted::Redacted;
use vambrace_core::verdict::VerdictKind;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{Batch, StateChange};

use crate::approval_request::PipelineStop;
use crate::broker::{Broker, redactor_failed};
use crate::call_record::CallRecord;
use crate::cleanse::{Clean, cleanse};
use crate::decide::decide;
use crate::{perform::perform, plan::plan_held, settle::settle, start::start};

/// The tool that a held change is judged as: rules and grants about edits apply to it.
pub(crate) const CHANGE_TOOL: &str = "apply_patch";

/// A change that waits, with the result of the run that made it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldCall {
    pub(crate) changes: ChangeSet,
    pub(crate) run: RunResult,
}

/// The redacted result of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RunResult {
    pub(crate) data: Value,
    pub(crate) text: String,
}

impl HeldCall {
    pub(crate) fn to_json(&self) -> Value {
        json!({"changes": STANDARD.encode(self.changes.to_bytes()), "data": self.run.data, "text": self.run.text})
    }

    pub(crate) fn from_json(stored: &Value) -> Option<Self> {
        let bytes = STANDARD.decode(stored.get("changes")?.as_str()?).ok()?;
        let changes = ChangeSet::from_bytes(&bytes).ok()?;
        let text = stored.get("text")?.as_str()?.to_owned();
        Some(Self { changes, run: RunResult { data: stored.get("data")?.clone(), text } })
    }
}

impl RunResult {
    fn of(clean: &Clean) -> Self {
        let text = clean.output.text.as_ref().map(|text| text.get().clone()).unwrap_or_default();
        Self { data: clean.output.data.get().clone(), text }
    }

    /// The result of the run with what became of its changes.
    pub(crate) fn with_changes(&self, changes: &Value) -> Value {
        let mut data = self.data.clone();
        if let Some(data) = data.as_object_mut() {
            let mut merged = data.get("changes").cloned().unwrap_or_else(|| json!({}));
            if let (Some(merged), Some(changes)) = (merged.as_object_mut(), changes.as_object()) {
                merged.extend(changes.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            data.insert("changes".to_owned(), merged);
        }
        data
    }
}

impl Broker {
    /// Judges the change that a run holds back, and applies it where policy allows.
    pub(crate) async fn settle_held(
        &self,
        mut clean: Clean,
        record: &mut CallRecord,
    ) -> Result<Clean, PipelineStop> {
        if record.held.is_some() {
            return Ok(self.with_run(clean, record)?);
        }
        let Some(changes) = clean.touched.held.take() else { return Ok(clean) };
        self.record_run(record, &clean).await?;
        let held = HeldCall { changes, run: RunResult::of(&clean) };
        record.begin_held_change(held.clone());
        match self.apply_held(&held, record).await {
            // Before the change has begun, the run itself stands: only its changes are dropped.
            Err(PipelineStop::Failed(error)) if record.started.is_none() => {
                (record.change, record.verdict) = (None, Some(VerdictKind::Allow));
                Ok(self.drop_held(clean, &error)?)
            }
            settled => settled,
        }
    }

    async fn apply_held(&self, held: &HeldCall, record: &mut CallRecord) -> Result<Clean, PipelineStop> {
        let planned = plan_held(self, held, record).await?;
        let decided = decide(self, planned, record);
        let permitted = settle(self, decided, record).await?;
        let started = start(self, permitted, record).await?;
        let performed = perform(started, record).await?;
        Ok(self.with_run(cleanse(self, performed, record)?, record)?)
    }

    /// Adds the result of the run to the result of applying its change. Both are redacted already; only the redactor makes
    /// redacted text.
    fn with_run(&self, mut clean: Clean, record: &CallRecord) -> Result<Clean, CallError> {
        let Some(HeldCall { run, .. }) = &record.held else { return Ok(clean) };
        let applied = clean.output.text.as_ref().map(|text| text.get().as_str()).unwrap_or_default();
        let text = format!("{}\n[{applied}]", run.text);
        let data = run.with_changes(clean.output.data.get());
        clean.output.data = Redacted::json(data, &*self.parts.redactor).map_err(redactor_failed)?;
        clean.output.text = Some(self.text(&text)?);
        Ok(clean)
    }

    /// The result of a run whose change policy denies.
    fn drop_held(&self, mut clean: Clean, error: &CallError) -> Result<Clean, CallError> {
        let error = self.redacted(error.clone())?;
        let run = RunResult::of(&clean);
        let dropped = json!({"applied": false, "dropped": format!("{}: {}", error.code, error.message)});
        let text = format!("{}\n[its changes were discarded: {}: {}]", run.text, error.code, error.message);
        let data = run.with_changes(&dropped);
        clean.output.data = Redacted::json(data, &*self.parts.redactor).map_err(redactor_failed)?;
        clean.output.text = Some(self.text(&text)?);
        Ok(clean)
    }

    /// Records the end of a run whose change is not settled yet; the call goes on.
    async fn record_run(&self, record: &CallRecord, clean: &Clean) -> Result<(), CallError> {
        let mut entry = self.entry(Op::ToolEnd, record)?;
        entry.ts = self.parts.clock.now();
        entry.status = Some(RecordStatus::Success);
        entry.event_type = Some("tool.held");
        entry.redactions_applied = Some(clean.output.data.count());
        entry.duration_ms = Some(record.elapsed_ms());
        entry.message = self.run_summary(record, &clean.touched)?;
        self.attempted(record, &mut entry)?;
        let mut events = self.sandbox_events(record)?;
        events.extend(self.egress_events(record)?);
        let changes = events.into_iter().map(StateChange::Event).collect();
        let batch = Batch::lazy(vec![entry], changes).from_reserve();
        self.parts.store.commit(batch).await.map(drop).map_err(|error| CallError::from(&error))
    }
}
