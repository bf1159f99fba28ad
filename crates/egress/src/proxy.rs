//! The explicit proxy for programs that are configured to use one: HTTP (CONNECT and plain requests) and SOCKS5 on one port
//! of the sandbox's loopback. It has no rules of its own: its connections are checked like any other, including the names
//! inside them.

mod http_proxy;
mod socks;
mod upstream_proxy;

use std::sync::Arc;

use tokio::net::TcpStream;

use crate::connection::{SendingGuard, read_more};
use crate::decide::{Destination, NetworkReason};
use crate::event::EgressAction;
use crate::gate::GateState;

pub use upstream_proxy::{BadProxy, UpstreamProxy};

/// The port it listens on.
pub const PORT: u16 = 3128;

/// Serves one connection to the proxy.
pub(crate) async fn serve(gate: &Arc<GateState>, client: TcpStream, sending: SendingGuard) {
    let mut held = Vec::new();
    // A client that sends nothing within the limit is disconnected.
    let limit = tokio::time::Instant::now() + crate::gate::REQUEST_TIMEOUT;
    match read_more(&client, &mut held, &mut Some(limit)).await {
        Ok(read) if read > 0 => {}
        _ => return,
    }
    if held.first() == Some(&5) {
        socks::serve(gate, client, held, limit, sending).await;
    } else {
        http_proxy::serve(gate, client, held, limit, sending).await;
    }
}

/// Logs a request that was denied before its destination was checked: the destination, or else the bytes it sent.
fn log_denied(
    gate: &Arc<GateState>,
    action: EgressAction,
    wanted: Option<(Destination, u16)>,
    said: &[u8],
    reason: NetworkReason,
) {
    let (place, port) = match wanted {
        Some((host, port)) => (gate.resolve_synthetic(host.clone()).unwrap_or(host).to_string(), port),
        None => (printable(said), 0),
    };
    gate.log.begin(action, place, port).failed(reason);
}

/// Bytes as printable text for an event, cut at 255 bytes.
fn printable(bytes: &[u8]) -> String {
    bytes.get(..bytes.len().min(255)).unwrap_or_default().escape_ascii().to_string()
}
