//! DNS of a sandbox: every resolver address leads here. Names that a rule allows get synthetic addresses; everything
//! else does not exist, and becomes an event. Nothing is asked of anybody.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use vambrace_sandbox::network;

use super::{GREETING, Inner, stopped};
use crate::decide::Reason;
use crate::dns::{self, Answer, BadQuery, Question};
use crate::event::Action;
use crate::names::HostName;
use crate::pass::fill;

pub(super) const PORT: u16 = 53;
/// Questions over one TCP connection.
const MOST_QUESTIONS: usize = 1000;
const UNREADABLE: Reason = Reason::NotUnderstood("a question to DNS that cannot be read");

/// Answers datagrams until the gate closes.
pub(super) async fn datagrams(inner: &Arc<Inner>, socket: OwnedFd, mut stop: watch::Receiver<bool>) {
    let Ok(socket) = UdpSocket::from_std(socket.into()) else { return };
    loop {
        tokio::select! {
            ready = socket.readable() => if ready.is_err() { return },
            () = stopped(&mut stop) => return,
        }
        // A datagram that cannot be taken is gone.
        let taken = socket.try_io(Interest::READABLE, || Ok(network::receive(&socket, dns::MOST)?));
        if let Ok(asked) = taken
            && let Some(answer) = inner.answer(&asked.bytes)
        {
            // Who does not hear it asks again.
            let _ = network::reply(&socket, &asked, &answer);
        }
    }
}

/// Answers over TCP: each message follows its length.
pub(super) async fn stream(inner: &Arc<Inner>, client: TcpStream) {
    let mut held = Vec::new();
    for _ in 0..MOST_QUESTIONS {
        let limit = tokio::time::Instant::now() + GREETING;
        let question = loop {
            if let [high, low, rest @ ..] = held.as_slice() {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                if length > dns::MOST {
                    return;
                }
                if let Some(question) = rest.get(..length) {
                    let question = question.to_vec();
                    held.drain(..length + 2);
                    break question;
                }
            }
            if !matches!(fill(&client, &mut held, &mut Some(limit)).await, Ok(read) if read > 0) {
                return;
            }
        };
        let Some(answer) = inner.answer(&question) else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let answer = [&length.to_be_bytes()[..], &answer].concat();
        // An answer is far smaller than the socket's buffer; who does not read does not get more.
        if !matches!(client.try_write(&answer), Ok(written) if written == answer.len()) {
            return;
        }
    }
}

impl Inner {
    fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let question = match Question::read(packet) {
            Ok(question) => question,
            Err(bad) => {
                self.log.begin(Action::Dns, "?".to_owned(), 0).failed(UNREADABLE);
                return match bad {
                    BadQuery::Reply(reply) => Some(reply),
                    BadQuery::Silence => None,
                };
            }
        };
        let answer = match HostName::from_bytes(&question.name) {
            Ok(name) if name.is_localhost() => Answer::Addresses(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            Ok(name) => self.look_up(&name),
            Err(_) => {
                self.log.begin(Action::Dns, question.shown(), 0).failed(Reason::BadName);
                Answer::NoSuchName
            }
        };
        Some(question.answer(answer))
    }

    fn look_up(&self, name: &HostName) -> Answer {
        let mut ticket = self.log.begin(Action::Dns, name.as_str().to_owned(), 0);
        match self.setting.rules.knows(name) {
            Ok(rule) => ticket.allowed_by(rule),
            Err(reason) => {
                ticket.failed(reason);
                return Answer::NoSuchName;
            }
        }
        match self.setting.book.addresses(name) {
            Some((four, six)) => Answer::Addresses(four, six),
            None => {
                ticket.failed(Reason::Cap("names"));
                Answer::Failure
            }
        }
    }
}
