//! Recalling: the same call, asked again in the same session, is the same question. It waits further, hears the outcome
//! once, or uses the yes that was given.

use vambrace_core::error::CallError;
use vambrace_core::voucher::Voucher;
use vambrace_store::{ApprovalRow, AskState};

use crate::admit::Admitted;
use crate::asking::Stop;
use crate::broker::Broker;
use crate::trail::Trail;

/// An outcome that nobody came back for is not told later than this.
const REMEMBERED_MS: i64 = 3_600_000;

pub(crate) async fn recall(broker: &Broker, admitted: Admitted, trail: &mut Trail) -> Result<Admitted, Stop> {
    if trail.resumed || !broker.may_ask(&trail.tool) {
        return Ok(admitted);
    }
    let found = broker.parts.store.questions().asked_before(trail.session.as_str(), trail.asked()).await;
    let Some(row) = found.map_err(|error| CallError::from(&error))? else { return Ok(admitted) };
    let now = broker.parts.clock.now();
    if row.delivered || row.created < now.earlier(REMEMBERED_MS) {
        return Ok(admitted);
    }
    if row.state == AskState::Approved && now < row.expires {
        resume(trail, &row);
        return Ok(admitted);
    }
    Err(Stop::Known(Box::new(row)))
}

/// Goes on with the call that was agreed to.
pub(crate) fn resume(trail: &mut Trail, row: &ApprovalRow<String>) {
    trail.call = row.call.clone();
    trail.hitl = Some(row.id.clone());
    trail.resumed = true;
    trail.yes = Some(Voucher::Approval {
        id: row.id.to_string(),
        digest: row.decided.as_ref().map_or(row.digest, |decided| decided.digest),
        expires: row.expires,
        used: false,
    });
}
