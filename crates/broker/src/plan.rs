//! Planning: arguments against the schema, then the tool states its effects. Reads, but touches nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::plan::Plan;
use vambrace_core::risk::Level;
use vambrace_core::session::SessionView;
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
        catch_unwind(AssertUnwindSafe(|| broker.parts.catalogue.plan(name, &args, &broker.parts.room)))
            .unwrap_or_else(|_| Err(CallError::new(ErrorCode::Internal, format!("planning `{name}` failed"))))?
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
