//! `vambrace tools`: what this role and skill may use.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_broker::envelope_schema;
use vambrace_core::error::ErrorCode;
use vambrace_tools::Tool;

use crate::args::{Seat, ToolsCommand};
use crate::desk::{self, Desk};
use crate::failure::Failure;
use crate::out::{Out, Tone, paint};

pub(crate) async fn run(what: Option<ToolsCommand>, seat: &Seat, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        Some(ToolsCommand::List { markdown: true }) => {
            out.line(markdown()?.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        Some(ToolsCommand::Show { tool }) => show(&tool, seat, *out).await?,
        Some(ToolsCommand::List { markdown: false }) | None => list(seat, *out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(seat: &Seat, out: Out) -> Result<(), Failure> {
    let desk = Desk::open(seat, "command-line", "cli").await?;
    desk.check()?;
    let offered = desk.broker.offered();
    if out.is_json() {
        out.value(&offered.iter().map(|tool| described(&***tool)).collect::<Vec<_>>().into());
        return Ok(());
    }
    for tool in &offered {
        let facts = tool.facts();
        out.line(format!(
            "{}  {}",
            paint(Tone::Strong, format!("{:<16}", facts.name.as_str())),
            tool.about().title
        ));
    }
    if offered.is_empty() {
        out.say("no tools are offered to this caller; `vambrace explain read_file path=README.md` tells why");
    }
    Ok(())
}

async fn show(name: &str, seat: &Seat, out: Out) -> Result<(), Failure> {
    let desk = Desk::open(seat, "command-line", "cli").await?;
    desk.check()?;
    let offered = desk.broker.offered();
    let tool = offered.iter().find(|tool| tool.facts().is_meant_by(name)).ok_or_else(|| {
        let names: Vec<&str> = offered.iter().map(|tool| tool.facts().name.as_str()).collect();
        let near = vambrace_core::near::nearest(name, names.iter().copied());
        let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let mut failure = Failure::usage(
            format!("no tool `{name}` is offered"),
            format!("{near}offered are: {}", names.join(", ")),
        );
        failure.error.code = ErrorCode::UnknownTool;
        failure
    })?;
    out.value(&described(&***tool));
    Ok(())
}

fn described(tool: &dyn Tool) -> Value {
    let (facts, about) = (tool.facts(), tool.about());
    json!({
        "name": facts.name.as_str(), "aliases": facts.aliases, "group": facts.group.as_str(), "title": about.title,
        "description": about.description, "risk": facts.risk.to_string(), "input_schema": about.input,
        "output_schema": envelope_schema(&about.output),
    })
}

/// The page of the documentation.
fn markdown() -> Result<String, Failure> {
    let catalogue = desk::catalogue()?;
    let mut page = String::from(
        "# Tools\n\n<!-- Written by `vambrace tools list --markdown`; `cargo xtask generate` renews it. -->\n\n\
         Every tool answers with the result envelope; the payload below is its `data`.\n",
    );
    for tool in catalogue.tools() {
        let (facts, about) = (tool.facts(), tool.about());
        page += &format!("\n## {}\n\n{}\n\n", facts.name, about.description);
        if !facts.aliases.is_empty() {
            page += &format!(
                "Also called: {}.\n\n",
                facts.aliases.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            );
        }
        page += "| argument | type | default | meaning |\n|---|---|---|---|\n";
        let required: Vec<&str> = about
            .input
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, schema) in about.input.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let word = |key: &str| {
                schema.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            let default = if required.contains(&name.as_str()) {
                "required".to_owned()
            } else {
                word("default").unwrap_or_default()
            };
            page += &format!(
                "| {name} | {} | {default} | {} |\n",
                word("type").unwrap_or_default(),
                word("description").unwrap_or_default()
            );
        }
        let payload: Vec<&str> = about
            .output
            .get("properties")
            .and_then(Value::as_object)
            .map(|fields| fields.keys().map(String::as_str).collect())
            .unwrap_or_default();
        page += &format!("\nPayload: {}.\n", payload.join(", "));
    }
    Ok(page)
}
