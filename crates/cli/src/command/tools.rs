//! `vambrace tools`: lists the tools that a role and skill may use.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_broker::envelope_schema;
use vambrace_core::error::ErrorCode;
use vambrace_host::built_in_catalogue;
use vambrace_tools::Tool;

use crate::args::{CallerArgs, ToolsCommand};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

pub(crate) async fn run(
    what: Option<ToolsCommand>,
    caller: &CallerArgs,
    out: &Out,
) -> Result<ExitCode, Failure> {
    match what {
        Some(ToolsCommand::List { markdown: true }) => {
            out.line(markdown()?.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        Some(ToolsCommand::Show { tool }) => show(&tool, caller, *out).await?,
        Some(ToolsCommand::List { markdown: false }) | None => list(caller, *out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(caller: &CallerArgs, out: Out) -> Result<(), Failure> {
    let (context, _) = super::open_project(caller).await?;
    context.check()?;
    let offered = context.broker().offered();
    if out.is_json() {
        out.value(&offered.iter().map(|tool| described(&***tool)).collect::<Vec<_>>().into());
        return Ok(());
    }
    for tool in &offered {
        let facts = tool.descriptor();
        out.line(format!(
            "{}  {}",
            paint(Tone::Strong, format!("{:<16}", facts.name.as_str())),
            tool.description().title
        ));
    }
    if offered.is_empty() {
        out.message("this caller has no tools; `vambrace explain read_file path=README.md` shows why");
    }
    Ok(())
}

async fn show(name: &str, caller: &CallerArgs, out: Out) -> Result<(), Failure> {
    let (context, _) = super::open_project(caller).await?;
    context.check()?;
    let offered = context.broker().offered();
    let tool = offered.iter().find(|tool| tool.descriptor().matches_pattern(name)).ok_or_else(|| {
        let names: Vec<&str> = offered.iter().map(|tool| tool.descriptor().name.as_str()).collect();
        let near = vambrace_core::suggest::nearest(name, names.iter().copied());
        let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let mut failure = Failure::usage(
            format!("there is no tool `{name}`, or this caller may not use it"),
            format!("{near}available tools: {}", names.join(", ")),
        );
        failure.error.code = ErrorCode::UnknownTool;
        failure
    })?;
    out.value(&described(&***tool));
    Ok(())
}

fn described(tool: &dyn Tool) -> Value {
    let (facts, about) = (tool.descriptor(), tool.description());
    json!({
        "name": facts.name.as_str(), "aliases": facts.aliases, "group": facts.group.as_str(), "title": about.title,
        "description": about.description, "risk": facts.risk.to_string(), "input_schema": about.input,
        "output_schema": envelope_schema(&about.output),
    })
}

/// The Markdown page docs/tools.md.
fn markdown() -> Result<String, Failure> {
    let catalogue = built_in_catalogue()?;
    let mut page = String::from(
        "# Tools\n\n<!-- Written by `vambrace tools list --markdown`; `cargo xtask generate` renews it. -->\n\n\
         Every tool returns the result envelope; the payload below is its `data`.\n",
    );
    for tool in catalogue.tools() {
        let (facts, about) = (tool.descriptor(), tool.description());
        page += &format!("\n## {}\n\n{}\n\n", facts.name, about.description);
        if !facts.aliases.is_empty() {
            page += &format!(
                "Aliases: {}.\n\n",
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
