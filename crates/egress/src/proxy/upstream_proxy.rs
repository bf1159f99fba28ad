//! The upstream HTTP proxy that this machine uses for outgoing connections. The gate sends it a CONNECT after checking the
//! destination as far as that is possible here. The proxy resolves names itself, so for a name without an address here, or
//! with another one than here, the proxy decides where the connection goes.

use std::net::IpAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::socks::write_all;
use crate::connection::read_more;
use crate::decide::{Destination, NetworkReason};
use crate::http::Authority;

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: usize = 16 << 10;

/// An upstream proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    host: Destination,
    port: u16,
}

/// A text that is not the address of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a proxy address: expected `http://host:port`")]
pub struct BadProxy(String);

impl UpstreamProxy {
    /// Parses `http://host:port`.
    pub fn parse(text: &str) -> Result<Self, BadProxy> {
        let bad = || BadProxy(text.to_owned());
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let Authority { host, port } = Authority::parse(rest.as_bytes()).map_err(|_| bad())?;
        Ok(Self { host, port: port.ok_or_else(bad)? })
    }

    /// Opens a connection through the proxy; returns it and the bytes that the server has sent already.
    pub(crate) async fn dial(
        &self,
        host: &Destination,
        port: u16,
    ) -> Result<(TcpStream, Vec<u8>), NetworkReason> {
        let failed = |why: &str| NetworkReason::Unreachable(format!("the upstream proxy {why}"));
        let near = match &self.host {
            Destination::Address(address) => TcpStream::connect((*address, self.port)),
            Destination::Name(name) => return self.dial_named(name.as_str(), host, port).await,
        };
        let stream = timeout(DIAL_TIMEOUT, near).await.map_err(|_| failed("did not answer"))?;
        self.send_connect(stream.map_err(|_| failed("cannot be reached"))?, host, port).await
    }

    async fn dial_named(
        &self,
        name: &str,
        host: &Destination,
        port: u16,
    ) -> Result<(TcpStream, Vec<u8>), NetworkReason> {
        let failed = |why: &str| NetworkReason::Unreachable(format!("the upstream proxy {why}"));
        let stream = timeout(DIAL_TIMEOUT, TcpStream::connect((name, self.port))).await;
        let stream =
            stream.map_err(|_| failed("did not answer"))?.map_err(|_| failed("cannot be reached"))?;
        self.send_connect(stream, host, port).await
    }

    async fn send_connect(
        &self,
        stream: TcpStream,
        host: &Destination,
        port: u16,
    ) -> Result<(TcpStream, Vec<u8>), NetworkReason> {
        let failed = |why: &str| NetworkReason::Unreachable(format!("the upstream proxy {why}"));
        let there = match host {
            Destination::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            other => format!("{other}:{port}"),
        };
        let words = format!("CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n\r\n");
        write_all(&stream, words.as_bytes()).await.map_err(|_| failed("closed the connection"))?;
        let mut held = Vec::new();
        let mut limit = Some(Instant::now() + DIAL_TIMEOUT);
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut answer = httparse::Response::new(&mut headers);
            match answer.parse(&held) {
                Ok(httparse::Status::Complete(length)) => {
                    return match answer.code {
                        Some(200..=299) => Ok((stream, held.split_off(length.min(held.len())))),
                        code => Err(failed(&format!("answered with status {}", code.unwrap_or(0)))),
                    };
                }
                Ok(httparse::Status::Partial) if held.len() < MAX_RESPONSE_BYTES => {}
                _ => return Err(failed("sent a response that cannot be parsed")),
            }
            match read_more(&stream, &mut held, &mut limit).await {
                Ok(read) if read > 0 => {}
                _ => return Err(failed("closed the connection")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_host;

    #[test]
    fn proxy_addresses_are_parsed() {
        let there = UpstreamProxy::parse("http://proxy.corp:8080/").unwrap();
        assert_eq!((there.host, there.port), (parse_host("proxy.corp").unwrap(), 8080));
        assert!(UpstreamProxy::parse("10.0.0.1:3128").is_ok());
        for text in ["", "proxy.corp", "socks5://proxy:1", "http://user:word@proxy:1", "http://proxy:0"] {
            assert!(UpstreamProxy::parse(text).is_err(), "{text}");
        }
    }
}
