//! What one can ask about questions, proposals, grants and tokens.

use vambrace_ledger::{Digest, Id, Timestamp};

use crate::ask::{
    APPROVALS, ApprovalRow, GRANTS, GrantRow, LISTED, PROPOSALS, ProposalRow, UNANSWERED, WAY_BACK,
};
use crate::error::StoreError;
use crate::sqlite::{SqliteStore, most};
use crate::store::BoxFuture;
use crate::token::{TOKENS, TokenRow};
use crate::vault::{Kept, Vault};
use crate::wake::Watch;

/// Which questions are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Only open ones.
    pub open: bool,
    /// Only of this user.
    pub user: Option<String>,
    /// At most so many; 0 means all.
    pub limit: usize,
}

type Found<'a, T> = BoxFuture<'a, Result<Option<T>, StoreError>>;
type List<'a, T> = BoxFuture<'a, Result<Vec<T>, StoreError>>;

/// Questions, proposals, grants, tokens.
pub trait Questions: Send + Sync {
    /// A question.
    fn approval<'a>(&'a self, id: &'a str) -> Found<'a, ApprovalRow<String>>;

    /// Questions, the oldest first where only open ones are wanted, else the newest first.
    fn approvals(&self, asked: Asked) -> List<'_, ApprovalRow<String>>;

    /// The newest question about the same call of a session.
    fn asked_before<'a>(&'a self, session: &'a str, asked: Digest) -> Found<'a, ApprovalRow<String>>;

    /// How many questions of a session since a moment are without a yes.
    fn unanswered<'a>(&'a self, session: &'a str, since: Timestamp)
    -> BoxFuture<'a, Result<u64, StoreError>>;

    /// A change.
    fn proposal<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>>;

    /// The change that undid another one.
    fn undone_by<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>>;

    /// What undoes a change, sealed.
    fn way_back<'a>(&'a self, id: &'a str) -> Found<'a, Kept>;

    /// The newest changes, newest first, without what is kept of them.
    fn proposals(&self, limit: usize) -> List<'_, ProposalRow<String>>;

    /// Changes that were begun and whose end is not recorded.
    fn unfinished<'a>(&'a self, project: &'a str) -> List<'a, ProposalRow<String>>;

    /// The grants of a session, or all of them; newest first.
    fn grants<'a>(&'a self, session: Option<&'a str>) -> List<'a, GrantRow<String>>;

    /// A token.
    fn token<'a>(&'a self, id: &'a str) -> Found<'a, TokenRow<String>>;

    /// Every token, newest first.
    fn tokens(&self) -> List<'_, TokenRow<String>>;

    /// Seals and opens what is stored of them.
    fn vault(&self) -> &Vault;

    /// Listens for changes: from now on nothing is missed.
    fn watch(&self) -> Watch;

    /// This process, for what it begins.
    fn life(&self) -> &Id;

    /// Whether the process that began something is still there.
    fn lives(&self, life: &Id) -> bool;
}

impl Questions for SqliteStore {
    fn approval<'a>(&'a self, id: &'a str) -> Found<'a, ApprovalRow<String>> {
        let sql = format!("{APPROVALS} WHERE a.id = ?1");
        Box::pin(async move { self.readers.one(&sql, [id], ApprovalRow::read) })
    }

    fn approvals(&self, asked: Asked) -> List<'_, ApprovalRow<String>> {
        let open = if asked.open { "a.state = 'pending'" } else { "1" };
        let order = if asked.open { "a.created, a.id" } else { "a.created DESC, a.id DESC" };
        let sql =
            format!("{APPROVALS} WHERE {open} AND (?1 IS NULL OR a.user = ?1) ORDER BY {order} LIMIT ?2");
        let limit = if asked.limit == 0 { i64::MAX } else { most(asked.limit) };
        Box::pin(async move { self.readers.all(&sql, (asked.user, limit), ApprovalRow::read) })
    }

    fn asked_before<'a>(&'a self, session: &'a str, asked: Digest) -> Found<'a, ApprovalRow<String>> {
        let sql = format!(
            "{APPROVALS} WHERE a.session = ?1 AND a.asked = ?2 ORDER BY a.created DESC, a.id DESC LIMIT 1"
        );
        Box::pin(
            async move { self.readers.one(&sql, (session, asked.as_bytes().as_slice()), ApprovalRow::read) },
        )
    }

    fn unanswered<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let count =
                self.readers.one(UNANSWERED, (session, since.millis()), |row| row.get::<_, i64>(0))?;
            Ok(count.unwrap_or_default().unsigned_abs())
        })
    }

    fn proposal<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE id = ?1");
        Box::pin(async move { self.readers.one(&sql, [id], ProposalRow::read) })
    }

    fn undone_by<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE undoes = ?1 AND state IN ('applied', 'rolled_back')");
        Box::pin(async move { self.readers.one(&sql, [id], ProposalRow::read) })
    }

    fn way_back<'a>(&'a self, id: &'a str) -> Found<'a, Kept> {
        Box::pin(async move { self.readers.one(WAY_BACK, [id], |row| row.get(0).map(Kept::stored)) })
    }

    fn proposals(&self, limit: usize) -> List<'_, ProposalRow<String>> {
        let sql = format!("{LISTED} ORDER BY created DESC, id DESC LIMIT ?1");
        Box::pin(async move { self.readers.all(&sql, [most(limit)], ProposalRow::read) })
    }

    fn unfinished<'a>(&'a self, project: &'a str) -> List<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE state = 'applying' AND project = ?1 ORDER BY created");
        Box::pin(async move { self.readers.all(&sql, [project], ProposalRow::read) })
    }

    fn grants<'a>(&'a self, session: Option<&'a str>) -> List<'a, GrantRow<String>> {
        let sql = format!("{GRANTS} WHERE ?1 IS NULL OR session = ?1 ORDER BY created DESC, id DESC");
        Box::pin(async move { self.readers.all(&sql, [session], GrantRow::read) })
    }

    fn token<'a>(&'a self, id: &'a str) -> Found<'a, TokenRow<String>> {
        let sql = format!("{TOKENS} WHERE id = ?1");
        Box::pin(async move { self.readers.one(&sql, [id], TokenRow::read) })
    }

    fn tokens(&self) -> List<'_, TokenRow<String>> {
        let sql = format!("{TOKENS} ORDER BY created DESC, id DESC");
        Box::pin(async move { self.readers.all(&sql, (), TokenRow::read) })
    }

    fn vault(&self) -> &Vault {
        &self.vault
    }

    fn watch(&self) -> Watch {
        self.wakes.listen()
    }

    fn life(&self) -> &Id {
        self.life.id()
    }

    fn lives(&self, life: &Id) -> bool {
        self.life.lives(life)
    }
}
