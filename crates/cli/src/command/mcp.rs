//! `vambrace mcp`: the MCP server on standard input and output.

use std::process::ExitCode;

use vambrace_core::principal::EntryPoint;
use vambrace_host::{Caller, Host, Paths, Projects};
use vambrace_mcp::{McpServer, serve_stdio};

use crate::args::CallerArgs;
use crate::failure::Failure;
use crate::output::Out;

pub(crate) async fn run(caller: &CallerArgs, out: &Out) -> Result<ExitCode, Failure> {
    let paths = Paths::from_environment()?;
    let caller = Caller::local(&paths, &caller.options(), "mcp", EntryPoint::Mcp)?;
    let server = McpServer::open(&Projects::new(Host::open(paths)?), caller).await?;
    if let Err(error) = server.check().await {
        out.failure(&error.into());
    }
    serve_stdio(server).await.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
