//! Runs the commands; each command has its own module.

mod approvals;
mod audit;
mod call;
mod config;
mod demo;
mod doctor;
mod errors;
mod explain;
mod grants;
mod init;
mod mcp;
mod policy;
mod proposals;
mod redact;
mod sandbox;
mod session;
mod timeline;
mod token;
mod tools;
mod trust;
mod witness;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::Out;
use crate::project_context;

/// Runs the command.
pub(crate) async fn run(args: Cli, out: &Out) -> Result<ExitCode, Failure> {
    if args.acknowledge_rollback {
        project_context::acknowledge_rollback()?;
    }
    match args.command {
        Command::Demo => demo::run(out).await,
        Command::Init { workspace, force } => init::run(workspace.as_deref(), force, out).await,
        Command::Trust { workspace, revoke, yes } => trust::run(workspace.as_deref(), revoke, yes, out).await,
        Command::Doctor { workspace } => doctor::run(workspace.as_deref(), out).await,
        Command::Call { call, tool_call_id, context_id, wait, yes } => {
            let wait = call::ApprovalWait { wait, yes };
            call::run(call, tool_call_id, context_id, wait, out).await
        }
        Command::Approvals { what } => approvals::run(what, out).await,
        Command::Grants { what } => grants::run(what, out).await,
        Command::Proposals { what } => proposals::run(what, out).await,
        Command::Token { what } => token::run(what, out).await,
        Command::Explain { call } => explain::run(call, out).await,
        Command::Tools { what, caller } => tools::run(what, &caller, out).await,
        Command::Mcp { caller } => mcp::run(&caller, out).await,
        Command::Audit { what } => audit::run(what, out).await,
        Command::Timeline { call, limit } => timeline::run(call, limit, out).await,
        Command::Session { what } => session::run(what, out).await,
        Command::Config { what } => config::run(what, out).await,
        Command::Policy { what } => policy::run(what, out).await,
        Command::Witness { what, serve, state } => witness::run(what, serve, state, out).await,
        Command::Redact { files, report, rules } => redact::run(&files, report, &rules, out),
        Command::Sandbox { what } => sandbox::run(what, out),
        Command::Errors { markdown } => errors::run(markdown, out),
    }
}
