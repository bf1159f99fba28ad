//! The head of an answer inside ended TLS: how long its body is, and the head anew for the program. Pure.

use vambrace_core::network::Reason;
use vambrace_redact::Redactor;

use super::request::Judged;
use crate::http;

/// An answer's head, understood.
pub(super) struct Answered {
    /// How long the head was.
    pub(super) length: usize,
    pub(super) status: u16,
    pub(super) body: Framing,
    /// For the program.
    pub(super) head: Vec<u8>,
    /// The server ends the connection after it.
    pub(super) last: bool,
    /// It must be unpacked to be looked through.
    pub(super) packing: Option<Packing>,
}

/// How an answer's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    /// With the connection.
    Close,
}

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Zlib,
}

const UNCLEAR: Reason = Reason::NotUnderstood("an answer that cannot be read");
const LEFT_OUT: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "content-length",
    "trailer",
    "upgrade",
    "alt-svc",
];

/// Reads; nothing while the head is not all there.
pub(super) fn read(
    bytes: &[u8],
    asked: &Judged,
    scrubber: Option<&Redactor>,
) -> Result<Option<Answered>, Reason> {
    let bodiless = asked.bodiless;
    let mut headers = [httparse::EMPTY_HEADER; http::MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < http::MOST_HEAD => return Ok(None),
        _ => return Err(UNCLEAR),
    };
    let status = response.code.ok_or(UNCLEAR)?;
    let named = |name: &'static str| {
        response
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    let body = framing(status, bodiless, named("transfer-encoding"), named("content-length"))?;
    let looked_through = body != Framing::Nothing && scrubber.is_some();
    let packing = if looked_through { packing(named("content-encoding"))? } else { None };
    if status == 101
        && !agrees(asked, named("upgrade"), named("sec-websocket-accept"), named("sec-websocket-extensions"))
    {
        return Err(Reason::NotUnderstood("another protocol inside TLS that is looked into"));
    }
    let reason: String =
        response.reason.unwrap_or_default().chars().filter(|letter| !letter.is_control()).collect();
    let mut head = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
    let kept_length = body == Framing::Nothing && bodiless;
    for header in response.headers.iter() {
        let left_out = LEFT_OUT.iter().any(|name| header.name.eq_ignore_ascii_case(name));
        // Of an answer without a body the length is a fact about another one.
        if left_out && !(kept_length && header.name.eq_ignore_ascii_case("content-length")) {
            continue;
        }
        if packing.is_some() && header.name.eq_ignore_ascii_case("content-encoding") {
            continue;
        }
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    if let Some(scrubber) = scrubber {
        head = scrubber.redact_bytes(&head).map_err(|_| UNCLEAR)?.0.into_owned();
    }
    if status == 101 {
        head.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
    } else if body != Framing::Nothing && !asked.old {
        head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    } else if body == Framing::Nothing && !bodiless && status != 204 && status != 304 && status >= 200 {
        head.extend_from_slice(b"Content-Length: 0\r\n");
    }
    let closes = named("connection").any(|value| {
        value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    let last = closes || asked.old || body == Framing::Close || response.version != Some(1);
    if last && status >= 200 {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(Some(Answered { length, status, body, head, last, packing }))
}

/// What the content is packed with; what nobody can unpack here does not pass.
fn packing<'a>(mut codings: impl Iterator<Item = &'a [u8]>) -> Result<Option<Packing>, Reason> {
    let (coding, more) = (codings.next().unwrap_or_default().trim_ascii(), codings.next());
    match coding.to_ascii_lowercase().as_slice() {
        _ if more.is_some() => {}
        b"" | b"identity" => return Ok(None),
        b"gzip" | b"x-gzip" => return Ok(Some(Packing::Gzip)),
        b"deflate" => return Ok(Some(Packing::Zlib)),
        _ => {}
    }
    Err(Reason::NotUnderstood("an answer in an encoding that was not asked for"))
}

/// Whether a server agrees to speak WebSocket, as it was asked to and without conditions of its own.
fn agrees<'a>(
    asked: &Judged,
    mut protocols: impl Iterator<Item = &'a [u8]>,
    mut proofs: impl Iterator<Item = &'a [u8]>,
    mut extensions: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let protocol = protocols.next().is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"));
    let proof = proofs.next().map(<[u8]>::trim_ascii);
    let alone = protocols.next().is_none() && proofs.next().is_none() && extensions.next().is_none();
    alone && protocol && proof.is_some() && proof == asked.socket.as_deref().map(str::as_bytes)
}

fn framing<'a>(
    status: u16,
    bodiless: bool,
    mut codings: impl Iterator<Item = &'a [u8]>,
    mut lengths: impl Iterator<Item = &'a [u8]>,
) -> Result<Framing, Reason> {
    let (coding, length) = (codings.next(), lengths.next());
    if codings.next().is_some() || lengths.next().is_some() || (coding.is_some() && length.is_some()) {
        return Err(Reason::NotUnderstood("an answer whose length is not clear"));
    }
    if bodiless || status < 200 || matches!(status, 204 | 304) {
        return Ok(Framing::Nothing);
    }
    match (coding, length) {
        (Some(coding), _) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (Some(_), _) => Err(UNCLEAR),
        (None, Some(length)) => {
            let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            match number.filter(|_| digits).ok_or(UNCLEAR)? {
                0 => Ok(Framing::Nothing),
                length => Ok(Framing::Length(length)),
            }
        }
        (None, None) => Ok(Framing::Close),
    }
}
