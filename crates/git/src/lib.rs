//! How git is called on a repository that is not trusted. Pure: it builds arguments and environment, checks names and messages,
//! and parses output; a sandbox runs git, and the tools decide what to run.
//!
//! **Invariant.** No content of a repository makes git start a program (T15). [`Repository::open`] reads the repository's
//! configuration as data and sets harmless values against everything in it that names a program; [`GitOperations`] builds
//! invocations with options, a complete environment and these values. What cannot be set against is an error. The reasons
//! are in `neutralize.rs`, the keys in `config_keys.txt`; `tests/hostile.rs` shows each vector, first without and then with the
//! protection.
//!
//! Not here: running programs, reading files (a [`RepositoryReader`] does), policy about paths and hosts. Git still interprets
//! what the repository contains, so it runs in a sandbox, with a time limit.

mod branch;
mod c_quote;
mod commit_message;
mod commits;
mod config_files;
mod config_key;
mod config_syntax;
mod diff_summary;
mod filter_attributes;
mod git_path;
mod hooks;
mod invocation;
mod key_table;
mod layout;
mod neutralize;
mod operations;
mod patch;
mod push;
mod push_report;
mod records;
mod ref_name;
mod remote_url;
mod repository;
mod revision;
mod status;

pub use branch::{BadBranchPattern, BranchDenial, BranchName, BranchRules};
pub use commit_message::{
    BadIdentity, CommitIdentity, CommitMessage, CommitMessageError, CommitMessageRules, MessageForm,
};
pub use commits::{GitCommit, GitCommits, GitSignature};
pub use config_key::GitConfigKey;
pub use config_syntax::{GitConfigEntry, GitConfigSyntaxError, parse_git_config};
pub use diff_summary::{DiffSummary, GitFileDiff};
pub use filter_attributes::parse_filter_attributes;
pub use git_path::{GitPath, Pathspec, PathspecError};
pub use hooks::present_hooks;
pub use invocation::{GitAccess, GitInvocation};
pub use key_table::is_known_key;
pub use layout::{RepositoryFile, RepositoryLayout, RepositoryReader};
pub use neutralize::NeutralizedConfig;
pub use operations::{DiffScope, GitOperations, LogQuery, UntrackedFiles};
pub use patch::{GitFilePatch, GitPatch};
pub use push::{PushError, PushMode, PushTarget, SshSettings};
pub use push_report::{PushReport, RefUpdate, RefUpdateResult};
pub use records::GitOutputError;
pub use ref_name::{RefNameError, RemoteName};
pub use remote_url::{PlainHttp, RemoteTransport, RemoteUrl, RemoteUrlError};
pub use repository::{Repository, RepositoryError};
pub use revision::{FileAtRevision, Revision, RevisionError, RevisionRange};
pub use status::{BranchStatus, FileState, GitStatus, StatusEntry, StatusKind};
