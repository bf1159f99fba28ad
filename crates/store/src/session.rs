//! Sessions: one connection of one agent, with the state that can stop it. A session belongs to the tenant, the
//! user and the project that opened it.

pub use vambrace_core::session::SessionState;
use vambrace_ledger::{Id, RedactedText, Timestamp};

/// A session. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow<T = RedactedText> {
    /// Its id.
    pub id: Id,
    /// Tenant of the user.
    pub tenant: T,
    /// User that the agent works for.
    pub user: T,
    /// Agent.
    pub agent: T,
    /// Role.
    pub role: T,
    /// Project.
    pub project: T,
    /// State.
    pub state: SessionState,
    /// When it was opened.
    pub opened: Timestamp,
    /// When it last changed its state.
    pub changed: Timestamp,
}
