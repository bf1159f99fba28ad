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

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use vambrace_core::principal::EntryPoint;
use vambrace_host::{Caller, ContextUse, Host, Paths, ProjectContext, Reader, acknowledge_rollback};

use crate::args::{CallerArgs, Cli, Command};
use crate::failure::Failure;
use crate::output::Out;

/// Runs the command.
pub(crate) async fn run(args: Cli, out: &Out) -> Result<ExitCode, Failure> {
    if args.acknowledge_rollback {
        acknowledge_rollback(&Paths::from_environment()?)?;
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
        Command::Sandbox { what } => sandbox::run(what, out).await,
        Command::Errors { markdown } => errors::run(markdown, out),
    }
}

/// Opens the state of this machine.
fn open_host() -> Result<Arc<Host>, Failure> {
    Ok(Host::open(Paths::from_environment()?)?)
}

/// Opens the state of this machine for a command that reads it; `what` names the command in the record of an
/// administrator's read.
async fn open_reader(what: &str) -> Result<(Arc<Host>, Reader), Failure> {
    let host = open_host()?;
    let reader = Reader::from_environment(what, || Ok(Arc::clone(&host))).await?;
    Ok((host, reader))
}

/// Opens the state of this machine and finds the project. The project first: no state is made inside a workspace.
fn open_host_for(workspace: Option<&Path>) -> Result<(Arc<Host>, PathBuf), Failure> {
    let paths = Paths::from_environment()?;
    let project = paths.project(workspace)?;
    Ok((Host::open(paths)?, project))
}

/// The project and the caller of a single call of the user.
async fn open_project(args: &CallerArgs) -> Result<(ProjectContext, Caller), Failure> {
    let paths = Paths::from_environment()?;
    let caller = Caller::local(&paths, &args.options(), "command-line", EntryPoint::Cli)?;
    let host = Host::open(paths)?;
    let context = ProjectContext::open(&host, &caller.key, ContextUse::OneCall).await?;
    Ok((context, caller))
}
