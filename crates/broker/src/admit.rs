//! Admitting: who calls, is the session open, is there such a tool, how fast does it come.

use std::sync::Arc;

use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::RawCall;
use vambrace_core::session::{Pace, SessionState, SessionView};
use vambrace_store::{Batch, Change, StoreError};
use vambrace_tools::Tool;

use crate::broker::Broker;
use crate::trail::Trail;

pub(crate) const MINUTE_MS: i64 = 60_000;
/// Arguments of one call, as text. Larger ones are refused before anything looks at them.
const MAX_ARGUMENT_BYTES: usize = 16 << 20;

/// A call of a known tool in an open session.
pub(crate) struct Admitted {
    tool: Arc<dyn Tool>,
    args: Value,
    session: SessionView,
}

impl Admitted {
    pub(crate) fn into_parts(self) -> (Arc<dyn Tool>, Value, SessionView) {
        (self.tool, self.args, self.session)
    }
}

/// What becomes of a session that is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSession {
    /// It is opened, on record.
    Open,
    /// Nothing: the call is only explained.
    Imagine,
}

pub(crate) async fn admit(
    broker: &Broker,
    raw: RawCall,
    trail: &mut Trail,
    new: NewSession,
) -> Result<Admitted, CallError> {
    let parts = &broker.parts;
    let state = match new {
        NewSession::Open => match broker.known_state(&trail.session) {
            Some(state) => state,
            None => match session_state(broker, trail).await? {
                Some(state) => state,
                None => open_session(broker, trail).await?,
            },
        },
        NewSession::Imagine => session_state(broker, trail).await?.unwrap_or(SessionState::Active),
    };
    broker.remember(&trail.session, state.is_open().then_some(state));
    trail.session_state = Some(state);
    if !state.is_open() {
        return Err(closed(trail, state));
    }
    let tool = parts.catalogue.get(&raw.tool, |tool| broker.offers(tool.facts()))?;
    trail.tool = tool.facts().name.to_string();
    let named = raw.args.get("path").or_else(|| raw.args.get("url"));
    let asked = named.and_then(Value::as_str).map(|path| path.chars().take(4096).collect());
    trail.operation = Some((tool.about().method, asked));
    if size(&raw.args) > MAX_ARGUMENT_BYTES {
        trail.args = Value::Null;
        return Err(CallError::new(ErrorCode::InvalidArguments, "the arguments are larger than 16 MiB"));
    }
    let pace = match parts.pace.limit(&trail.tool) {
        Some(limit) => {
            trail.limit = Some(limit);
            Some(pace(broker, trail, limit).await?)
        }
        None => None,
    };
    Ok(Admitted { tool: Arc::clone(tool), args: raw.args, session: SessionView { state, pace } })
}

/// The refusal of a session that takes no calls.
pub(crate) fn closed(trail: &Trail, state: SessionState) -> CallError {
    let why = format!("session `{}` is {}", trail.session, state.as_str());
    let error = CallError::new(ErrorCode::SessionSuspended, why);
    match state {
        SessionState::Ended => {
            error.suggest("an ended session stays ended; the user can begin another one (`--session NAME`)")
        }
        _ => error,
    }
}

pub(crate) async fn session_state(broker: &Broker, trail: &Trail) -> Result<Option<SessionState>, CallError> {
    let row =
        broker.parts.store.session(trail.session.as_str()).await.map_err(|error| CallError::from(&error))?;
    Ok(row.map(|row| row.state))
}

/// Opens the session of a first call. Another call, or another process, may be quicker: then it is open.
async fn open_session(broker: &Broker, trail: &mut Trail) -> Result<SessionState, CallError> {
    let (entry, row) = broker.session_record(trail)?;
    let batch = Batch::durable(vec![entry], vec![Change::OpenSession(row)]);
    match broker.parts.store.commit(batch).await {
        Ok(_) => Ok(SessionState::Active),
        Err(error) if error.concerns_batch_only() => {
            session_state(broker, trail).await?.ok_or_else(|| CallError::from(&error))
        }
        Err(error) => {
            trail.disk_full = matches!(error, StoreError::Full(_));
            Err(CallError::from(&error))
        }
    }
}

pub(crate) async fn pace(broker: &Broker, trail: &Trail, limit: u32) -> Result<Pace, CallError> {
    let since = trail.began.earlier(MINUTE_MS);
    let recent = broker
        .parts
        .store
        .recent_calls(trail.session.as_str(), &trail.tool, since)
        .await
        .map_err(|error| CallError::from(&error))?;
    let wait_ms = recent.oldest.map_or(0, |oldest| oldest.later(MINUTE_MS).millis() - trail.began.millis());
    Ok(Pace { calls: u32::try_from(recent.count).unwrap_or(u32::MAX), limit, wait_ms })
}

/// The size of a value, near enough, without writing it out.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 3 + size(value)).sum::<usize>() + 2
        }
    }
}
