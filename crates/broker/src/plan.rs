//! Planning: arguments against the schema, then the tool states its effects. Reads, but touches nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_core::plan::Plan;
use vambrace_core::risk::{Level, Risk};
use vambrace_core::session::SessionView;
use vambrace_core::tool::ToolFacts;
use vambrace_core::verdict::Answer;
use vambrace_tools::Prepared;

use crate::admit::Admitted;
use crate::broker::Broker;
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
    let name = tool.facts().name.as_str();
    // A tool that is not offered is judged by its name alone: what its arguments point at stays untold.
    let prepared = if broker.offers(tool.facts()) {
        let planned =
            catch_unwind(AssertUnwindSafe(|| broker.parts.catalogue.plan(name, &args, &broker.parts.room)))
                .unwrap_or_else(|_| {
                    Err(CallError::new(ErrorCode::Internal, format!("planning `{name}` failed")))
                });
        planned.or_else(|error| discreet(broker, tool.facts(), &args, &session, error))?
    } else {
        Prepared::nothing()
    };
    trail.operation = prepared
        .operation
        .as_ref()
        .map(|operation| (operation.method, operation.path.as_ref().map(ToString::to_string)));
    trail.policy = Some(tool.facts().policy.words());
    trail.risk = Some(match prepared.risk.level {
        Level::Low => "LOW",
        Level::Medium => "MEDIUM",
        Level::High => "HIGH",
    });
    let plan = Plan {
        tool: tool.facts().clone(),
        args,
        effects: prepared.effects.clone(),
        risk: prepared.risk.clone(),
    };
    Ok(Planned { plan, prepared, session })
}

/// Whether something exists is told only to whoever might read it: a missing path that the policy refuses by name
/// is refused like one that is there, and where the policy hides names none is suggested.
fn discreet(
    broker: &Broker,
    tool: &Arc<ToolFacts>,
    args: &Value,
    session: &SessionView,
    error: CallError,
) -> Result<Prepared, CallError> {
    let asked = args.get("path").and_then(Value::as_str).map(|path| AskedPath::new(path).parse());
    let Some(Ok(asked)) =
        asked.filter(|_| matches!(error.code, ErrorCode::FileNotFound | ErrorCode::NotAFile))
    else {
        return Err(error);
    };
    let judge = |effect: Effect| {
        let risk = Risk::low("nothing is there");
        let plan = Plan { tool: Arc::clone(tool), args: Value::Null, effects: vec![effect], risk };
        broker.parts.policy.decide(&plan, session)
    };
    let by_name = Effect::read(asked.clone());
    if judge(by_name.clone()).verdict.answer() == Answer::Deny {
        return Ok(Prepared { effects: vec![by_name], ..Prepared::nothing() });
    }
    let open = judge(Effect::read_tree(ScopedPath::root(asked.zone()))).fence.read.is_open();
    Err(if open { error } else { CallError::new(error.code, error.message) })
}
