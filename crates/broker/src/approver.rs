//! Approver: the person who decides. An approver holds a key; nothing else can decide, whatever it claims to be. Deciding
//! and administering are separate: an administrator manages tokens and trust, and decides only for its own user (A12).

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::DEFAULT_TENANT;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, SignedNote, SigningKey};
use vambrace_store::{AccessToken, ApprovalQueries, OwnerFilter, TokenKind};

/// A person who may decide, with the key that signs the decision.
#[derive(Debug, Clone)]
pub struct Approver {
    tenant: String,
    user: String,
    by: String,
    authority: ApproverAuthority,
    key: SigningKey,
}

/// What an approver may do beside deciding for its own user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApproverAuthority {
    /// Nothing.
    OwnUser,
    /// Manages tokens and trust.
    Administrator,
    /// Owns the state directory: decides for every user too.
    DirectoryOwner,
}

impl Approver {
    /// The person who unlocked the approver key.
    #[must_use]
    pub fn of_key(user: impl Into<String>, key: SigningKey) -> Self {
        let user = user.into();
        let by = format!("{user} ({})", key.verify_key().name());
        Self {
            tenant: DEFAULT_TENANT.to_owned(),
            by,
            user,
            authority: ApproverAuthority::DirectoryOwner,
            key,
        }
    }

    /// The person who answers through a client that the user's configuration trusts.
    #[must_use]
    pub fn of_client(user: impl Into<String>, client: &str, key: SigningKey) -> Self {
        let user = user.into();
        let client: String = client.chars().take(60).collect();
        let by = format!("{user} (through the client `{client}`)");
        Self { tenant: DEFAULT_TENANT.to_owned(), by, user, authority: ApproverAuthority::OwnUser, key }
    }

    /// The person who holds a token that may decide.
    pub async fn of_token(
        token: &AccessToken,
        queries: &dyn ApprovalQueries,
        now: Timestamp,
    ) -> Result<Self, CallError> {
        let deny = |why: &str| {
            Err(CallError::new(ErrorCode::PermissionDenied, why)
                .suggest("a decision needs the approver key or a token of kind `approver`"))
        };
        let row = queries.token(token.id.as_str()).await.map_err(|error| CallError::from(&error))?;
        let Some(row) = row.filter(|row| row.admits(token, now)) else {
            return deny("the token is unknown here, was revoked, or has expired");
        };
        if !row.kind.decides() {
            return deny(&format!("a token of kind `{}` cannot decide", row.kind));
        }
        let key = token.key().map_err(|error| CallError::from(&error))?;
        let authority = match row.kind {
            TokenKind::Admin => ApproverAuthority::Administrator,
            _ => ApproverAuthority::OwnUser,
        };
        let by = format!("{} (token `{}`)", row.user, row.name);
        Ok(Self { tenant: row.tenant, by, user: row.user, authority, key })
    }

    /// The user whose requests it decides.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The approver, as the ledger names it.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Whose requests, changes and grants it decides about (A12). `stored` is how the store spells a name: redacted.
    pub fn decides_for<E>(&self, stored: impl Fn(&str) -> Result<String, E>) -> Result<OwnerFilter, E> {
        match self.authority {
            ApproverAuthority::DirectoryOwner => Ok(OwnerFilter::Everyone),
            ApproverAuthority::OwnUser | ApproverAuthority::Administrator => {
                Ok(OwnerFilter::User { tenant: stored(&self.tenant)?, user: stored(&self.user)? })
            }
        }
    }

    /// Whether it may create and revoke tokens, and trust projects: the approver key and tokens of kind admin.
    #[must_use]
    pub fn administers(&self) -> bool {
        self.authority != ApproverAuthority::OwnUser
    }

    /// Signs a decision.
    pub fn sign(&self, decision: &Decision) -> Result<SignedNote, CallError> {
        decision.sign(&self.key).map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))
    }
}
