//! Approver: the person who decides. An approver holds a key; nothing else can decide, whatever it claims to be.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, SignedNote, SigningKey};
use vambrace_store::{AccessToken, ApprovalQueries};

/// A person who may decide, with the key that signs the decision.
#[derive(Debug, Clone)]
pub struct Approver {
    user: String,
    by: String,
    all_users: bool,
    key: SigningKey,
}

impl Approver {
    /// The person who unlocked the approver key.
    #[must_use]
    pub fn of_key(user: impl Into<String>, key: SigningKey) -> Self {
        let user = user.into();
        Self { by: format!("{user} ({})", key.verify_key().name()), user, all_users: true, key }
    }

    /// The person who answers through a client that the user's configuration trusts.
    #[must_use]
    pub fn of_client(user: impl Into<String>, client: &str, key: SigningKey) -> Self {
        let user = user.into();
        let client: String = client.chars().take(60).collect();
        Self { by: format!("{user} (through the client `{client}`)"), user, all_users: false, key }
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
        let all_users = row.kind == vambrace_store::TokenKind::Admin;
        Ok(Self { by: format!("{} (token `{}`)", row.user, row.name), user: row.user, all_users, key })
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

    /// Whether it may see and decide the requests of a user (A12).
    #[must_use]
    pub fn decides_for(&self, user: &str) -> bool {
        self.all_users || self.user == user
    }

    /// Whether it may create and revoke tokens, and trust projects: the approver key and tokens of kind admin.
    #[must_use]
    pub fn administers(&self) -> bool {
        self.all_users
    }

    /// Signs a decision.
    pub fn sign(&self, decision: &Decision) -> Result<SignedNote, CallError> {
        decision.sign(&self.key).map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))
    }
}
