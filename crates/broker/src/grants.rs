//! Grants: yes to a class of calls, or to everything of an agent, within one session and for a while. They answer only
//! questions that may be answered so, and never outrank a rule of the organisation.

use vambrace_core::effect::Effect;
use vambrace_core::error::CallError;
use vambrace_core::id::Id;
use vambrace_core::plan::Plan;
use vambrace_core::principal::Principal;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::verdict::{LayerKind, Verdict};
use vambrace_core::voucher::Voucher;
use vambrace_ledger::{Op, Reach, Status};
use vambrace_store::{ApprovalRow, AskChange, Change, Entry, GrantRow};

use crate::broker::Broker;
use crate::decider::Decider;

/// In front of every grant's id, so that a permit's vouchers tell apart.
pub(crate) const PREFIX: &str = "grant-";

/// The class that a call belongs to: its tool, or the programs it starts.
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

/// The vouchers that grants are, for the questions of one plan.
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
            Reach::Once => false,
            Reach::Class => grant.shape == class,
            Reach::Session => true,
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

/// What a grant is given for.
pub(crate) struct Granted<'a> {
    pub(crate) id: &'a Id,
    pub(crate) session: &'a Id,
    pub(crate) principal: &'a Principal,
}

impl Broker {
    /// The grant that a yes to a question comes with, if it reaches further than this once.
    pub(crate) fn grant(
        &self,
        row: &ApprovalRow<String>,
        reach: Reach,
        class: &str,
        decider: &Decider,
    ) -> Result<Option<(Entry, Change)>, CallError> {
        if reach == Reach::Once {
            return Ok(None);
        }
        let principal = Principal {
            tenant: "default".to_owned(),
            user: row.user.clone(),
            agent: row.agent.clone(),
            sub_agent: None,
            skill: None,
        };
        let asked = Granted { id: &row.id, session: &row.session, principal: &principal };
        self.grant_of(&asked, reach, class, decider).map(Some)
    }

    /// A grant and its record.
    pub(crate) fn grant_of(
        &self,
        asked: &Granted<'_>,
        reach: Reach,
        class: &str,
        decider: &Decider,
    ) -> Result<(Entry, Change), CallError> {
        let now = self.parts.clock.now();
        let shape = if reach == Reach::Class { class } else { "*" };
        let grant = GrantRow {
            id: self.new_id(PREFIX),
            session: asked.session.clone(),
            user: self.text(&asked.principal.user)?,
            agent: self.text(&asked.principal.agent)?,
            reach,
            shape: self.text(shape)?,
            by: self.text(decider.by())?,
            approval: asked.id.clone(),
            created: now,
            expires: now.later(self.parts.asking.grant_ms),
            revoked: None,
            uses: 0,
        };
        let mut entry = Entry::new(Op::Grant, now);
        entry.event_type = Some("grant.given");
        entry.status = Some(Status::Approved);
        entry.user = Some(grant.user.clone());
        entry.agent_id = Some(grant.agent.clone());
        entry.session = Some(asked.session.clone());
        entry.hitl_id = Some(asked.id.clone());
        entry.rule = Some(self.text(grant.id.as_str())?);
        let words = match reach {
            Reach::Session => "everything of this agent in this session that may be granted".to_owned(),
            _ => format!("calls of the class `{class}` in this session"),
        };
        entry.message = Some(self.text(&format!("{words}, until {}", grant.expires))?);
        Ok((entry, AskChange::Grant(grant).into()))
    }
}
