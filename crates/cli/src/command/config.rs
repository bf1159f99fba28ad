//! `vambrace config`: every value in force with its origin, the schema and reference of the keys, older layouts.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::config::{self, ShownValue};

use crate::args::{ConfigCommand, Seat};
use crate::desk::{self, Settings, Trust};
use crate::failure::{Failure, exit};
use crate::found::{self, told};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};
use crate::places;

/// The longest value on the line of its key; a longer list gets a line for each item.
const WIDE: usize = 60;

pub(crate) async fn run(what: ConfigCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        ConfigCommand::Show { seat, prefix } => show(&seat, &prefix, *out).await?,
        ConfigCommand::Schema => out.value(&config::schema()),
        ConfigCommand::Reference => out.line(reference().trim_end()),
        ConfigCommand::Migrate { file } => migrate(&file, *out)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(seat: &Seat, prefix: &str, out: Out) -> Result<(), Failure> {
    let project = places::project(seat.workspace.as_deref())?;
    let store = desk::open_store()?;
    let settings = Settings::load(&project, &store).await?;
    let all = settings.effective.show();
    let values: Vec<&ShownValue> = all.iter().filter(|value| value.key.starts_with(prefix)).collect();
    if values.is_empty() {
        let near = vambrace_core::near::nearest(prefix, all.iter().map(|value| value.key));
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let hint = "`vambrace config show` lists every key";
        return Err(Failure::usage(format!("no key begins with `{prefix}`{near}"), hint));
    }
    let notes: Vec<String> = settings.effective.notes.iter().map(ToString::to_string).collect();
    let warnings = found::warnings(&settings.effective);
    if out.is_json() {
        let value = json!({
            "project": settings.project.display().to_string(),
            "trust": told(settings.trust),
            "digest": settings.files.digest().map(|digest| digest.to_string()),
            "revision": settings.effective.revision(),
            "values": values,
            "notes": notes,
            "warnings": warnings,
        });
        out.value(&value);
        return Ok(());
    }
    let tone = match settings.trust {
        Trust::Trusted => Tone::Good,
        Trust::NoFiles => Tone::Faint,
        Trust::Untrusted | Trust::Changed => Tone::Care,
    };
    let hint = match settings.trust {
        Trust::Untrusted | Trust::Changed => ": it can only narrow until `vambrace trust`",
        Trust::NoFiles | Trust::Trusted => "",
    };
    let project = plain(&settings.project.display().to_string());
    out.line(format!("{project}  {}{hint}", paint(tone, told(settings.trust))));
    let width = values.iter().map(|value| value.key.len()).max().unwrap_or_default();
    for value in values {
        tell(value, width, out);
    }
    for note in notes {
        out.line(format!("{} {}", paint(Tone::Care, "note:"), plain(&note)));
    }
    for warning in warnings {
        out.line(format!("{} {}", paint(Tone::Care, "warning:"), plain(&warning)));
    }
    Ok(())
}

fn tell(value: &ShownValue, width: usize, out: Out) {
    let later = if value.status == "used" { String::new() } else { format!(", {}", value.status) };
    let origin = paint(Tone::Faint, format!("[{}{later}]", plain(&value.origin)));
    let key = paint(Tone::Strong, format!("{:<width$}", value.key));
    match &value.value {
        Value::Array(items) if value.value.to_string().len() > WIDE => {
            out.line(format!("{key}  {origin}"));
            for item in items {
                out.line(format!("{:<width$}    {}", "", short(item)));
            }
        }
        one => out.line(format!("{key}  {} {origin}", short(one))),
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Null => paint(Tone::Faint, "unset"),
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

/// The page of the documentation.
fn reference() -> String {
    let head = "# Configuration\n\n<!-- Written by `vambrace config reference`; `cargo xtask generate` renews it. -->\n\n\
        Three files are read: `/etc/vambrace/config.yaml` of the organisation, `~/.config/vambrace/config.yaml` of the \
        user, `.vambrace/config.yaml` of the project. A file below another only narrows; the column \"files below\" says \
        how. A project's file counts in full after `vambrace trust`. Unknown keys are errors. `vambrace config show` \
        tells the value in force and where it comes from, `vambrace config schema` prints a JSON Schema for editors.\n\n";
    format!("{head}{}", config::reference())
}

#[expect(clippy::disallowed_methods, reason = "a file that the person at the terminal names")]
fn migrate(file: &Path, out: Out) -> Result<(), Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("`{name}`: {error}"), "name the older file, for example .flow/config.json")
    })?;
    let migrated = config::migrate(&text, &name).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut failure = Failure::usage(list.join("\n"), "correct the places named, then try again");
        failure.exit = exit::FAILED;
        failure
    })?;
    if out.is_json() {
        out.value(&json!({"file": name, "yaml": migrated}));
    } else {
        out.line(migrated.trim_end());
        out.say("write this to .vambrace/config.yaml, look at it, then run `vambrace trust`");
        if !migrated.lines().any(|line| line.starts_with("roles:")) {
            out.say(
                "it names no role, and without one there are no tools: add `roles: {default: dev}` for that",
            );
        }
    }
    Ok(())
}
