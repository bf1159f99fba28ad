//! Response heads inside terminated TLS: finds how the body ends, and rewrites the head for the program. Pure.

use vambrace_core::network::NetworkReason;
use vambrace_redact::Redactor;

use super::request::CheckedRequest;
use crate::http;

/// A parsed response head.
pub(super) struct ResponseHead {
    /// Length of the server's head in bytes.
    pub(super) length: usize,
    pub(super) status: u16,
    pub(super) body: ResponseFraming,
    /// The rewritten head for the program.
    pub(super) head: Vec<u8>,
    /// The connection closes after this response.
    pub(super) last: bool,
    /// The body must be decompressed to be redacted.
    pub(super) encoding: Option<ContentEncoding>,
}

/// How the end of a response body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Nothing,
    Length(u64),
    Chunked,
    /// By the end of the connection.
    Close,
}

/// The compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentEncoding {
    Gzip,
    Zlib,
}

const MALFORMED_RESPONSE: NetworkReason = NetworkReason::NotUnderstood("the response cannot be parsed");
const REMOVED_HEADERS: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "content-length",
    "trailer",
    "upgrade",
    "alt-svc",
];

/// Parses a head; `None` while it is incomplete.
pub(super) fn parse(
    bytes: &[u8],
    asked: &CheckedRequest,
    redactor: Option<&Redactor>,
) -> Result<Option<ResponseHead>, NetworkReason> {
    let bodiless = asked.bodiless;
    let mut headers = [httparse::EMPTY_HEADER; http::MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < http::MAX_HEAD_BYTES => return Ok(None),
        _ => return Err(MALFORMED_RESPONSE),
    };
    let status = response.code.ok_or(MALFORMED_RESPONSE)?;
    let named = |name: &'static str| {
        response
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    let body = framing(status, bodiless, named("transfer-encoding"), named("content-length"))?;
    let looked_through = body != ResponseFraming::Nothing && redactor.is_some();
    let encoding = if looked_through { encoding(named("content-encoding"))? } else { None };
    if status == 101
        && !accepts_websocket(
            asked,
            named("upgrade"),
            named("sec-websocket-accept"),
            named("sec-websocket-extensions"),
        )
    {
        return Err(NetworkReason::NotUnderstood("the server switched to another protocol than requested"));
    }
    let reason: String =
        response.reason.unwrap_or_default().chars().filter(|letter| !letter.is_control()).collect();
    let mut head = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
    let kept_length = body == ResponseFraming::Nothing && bodiless;
    for header in response.headers.iter() {
        let left_out = REMOVED_HEADERS.iter().any(|name| header.name.eq_ignore_ascii_case(name));
        // The length in the response to HEAD describes the response to GET; it is kept.
        if left_out && !(kept_length && header.name.eq_ignore_ascii_case("content-length")) {
            continue;
        }
        if encoding.is_some() && header.name.eq_ignore_ascii_case("content-encoding") {
            continue;
        }
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    if let Some(redactor) = redactor {
        head = redactor.redact_bytes(&head).map_err(|_| MALFORMED_RESPONSE)?.0.into_owned();
    }
    if status == 101 {
        head.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
    } else if body != ResponseFraming::Nothing && !asked.is_http_1_0 {
        head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    } else if body == ResponseFraming::Nothing && !bodiless && status != 204 && status != 304 && status >= 200
    {
        head.extend_from_slice(b"Content-Length: 0\r\n");
    }
    let closes = named("connection").any(|value| {
        value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    let last = closes || asked.is_http_1_0 || body == ResponseFraming::Close || response.version != Some(1);
    if last && status >= 200 {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(Some(ResponseHead { length, status, body, head, last, encoding }))
}

/// The compression of the content; an unsupported one is denied, since it could not be redacted.
fn encoding<'a>(
    mut codings: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<ContentEncoding>, NetworkReason> {
    let (coding, more) = (codings.next().unwrap_or_default().trim_ascii(), codings.next());
    match coding.to_ascii_lowercase().as_slice() {
        _ if more.is_some() => {}
        b"" | b"identity" => return Ok(None),
        b"gzip" | b"x-gzip" => return Ok(Some(ContentEncoding::Gzip)),
        b"deflate" => return Ok(Some(ContentEncoding::Zlib)),
        _ => {}
    }
    Err(NetworkReason::NotUnderstood("the response has a content encoding that was not requested"))
}

/// Whether the server accepts the WebSocket upgrade that was requested, without extensions.
fn accepts_websocket<'a>(
    asked: &CheckedRequest,
    mut protocols: impl Iterator<Item = &'a [u8]>,
    mut proofs: impl Iterator<Item = &'a [u8]>,
    mut extensions: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let protocol = protocols.next().is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"));
    let accept_for_key = proofs.next().map(<[u8]>::trim_ascii);
    let alone = protocols.next().is_none() && proofs.next().is_none() && extensions.next().is_none();
    alone
        && protocol
        && accept_for_key.is_some()
        && accept_for_key == asked.websocket_accept.as_deref().map(str::as_bytes)
}

fn framing<'a>(
    status: u16,
    bodiless: bool,
    mut codings: impl Iterator<Item = &'a [u8]>,
    mut lengths: impl Iterator<Item = &'a [u8]>,
) -> Result<ResponseFraming, NetworkReason> {
    let (coding, length) = (codings.next(), lengths.next());
    if codings.next().is_some() || lengths.next().is_some() || (coding.is_some() && length.is_some()) {
        return Err(NetworkReason::NotUnderstood("the length of the response body is ambiguous"));
    }
    if bodiless || status < 200 || matches!(status, 204 | 304) {
        return Ok(ResponseFraming::Nothing);
    }
    match (coding, length) {
        (Some(coding), _) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
            Ok(ResponseFraming::Chunked)
        }
        (Some(_), _) => Err(MALFORMED_RESPONSE),
        (None, Some(length)) => {
            let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            match number.filter(|_| digits).ok_or(MALFORMED_RESPONSE)? {
                0 => Ok(ResponseFraming::Nothing),
                length => Ok(ResponseFraming::Length(length)),
            }
        }
        (None, None) => Ok(ResponseFraming::Close),
    }
}
