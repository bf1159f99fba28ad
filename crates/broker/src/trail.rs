//! The trail: what is known of a call so far, gathered on the way so that every exit can be recorded, however
//! early it is.

use std::time::Instant;

use serde_json::Value;
use vambrace_core::digest::Digest;
use vambrace_core::id::Id;
use vambrace_core::plan::canonical;
use vambrace_core::principal::{Peer, Principal, RawCall};
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::voucher::Voucher;
use vambrace_egress::Event;
use vambrace_store::ApprovalRow;

use crate::agreement::Consent;
use crate::asking::AskedCall;
use crate::proposal::Drafted;

use crate::broker::Broker;

/// What is known of a call.
pub(crate) struct Trail {
    pub(crate) call: Id,
    pub(crate) session: Id,
    pub(crate) principal: Principal,
    /// The canonical name once the tool is known, the asked one before.
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) context_id: Option<String>,
    pub(crate) began: Timestamp,
    pub(crate) clock: Instant,
    /// `None` until the session was looked up.
    pub(crate) session_state: Option<SessionState>,
    pub(crate) operation: Option<(&'static str, Option<String>)>,
    pub(crate) risk: Option<&'static str>,
    pub(crate) plan_digest: Option<Digest>,
    /// How many calls of this tool a minute may have, where that is limited.
    pub(crate) limit: Option<u32>,
    pub(crate) verdict: Option<&'static str>,
    /// The rules that decided, in words.
    pub(crate) reasons: Vec<String>,
    pub(crate) rule: Option<String>,
    /// What the tool declares, for the timeline.
    pub(crate) policy: Option<String>,
    pub(crate) decide_us: u64,
    /// The number of the start record, once it is committed.
    pub(crate) started: Option<u64>,
    /// Which door it came through.
    pub(crate) door: &'static str,
    /// Whether the call has its row already: it waited for a decision.
    pub(crate) resumed: bool,
    /// Whether somebody waits for the decision.
    pub(crate) waits: bool,
    /// The question or proposal it belongs to.
    pub(crate) hitl: Option<Id>,
    /// A yes that was given before.
    pub(crate) yes: Option<Voucher>,
    /// Who agrees right now, to what, until when.
    pub(crate) consent: Option<Consent>,
    /// The change it would make.
    pub(crate) change: Option<Drafted>,
    /// The class of calls that a grant would be for.
    pub(crate) class: String,
    /// Whether the call gets its row with its end: a quick read is over before anybody could look for it.
    pub(crate) row_later: bool,
    /// The connections that it attempted, and how many more there were than are kept.
    pub(crate) attempts: (Vec<Event>, u64),
    /// Nothing can begin for want of room; that it did not can still be recorded.
    pub(crate) disk_full: bool,
}

impl Trail {
    /// Begins: an id, the time, and who asks for what.
    pub(crate) fn open(broker: &Broker, raw: &RawCall, peer: &Peer) -> Self {
        let began = broker.parts.clock.now();
        let chance = broker.parts.chance.draw().to_be_bytes();
        let mut random = [0; 10];
        random.iter_mut().zip(chance).for_each(|(to, from)| *to = from);
        Self {
            call: Id::timed("c-", began.millis().unsigned_abs(), random),
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
            door: peer.door,
            resumed: false,
            waits: false,
            hitl: None,
            yes: None,
            consent: None,
            change: None,
            class: String::new(),
            row_later: false,
            attempts: Default::default(),
            disk_full: false,
        }
    }

    /// Goes on with a call that waited.
    pub(crate) fn reopen(broker: &Broker, call: &AskedCall, row: &ApprovalRow<String>) -> Self {
        let mut trail = Self::open(broker, &call.raw, &call.peer);
        trail.call = row.call.clone();
        trail.hitl = Some(row.id.clone());
        trail.resumed = true;
        trail
    }

    /// How the call was asked: what finds its question again.
    pub(crate) fn asked(&self) -> Digest {
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
