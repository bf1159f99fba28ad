//! Who reads state and ledger, and whose rows it gets (A12). The owner of a token reads what belongs to its user. A token of
//! kind `admin` reads everything; each such read is recorded before a row is returned. Without a token it is the owner of
//! the state directory, who can read its files anyway.
//!
//! INVARIANT: reading is not deciding. What a reader may end, delete or revoke is [`Reader::decides`], and for a token that
//! is never more than what belongs to its user.

use std::sync::Arc;

use vambrace_core::clock::Clock as _;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{Op, RecordLevel, RecordStatus};
use vambrace_store::{
    AccessToken, Batch, Entry, OwnerFilter, RecordId, RecordOrder, RecordQuery, SessionRow, Store, TokenKind,
    TokenRow,
};

use crate::approver::token_in_environment;
use crate::error::HostError;
use crate::host::Host;
use crate::system::{self, SystemClock};

/// A reader of state and ledger.
#[derive(Debug, Clone)]
pub struct Reader {
    reads: OwnerFilter,
    /// `None` for a token of an agent or a runner: it decides nothing.
    decides: Option<OwnerFilter>,
    user: String,
}

impl Reader {
    /// The owner of the token in the environment, else the owner of the state directory. `what` is read: the command, for
    /// the record of an administrator's read.
    pub async fn from_environment(
        what: &str,
        open: impl FnOnce() -> Result<Arc<Host>, HostError>,
    ) -> Result<Self, HostError> {
        match token_in_environment()? {
            None => {
                let (reads, decides) = (OwnerFilter::Everyone, Some(OwnerFilter::Everyone));
                Ok(Self { reads, decides, user: system::user() })
            }
            Some(token) => Self::of_token(&*open()?, &token, what).await,
        }
    }

    /// The owner of a token.
    async fn of_token(host: &Host, token: &AccessToken, what: &str) -> Result<Self, HostError> {
        let row = host.store().approval_queries().token(token.id.as_str()).await?;
        let Some(row) = row.filter(|row| row.admits(token, SystemClock.now())) else {
            let why = "the token is unknown here, was revoked, or has expired";
            let hint = "use a token that `vambrace token list` lists as valid";
            return Err(HostError::denied(ErrorCode::PermissionDenied, why, hint));
        };
        let own = OwnerFilter::User { tenant: row.tenant.clone(), user: row.user.clone() };
        let reads = match row.kind {
            TokenKind::Admin => {
                record_admin_read(host, &row, what).await?;
                OwnerFilter::Everyone
            }
            TokenKind::Agent | TokenKind::Approver | TokenKind::Runner => own.clone(),
        };
        let decides = match row.kind {
            TokenKind::Admin | TokenKind::Approver => Some(own),
            TokenKind::Agent | TokenKind::Runner => None,
        };
        Ok(Self { reads, decides, user: row.user })
    }

    /// Whose rows it gets.
    #[must_use]
    pub fn owner(&self) -> &OwnerFilter {
        &self.reads
    }

    /// Whose rows it may end, delete or revoke.
    pub(crate) fn decides(&self) -> Result<&OwnerFilter, HostError> {
        self.decides.as_ref().ok_or_else(|| {
            let hint =
                "use a token of kind approver or admin, or no token as the owner of the state directory";
            HostError::denied(ErrorCode::PermissionDenied, "this token reads, and decides nothing", hint)
        })
    }

    /// The same reader, limited to what it decides about.
    pub fn deciding(self) -> Result<Self, HostError> {
        Ok(Self { reads: self.decides()?.clone(), ..self })
    }

    /// Fails unless it decides about everything: the owner of the state directory.
    pub fn require_owner(&self) -> Result<(), HostError> {
        match self.decides()? {
            OwnerFilter::Everyone => Ok(()),
            OwnerFilter::User { .. } | OwnerFilter::Owner(_) => {
                let hint = "unset VAMBRACE_TOKEN as the owner of the state directory";
                Err(HostError::denied(ErrorCode::PermissionDenied, "a token cannot do this", hint))
            }
        }
    }

    /// Its user, for records.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether it sees a session and its calls.
    #[must_use]
    pub fn sees_session(&self, session: &SessionRow<String>) -> bool {
        match &self.reads {
            OwnerFilter::Everyone => true,
            OwnerFilter::User { tenant, user } => (tenant, user) == (&session.tenant, &session.user),
            OwnerFilter::Owner(owner) => {
                (&owner.tenant, &owner.user, &owner.project)
                    == (&session.tenant, &session.user, &session.project)
            }
        }
    }

    /// Whether it sees a record of the ledger.
    pub async fn sees_record(&self, store: &dyn Store, id: &RecordId) -> Result<bool, HostError> {
        if self.reads == OwnerFilter::Everyone {
            return Ok(true);
        }
        let query = RecordQuery {
            after: Some(RecordId::new(&id.writer, id.seq.saturating_sub(1))),
            owner: self.reads.clone(),
            limit: 1,
            order: RecordOrder::OldestFirst,
            ..RecordQuery::default()
        };
        Ok(store.records(query).await?.first().is_some_and(|record| record.id == *id))
    }
}

/// Records that an administrator is about to read what belongs to others. Durable first: a read that cannot be recorded does
/// not happen.
async fn record_admin_read(host: &Host, token: &TokenRow<String>, what: &str) -> Result<(), HostError> {
    let mut entry = Entry::new(Op::AdminRead, SystemClock.now());
    entry.level = RecordLevel::Warn;
    entry.status = Some(RecordStatus::Allowed);
    entry.user = Some(host.redact(&token.user)?);
    let words = format!("token `{}` ({}) reads what belongs to every user: {what}", token.id, token.name);
    entry.message = Some(host.redact(&words)?);
    host.store().commit(Batch::durable(vec![entry], Vec::new())).await?;
    Ok(())
}
