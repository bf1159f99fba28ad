//! Transports of the MCP server. A transport reads and writes messages; what they mean is in [`McpServer`].

mod framing;
mod socket;
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use tokio::io::AsyncRead;

use self::stdio::StdioTransport;
use crate::server::McpServer;

/// Time limit for calls that the end of the connection cancelled.
const CALLS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client did not open the connection as the protocol says.
    #[error("MCP handshake failed: {0}")]
    Handshake(String),
    /// The server failed.
    #[error("the server failed: {0}")]
    Failed(String),
}

/// Serves one client on standard input and output until the client is gone.
pub async fn serve_stdio(server: McpServer) -> Result<(), ServeError> {
    let server = Arc::new(server);
    let ended = if let Some((input, output, _restore)) = socket::standard() {
        serve(&server, StdioTransport::new(input, output, Arc::clone(&server))).await
    } else {
        let (input, output) = rmcp::transport::stdio_pipes();
        serve(&server, StdioTransport::new(input, output, Arc::clone(&server))).await
    };
    server.end_of_input();
    server.calls_ended(CALLS_END_TIMEOUT).await;
    ended
}

async fn serve<R>(server: &Arc<McpServer>, transport: StdioTransport<R>) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let running = Arc::clone(server).serve(transport).await;
    let running = running.map_err(|error| ServeError::Handshake(error.to_string()))?;
    let ended = running.waiting().await;
    ended.map(drop).map_err(|error| ServeError::Failed(error.to_string()))
}
