//! `vambrace errors`: lists the error codes.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::error::ErrorCode;

use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

pub(crate) fn run(markdown: bool, out: &Out) -> Result<ExitCode, Failure> {
    if markdown {
        out.line("# Error codes\n\n<!-- Written by `vambrace errors --markdown`; `cargo xtask generate` renews it. -->\n");
        out.line("Codes are stable. A message may contain paths, rules and values; the suggestion says how to continue.\n");
        out.line("| code | meaning | suggestion |\n|---|---|---|");
    } else if out.is_json() {
        let row = |code: &ErrorCode| json!({"code": code.as_str(), "meaning": code.meaning(), "suggestion": code.suggestion()});
        out.value(&Value::from(ErrorCode::ALL.iter().map(row).collect::<Vec<_>>()));
        return Ok(ExitCode::SUCCESS);
    }
    for code in ErrorCode::ALL {
        if markdown {
            out.line(format!("| {code} | {} | {} |", code.meaning(), code.suggestion()));
        } else {
            out.line(format!("{} {}", paint(Tone::Strong, format!("{:<20}", code.as_str())), code.meaning()));
            out.line(format!("{:<21}{}", "", paint(Tone::Faint, code.suggestion())));
        }
    }
    Ok(ExitCode::SUCCESS)
}
