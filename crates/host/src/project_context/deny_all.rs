//! A project context that denies every call, and the record of messages that are not calls.

use std::sync::Arc;

use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::principal::Peer;
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{Op, RecordLevel, RecordStatus};
use vambrace_store::{Batch, Entry};

use super::ProjectContext;
use crate::error::HostError;
use crate::system::SystemClock;

impl ProjectContext {
    /// The same context, denying every call because of an error; the next check of the configuration tries again.
    pub(super) fn closed(&self, error: &HostError) -> Result<Self, HostError> {
        let why = &error.error.message;
        let policy = Policy::damaged(why).map_err(|bad| HostError::failed(bad.to_string()))?;
        Ok(Self {
            host: Arc::clone(&self.host),
            key: self.key.clone(),
            broker: self.broker.with_policy(policy),
            settings: self.settings.clone(),
            secrets: Arc::clone(&self.secrets),
            revision: Digest::of_parts([b"closed".as_slice(), why.as_bytes()]),
            damage: Some(why.clone()),
        })
    }

    /// Records that an unreadable message was rejected.
    pub async fn record_unreadable(
        &self,
        peer: &Peer,
        words: &str,
        tool: Option<&str>,
    ) -> Result<(), HostError> {
        let clean = |text: &str| {
            Redacted::text(text, self.secrets.redactor())
                .map_err(|error| HostError::failed(error.to_string()))
        };
        let mut entry = Entry::new(Op::Violation, SystemClock.now());
        entry.event_type = Some("mcp.unreadable");
        entry.level = RecordLevel::Warn;
        entry.status = Some(RecordStatus::Denied);
        entry.user = Some(clean(&peer.principal.user)?);
        entry.session = Some(peer.session.clone());
        entry.tool_name = tool.map(clean).transpose()?;
        entry.error_code = Some(ErrorCode::InvalidArguments);
        entry.message = Some(clean(words)?);
        self.host.store().commit(Batch::lazy(vec![entry], Vec::new())).await?;
        Ok(())
    }
}
