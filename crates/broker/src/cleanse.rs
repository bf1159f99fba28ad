//! Cleansing: what came back is redacted before it leaves, and what it is stays marked on it.

use vambrace_core::error::CallError;
use vambrace_core::redacted::Redacted;
use vambrace_tools::Touched;

use crate::answer::Done;
use crate::broker::{Broker, redactor_failed};
use crate::perform::Performed;
use crate::trail::Trail;

/// A result that may leave.
pub(crate) struct Clean {
    pub(crate) done: Done,
    pub(crate) touched: Touched,
}

pub(crate) fn cleanse(broker: &Broker, performed: Performed, trail: &mut Trail) -> Result<Clean, CallError> {
    let output = performed.into_output();
    let redactor = &*broker.parts.redactor;
    if let Some(file) = output.touched.files.first() {
        trail.operation = Some(("fs.apply_patch", Some(file.path.to_string())));
    }
    let whole = matches!(output.touched.lines, None | Some((1, _))) && !output.truncated;
    let redact = if whole { Redacted::json } else { Redacted::cut_json };
    let data = redact(output.data, redactor).map_err(redactor_failed)?.after(output.touched.masked);
    let text =
        output.text.map(|text| Redacted::text(&text, redactor)).transpose().map_err(redactor_failed)?;
    let details = Redacted::json(output.details, redactor).map_err(redactor_failed)?.into_inner();
    Ok(Clean {
        done: Done {
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
