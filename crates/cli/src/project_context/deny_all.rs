//! A project context that denies every call, and the record of messages that are not calls.

use std::sync::Arc;

use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{Op, RecordLevel, RecordStatus};
use vambrace_store::{Batch, Entry, Store as _};

use super::ProjectContext;
use crate::failure::Failure;
use crate::system::SystemClock;

impl ProjectContext {
    /// The same context, denying every call because of a failure; the next check of the configuration tries again.
    pub(crate) fn closed(&self, failure: &Failure) -> Result<Self, Failure> {
        let why = &failure.error.message;
        let policy = Policy::damaged(why).map_err(|bad| Failure::failed(bad.to_string()))?;
        Ok(Self {
            broker: self.broker.with_policy(policy),
            peer: self.peer.clone(),
            project: self.project.clone(),
            store: Arc::clone(&self.store),
            revision: Digest::of_parts([b"closed".as_slice(), why.as_bytes()]),
            damage: Some(why.clone()),
            secrets: Arc::clone(&self.secrets),
            trusted_clients: self.trusted_clients.clone(),
        })
    }

    /// Records that an unreadable message was rejected.
    pub(crate) async fn note_unreadable(&self, words: &str, tool: Option<&str>) -> Result<(), Failure> {
        let clean = |text: &str| {
            Redacted::text(text, self.secrets.redactor()).map_err(|error| Failure::failed(error.to_string()))
        };
        let mut entry = Entry::new(Op::Violation, SystemClock.now());
        entry.event_type = Some("mcp.unreadable");
        entry.level = RecordLevel::Warn;
        entry.status = Some(RecordStatus::Denied);
        entry.user = Some(clean(&self.peer.principal.user)?);
        entry.session = Some(self.peer.session.clone());
        entry.tool_name = tool.map(clean).transpose()?;
        entry.error_code = Some(ErrorCode::InvalidArguments);
        entry.message = Some(clean(words)?);
        self.store.commit(Batch::lazy(vec![entry], Vec::new())).await?;
        Ok(())
    }
}
