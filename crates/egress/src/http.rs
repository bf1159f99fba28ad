//! Checks HTTP/1 requests: each head is parsed and compared with the host that the connection was allowed for, its body is
//! delimited exactly, and the next head is expected behind it. So a kept-alive connection cannot be used for another host,
//! and requests cannot be smuggled: a request that two servers could parse differently is rejected.
//!
//! Pure: no I/O. Responses are not inspected.

use std::net::IpAddr;

use crate::decide::{Destination, NetworkReason};
use crate::host_name::HostName;

/// Maximum size of a request head in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
pub(crate) const MAX_HEADERS: usize = 128;

/// Headers that decide where a request goes and where it ends.
const ROUTING_HEADERS: &[&str] = &["host", "content-length", "transfer-encoding", "upgrade"];

/// A request head that was parsed and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// Length in bytes.
    pub(crate) length: usize,
    pub(crate) framing: RequestFraming,
    /// It has an `Upgrade` header.
    pub(crate) has_upgrade: bool,
    /// The host in the request target: of requests to a proxy, or with an absolute URL.
    pub(crate) target: Option<Authority>,
    /// The host in the `Host` header.
    pub(crate) host: Option<Destination>,
    pub(crate) connect: bool,
}

/// How the length of a request body is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFraming {
    Length(u64),
    Chunked,
}

/// A host and an optional port, as written in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Destination,
    pub(crate) port: Option<u16>,
}

/// Whether requests are sent to a server or a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// The server itself.
    Server,
    /// A proxy: the target is an absolute URL, or an authority after CONNECT.
    Proxy,
}

impl Authority {
    /// Parses `host`, `host:port`, `[v6]:port`.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, NetworkReason> {
        let text = std::str::from_utf8(text).map_err(|_| NetworkReason::BadName)?;
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, after)) => {
                let address = inside.parse().map_err(|_| NetworkReason::BadName)?;
                let port = match after.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if after.is_empty() => None,
                    None => return Err(NetworkReason::BadName),
                };
                (Destination::Address(IpAddr::V6(address)), port)
            }
            None => {
                let (host, port) =
                    text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
                (parse_host(host)?, port)
            }
        };
        let number = |port: &str| {
            let plain = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
            port.parse().ok().filter(|port| plain && *port != 0).ok_or(NetworkReason::BadName)
        };
        let port = port.filter(|port| !port.is_empty()).map(number).transpose()?;
        Ok(Self { host, port })
    }
}

/// Parses a host name or an IP address.
pub(crate) fn parse_host(text: &str) -> Result<Destination, NetworkReason> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Destination::Address(address.to_canonical())),
        Err(_) => HostName::parse(text).map(Destination::Name).map_err(|_| NetworkReason::BadName),
    }
}

/// Parses and checks the head at the start of the bytes; `None` while it is incomplete.
pub(crate) fn parse_head(
    bytes: &[u8],
    expected: Option<&Destination>,
    to: Recipient,
) -> Result<Option<RequestHead>, NetworkReason> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        _ => return Err(NetworkReason::NotUnderstood("the request cannot be parsed")),
    };
    // Some servers accept a bare LF as a line end, some do not.
    let lines = bytes.get(..length).unwrap_or_default().split(|byte| *byte == b'\n');
    if lines.clone().take(lines.count() - 1).any(|line| line.last() != Some(&b'\r')) {
        return Err(NetworkReason::NotUnderstood("a line of the request does not end with CR LF"));
    }
    // Some servers treat an underscore as a hyphen.
    let stands_for = |name: &str| {
        let plain = name.replace('_', "-");
        plain != name && ROUTING_HEADERS.iter().any(|judged| judged.eq_ignore_ascii_case(&plain))
    };
    if request.headers.iter().any(|header| stands_for(header.name)) {
        return Err(NetworkReason::NotUnderstood(
            "a header name with an underscore could stand for another header",
        ));
    }
    let newest = request.version == Some(1);
    let connect = request.method == Some("CONNECT");
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|header| Authority::parse(trim(header.value))).transpose()?;
    if hosts.next().is_some() {
        return Err(NetworkReason::NotUnderstood("the request has two Host headers"));
    }
    if host.is_none() && newest {
        return Err(NetworkReason::NotUnderstood("the request has no Host header"));
    }
    let path = request.path.unwrap_or_default();
    let target = target(path, connect, to)?;
    for said in [host.as_ref(), target.as_ref()].into_iter().flatten() {
        let meant = expected.or(target.as_ref().map(|target| &target.host));
        if meant.is_some_and(|meant| *meant != said.host) {
            return Err(NetworkReason::NameMismatch(said.host.to_string()));
        }
    }
    let upgrade = upgrade(&request)?;
    let body = request_framing(&request, newest)?;
    Ok(Some(RequestHead {
        length,
        framing: body,
        has_upgrade: upgrade,
        target,
        host: host.map(|host| host.host),
        connect,
    }))
}

/// The destination in the first line of a proxy request, if it can be parsed: for the event of a denied request.
pub(crate) fn proxy_destination(bytes: &[u8]) -> Option<Authority> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next()?, std::str::from_utf8(words.next()?).ok()?);
    target(path, method == b"CONNECT", Recipient::Proxy).ok().flatten()
}

fn target(path: &str, connect: bool, to: Recipient) -> Result<Option<Authority>, NetworkReason> {
    if connect {
        return match to {
            Recipient::Proxy => Authority::parse(path.as_bytes()).map(Some),
            Recipient::Server => {
                Err(NetworkReason::NotUnderstood("CONNECT is only accepted by the explicit proxy"))
            }
        };
    }
    if let Some((scheme, rest)) =
        path.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?', '#']))
    {
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(NetworkReason::NotUnderstood("the request target has another scheme than http"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        return Authority::parse(rest.as_bytes().get(..end).unwrap_or_default()).map(Some);
    }
    match to {
        Recipient::Server if path.starts_with('/') || path == "*" => Ok(None),
        _ => Err(NetworkReason::NotUnderstood("the request target cannot be parsed")),
    }
}

fn upgrade(request: &httparse::Request<'_, '_>) -> Result<bool, NetworkReason> {
    let mut asked = false;
    for header in request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("upgrade")) {
        let value = header.value.to_ascii_lowercase();
        if value.windows(3).any(|part| part == b"h2c") {
            return Err(NetworkReason::NotUnderstood("HTTP/2 without TLS is not supported"));
        }
        asked = true;
    }
    Ok(asked)
}

fn request_framing(
    request: &httparse::Request<'_, '_>,
    newest: bool,
) -> Result<RequestFraming, NetworkReason> {
    const UNCLEAR: NetworkReason =
        NetworkReason::NotUnderstood("the length of the request body is ambiguous");
    let named = |name: &'static str| {
        request
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    let mut codings = named("transfer-encoding");
    let mut lengths = named("content-length");
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(RequestFraming::Length(0)),
        (Some(coding), None) => {
            let plain = newest && codings.next().is_none() && trim(coding).eq_ignore_ascii_case(b"chunked");
            if plain { Ok(RequestFraming::Chunked) } else { Err(UNCLEAR) }
        }
        (None, Some(length)) if lengths.next().is_none() => {
            let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            length.filter(|_| digits).map(RequestFraming::Length).ok_or(UNCLEAR)
        }
        _ => Err(UNCLEAR),
    }
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

/// Rewrites a head for a proxy into one for the server: only the path as target, without headers for the proxy. Asks the
/// server to close the connection after the response, except for an upgrade.
pub(crate) fn rewrite_for_server(head: &[u8]) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).ok()?.is_complete().then_some(())?;
    let (_, rest) = request.path?.split_once("://")?;
    let path = rest.find(['/', '?', '#']).and_then(|at| rest.get(at..)).unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut written =
        format!("{} {slash}{path} HTTP/1.{}\r\n", request.method?, request.version?).into_bytes();
    let is_last = !upgrade(&request).ok()?;
    for header in request.headers.iter() {
        let is_named = |name: &str| header.name.eq_ignore_ascii_case(name);
        let for_proxy =
            header.name.as_bytes().get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case(b"proxy-"));
        if for_proxy || (is_last && (is_named("connection") || is_named("keep-alive"))) {
            continue;
        }
        written.extend_from_slice(header.name.as_bytes());
        written.extend_from_slice(b": ");
        written.extend_from_slice(header.value);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(if is_last { b"Connection: close\r\n\r\n" } else { b"\r\n" });
    Some(written)
}

/// Incremental decoder of a chunked body.
#[derive(Debug, Default)]
pub(crate) struct ChunkedDecoder {
    state: ChunkState,
    /// The line so far.
    line: Vec<u8>,
    trailers: usize,
    denies_trailers: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    /// Bytes left of the chunk, including its line end.
    Content(u64),
    Trailer,
    Done,
}

impl ChunkedDecoder {
    /// A decoder that denies fields behind the body: a server may merge them into the headers, which were checked.
    pub(crate) fn without_trailers() -> Self {
        Self { denies_trailers: true, ..Self::default() }
    }

    /// Consumes bytes; returns how many of them belong to the body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, NetworkReason> {
        self.advance(bytes, &mut |_| {})
    }

    /// The same, and appends the decoded content.
    pub(crate) fn read(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> Result<usize, NetworkReason> {
        self.advance(bytes, &mut |part| content.extend_from_slice(part))
    }

    fn advance(&mut self, bytes: &[u8], content_of: &mut dyn FnMut(&[u8])) -> Result<usize, NetworkReason> {
        const UNCLEAR: NetworkReason = NetworkReason::NotUnderstood("the chunked body cannot be parsed");
        let mut taken = 0;
        while let Some(rest) =
            bytes.get(taken..).filter(|rest| !rest.is_empty() && self.state != ChunkState::Done)
        {
            if let ChunkState::Content(left) = self.state {
                // The two bytes behind a chunk are its CR LF.
                let content = usize::try_from(left.saturating_sub(2)).unwrap_or(usize::MAX).min(rest.len());
                content_of(rest.get(..content).unwrap_or_default());
                let mut left = left - content as u64;
                taken += content;
                while left > 0 && left <= 2 {
                    let Some(byte) = bytes.get(taken) else { break };
                    if *byte != if left == 2 { b'\r' } else { b'\n' } {
                        return Err(UNCLEAR);
                    }
                    taken += 1;
                    left -= 1;
                }
                self.state = if left == 0 { ChunkState::Size } else { ChunkState::Content(left) };
                continue;
            }
            let Some(byte) = rest.first() else { break };
            taken += 1;
            self.line.push(*byte);
            if self.line.len() > 4096 {
                return Err(UNCLEAR);
            }
            if *byte != b'\n' {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r\n").ok_or(UNCLEAR)?;
            if line.contains(&b'\r') {
                return Err(UNCLEAR);
            }
            self.state = match self.state {
                ChunkState::Size => match chunk_size(line).ok_or(UNCLEAR)? {
                    0 => ChunkState::Trailer,
                    size => ChunkState::Content(size.checked_add(2).ok_or(UNCLEAR)?),
                },
                _ if line.is_empty() => ChunkState::Done,
                // A server that does not support trailers would read the next request here.
                _ if !is_field(line) => return Err(UNCLEAR),
                _ if self.denies_trailers => {
                    return Err(NetworkReason::NotUnderstood("fields behind the body are not supported"));
                }
                _ => {
                    self.trailers += 1;
                    if self.trailers > MAX_HEADERS {
                        return Err(UNCLEAR);
                    }
                    ChunkState::Trailer
                }
            };
        }
        Ok(taken)
    }

    pub(crate) fn done(&self) -> bool {
        self.state == ChunkState::Done
    }
}

/// Whether a line is a header field: a name and a colon.
fn is_field(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let token = !name.is_empty() && name.iter().all(|byte| crate::detect::is_token_byte(*byte));
    token && name.len() < line.len()
}

/// The size of a chunk; extensions after a semicolon are ignored.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let number = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let number = number.trim_ascii_end();
    let plain = !number.is_empty() && number.len() <= 15 && number.iter().all(u8::is_ascii_hexdigit);
    let number = std::str::from_utf8(number).ok()?;
    plain.then(|| u64::from_str_radix(number, 16).ok()).flatten()
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;
