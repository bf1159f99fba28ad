//! Who owns a session, and filters by owner. A user name means nothing without its tenant, so a filter has both.

use vambrace_ledger::RedactedText;

use crate::session::SessionRow;

/// The owner of a session: nobody else makes calls in it. `T` is [`RedactedText`] when written and `String` when
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionOwner<T = RedactedText> {
    /// Tenant.
    pub tenant: T,
    /// User.
    pub user: T,
    /// Project.
    pub project: T,
}

impl SessionOwner<RedactedText> {
    /// The same owner as it is read back.
    #[must_use]
    pub fn stored(&self) -> SessionOwner<String> {
        let [tenant, user, project] =
            [&self.tenant, &self.user, &self.project].map(|text| text.get().clone());
        SessionOwner { tenant, user, project }
    }

    /// Whether it owns the session.
    #[must_use]
    pub fn owns(&self, session: &SessionRow<String>) -> bool {
        (self.tenant.get(), self.user.get(), self.project.get())
            == (&session.tenant, &session.user, &session.project)
    }
}

/// Whose rows a query returns. Rows belong to the owner of their session. The texts are those of the store, so they
/// have passed the redactor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OwnerFilter {
    /// Everybody's rows.
    #[default]
    Everyone,
    /// The rows of one user, in every project.
    User {
        /// Tenant.
        tenant: String,
        /// User.
        user: String,
    },
    /// The rows of one user in one project.
    Owner(SessionOwner<String>),
}

impl OwnerFilter {
    /// Tenant, user and project; `None` matches everything.
    pub(crate) fn columns(&self) -> [Option<&str>; 3] {
        match self {
            Self::Everyone => [None; 3],
            Self::User { tenant, user } => [Some(tenant), Some(user), None],
            Self::Owner(owner) => [Some(&owner.tenant), Some(&owner.user), Some(&owner.project)],
        }
    }
}
