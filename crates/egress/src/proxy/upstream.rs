//! A proxy that this machine must use to get out: connections are asked of it by CONNECT, after the gate has judged where
//! they lead as far as it can be known here. The proxy resolves names itself, so what it makes of a name that has no
//! address here, or another one than here, is its judgement.

use std::net::IpAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::socks::say;
use crate::decide::{Destination, Reason};
use crate::http::Authority;
use crate::pass::fill;

const DIALLING: Duration = Duration::from_secs(10);
const MOST_ANSWER: usize = 16 << 10;

/// A proxy on the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    host: Destination,
    port: u16,
}

/// Why a text names no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no proxy: `http://host:port` is expected")]
pub struct BadProxy(String);

impl Upstream {
    /// From `http://host:port`.
    pub fn parse(text: &str) -> Result<Self, BadProxy> {
        let bad = || BadProxy(text.to_owned());
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let Authority { host, port } = Authority::parse(rest.as_bytes()).map_err(|_| bad())?;
        Ok(Self { host, port: port.ok_or_else(bad)? })
    }

    /// A connection through the proxy, and what the server said already.
    pub(crate) async fn dial(&self, host: &Destination, port: u16) -> Result<(TcpStream, Vec<u8>), Reason> {
        let failed = |why: &str| Reason::Unreachable(format!("the upstream proxy {why}"));
        let near = match &self.host {
            Destination::Address(address) => TcpStream::connect((*address, self.port)),
            Destination::Name(name) => return self.dial_named(name.as_str(), host, port).await,
        };
        let stream = timeout(DIALLING, near).await.map_err(|_| failed("does not answer"))?;
        self.ask(stream.map_err(|_| failed("cannot be reached"))?, host, port).await
    }

    async fn dial_named(
        &self,
        name: &str,
        host: &Destination,
        port: u16,
    ) -> Result<(TcpStream, Vec<u8>), Reason> {
        let failed = |why: &str| Reason::Unreachable(format!("the upstream proxy {why}"));
        let stream = timeout(DIALLING, TcpStream::connect((name, self.port))).await;
        let stream =
            stream.map_err(|_| failed("does not answer"))?.map_err(|_| failed("cannot be reached"))?;
        self.ask(stream, host, port).await
    }

    async fn ask(
        &self,
        stream: TcpStream,
        host: &Destination,
        port: u16,
    ) -> Result<(TcpStream, Vec<u8>), Reason> {
        let failed = |why: &str| Reason::Unreachable(format!("the upstream proxy {why}"));
        let there = match host {
            Destination::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            other => format!("{other}:{port}"),
        };
        let words = format!("CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n\r\n");
        say(&stream, words.as_bytes()).await.map_err(|_| failed("went away"))?;
        let mut held = Vec::new();
        let mut limit = Some(Instant::now() + DIALLING);
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut answer = httparse::Response::new(&mut headers);
            match answer.parse(&held) {
                Ok(httparse::Status::Complete(length)) => {
                    return match answer.code {
                        Some(200..=299) => Ok((stream, held.split_off(length.min(held.len())))),
                        code => Err(failed(&format!("answers {}", code.unwrap_or(0)))),
                    };
                }
                Ok(httparse::Status::Partial) if held.len() < MOST_ANSWER => {}
                _ => return Err(failed("cannot be understood")),
            }
            match fill(&stream, &mut held, &mut limit).await {
                Ok(read) if read > 0 => {}
                _ => return Err(failed("went away")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::host_of;

    #[test]
    fn proxies_are_read() {
        let there = Upstream::parse("http://proxy.corp:8080/").unwrap();
        assert_eq!((there.host, there.port), (host_of("proxy.corp").unwrap(), 8080));
        assert!(Upstream::parse("10.0.0.1:3128").is_ok());
        for text in ["", "proxy.corp", "socks5://proxy:1", "http://user:word@proxy:1", "http://proxy:0"] {
            assert!(Upstream::parse(text).is_err(), "{text}");
        }
    }
}
