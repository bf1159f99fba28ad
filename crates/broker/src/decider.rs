//! Who decides. A decider holds a key; nothing else decides, whatever it says it is.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, Note, SigningKey};
use vambrace_store::{Questions, Token};

/// Somebody who may decide, with the key that signs it.
#[derive(Debug, Clone)]
pub struct Decider {
    user: String,
    by: String,
    everybody: bool,
    key: SigningKey,
}

impl Decider {
    /// Whoever unlocked the approver key.
    #[must_use]
    pub fn of_key(user: impl Into<String>, key: SigningKey) -> Self {
        let user = user.into();
        Self { by: format!("{user} ({})", key.verify_key().name()), user, everybody: true, key }
    }

    /// Whoever answers through a client that the user's configuration trusts.
    #[must_use]
    pub fn of_client(user: impl Into<String>, client: &str, key: SigningKey) -> Self {
        let user = user.into();
        let client: String = client.chars().take(60).collect();
        Self { by: format!("{user} (through the client `{client}`)"), user, everybody: false, key }
    }

    /// Whoever holds a token that decides.
    pub async fn of_token(
        token: &Token,
        questions: &dyn Questions,
        now: Timestamp,
    ) -> Result<Self, CallError> {
        let refuse = |why: &str| {
            Err(CallError::new(ErrorCode::PermissionDenied, why)
                .suggest("deciding takes the approver key or a token of kind `approver`"))
        };
        let row = questions.token(token.id.as_str()).await.map_err(|error| CallError::from(&error))?;
        let Some(row) = row.filter(|row| row.admits(token, now)) else {
            return refuse("the token is not known here, was revoked, or is past its time");
        };
        if !row.kind.decides() {
            return refuse(&format!("a token of kind `{}` decides nothing", row.kind));
        }
        let key = token.key().map_err(|error| CallError::from(&error))?;
        let everybody = row.kind == vambrace_store::TokenKind::Admin;
        Ok(Self { by: format!("{} (token `{}`)", row.user, row.name), user: row.user, everybody, key })
    }

    /// For whom.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Who, as the record tells it.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Whether it may see and decide what was asked for a user (A12).
    #[must_use]
    pub fn decides_for(&self, user: &str) -> bool {
        self.everybody || self.user == user
    }

    /// Whether it may make and take back tokens, and trust projects: the approver key and tokens of kind admin.
    #[must_use]
    pub fn administers(&self) -> bool {
        self.everybody
    }

    /// Signs a decision.
    pub fn sign(&self, decision: &Decision) -> Result<Note, CallError> {
        decision.sign(&self.key).map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))
    }
}
