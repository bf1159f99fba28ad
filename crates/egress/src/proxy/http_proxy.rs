//! The HTTP side of the explicit proxy: CONNECT, and plain requests with an absolute URL. One connection serves one host: a
//! plain request is the last of its connection, and the server is asked to close it, because programs reuse a proxy
//! connection for other hosts.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::socks::write_all;
use crate::connection::{SendingGuard, read_more};
use crate::decide::NetworkReason;
use crate::event::EgressAction;
use crate::gate::{GateState, denial_response};
use crate::http::{self, Recipient, RequestFraming, RequestHead};
use crate::relay::RelayError;

pub(super) async fn serve(
    gate: &Arc<GateState>,
    client: TcpStream,
    mut held: Vec<u8>,
    limit: Instant,
    sending: SendingGuard,
) {
    let mut looked = 0;
    let head = loop {
        // A head ends with a line end: parsing earlier would not help.
        let new = held.get(looked..).unwrap_or_default();
        let is_news = new.contains(&b'\n') || held.len() >= http::MAX_HEAD_BYTES || looked == 0;
        looked = held.len();
        match if is_news { http::parse_head(&held, None, Recipient::Proxy) } else { Ok(None) } {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(reason) => {
                log_denied(gate, &held, reason.clone());
                let _ = write_all(&client, &denial_response(&reason)).await;
                return;
            }
        }
        match read_more(&client, &mut held, &mut Some(limit)).await {
            Ok(read) if read > 0 => {}
            Err(RelayError::Reason(reason)) => {
                return log_denied(gate, &held, reason);
            }
            _ => return,
        }
    };
    let Some(target) = head.target.clone() else { return };
    let port = target.port.unwrap_or(80);
    let host = gate.resolve_synthetic(target.host.clone());
    let place = host.as_ref().unwrap_or(&target.host).to_string();
    let mut attempt = gate.log.begin(EgressAction::HttpProxy, place, port);
    let ready = match (take_head(&head, target.port, &mut held), host) {
        (Ok(first), Ok(host)) => gate
            .check_and_dial(&host, port, &mut attempt, sending)
            .await
            .map(|dialled| (first, host, dialled)),
        (Err(reason), _) | (_, Err(reason)) => Err(reason),
    };
    match ready {
        Ok((first, host, dialled)) => {
            let written = if head.connect {
                write_all(&client, b"HTTP/1.1 200 Connection established\r\n\r\n").await
            } else {
                Ok(())
            };
            if written.is_ok() {
                gate.relay(&client, dialled, &host, [first, held].concat(), &mut attempt).await;
            }
        }
        Err(reason) => {
            let _ = write_all(&client, &denial_response(&reason)).await;
            attempt.failed(reason);
        }
    }
}

/// The head to send to the server (empty for CONNECT); removes the client's head from `held`.
fn take_head(head: &RequestHead, port: Option<u16>, held: &mut Vec<u8>) -> Result<Vec<u8>, NetworkReason> {
    let rest = held.split_off(head.length.min(held.len()));
    let whole = std::mem::replace(held, rest);
    if head.connect {
        let plain = port.is_some() && head.framing == RequestFraming::Length(0);
        return if plain {
            Ok(Vec::new())
        } else {
            Err(NetworkReason::NotUnderstood("the CONNECT request cannot be parsed"))
        };
    }
    http::rewrite_for_server(&whole).ok_or(NetworkReason::NotUnderstood("the request cannot be parsed"))
}

fn log_denied(gate: &Arc<GateState>, said: &[u8], reason: NetworkReason) {
    let wanted = http::proxy_destination(said).map(|wanted| (wanted.host, wanted.port.unwrap_or(80)));
    let line = said.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    super::log_denied(gate, EgressAction::HttpProxy, wanted, line, reason);
}
