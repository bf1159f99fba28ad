//! The git tools (T15). Each runs git in the sandbox with the invocations of `vambrace-git`, so that nothing in the repository
//! starts a program.
//!
//! **Invariants.** What a result shows of a file, its name included, passed the workspace's scope and the decided fence; a
//! patch is made only of paths that were checked before. The tools that write let git write into an overlay; of that only
//! objects, refs, logs and the index reach the repository, and for a checkout the files that the caller may change, all or
//! nothing (`repository_write_back.rs`).
//!
//! Deliberately absent: pushing, which needs a host and a credential.

mod add;
mod checkout;
mod commit;
mod diff;
mod log;
mod plan;
mod repository_files;
mod repository_write_back;
mod session;
mod show;
mod status;

pub(crate) use add::GitAdd;
pub(crate) use checkout::GitCheckout;
pub(crate) use commit::GitCommitTool;
pub(crate) use diff::GitDiff;
pub(crate) use log::GitLog;
pub(crate) use show::GitShow;
pub(crate) use status::GitStatusTool;
