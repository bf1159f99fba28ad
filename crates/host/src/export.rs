//! Exports records in the format of another system. Every line is checked against its hash: an altered record ends the export
//! with an error.

mod cursor;
mod file;

pub use cursor::{ExportCursor, RecordBatch};
pub use file::ExportFile;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_ledger::ExportFormat;
use vambrace_store::LedgerRecord;

use crate::error::{HostError, HostErrorKind};

/// Converts records, up to the first altered one.
#[must_use]
pub fn export_records(format: ExportFormat, records: &[LedgerRecord]) -> (Vec<u8>, Option<HostError>) {
    let mut bytes = Vec::with_capacity(records.len() * 1024);
    for record in records {
        if let Err(fault) = format.write(&record.line, &mut bytes) {
            let message = format!("record {} cannot be exported: {fault}", record.id.seq);
            let error = CallError::new(ErrorCode::Internal, message)
                .suggest("run `vambrace audit verify`; `--after` continues after this record");
            return (bytes, Some(HostError { kind: HostErrorKind::Finding, error }));
        }
    }
    (bytes, None)
}
