//! Cleanse: redacts the output before it leaves and keeps its provenance mark.

use std::sync::Arc;

use vambrace_core::error::CallError;
use vambrace_core::redacted::Redacted;
use vambrace_tools::TouchedFiles;

use crate::broker::{Broker, redactor_failed};
use crate::call_record::CallRecord;
use crate::call_result::CleanOutput;
use crate::perform::Performed;

/// A redacted result, with the facts that the ledger records about it.
pub(crate) struct Clean {
    pub(crate) output: CleanOutput,
    pub(crate) touched: TouchedFiles,
}

pub(crate) fn cleanse(
    broker: &Broker,
    performed: Performed,
    record: &mut CallRecord,
) -> Result<Clean, CallError> {
    let output = performed.into_output();
    let redactor = &*broker.parts.redactor;
    if let Some(file) = output.touched.files.first() {
        record.operation = Some((Arc::from("fs.apply_patch"), Some(file.path.to_string())));
    }
    // A part of a file was masked in its context. A page that was cut was not: a piece of a secret may be at its end.
    let cut = output.truncated && output.touched.lines.is_none();
    let redact = if cut { Redacted::cut_json } else { Redacted::json };
    let data = redact(output.data, redactor).map_err(redactor_failed)?.add_count(output.touched.masked);
    let text =
        output.text.map(|text| Redacted::text(&text, redactor)).transpose().map_err(redactor_failed)?;
    let details = Redacted::json(output.details, redactor).map_err(redactor_failed)?.into_inner();
    Ok(Clean {
        output: CleanOutput {
            data,
            details,
            text,
            note: output.note,
            provenance: output.provenance,
            truncated: output.truncated,
        },
        touched: output.touched,
    })
}
