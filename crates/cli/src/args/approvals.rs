//! Arguments of `approvals`, `grants`, `proposals` and `token`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the pending approval requests, oldest first.
    List {
        /// List decided and expired requests too, newest first.
        #[arg(long)]
        all: bool,
        /// Maximum number to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show an approval request: caller, action, risk and reasons, diff, what happens on approval.
    Show {
        /// Id of the request, or its end.
        id: String,
    },
    /// Approve a request. A file change is applied at once; any other call is run by its caller.
    Approve(ApproveArgs),
    /// Reject a request.
    Reject {
        /// Id of the request, or its end.
        id: String,
        /// Reason; the agent sees it.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Show requests on a full screen as they arrive, and decide with keys.
    Watch,
    /// Change the passphrase of the approver key.
    Passphrase,
}

/// What to approve.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ApproveArgs {
    /// Id of the request, or its end.
    pub(crate) id: String,
    /// Scope of the approval: this call once, calls of the same class in this session, or every grantable call of this
    /// agent in this session.
    #[arg(long, value_parser = ["once", "class", "session"], default_value = "once")]
    pub(crate) scope: String,
    /// Expected file; the approval fails if the proposal changes another one.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Apply only this file of the proposal; repeatable.
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Apply only these hunks of a file, for example `src/a.rs:1,3`; repeatable.
    #[arg(long, value_name = "PATH:N,N", conflicts_with = "files")]
    pub(crate) hunks: Vec<String>,
    /// Replace the content of a file of the proposal: `src/a.rs=/tmp/mine`; repeatable.
    #[arg(long, value_name = "PATH=FILE", conflicts_with_all = ["files", "hunks"])]
    pub(crate) edited: Vec<String>,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// List the active grants.
    List {
        /// List revoked and expired grants too.
        #[arg(long)]
        all: bool,
    },
    /// Revoke a grant.
    Revoke {
        /// Id of the grant, or its end.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProposalsCommand {
    /// List the newest file changes.
    List {
        /// Maximum number to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show a change with its diff.
    Show {
        /// Id of the change, or its end.
        id: String,
    },
    /// Approve a proposed change and apply it.
    Apply(ApproveArgs),
    /// Reject a proposed change.
    Reject {
        /// Id of the change, or its end.
        id: String,
        /// Reason; the agent sees it.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Roll back an applied change, if its files have not changed since.
    Rollback {
        /// Id of the change, or its end.
        id: String,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; it is printed once.
    Create {
        /// Kind of token: agent, approver, runner, admin.
        #[arg(value_parser = ["agent", "approver", "runner", "admin"])]
        kind: String,
        /// Label of the token.
        #[arg(long, default_value = "")]
        name: String,
        /// User of the token [default: the current user].
        #[arg(long)]
        user: Option<String>,
        /// Days until it expires [default: never].
        #[arg(long, value_name = "DAYS")]
        days: Option<u32>,
    },
    /// List all tokens, without their secrets.
    List,
    /// Revoke a token.
    Revoke {
        /// Id of the token.
        id: String,
    },
}
