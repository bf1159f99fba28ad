//! Planning: arguments against the schema, then the tool states its effects. Reads, but touches nothing.

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
use vambrace_core::tool::ToolFacts;
use vambrace_core::verdict::Answer;
use vambrace_tools::{Part, Prepared, Tool};

use crate::admit::Admitted;
use crate::broker::Broker;
use crate::grants::class_of;
use crate::proposal::Drafted;
use crate::trail::Trail;

/// A call whose effects are known.
pub(crate) struct Planned {
    plan: Plan,
    prepared: Prepared,
    session: SessionView,
}

impl Planned {
    pub(crate) fn into_parts(self) -> (Plan, Prepared, SessionView) {
        (self.plan, self.prepared, self.session)
    }
}

pub(crate) fn plan(broker: &Broker, admitted: Admitted, trail: &mut Trail) -> Result<Planned, CallError> {
    let (tool, args, session) = admitted.into_parts();
    let part = trail.consent.as_ref().map_or(Part::Whole, |consent| consent.part.clone());
    let name = tool.facts().name.as_str();
    // A tool that is not offered is judged by the names in its arguments: what they point at stays untold.
    let planned = if broker.offers(tool.facts()) {
        catch_unwind(AssertUnwindSafe(|| broker.parts.catalogue.plan(name, &args, &broker.parts.room)))
            .unwrap_or_else(|_| Err(CallError::new(ErrorCode::Internal, format!("planning `{name}` failed"))))
            .map(|prepared| (prepared, None))
            .map_err(|error| if trail.consent.is_some() { stale(error) } else { error })
            .or_else(|error| discreet(broker, tool.facts(), &args, &session, error))?
    } else {
        (Prepared { effects: by_name(&args), ..Prepared::nothing() }, None)
    };
    let (prepared, refused) = planned;
    // The numbers of hunks, and content that somebody edited, speak of the whole as it was shown.
    let asked = trail.consent.as_ref().filter(|_| part != Part::Whole && refused.is_none());
    if asked.is_some_and(|consent| consent.asked != stated(&tool, &args, &prepared, None).digest()) {
        return Err(CallError::new(
            ErrorCode::StaleBase,
            "what was asked about is not what would happen now: the files have changed",
        ));
    }
    let prepared = vambrace_tools::amend(&broker.parts.room, prepared, &part)?;
    finish(broker, &tool, &args, prepared, refused, session, trail)
}

/// The plan of a change that undoes another one.
pub(crate) fn plan_back(
    broker: &Broker,
    admitted: Admitted,
    back: ChangeSet,
    trail: &mut Trail,
) -> Result<Planned, CallError> {
    let (tool, args, session) = admitted.into_parts();
    let prepared = vambrace_tools::undo(&broker.parts.room, back)?;
    finish(broker, &tool, &args, prepared, None, session, trail)
}

/// What was proposed could be planned then: now that it cannot, the files are others.
fn stale(error: CallError) -> CallError {
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
    mut prepared: Prepared,
    refused: Option<CallError>,
    session: SessionView,
    trail: &mut Trail,
) -> Result<Planned, CallError> {
    if let Some(path) = &prepared.path {
        trail.operation = Some((tool.about().method, Some(path.to_string())));
    }
    trail.policy = Some(tool.facts().policy.words());
    prepared.risk = broker.parts.policy.writing.raise(prepared.risk, &prepared.effects);
    trail.risk = Some(prepared.risk.level.as_str());
    let redactor = &*broker.parts.redactor;
    trail.change = prepared.work.change().map(|draft| Drafted::of(draft, redactor)).transpose()?;
    let plan = stated(tool, args, &prepared, refused);
    trail.class = class_of(&plan);
    Ok(Planned { plan, prepared, session })
}

/// What was prepared, as it is decided about.
fn stated(tool: &Arc<dyn Tool>, args: &Value, prepared: &Prepared, refused: Option<CallError>) -> Plan {
    Plan {
        tool: tool.facts().clone(),
        args: args.clone(),
        effects: prepared.effects.clone(),
        binds: prepared.work.change().map(|draft| draft.changes.digest()),
        risk: prepared.risk.clone(),
        refused,
    }
}

/// The effects that the arguments name, without a look at what is there.
fn by_name(args: &Value) -> Vec<Effect> {
    let asked = args.get("path").and_then(Value::as_str).map(|path| AskedPath::new(path).parse());
    asked.into_iter().flatten().map(Effect::read).collect()
}

/// A call that could not be planned. What the workspace refuses is refused, and still judged by every layer. Whether
/// something exists is told only to whoever might read it: a missing path that the policy refuses by name is refused
/// like one that is there, and where the policy hides names none is suggested.
fn discreet(
    broker: &Broker,
    tool: &Arc<ToolFacts>,
    args: &Value,
    session: &SessionView,
    error: CallError,
) -> Result<(Prepared, Option<CallError>), CallError> {
    let effects = by_name(args);
    if error.code.violation().is_some() {
        return Ok((Prepared { effects, ..Prepared::nothing() }, Some(error)));
    }
    let Some(asked) = effects.first().and_then(Effect::path).cloned() else { return Err(error) };
    if !matches!(error.code, ErrorCode::FileNotFound | ErrorCode::NotAFile) {
        return Err(error);
    }
    let judge = |effects: Vec<Effect>| {
        let risk = Risk::low("nothing is there");
        let plan =
            Plan { tool: Arc::clone(tool), args: Value::Null, effects, binds: None, risk, refused: None };
        broker.parts.policy.decide(&plan, session)
    };
    if judge(effects.clone()).verdict.answer() == Answer::Deny {
        return Ok((Prepared { effects, ..Prepared::nothing() }, None));
    }
    let open = judge(vec![Effect::read_tree(ScopedPath::root(asked.zone()))]).fence.read.is_open();
    Err(if open { error } else { CallError::new(error.code, error.message) })
}
