//! One module per command.

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

use crate::args::{Args, Command};
use crate::desk;
use crate::failure::Failure;
use crate::out::Out;

/// Runs the command.
pub(crate) async fn run(args: Args, out: &Out) -> Result<ExitCode, Failure> {
    if args.acknowledge_rollback {
        desk::acknowledge_rollback()?;
    }
    match args.command {
        Command::Demo => demo::run(out).await,
        Command::Init { workspace, force } => init::run(workspace.as_deref(), force, out).await,
        Command::Trust { workspace, revoke, yes } => trust::run(workspace.as_deref(), revoke, yes, out).await,
        Command::Doctor { workspace } => doctor::run(workspace.as_deref(), out).await,
        Command::Call { words, tool_call_id, context_id, wait, yes } => {
            let then = call::Then { wait, yes };
            call::run(words, tool_call_id, context_id, then, out).await
        }
        Command::Approvals { what } => approvals::run(what, out).await,
        Command::Grants { what } => grants::run(what, out).await,
        Command::Proposals { what } => proposals::run(what, out).await,
        Command::Token { what } => token::run(what, out).await,
        Command::Explain { words } => explain::run(words, out).await,
        Command::Tools { what, seat } => tools::run(what, &seat, out).await,
        Command::Mcp { seat } => mcp::run(&seat, out).await,
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
