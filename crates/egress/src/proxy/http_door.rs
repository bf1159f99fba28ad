//! The explicit proxy in HTTP: CONNECT, and plain requests with a whole URL. One connection serves one host: a plain
//! request is the last one of its connection, which the server is asked to end, because programs use a connection to a
//! proxy for the next host as well.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::socks::say;
use crate::decide::Reason;
use crate::event::Action;
use crate::gate::{Inner, denial};
use crate::http::{self, Body, Head, To};
use crate::pass::{Speaks, fill};
use crate::relay::Broken;

pub(super) async fn serve(
    gate: &Arc<Inner>,
    client: TcpStream,
    mut held: Vec<u8>,
    limit: Instant,
    speaks: Speaks,
) {
    let mut looked = 0;
    let head = loop {
        // A head ends with a line: nothing new is learnt before one ends.
        let new = held.get(looked..).unwrap_or_default();
        let is_news = new.contains(&b'\n') || held.len() >= http::MOST_HEAD || looked == 0;
        looked = held.len();
        match if is_news { http::head(&held, None, To::Proxy) } else { Ok(None) } {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(reason) => {
                refused(gate, &held, reason.clone());
                let _ = say(&client, &denial(&reason)).await;
                return;
            }
        }
        match fill(&client, &mut held, &mut Some(limit)).await {
            Ok(read) if read > 0 => {}
            Err(Broken::Reason(reason)) => {
                return refused(gate, &held, reason);
            }
            _ => return,
        }
    };
    let Some(target) = head.target.clone() else { return };
    let port = target.port.unwrap_or(80);
    let host = gate.meant(target.host.clone());
    let place = host.as_ref().unwrap_or(&target.host).to_string();
    let mut ticket = gate.log.begin(Action::HttpProxy, place, port);
    let ready = match (prepare(&head, target.port, &mut held), host) {
        (Ok(first), Ok(host)) => {
            gate.reach(&host, port, &mut ticket, speaks).await.map(|dialled| (first, host, dialled))
        }
        (Err(reason), _) | (_, Err(reason)) => Err(reason),
    };
    match ready {
        Ok((first, host, dialled)) => {
            let told = if head.connect {
                say(&client, b"HTTP/1.1 200 Connection established\r\n\r\n").await
            } else {
                Ok(())
            };
            if told.is_ok() {
                gate.pass(&client, dialled, &host, [first, held].concat(), &mut ticket).await;
            }
        }
        Err(reason) => {
            let _ = say(&client, &denial(&reason)).await;
            ticket.failed(reason);
        }
    }
}

/// What goes to the server first; the head is taken out of what is held.
fn prepare(head: &Head, port: Option<u16>, held: &mut Vec<u8>) -> Result<Vec<u8>, Reason> {
    let rest = held.split_off(head.length.min(held.len()));
    let whole = std::mem::replace(held, rest);
    if head.connect {
        let plain = port.is_some() && head.body == Body::Length(0);
        return if plain {
            Ok(Vec::new())
        } else {
            Err(Reason::NotUnderstood("a CONNECT that cannot be read"))
        };
    }
    http::for_server(&whole).ok_or(Reason::NotUnderstood("a request that cannot be read"))
}

fn refused(gate: &Arc<Inner>, said: &[u8], reason: Reason) {
    let wanted = http::wanted(said).map(|wanted| (wanted.host, wanted.port.unwrap_or(80)));
    let line = said.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    super::refused(gate, Action::HttpProxy, wanted, line, reason);
}
