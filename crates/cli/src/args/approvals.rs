//! Words about questions, grants, changes and who decides.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// The open questions, oldest first.
    List {
        /// Also those that are settled, newest first.
        #[arg(long)]
        all: bool,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// One question: who, what, risk and why, the diff, what happens after yes.
    Show {
        /// Its id, or the end of it.
        id: String,
    },
    /// Say yes. A change is applied at once; any other call is carried out by its caller.
    Approve(ApproveWords),
    /// Say no.
    Reject {
        /// The question's id, or the end of it.
        id: String,
        /// Why: the agent hears it.
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// The questions on one screen, as they come: look, scroll, and decide with keys.
    Watch,
    /// Seal the approver key with another passphrase.
    Passphrase,
}

/// What is agreed to.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ApproveWords {
    /// The question's id, or the end of it.
    pub(crate) id: String,
    /// How far the yes reaches: this once, calls of this class in this session, or everything of this agent in this
    /// session that may be granted.
    #[arg(long, value_parser = ["once", "class", "session"], default_value = "once")]
    pub(crate) scope: String,
    /// The file that is meant; refused when the proposal is about another one.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only this file of the proposal; may be given several times.
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Only these hunks of a file, for example `src/a.rs:1,3`; may be given several times.
    #[arg(long, value_name = "PATH:N,N", conflicts_with = "files")]
    pub(crate) hunks: Vec<String>,
    /// Other content for a file of the proposal, from a file: `src/a.rs=/tmp/mine`; may be given several times.
    #[arg(long, value_name = "PATH=FILE", conflicts_with_all = ["files", "hunks"])]
    pub(crate) edited: Vec<String>,
    /// Do not ask again.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Grants that count; with `--all` the others too.
    List {
        /// Also those that were revoked or ran out.
        #[arg(long)]
        all: bool,
    },
    /// Take a grant back.
    Revoke {
        /// Its id, or the end of it.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProposalsCommand {
    /// The newest changes.
    List {
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// One change with its diff.
    Show {
        /// Its id, or the end of it.
        id: String,
    },
    /// Agree to a proposed change, which applies it.
    Apply(ApproveWords),
    /// Do not agree to it.
    Reject {
        /// Its id, or the end of it.
        id: String,
        /// Why: the agent hears it.
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Undo an applied change, if nothing changed since.
    Rollback {
        /// Its id, or the end of it.
        id: String,
        /// Do not ask again.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make one; it is printed once.
    Create {
        /// What for: agent, approver, runner, admin.
        #[arg(value_parser = ["agent", "approver", "runner", "admin"])]
        kind: String,
        /// A name to know it by.
        #[arg(long, default_value = "")]
        name: String,
        /// The user it is for; yourself when left out.
        #[arg(long)]
        user: Option<String>,
        /// Days until it ends; never when left out.
        #[arg(long, value_name = "DAYS")]
        days: Option<u32>,
    },
    /// Every token, without its secret.
    List,
    /// Take one back.
    Revoke {
        /// Its id.
        id: String,
    },
}
