//! The call record: facts about a call, collected on its way through the pipeline, so that every exit can be
//! recorded, however early it is.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use vambrace_core::digest::Digest;
use vambrace_core::id::Id;
use vambrace_core::plan::canonical;
use vambrace_core::principal::{EntryPoint, Peer, Principal, RawCall};
use vambrace_core::risk::RiskLevel;
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::ExecutionEnvironment;
use vambrace_core::verdict::VerdictKind;
use vambrace_core::voucher::Voucher;
use vambrace_egress::EgressEvent;
use vambrace_store::{ApprovalKind, ApprovalRow, RecordId};
use vambrace_tools::{CallContext, RunFacts, ToolContext};

use crate::approval_request::RequestedCall;
use crate::completion::ResultReceiver;
use crate::consent::Consent;
use crate::held_change::HeldCall;
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
    /// Method and path or URL.
    pub(crate) operation: Option<(Arc<str>, Option<String>)>,
    /// Where the tool's work runs.
    pub(crate) environment: ExecutionEnvironment,
    /// What the sandbox reported, once the program ended.
    pub(crate) run: Option<RunFacts>,
    /// Whether the end of the run is recorded already.
    pub(crate) run_recorded: bool,
    /// The change that a run holds back: it is planned instead of the arguments.
    pub(crate) held: Option<HeldCall>,
    /// Whether a person approved the command whose change is settled now.
    pub(crate) command_approved: bool,
    /// The approval request of that command, if its result is stored for a caller that is not here.
    pub(crate) stored_for: Option<Id>,
    pub(crate) risk: Option<RiskLevel>,
    pub(crate) plan_digest: Option<Digest>,
    /// Maximum calls of this tool per minute, if limited.
    pub(crate) limit: Option<u32>,
    pub(crate) verdict: Option<VerdictKind>,
    /// The rules that decided, as text.
    pub(crate) reasons: Vec<String>,
    pub(crate) rule: Option<String>,
    /// The tool's declared policy, for the timeline.
    pub(crate) policy: Option<String>,
    pub(crate) decide_us: u64,
    /// Sequence number of the start record, once committed.
    pub(crate) started: Option<RecordId>,
    /// The entry point of the call.
    pub(crate) entry_point: EntryPoint,
    /// Whether the call has a row already, because it waited for a decision.
    pub(crate) resumed: bool,
    /// Whether the caller waits for the decision.
    pub(crate) caller_waits: bool,
    /// The kind of the approval request that this call continues.
    pub(crate) requested: Option<ApprovalKind>,
    /// Who gets the result.
    pub(crate) receiver: ResultReceiver,
    /// The approval request or proposal of the call.
    pub(crate) hitl: Option<Id>,
    /// An approval that was committed earlier, and that the start uses.
    pub(crate) approval: Option<Voucher>,
    /// What a person approved: in a decision that is committed with the start, or earlier.
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
    /// Cancellation, deadline, progress, output.
    pub(crate) context: CallContext,
    /// What the tool works with, for this call.
    pub(crate) tool_context: Arc<ToolContext>,
}

impl CallRecord {
    /// A new record: an id, the time, the caller and the request.
    pub(crate) fn open(broker: &Broker, raw: &RawCall, peer: &Peer, context: CallContext) -> Self {
        let began = broker.parts.clock.now();
        Self {
            call: broker.new_id_at("c-", began),
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
            environment: ExecutionEnvironment::InProcess,
            run: None,
            run_recorded: false,
            held: None,
            command_approved: false,
            stored_for: None,
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
            requested: None,
            receiver: ResultReceiver::Caller,
            hitl: None,
            approval: None,
            consent: None,
            change: None,
            class: String::new(),
            defer_row: false,
            egress_attempts: Default::default(),
            disk_full: false,
            tool_context: Arc::new(ToolContext {
                call: context.clone(),
                ..broker.parts.tool_context.clone()
            }),
            context,
        }
    }

    /// Continues a call that waited, for its caller, which is not here.
    pub(crate) fn reopen(broker: &Broker, call: &RequestedCall, row: &ApprovalRow<String>) -> Self {
        let mut record = Self::open(broker, &call.raw, &call.peer, CallContext::default());
        record.call = row.call.clone();
        record.hitl = Some(row.id.clone());
        record.resumed = true;
        record.requested = Some(row.kind);
        record.receiver = ResultReceiver::Stored;
        record.held = call.held.clone();
        record
    }

    /// The run has ended and is recorded: what follows is about the change that it holds back, with its own approval.
    pub(crate) fn begin_held_change(&mut self, held: HeldCall) {
        self.command_approved = self.approval.is_some() || self.consent.is_some();
        self.stored_for = self.stored_result_id();
        (self.approval, self.consent, self.hitl, self.requested) = (None, None, None, None);
        (self.started, self.limit) = (None, None);
        (self.resumed, self.run_recorded) = (true, true);
        self.egress_attempts = Default::default();
        self.held = Some(held);
    }

    /// The approval request that the result is stored with, if the caller of an approved call is not here.
    pub(crate) fn stored_result_id(&self) -> Option<Id> {
        let stored = self.requested == Some(ApprovalKind::Call) && self.receiver == ResultReceiver::Stored;
        self.hitl.clone().filter(|_| stored)
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
