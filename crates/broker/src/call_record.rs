//! The call record: facts about a call, collected on its way through the pipeline, so that every exit can be
//! recorded, however early it is.

use std::time::Instant;

use serde_json::Value;
use vambrace_core::digest::Digest;
use vambrace_core::id::Id;
use vambrace_core::plan::canonical;
use vambrace_core::principal::{Peer, Principal, RawCall};
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::voucher::Voucher;
use vambrace_egress::EgressEvent;
use vambrace_store::ApprovalRow;

use crate::approval_request::RequestedCall;
use crate::consent::Consent;
use crate::proposal::ProposedChange;

use crate::broker::Broker;

/// Facts about a call so far.
pub(crate) struct CallRecord {
    pub(crate) call: Id,
    pub(crate) session: Id,
    pub(crate) principal: Principal,
    /// Canonical name once the tool is known, the requested one before.
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) context_id: Option<String>,
    pub(crate) began: Timestamp,
    pub(crate) clock: Instant,
    /// `None` until the session was read.
    pub(crate) session_state: Option<SessionState>,
    pub(crate) operation: Option<(&'static str, Option<String>)>,
    pub(crate) risk: Option<&'static str>,
    pub(crate) plan_digest: Option<Digest>,
    /// Maximum calls of this tool per minute, if limited.
    pub(crate) limit: Option<u32>,
    pub(crate) verdict: Option<&'static str>,
    /// The rules that decided, as text.
    pub(crate) reasons: Vec<String>,
    pub(crate) rule: Option<String>,
    /// The tool's declared policy, for the timeline.
    pub(crate) policy: Option<String>,
    pub(crate) decide_us: u64,
    /// Sequence number of the start record, once committed.
    pub(crate) started: Option<u64>,
    /// The entry point of the call.
    pub(crate) entry_point: &'static str,
    /// Whether the call has a row already, because it waited for a decision.
    pub(crate) resumed: bool,
    /// Whether the caller waits for the decision.
    pub(crate) caller_waits: bool,
    /// The approval request or proposal of the call.
    pub(crate) hitl: Option<Id>,
    /// An approval that was given earlier.
    pub(crate) approval: Option<Voucher>,
    /// The approval that is being given now.
    pub(crate) consent: Option<Consent>,
    /// The change that the call would make.
    pub(crate) change: Option<ProposedChange>,
    /// The class of calls that a grant would cover.
    pub(crate) class: String,
    /// Whether the row is inserted only at the end: a quick read is over before anyone could query it.
    pub(crate) defer_row: bool,
    /// Network attempts, and how many more were dropped.
    pub(crate) egress_attempts: (Vec<EgressEvent>, u64),
    /// The disk is too full to start a call; the failure can still be recorded.
    pub(crate) disk_full: bool,
}

impl CallRecord {
    /// A new record: an id, the time, the caller and the request.
    pub(crate) fn open(broker: &Broker, raw: &RawCall, peer: &Peer) -> Self {
        let began = broker.parts.clock.now();
        let chance = broker.parts.chance.random_u128().to_be_bytes();
        let mut random = [0; 10];
        random.iter_mut().zip(chance).for_each(|(to, from)| *to = from);
        Self {
            call: Id::time_ordered("c-", began.millis().unsigned_abs(), random),
            session: peer.session.clone(),
            principal: peer.principal.clone(),
            tool: raw.tool.chars().take(100).collect(),
            args: raw.args.clone(),
            tool_call_id: raw.tool_call_id.clone(),
            context_id: raw.context_id.clone(),
            began,
            clock: Instant::now(),
            session_state: None,
            operation: None,
            risk: None,
            plan_digest: None,
            limit: None,
            verdict: None,
            reasons: Vec::new(),
            rule: None,
            policy: None,
            decide_us: 0,
            started: None,
            entry_point: peer.entry_point,
            resumed: false,
            caller_waits: false,
            hitl: None,
            approval: None,
            consent: None,
            change: None,
            class: String::new(),
            defer_row: false,
            egress_attempts: Default::default(),
            disk_full: false,
        }
    }

    /// Continues a call that waited.
    pub(crate) fn reopen(broker: &Broker, call: &RequestedCall, row: &ApprovalRow<String>) -> Self {
        let mut record = Self::open(broker, &call.raw, &call.peer);
        record.call = row.call.clone();
        record.hitl = Some(row.id.clone());
        record.resumed = true;
        record
    }

    /// Digest of the raw call; finds its pending request.
    pub(crate) fn request_digest(&self) -> Digest {
        Digest::of_parts([
            b"vambrace-asked-1".as_slice(),
            self.tool.as_bytes(),
            canonical(&self.args).as_bytes(),
        ])
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
