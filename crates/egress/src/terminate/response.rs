//! The head of an answer inside ended TLS: how long its body is, and the head anew for the program. Pure.

use vambrace_core::network::Reason;
use vambrace_redact::Redactor;

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

/// What is taken out of an answer.
#[derive(Clone, Copy)]
pub(super) struct Scrub<'a> {
    pub(super) scrubber: Option<&'a Redactor>,
    /// The server was given a value: what cannot be looked through does not pass.
    pub(super) must: bool,
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
pub(super) fn read(bytes: &[u8], bodiless: bool, scrub: Scrub<'_>) -> Result<Option<Answered>, Reason> {
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
    let packed =
        named("content-encoding").any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity"));
    if packed && scrub.must {
        return Err(Reason::NotUnderstood("an answer in an encoding that was not asked for"));
    }
    let body = framing(status, bodiless, named("transfer-encoding"), named("content-length"))?;
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
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    if let Some(scrubber) = scrub.scrubber {
        head = scrubber.redact_bytes(&head).map_err(|_| UNCLEAR)?.0.into_owned();
    }
    if body != Framing::Nothing {
        head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    } else if !bodiless && status != 204 && status != 304 && status >= 200 {
        head.extend_from_slice(b"Content-Length: 0\r\n");
    }
    let closes = named("connection").any(|value| {
        value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    let last = closes || body == Framing::Close || response.version != Some(1);
    if last && status >= 200 {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(Some(Answered { length, status, body, head, last }))
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
