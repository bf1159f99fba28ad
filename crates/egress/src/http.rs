//! HTTP/1 requests on their way: each one's head is read and compared with the host that the connection was allowed
//! for, its body is measured exactly, and then the next head is expected. So a kept connection cannot be used for
//! another host, and nothing can be smuggled between two requests: what two servers could read differently is refused.
//!
//! Pure: bytes in, what to do with them out. Answers of the server are not looked at.

use std::net::IpAddr;

use crate::decide::{Destination, Reason};
use crate::names::HostName;

/// The longest head.
pub(crate) const MOST_HEAD: usize = 64 << 10;
pub(crate) const MOST_HEADERS: usize = 128;

/// Headers that say to whom a request goes and where it ends.
const JUDGED: &[&str] = &["host", "content-length", "transfer-encoding", "upgrade"];

/// A request's head, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its length.
    pub(crate) length: usize,
    pub(crate) body: Body,
    /// It asks to speak another protocol from here on.
    pub(crate) upgrade: bool,
    /// Where it wants to go, when it says so itself: of requests to a proxy.
    pub(crate) target: Option<Authority>,
    /// Whom its Host names.
    pub(crate) host: Option<Destination>,
    pub(crate) connect: bool,
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
}

/// A host and perhaps a port, as written in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Destination,
    pub(crate) port: Option<u16>,
}

/// Whom requests are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// The server itself.
    Server,
    /// A proxy: the target is a whole URL, or an authority after CONNECT.
    Proxy,
}

impl Authority {
    /// `host`, `host:port`, `[v6]:port`.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Reason> {
        let text = std::str::from_utf8(text).map_err(|_| Reason::BadName)?;
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, after)) => {
                let address = inside.parse().map_err(|_| Reason::BadName)?;
                let port = match after.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if after.is_empty() => None,
                    None => return Err(Reason::BadName),
                };
                (Destination::Address(IpAddr::V6(address)), port)
            }
            None => {
                let (host, port) =
                    text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
                (host_of(host)?, port)
            }
        };
        let number = |port: &str| {
            let plain = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
            port.parse().ok().filter(|port| plain && *port != 0).ok_or(Reason::BadName)
        };
        let port = port.filter(|port| !port.is_empty()).map(number).transpose()?;
        Ok(Self { host, port })
    }
}

/// A name, or four decimal numbers.
pub(crate) fn host_of(text: &str) -> Result<Destination, Reason> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Destination::Address(address.to_canonical())),
        Err(_) => HostName::parse(text).map(Destination::Name).map_err(|_| Reason::BadName),
    }
}

/// Reads and judges the head at the beginning of the bytes; nothing while it is not all there.
pub(crate) fn head(bytes: &[u8], expected: Option<&Destination>, to: To) -> Result<Option<Head>, Reason> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MOST_HEAD => return Ok(None),
        _ => return Err(Reason::NotUnderstood("a request that cannot be read")),
    };
    // Some servers end a line there, some do not.
    let lines = bytes.get(..length).unwrap_or_default().split(|byte| *byte == b'\n');
    if lines.clone().take(lines.count() - 1).any(|line| line.last() != Some(&b'\r')) {
        return Err(Reason::NotUnderstood("a request with a line that is not ended by both signs"));
    }
    // Some servers read an underscore as a hyphen.
    let stands_for = |name: &str| {
        let plain = name.replace('_', "-");
        plain != name && JUDGED.iter().any(|judged| judged.eq_ignore_ascii_case(&plain))
    };
    if request.headers.iter().any(|header| stands_for(header.name)) {
        return Err(Reason::NotUnderstood("a request with a header that stands for another one"));
    }
    let newest = request.version == Some(1);
    let connect = request.method == Some("CONNECT");
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|header| Authority::parse(trim(header.value))).transpose()?;
    if hosts.next().is_some() {
        return Err(Reason::NotUnderstood("a request with two hosts"));
    }
    if host.is_none() && newest {
        return Err(Reason::NotUnderstood("a request without a host"));
    }
    let path = request.path.unwrap_or_default();
    let target = target(path, connect, to)?;
    for said in [host.as_ref(), target.as_ref()].into_iter().flatten() {
        let meant = expected.or(target.as_ref().map(|target| &target.host));
        if meant.is_some_and(|meant| *meant != said.host) {
            return Err(Reason::NameMismatch(said.host.to_string()));
        }
    }
    let upgrade = upgrade(&request)?;
    let body = body(&request, newest)?;
    Ok(Some(Head { length, body, upgrade, target, host: host.map(|host| host.host), connect }))
}

/// Whom a request to a proxy wants, as far as its first line says so by itself: for an event about one that is refused.
pub(crate) fn wanted(bytes: &[u8]) -> Option<Authority> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next()?, std::str::from_utf8(words.next()?).ok()?);
    target(path, method == b"CONNECT", To::Proxy).ok().flatten()
}

fn target(path: &str, connect: bool, to: To) -> Result<Option<Authority>, Reason> {
    if connect {
        return match to {
            To::Proxy => Authority::parse(path.as_bytes()).map(Some),
            To::Server => Err(Reason::NotUnderstood("a request to connect further")),
        };
    }
    if let Some((scheme, rest)) =
        path.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?', '#']))
    {
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(Reason::NotUnderstood("a request for another scheme than http"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        return Authority::parse(rest.as_bytes().get(..end).unwrap_or_default()).map(Some);
    }
    match to {
        To::Server if path.starts_with('/') || path == "*" => Ok(None),
        _ => Err(Reason::NotUnderstood("a request whose target cannot be read")),
    }
}

fn upgrade(request: &httparse::Request<'_, '_>) -> Result<bool, Reason> {
    let mut asked = false;
    for header in request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("upgrade")) {
        let value = header.value.to_ascii_lowercase();
        if value.windows(3).any(|part| part == b"h2c") {
            return Err(Reason::NotUnderstood("HTTP/2 without TLS cannot be judged"));
        }
        asked = true;
    }
    Ok(asked)
}

fn body(request: &httparse::Request<'_, '_>, newest: bool) -> Result<Body, Reason> {
    const UNCLEAR: Reason = Reason::NotUnderstood("a request whose length is not clear");
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
        (None, None) => Ok(Body::Length(0)),
        (Some(coding), None) => {
            let plain = newest && codings.next().is_none() && trim(coding).eq_ignore_ascii_case(b"chunked");
            if plain { Ok(Body::Chunked) } else { Err(UNCLEAR) }
        }
        (None, Some(length)) if lengths.next().is_none() => {
            let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            length.filter(|_| digits).map(Body::Length).ok_or(UNCLEAR)
        }
        _ => Err(UNCLEAR),
    }
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

/// A head for the server out of one for a proxy: the path alone, and nothing that was meant for the proxy. The server is
/// asked to end the connection with its answer, unless another protocol is to follow.
pub(crate) fn for_server(head: &[u8]) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
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

/// Follows a chunked body to its end.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    stage: Stage,
    /// The line so far.
    line: Vec<u8>,
    trailers: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Size,
    /// So much of the chunk and its line end.
    Content(u64),
    Trailer,
    Done,
}

impl Chunks {
    /// Takes bytes; how many of them belong to the body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, Reason> {
        self.follow(bytes, &mut |_| {})
    }

    /// The same, and keeps what the chunks hold.
    pub(crate) fn read(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> Result<usize, Reason> {
        self.follow(bytes, &mut |part| content.extend_from_slice(part))
    }

    fn follow(&mut self, bytes: &[u8], content_of: &mut dyn FnMut(&[u8])) -> Result<usize, Reason> {
        const UNCLEAR: Reason = Reason::NotUnderstood("a body whose chunks cannot be read");
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty() && self.stage != Stage::Done)
        {
            if let Stage::Content(left) = self.stage {
                // The two bytes behind a chunk are its line end.
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
                self.stage = if left == 0 { Stage::Size } else { Stage::Content(left) };
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
            self.stage = match self.stage {
                Stage::Size => match size(line).ok_or(UNCLEAR)? {
                    0 => Stage::Trailer,
                    size => Stage::Content(size.checked_add(2).ok_or(UNCLEAR)?),
                },
                _ if line.is_empty() => Stage::Done,
                // Who does not know trailers would read the next request here.
                _ if !is_field(line) => return Err(UNCLEAR),
                _ => {
                    self.trailers += 1;
                    if self.trailers > MOST_HEADERS {
                        return Err(UNCLEAR);
                    }
                    Stage::Trailer
                }
            };
        }
        Ok(taken)
    }

    pub(crate) fn done(&self) -> bool {
        self.stage == Stage::Done
    }
}

/// Whether a line is a header's: a name, a colon.
fn is_field(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let token = !name.is_empty() && name.iter().all(|byte| crate::sniff::is_of_a_token(*byte));
    token && name.len() < line.len()
}

/// The number at the beginning of a chunk; what follows a semicolon is its own business.
fn size(line: &[u8]) -> Option<u64> {
    let number = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let number = number.trim_ascii_end();
    let plain = !number.is_empty() && number.len() <= 15 && number.iter().all(u8::is_ascii_hexdigit);
    let number = std::str::from_utf8(number).ok()?;
    plain.then(|| u64::from_str_radix(number, 16).ok()).flatten()
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;
