//! Grants: a standing permission for a class of calls, or for everything of an agent, within one session and until an
//! expiry. A grant discharges only obligations that are grantable, and never outranks a rule of the organisation.

use vambrace_core::effect::Effect;
use vambrace_core::error::CallError;
use vambrace_core::id::Id;
use vambrace_core::plan::Plan;
use vambrace_core::principal::Principal;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::verdict::{LayerKind, Verdict};
use vambrace_core::voucher::Voucher;
use vambrace_ledger::{DecisionReach, Op, RecordStatus};
use vambrace_store::{ApprovalChange, ApprovalRow, Entry, GrantRow, StateChange};

use crate::approval_request::RequestedCall;
use crate::approver::Approver;
use crate::broker::Broker;

/// Prefix of grant ids; distinguishes the vouchers of a permit.
pub(crate) const PREFIX: &str = "grant-";

/// The class of a call: its tool, or the program it starts.
#[must_use]
pub(crate) fn class_of(plan: &Plan) -> String {
    let programs: Vec<&str> = plan
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Execute { argv } => argv.first().map(String::as_str),
            _ => None,
        })
        .collect();
    match programs.first() {
        Some(first) if programs.iter().all(|program| program == first) => {
            format!("{} {first}", plan.tool.name)
        }
        _ => plan.tool.name.to_string(),
    }
}

/// Vouchers from grants, for the obligations of one plan.
pub(crate) fn vouchers(
    grants: &[GrantRow<String>],
    class: &str,
    agent: &str,
    verdict: &Verdict,
    now: Timestamp,
) -> Vec<Voucher> {
    let mut vouchers = Vec::new();
    for grant in grants.iter().filter(|grant| grant.counts(now) && grant.agent == agent) {
        let fits = match grant.reach {
            DecisionReach::Once => false,
            DecisionReach::Class => grant.shape == class,
            DecisionReach::Session => true,
        };
        if fits {
            vouchers.extend(verdict.obligations().map(|obligation| Voucher::Grant {
                id: grant.id.to_string(),
                about: obligation.reason.about.clone(),
                by: LayerKind::User,
                expires: Some(grant.expires),
                revoked: false,
            }));
        }
    }
    vouchers
}

/// The request and caller that a grant is for.
pub(crate) struct GrantSubject<'a> {
    pub(crate) id: &'a Id,
    pub(crate) session: &'a Id,
    pub(crate) principal: &'a Principal,
}

impl Broker {
    /// The grant that an approval includes, if it reaches further than once.
    pub(crate) fn grant(
        &self,
        row: &ApprovalRow<String>,
        reach: DecisionReach,
        call: &RequestedCall,
        approver: &Approver,
    ) -> Result<Option<(Entry, StateChange)>, CallError> {
        if reach == DecisionReach::Once {
            return Ok(None);
        }
        let subject = GrantSubject { id: &row.id, session: &row.session, principal: &call.peer.principal };
        self.new_grant(&subject, reach, &call.class, approver).map(Some)
    }

    /// A grant and its ledger entry.
    pub(crate) fn new_grant(
        &self,
        subject: &GrantSubject<'_>,
        reach: DecisionReach,
        class: &str,
        approver: &Approver,
    ) -> Result<(Entry, StateChange), CallError> {
        let now = self.parts.clock.now();
        let shape = if reach == DecisionReach::Class { class } else { "*" };
        let grant = GrantRow {
            id: self.new_id(PREFIX),
            session: subject.session.clone(),
            user: self.text(&subject.principal.user)?,
            agent: self.text(&subject.principal.agent)?,
            reach,
            shape: self.text(shape)?,
            by: self.text(approver.by())?,
            approval: subject.id.clone(),
            created: now,
            expires: now.later(self.parts.approvals.grant_ms),
            revoked: None,
            uses: 0,
        };
        let mut entry = Entry::new(Op::Grant, now);
        entry.event_type = Some("grant.given");
        entry.status = Some(RecordStatus::Approved);
        entry.user = Some(grant.user.clone());
        entry.agent_id = Some(grant.agent.clone());
        entry.session = Some(subject.session.clone());
        entry.hitl_id = Some(subject.id.clone());
        entry.rule = Some(self.text(grant.id.as_str())?);
        let words = match reach {
            DecisionReach::Session => {
                "everything of this agent in this session that may be granted".to_owned()
            }
            _ => format!("calls of the class `{class}` in this session"),
        };
        entry.message = Some(self.text(&format!("{words}, until {}", grant.expires))?);
        Ok((entry, ApprovalChange::Grant(grant).into()))
    }
}
