//! Plan: validates the arguments against the schema, then the tool states its effects. This step reads and changes
//! nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;
use vambrace_core::change::ChangeSet;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_core::plan::Plan;
use vambrace_core::risk::Risk;
use vambrace_core::session::SessionView;
use vambrace_core::tool::ToolDescriptor;
use vambrace_core::verdict::VerdictKind;
use vambrace_tools::{Amendment, Tool, ToolPlan};

use crate::admit::Admitted;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::grants::class_of;
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

pub(crate) fn plan(
    broker: &Broker,
    admitted: Admitted,
    record: &mut CallRecord,
) -> Result<Planned, CallError> {
    let (tool, args, session) = admitted.into_parts();
    let part = record.consent.as_ref().map_or(Amendment::Whole, |consent| consent.part.clone());
    let name = tool.descriptor().name.as_str();
    // A tool that is not offered is judged by the names in its arguments: the error must not reveal what they point
    // at.
    let planned = if broker.offers(tool.descriptor()) {
        catch_unwind(AssertUnwindSafe(|| {
            broker.parts.catalogue.plan(name, &args, &broker.parts.tool_context)
        }))
        .unwrap_or_else(|_| Err(CallError::new(ErrorCode::Internal, format!("planning `{name}` failed"))))
        .map(|prepared| (prepared, None))
        .map_err(|error| if record.consent.is_some() { as_stale(error) } else { error })
        .or_else(|error| hide_existence(broker, tool.descriptor(), &args, &session, error))?
    } else {
        (ToolPlan { effects: effects_by_name(&args), ..ToolPlan::nothing() }, None)
    };
    let (prepared, denied) = planned;
    // Hunk numbers and edited content refer to the whole change as it was shown.
    let amended = record.consent.as_ref().filter(|_| part != Amendment::Whole && denied.is_none());
    if amended.is_some_and(|consent| consent.requested != plan_of(&tool, &args, &prepared, None).digest()) {
        return Err(CallError::new(
            ErrorCode::StaleBase,
            "the approval request no longer matches what would happen: the files have changed",
        ));
    }
    let prepared = vambrace_tools::amend(&broker.parts.tool_context, prepared, &part)?;
    finish(broker, &tool, &args, prepared, denied, session, record)
}

/// Plans a rollback: the change that undoes an applied one.
pub(crate) fn plan_rollback(
    broker: &Broker,
    admitted: Admitted,
    back: ChangeSet,
    record: &mut CallRecord,
) -> Result<Planned, CallError> {
    let (tool, args, session) = admitted.into_parts();
    let prepared = vambrace_tools::plan_undo(&broker.parts.tool_context, back)?;
    finish(broker, &tool, &args, prepared, None, session, record)
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
        record.operation = Some((tool.description().method, Some(path.to_string())));
    }
    record.policy = Some(tool.descriptor().policy.to_json_text());
    prepared.risk = broker.parts.policy.file_changes.raise(prepared.risk, &prepared.effects);
    record.risk = Some(prepared.risk.level.as_str());
    let redactor = &*broker.parts.redactor;
    record.change = prepared.work.change().map(|draft| ProposedChange::of(draft, redactor)).transpose()?;
    let plan = plan_of(tool, args, &prepared, denied);
    record.class = class_of(&plan);
    Ok(Planned { plan, prepared, session })
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
