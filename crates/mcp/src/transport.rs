//! Transports of the MCP server. A transport reads and writes messages; what they mean is in [`McpServer`].

mod framing;
mod socket;
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use tokio::io::AsyncRead;
use tokio::signal::unix::{Signal, SignalKind, signal};

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

/// Why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeEnd {
    /// The client is gone.
    ClientGone,
    /// A signal with this number arrived.
    Signal(i32),
}

/// Serves one client on standard input and output until the client is gone or SIGTERM, SIGHUP or SIGINT arrives. Running calls
/// are then cancelled, and their ends are recorded.
pub async fn serve_stdio(server: McpServer) -> Result<ServeEnd, ServeError> {
    let mut signals = StopSignalStreams::listen().map_err(|error| ServeError::Failed(error.to_string()))?;
    let server = Arc::new(server);
    tokio::select! {
        ended = serve_client(&server) => ended.map(|()| ServeEnd::ClientGone),
        number = signals.next() => {
            server.stop_calls();
            server.end_of_input();
            server.calls_ended(CALLS_END_TIMEOUT).await;
            Ok(ServeEnd::Signal(number))
        }
    }
}

/// The signals that end the server.
struct StopSignalStreams([(i32, Signal); 3]);

impl StopSignalStreams {
    fn listen() -> std::io::Result<Self> {
        let listen = |kind: SignalKind| Ok::<_, std::io::Error>((kind.as_raw_value(), signal(kind)?));
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
        let [terminate, hang_up, interrupt] = kinds.map(listen);
        Ok(Self([terminate?, hang_up?, interrupt?]))
    }

    /// The number of the next signal.
    async fn next(&mut self) -> i32 {
        let [(terminate, first), (hang_up, second), (interrupt, third)] = &mut self.0;
        tokio::select! {
            _ = first.recv() => *terminate,
            _ = second.recv() => *hang_up,
            _ = third.recv() => *interrupt,
        }
    }
}

async fn serve_client(server: &Arc<McpServer>) -> Result<(), ServeError> {
    let ended = if let Some((input, output, _restore)) = socket::standard() {
        serve(server, StdioTransport::new(input, output, Arc::clone(server))).await
    } else {
        let (input, output) = rmcp::transport::stdio_pipes();
        serve(server, StdioTransport::new(input, output, Arc::clone(server))).await
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
