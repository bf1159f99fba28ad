//! What a person administers beside projects: grants, tokens and sessions. Every change and its record are one durable batch;
//! changes of grants and tokens are signed decisions.

use vambrace_broker::Approver;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::redacted::Redacted;
use vambrace_core::terminal_escape::sanitize;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{
    Decision, DecisionReach, DecisionVerb, Id, Op, RecordLevel, RecordStatus, SessionChange,
};
use vambrace_store::{
    AccessToken, ApprovalChange, Batch, Entry, GrantRow, SessionRow, SessionState, StateChange, StoreError,
    TokenKind, TokenRow,
};

use crate::caller::LOCAL_TENANT;
use crate::error::HostError;
use crate::host::Host;
use crate::reader::Reader;
use crate::system::{self, SystemClock};

const DAY_MS: i64 = 86_400_000;
/// How long a signed decision of this module may wait for its commit, in ms.
const DECISION_MS: i64 = 60_000;

/// A token to be made.
#[derive(Debug)]
pub struct NewToken {
    /// What it may do.
    pub kind: TokenKind,
    /// Its name, for lists.
    pub name: String,
    /// The user whose requests it decides or whose agent it identifies; `None` for the current user.
    pub user: Option<String>,
    /// Days until it expires; `None` for never.
    pub days: Option<u32>,
}

/// Makes a token and stores its hash.
pub async fn create_token(
    host: &Host,
    new: NewToken,
    administrator: &Approver,
) -> Result<AccessToken, HostError> {
    let NewToken { kind, name, user, days } = new;
    let (now, token) = (SystemClock.now(), AccessToken::make()?);
    let key = if kind.decides() { Some(token.key()?.verify_key()) } else { None };
    let mut entry =
        signed(host, administrator, Op::PolicyChange, DecisionVerb::Token, &token.id, token.hash(), now)?;
    entry.event_type = Some("token.created");
    entry.level = RecordLevel::Warn;
    entry.message = Some(host.redact(&format!("a token of kind {kind}, by {}", administrator.by()))?);
    entry.key = key.clone();
    let row = TokenRow {
        id: token.id.clone(),
        kind,
        name: host.redact(&name)?,
        tenant: host.redact(LOCAL_TENANT)?,
        user: host.redact(&user.unwrap_or_else(system::user))?,
        hash: token.hash(),
        key,
        created: now,
        expires: days.map(|days| now.later(i64::from(days) * DAY_MS)),
        revoked: None,
    };
    let change = ApprovalChange::Token(row);
    host.store().commit(Batch::durable(vec![entry], vec![change.into()])).await?;
    Ok(token)
}

/// Revokes a token.
pub async fn revoke_token(
    host: &Host,
    row: &TokenRow<String>,
    administrator: &Approver,
) -> Result<(), HostError> {
    let now = SystemClock.now();
    let mut entry =
        signed(host, administrator, Op::PolicyChange, DecisionVerb::Revoke, &row.id, row.hash, now)?;
    entry.event_type = Some("token.revoked");
    let change = ApprovalChange::RevokeToken { id: row.id.clone(), at: now };
    host.store().commit(Batch::durable(vec![entry], vec![change.into()])).await?;
    Ok(())
}

/// Revokes a grant of a user that the approver decides for.
pub async fn revoke_grant(
    host: &Host,
    grant: &GrantRow<String>,
    approver: &Approver,
) -> Result<(), HostError> {
    let owner = approver.decides_for(|name| host.redact(name).map(Redacted::into_inner))?;
    let now = SystemClock.now();
    let plan = Digest::of(grant.id.as_str().as_bytes());
    let mut entry = signed(host, approver, Op::Grant, DecisionVerb::Revoke, &grant.id, plan, now)?;
    entry.event_type = Some("grant.revoked");
    entry.session = Some(grant.session.clone());
    let change = ApprovalChange::RevokeGrant { id: grant.id.clone(), owner, at: now };
    match host.store().commit(Batch::durable(vec![entry], vec![change.into()])).await {
        Ok(_) => Ok(()),
        Err(StoreError::ForeignSession(_)) => {
            let why = format!("grant `{}` belongs to another user", sanitize(grant.id.as_str()));
            let hint = "its user revokes it, or the owner of the approver key";
            Err(HostError::denied(ErrorCode::PermissionDenied, why, hint))
        }
        Err(error) => Err(error.into()),
    }
}

/// The record of a signed decision.
fn signed(
    host: &Host,
    approver: &Approver,
    op: Op,
    verb: DecisionVerb,
    about: &Id,
    plan: Digest,
    now: Timestamp,
) -> Result<Entry, HostError> {
    let expires = now.later(DECISION_MS);
    let decision =
        Decision { about: about.clone(), plan, verb, reach: DecisionReach::Once, at: now, expires };
    let mut entry = Entry::new(op, now);
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(host.redact(approver.user())?);
    entry.hitl_id = Some(about.clone());
    entry.plan_digest = Some(plan);
    entry.message = Some(host.redact(&format!("by {}", approver.by()))?);
    entry.note = Some(approver.sign(&decision).map_err(HostError::of)?);
    Ok(entry)
}

/// Resumes or ends a session; only a person can resume one after an alert or suspension. Returns the session as it was.
pub async fn change_session(
    host: &Host,
    reader: &Reader,
    id: &str,
    state: SessionState,
) -> Result<SessionRow<String>, HostError> {
    let session = host.store().session(id).await?.filter(|session| reader.sees_session(session));
    let session = session.ok_or_else(|| {
        let hint = "`vambrace session list` lists the newest ones";
        HostError::usage(format!("there is no session `{id}`"), hint)
    })?;
    if session.state == SessionState::Ended && state == SessionState::Active {
        let hint = "use another session (`--session`)";
        return Err(HostError::usage(format!("session `{id}` has ended and cannot be resumed"), hint));
    }
    if session.state != state {
        let owner = reader.decides()?.clone();
        let now = SystemClock.now();
        let kind = if state == SessionState::Ended { SessionChange::Ended } else { SessionChange::Resumed };
        let mut entry = Entry::session(kind, session.id.clone(), now);
        let words = format!("was {}; changed from the command line", session.state.as_str());
        entry.user = Some(host.redact(reader.user())?);
        entry.message = Some(host.redact(&words)?);
        let set = StateChange::SetSession { id: session.id.clone(), owner, state, at: now };
        match host.store().commit(Batch::durable(vec![entry], vec![set])).await {
            Ok(_) => {}
            Err(StoreError::ForeignSession(_)) => {
                let why = format!("session `{id}` belongs to another user");
                let hint = "its user changes it, or the owner of the state directory";
                return Err(HostError::denied(ErrorCode::PermissionDenied, why, hint));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(session)
}
