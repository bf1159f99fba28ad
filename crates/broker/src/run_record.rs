//! Records what a program did: the files that were written back, what the sandbox denied, and how it ended.

use vambrace_core::error::CallError;
use vambrace_core::redacted::Redacted;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{Entry, EventPhase, EventStatus, RedactedText, TimelineEvent};
use vambrace_tools::TouchedFiles;
use vambrace_workspace::AppliedFile;

use crate::broker::Broker;
use crate::call_record::CallRecord;

/// Maximum files with a ledger record of their own in one call; the last record counts the rest.
const MAX_FILE_RECORDS: usize = 1000;

impl Broker {
    /// One ledger record for each file that a program's changes were written back to.
    pub(crate) fn changed_file_entries(
        &self,
        record: &CallRecord,
        touched: &TouchedFiles,
        now: Timestamp,
    ) -> Result<Vec<Entry>, CallError> {
        let files = touched.files.iter().take(MAX_FILE_RECORDS);
        let others = record.run.iter().flat_map(|run| &run.other_entries);
        let others = others.map(|path| {
            let mut entry = self.entry(Op::WriteFileApply, record)?;
            entry.ts = now;
            entry.status = Some(RecordStatus::Success);
            entry.path = Some(self.text(path)?);
            Ok(entry)
        });
        files.map(|file| self.changed_file_entry(record, file, now)).chain(others).collect()
    }

    /// The ledger record of one changed file, with its hashes.
    pub(crate) fn changed_file_entry(
        &self,
        record: &CallRecord,
        file: &AppliedFile,
        now: Timestamp,
    ) -> Result<Entry, CallError> {
        let mut entry = self.entry(Op::WriteFileApply, record)?;
        entry.ts = now;
        entry.status = Some(RecordStatus::Success);
        entry.path = Some(self.text(&file.path.to_string())?);
        entry.created = Some(file.before_hash.is_none());
        entry.before_hash = file.before_hash;
        entry.after_hash = file.after_hash;
        Ok(entry)
    }

    /// How a program ended, in one line; `None` for a call without a program.
    pub(crate) fn run_summary(
        &self,
        record: &CallRecord,
        touched: &TouchedFiles,
    ) -> Result<Option<RedactedText>, CallError> {
        let Some(run) = record.run.as_ref().filter(|_| !record.run_recorded) else { return Ok(None) };
        let mut words = vec![format!("exit code {}", run.exit_code)];
        if !run.denials.is_empty() {
            words.push(format!("{} denials by the sandbox", run.denials.len()));
        }
        if run.written > 0 {
            words.push(format!("{} changes were written back", run.written));
        }
        words.extend(touched.warnings.iter().cloned());
        self.text(&words.join("; ")).map(Some)
    }

    /// The timeline events of the sandbox: its tier, and one event for each denial.
    pub(crate) fn sandbox_events(&self, record: &CallRecord) -> Result<Vec<TimelineEvent>, CallError> {
        let Some(run) = record.run.as_ref().filter(|_| !record.run_recorded) else { return Ok(Vec::new()) };
        let mut enforced = self.event(record, EventPhase::Sandbox, "enforce", EventStatus::Ok)?;
        enforced.message = Some(self.text(&format!("tier {}, exit code {}", run.tier, run.exit_code))?);
        let mut events = vec![enforced];
        for denial in &run.denials {
            let mut event = self.event(record, EventPhase::Sandbox, "violation", EventStatus::Denied)?;
            event.violation_type = Some(Redacted::literal("sandbox"));
            event.attempted_action = Some(self.text(denial)?);
            events.push(event);
        }
        Ok(events)
    }
}
