//! `vambrace config`: shows the effective values with their origin, prints schema and reference, migrates older layouts.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::config::{self, ShownValue};
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::{ProjectTrust, Settings, config_warnings};

use crate::args::{CallerArgs, ConfigCommand};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

/// Maximum length of a list on the line of its key; a longer list has one line per item.
const WIDE: usize = 60;

pub(crate) async fn run(what: ConfigCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        ConfigCommand::Show { caller, prefix } => show(&caller, &prefix, *out).await?,
        ConfigCommand::Schema => out.value(&config::schema()),
        ConfigCommand::Reference => out.line(reference().trim_end()),
        ConfigCommand::Migrate { file } => migrate(&file, *out)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(caller: &CallerArgs, prefix: &str, out: Out) -> Result<(), Failure> {
    let (host, project) = super::open_host_for(caller.workspace.as_deref())?;
    let settings = Settings::load(&host, &project).await?;
    let all = settings.effective.show();
    let values: Vec<&ShownValue> = all.iter().filter(|value| value.key.starts_with(prefix)).collect();
    if values.is_empty() {
        let near = vambrace_core::suggest::nearest(prefix, all.iter().map(|value| value.key));
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let hint = "`vambrace config show` lists every key";
        return Err(Failure::usage(format!("no key begins with `{prefix}`{near}"), hint));
    }
    let notes: Vec<String> = settings.effective.notes.iter().map(ToString::to_string).collect();
    let warnings = config_warnings(&settings.effective);
    if out.is_json() {
        let value = json!({
            "project": settings.project.display().to_string(),
            "trust": settings.trust.label(),
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
        ProjectTrust::Trusted => Tone::Good,
        ProjectTrust::NoFiles => Tone::Faint,
        ProjectTrust::Untrusted | ProjectTrust::Changed => Tone::Care,
    };
    let hint = match settings.trust {
        ProjectTrust::Untrusted | ProjectTrust::Changed => {
            ": it can only narrow until you run `vambrace trust`"
        }
        ProjectTrust::NoFiles | ProjectTrust::Trusted => "",
    };
    let project = sanitize(&settings.project.display().to_string());
    out.line(format!("{project}  {}{hint}", paint(tone, settings.trust.label())));
    let width = values.iter().map(|value| value.key.len()).max().unwrap_or_default();
    for value in values {
        print(value, width, out);
    }
    for note in notes {
        out.line(format!("{} {}", paint(Tone::Care, "note:"), sanitize(&note)));
    }
    for warning in warnings {
        out.line(format!("{} {}", paint(Tone::Care, "warning:"), sanitize(&warning)));
    }
    Ok(())
}

fn print(value: &ShownValue, width: usize, out: Out) {
    let origin = paint(Tone::Faint, format!("[{}]", sanitize(&value.origin)));
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
        Value::String(text) => sanitize(text),
        other => sanitize(&other.to_string()),
    }
}

/// The Markdown page docs/configuration.md.
fn reference() -> String {
    let head = "# Configuration\n\n<!-- Written by `vambrace config reference`; `cargo xtask generate` renews it. -->\n\n\
        Three files are read: `/etc/vambrace/config.yaml` (organisation), `~/.config/vambrace/config.yaml` (user) and \
        `.vambrace/config.yaml` (project). A lower file can only narrow a higher one; the column \"files below\" says \
        how. A project's file takes full effect after `vambrace trust`. Unknown keys are errors. `vambrace config show` \
        prints the effective values and their origin, `vambrace config schema` prints a JSON Schema for editors.\n\n";
    format!("{head}{}", config::reference())
}

#[expect(clippy::disallowed_methods, reason = "the user names the file")]
fn migrate(file: &Path, out: Out) -> Result<(), Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("`{name}`: {error}"), "name the older file, for example .flow/config.json")
    })?;
    let migrated = config::migrate(&text, &name).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut failure = Failure::usage(list.join("\n"), "fix the errors, then try again");
        failure.exit = exit::FAILED;
        failure
    })?;
    if out.is_json() {
        out.value(&json!({"file": name, "yaml": migrated}));
    } else {
        out.line(migrated.trim_end());
        out.message("write this to .vambrace/config.yaml, review it, then run `vambrace trust`");
        if !migrated.lines().any(|line| line.starts_with("roles:")) {
            out.message("it has no role, and without a role there are no tools: add `roles: {default: dev}`");
        }
    }
    Ok(())
}
