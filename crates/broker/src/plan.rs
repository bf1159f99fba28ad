//! Plan: validates the arguments against the schema, then the tool states its effects. This step reads and changes
//! nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_core::plan::Plan;
use vambrace_core::risk::Risk;
use vambrace_core::session::{SessionState, SessionView};
use vambrace_core::tool::ToolDescriptor;
use vambrace_core::verdict::VerdictKind;
use vambrace_tools::{Amendment, Tool, ToolPlan, Weight, cancelled_error};

use crate::admit::Admitted;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::grants::class_of;
use crate::held_change::{CHANGE_TOOL, HeldCall};
use crate::pipeline::Purpose;
use crate::proposal::ProposedChange;

/// A call whose effects are known.
pub(crate) struct Planned {
    plan: Plan,
    prepared: ToolPlan,
    session: SessionView,
}

impl Planned {
    pub(crate) fn into_parts(self) -> (Plan, ToolPlan, SessionView) {
        (self.plan, self.prepared, self.session)
    }
}

pub(crate) async fn plan(
    broker: &Broker,
    admitted: Admitted,
    record: &mut CallRecord,
    purpose: Purpose,
) -> Result<Planned, CallError> {
    let (tool, args, session) = admitted.into_parts();
    if let Purpose::Rollback(back) = purpose {
        let prepared = vambrace_tools::plan_undo(&record.tool_context, back)?;
        return finish(broker, &tool, &args, prepared, None, session, record);
    }
    let part = record.consent.as_ref().map_or(Amendment::Whole, |consent| consent.part.clone());
    if let Some(held) = record.held.clone() {
        let (tool, prepared) = held_plan(broker, &held, record).await?;
        return amended(broker, &tool, &args, prepared, &part, session, record);
    }
    // A tool that is not offered is judged by the names in its arguments: the error must not reveal what they point
    // at.
    let planned = if broker.offers(tool.descriptor()) {
        tool_plan(broker, &tool, &args, record)
            .await
            .map(|prepared| (prepared, None))
            .map_err(|error| if record.consent.is_some() { as_stale(error) } else { error })
            .or_else(|error| hide_existence(broker, tool.descriptor(), &args, &session, error))?
    } else {
        (ToolPlan { effects: effects_by_name(&args), ..ToolPlan::nothing() }, None)
    };
    match planned {
        (prepared, None) => amended(broker, &tool, &args, prepared, &part, session, record),
        (prepared, denied) => finish(broker, &tool, &args, prepared, denied, session, record),
    }
}

/// The plan of a change, or of the part of it that a person approved. Hunk numbers and edited content refer to the whole
/// change as it was shown.
fn amended(
    broker: &Broker,
    tool: &Arc<dyn Tool>,
    args: &Value,
    prepared: ToolPlan,
    part: &Amendment,
    session: SessionView,
    record: &mut CallRecord,
) -> Result<Planned, CallError> {
    let amends = record.consent.as_ref().filter(|_| *part != Amendment::Whole);
    if amends.is_some_and(|consent| consent.requested != plan_of(tool, args, &prepared, None).digest()) {
        return Err(CallError::new(
            ErrorCode::StaleBase,
            "the approval request no longer matches what would happen: the files have changed",
        ));
    }
    let prepared = vambrace_tools::amend(&record.tool_context, prepared, part)?;
    finish(broker, tool, args, prepared, None, session, record)
}

/// The plan of the change that a run holds back: judged as a patch would be.
async fn held_plan(
    broker: &Broker,
    held: &HeldCall,
    record: &CallRecord,
) -> Result<(Arc<dyn Tool>, ToolPlan), CallError> {
    let failed = || CallError::new(ErrorCode::Internal, "planning the changes of a program failed");
    let tool = broker.parts.catalogue.find(CHANGE_TOOL).cloned().ok_or_else(failed)?;
    let (context, changes) = (Arc::clone(&record.tool_context), held.changes.clone());
    let work = move || {
        catch_unwind(AssertUnwindSafe(|| vambrace_tools::plan_held_change(&context, changes)))
            .unwrap_or_else(|_| Err(CallError::new(ErrorCode::Internal, "planning the changes failed")))
    };
    Ok((tool, tokio::task::spawn_blocking(work).await.map_err(|_| failed())??))
}

/// Plans the change that a run holds back, right after the run.
pub(crate) async fn plan_held(
    broker: &Broker,
    held: &HeldCall,
    record: &mut CallRecord,
) -> Result<Planned, CallError> {
    let state = record.session_state.unwrap_or(SessionState::Active);
    let (tool, prepared) = held_plan(broker, held, record).await?;
    let args = record.args.clone();
    finish(broker, &tool, &args, prepared, None, SessionView { state, call_rate: None }, record)
}

/// The tool's own plan. Drafting a change reads and compares whole files, so it does not occupy a worker of the runtime.
async fn tool_plan(
    broker: &Broker,
    tool: &Arc<dyn Tool>,
    args: &Value,
    record: &CallRecord,
) -> Result<ToolPlan, CallError> {
    let name = tool.descriptor().name.clone();
    let failed = || CallError::new(ErrorCode::Internal, format!("planning `{name}` failed"));
    let (catalogue, context) = (&broker.parts.catalogue, &record.tool_context);
    let planned = match tool.definition().planning {
        Weight::Light => catch_unwind(AssertUnwindSafe(|| catalogue.plan(name.as_str(), args, context))),
        Weight::Heavy => {
            let (catalogue, context) = (Arc::clone(catalogue), Arc::clone(context));
            let (name, args) = (name.clone(), args.clone());
            let work =
                move || catch_unwind(AssertUnwindSafe(|| catalogue.plan(name.as_str(), &args, &context)));
            let task = tokio::task::spawn_blocking(work);
            tokio::select! {
                planned = task => planned.map_err(|_| failed())?,
                () = record.context.cancel.cancelled() => return Err(cancelled_error()),
            }
        }
    };
    planned.unwrap_or_else(|_| Err(failed()))
}

/// The proposal could be planned when it was made; an error now means that the files have changed.
fn as_stale(error: CallError) -> CallError {
    match error.code {
        ErrorCode::FileNotFound
        | ErrorCode::NotAFile
        | ErrorCode::MatchCountMismatch
        | ErrorCode::BinaryFile => CallError::new(ErrorCode::StaleBase, error.message),
        _ => error,
    }
}

fn finish(
    broker: &Broker,
    tool: &Arc<dyn Tool>,
    args: &Value,
    mut prepared: ToolPlan,
    denied: Option<CallError>,
    session: SessionView,
    record: &mut CallRecord,
) -> Result<Planned, CallError> {
    if let Some(path) = &prepared.path {
        record.operation = Some((Arc::clone(&tool.description().method), Some(path.to_string())));
    }
    record.policy = Some(tool.descriptor().policy.to_json_text());
    prepared.risk = broker.parts.policy.file_changes.raise(prepared.risk, &prepared.effects);
    record.risk = Some(prepared.risk.level);
    let redactor = &broker.parts.redactor;
    record.change = prepared.work.change().map(|draft| ProposedChange::of(draft, redactor)).transpose()?;
    if let (Some(held), Some(change)) = (&record.held, &mut record.change) {
        change.payload = held.run.with_changes(&change.payload);
        change.summary = format!("{}: {}", command_line(args), change.summary);
    }
    let plan = plan_of(tool, args, &prepared, denied);
    record.class = class_of(&plan);
    Ok(Planned { plan, prepared, session })
}

/// A command in one line, for a summary.
fn command_line(args: &Value) -> String {
    const MAX_CHARS: usize = 200;
    let words = |key: &str| -> Vec<String> {
        match args.get(key) {
            Some(Value::String(word)) => vec![word.clone()],
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let line = [words("command"), words("args")].concat().join(" ");
    line.chars().filter(|letter| !letter.is_control()).take(MAX_CHARS).collect()
}

/// The plan that policy decides about.
fn plan_of(tool: &Arc<dyn Tool>, args: &Value, prepared: &ToolPlan, denied: Option<CallError>) -> Plan {
    Plan {
        tool: tool.descriptor().clone(),
        args: args.clone(),
        effects: prepared.effects.clone(),
        content_digest: prepared.work.change().map(|draft| draft.changes.digest()),
        risk: prepared.risk.clone(),
        workspace_denial: denied,
    }
}

/// Effects on the paths that the arguments name, without reading the workspace.
fn effects_by_name(args: &Value) -> Vec<Effect> {
    let named_path = args.get("path").and_then(Value::as_str).map(|path| AskedPath::new(path).parse());
    named_path.into_iter().flatten().map(Effect::read).collect()
}

/// Handles a call that could not be planned. What the workspace denies stays denied, and every layer still judges it.
/// Only a caller that may read a path learns whether it exists: a missing path that policy denies by name is denied
/// like an existing one, and where policy hides names the error suggests none.
fn hide_existence(
    broker: &Broker,
    tool: &Arc<ToolDescriptor>,
    args: &Value,
    session: &SessionView,
    error: CallError,
) -> Result<(ToolPlan, Option<CallError>), CallError> {
    let effects = effects_by_name(args);
    if error.code.violation().is_some() {
        return Ok((ToolPlan { effects, ..ToolPlan::nothing() }, Some(error)));
    }
    let Some(named_path) = effects.first().and_then(Effect::path).cloned() else { return Err(error) };
    if !matches!(error.code, ErrorCode::FileNotFound | ErrorCode::NotAFile) {
        return Err(error);
    }
    let judge = |effects: Vec<Effect>| {
        let risk = Risk::low("nothing is there");
        let plan = Plan {
            tool: Arc::clone(tool),
            args: Value::Null,
            effects,
            content_digest: None,
            risk,
            workspace_denial: None,
        };
        broker.parts.policy.decide(&plan, session)
    };
    if judge(effects.clone()).verdict.kind() == VerdictKind::Deny {
        return Ok((ToolPlan { effects, ..ToolPlan::nothing() }, None));
    }
    let open = judge(vec![Effect::read_tree(ScopedPath::root(named_path.zone()))]).fence.read.is_open();
    Err(if open { error } else { CallError::new(error.code, error.message) })
}
