//! The explicit proxy, for programs that want one: HTTP (CONNECT and plain requests) and SOCKS5 on one port of the
//! sandbox's own loopback. It knows no rule of its own: what is asked for here is judged like any other connection,
//! and the names inside are compared just so.

mod http_door;
mod socks;
mod upstream;

use std::sync::Arc;

use tokio::net::TcpStream;

use crate::decide::{Destination, Reason};
use crate::event::Action;
use crate::gate::Inner;
use crate::pass::{Speaks, fill};

pub use upstream::{BadProxy, Upstream};

/// Where it listens.
pub const PORT: u16 = 3128;

/// Serves one connection to the proxy.
pub(crate) async fn serve(gate: &Arc<Inner>, client: TcpStream, speaks: Speaks) {
    let mut held = Vec::new();
    // Whoever says nothing in time is not served.
    let limit = tokio::time::Instant::now() + crate::gate::GREETING;
    match fill(&client, &mut held, &mut Some(limit)).await {
        Ok(read) if read > 0 => {}
        _ => return,
    }
    if held.first() == Some(&5) {
        socks::serve(gate, client, held, limit, speaks).await;
    } else {
        http_door::serve(gate, client, held, limit, speaks).await;
    }
}

/// An event about a request that was refused before it was judged: to whom it wanted, or else what it said.
fn refused(
    gate: &Arc<Inner>,
    action: Action,
    wanted: Option<(Destination, u16)>,
    said: &[u8],
    reason: Reason,
) {
    let (place, port) = match wanted {
        Some((host, port)) => (gate.meant(host.clone()).unwrap_or(host).to_string(), port),
        None => (shown(said), 0),
    };
    gate.log.begin(action, place, port).failed(reason);
}

/// For an event: what was said, as far as it can be shown.
fn shown(bytes: &[u8]) -> String {
    bytes.get(..bytes.len().min(255)).unwrap_or_default().escape_ascii().to_string()
}
