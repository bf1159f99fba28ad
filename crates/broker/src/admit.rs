//! Admit: checks that the session is open, the tool exists, the arguments are not too large, and measures the rate of
//! calls.

use std::sync::Arc;

use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::RawCall;
use vambrace_core::session::{CallRate, SessionState, SessionView};
use vambrace_store::{Batch, StateChange, StoreError};
use vambrace_tools::Tool;

use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::pipeline::Purpose;

pub(crate) const MINUTE_MS: i64 = 60_000;
/// Maximum size of the arguments of one call, as text. Larger ones are denied before anything reads them.
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

pub(crate) async fn admit(
    broker: &Broker,
    raw: RawCall,
    record: &mut CallRecord,
    purpose: &Purpose,
) -> Result<Admitted, CallError> {
    let parts = &broker.parts;
    let state = match broker.cached_state(&record.session, &record.principal) {
        Some(state) => state,
        None => match session_state(broker, record).await? {
            Some(state) => state,
            // What is only shown opens no session.
            None if *purpose == Purpose::Show => SessionState::Active,
            None => open_session(broker, record).await?,
        },
    };
    if *purpose != Purpose::Show {
        broker.cache_state(&record.session, &record.principal, state.is_open().then_some(state));
    }
    record.session_state = Some(state);
    if !state.is_open() {
        return Err(session_closed(record, state));
    }
    let tool = parts.catalogue.get(&raw.tool, |tool| broker.offers(tool.descriptor()))?;
    record.tool = tool.descriptor().name.to_string();
    record.environment = tool.environment();
    let named = raw.args.get("path").or_else(|| raw.args.get("url"));
    let named_path = named.and_then(Value::as_str).map(|path| path.chars().take(4096).collect());
    record.operation = Some((Arc::clone(&tool.description().method), named_path));
    if approximate_size(&raw.args) > MAX_ARGUMENT_BYTES {
        record.args = Value::Null;
        return Err(CallError::new(ErrorCode::InvalidArguments, "the arguments are larger than 16 MiB"));
    }
    let pace = match parts.rate_limits.limit(&record.tool) {
        Some(limit) => {
            record.limit = Some(limit);
            Some(measure_rate(broker, record, limit).await?)
        }
        None => None,
    };
    Ok(Admitted { tool: Arc::clone(tool), args: raw.args, session: SessionView { state, call_rate: pace } })
}

/// The error of a call in a session that is not open.
pub(crate) fn session_closed(record: &CallRecord, state: SessionState) -> CallError {
    let why = format!("session `{}` is {}", record.session, state.as_str());
    let error = CallError::new(ErrorCode::SessionSuspended, why);
    match state {
        SessionState::Ended => {
            error.suggest("an ended session stays ended; the user can start another one (`--session NAME`)")
        }
        _ => error,
    }
}

pub(crate) async fn session_state(
    broker: &Broker,
    record: &CallRecord,
) -> Result<Option<SessionState>, CallError> {
    let row =
        broker.parts.store.session(record.session.as_str()).await.map_err(|error| CallError::from(&error))?;
    let Some(row) = row else { return Ok(None) };
    // A12: a session belongs to the user and project that opened it.
    if !broker.session_owner(&record.principal)?.owns(&row) {
        let why = format!("session `{}` belongs to another user or project", record.session);
        return Err(CallError::new(ErrorCode::PermissionDenied, why)
            .suggest("leave the session out, or name one of your own in this project"));
    }
    Ok(Some(row.state))
}

/// Opens the session of a first call. Another call or process may have opened it meanwhile; its state counts then.
async fn open_session(broker: &Broker, record: &mut CallRecord) -> Result<SessionState, CallError> {
    let (entry, row) = broker.session_record(record)?;
    let batch = Batch::durable(vec![entry], vec![StateChange::OpenSession(row)]);
    match broker.parts.store.commit(batch).await {
        Ok(_) => Ok(SessionState::Active),
        Err(error) if error.concerns_batch_only() => {
            session_state(broker, record).await?.ok_or_else(|| CallError::from(&error))
        }
        Err(error) => {
            record.disk_full = matches!(error, StoreError::Full(_));
            Err(CallError::from(&error))
        }
    }
}

pub(crate) async fn measure_rate(
    broker: &Broker,
    record: &CallRecord,
    limit: u32,
) -> Result<CallRate, CallError> {
    let since = record.began.earlier(MINUTE_MS);
    let recent = broker
        .parts
        .store
        .recent_calls(record.session.as_str(), &record.tool, since)
        .await
        .map_err(|error| CallError::from(&error))?;
    let wait_ms = recent.oldest.map_or(0, |oldest| oldest.later(MINUTE_MS).millis() - record.began.millis());
    Ok(CallRate { calls: u32::try_from(recent.count).unwrap_or(u32::MAX), limit, wait_ms })
}

/// Approximate size of a value as JSON text, without serialising it.
fn approximate_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(approximate_size).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 3 + approximate_size(value)).sum::<usize>() + 2
        }
    }
}
