//! The head of a request inside ended TLS: judged, and written anew for the server. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vambrace_core::network::{Destination, Reason};

use super::path::passes;
use super::websocket::proof;
use super::{Credential, Terminated};
use crate::http::{self, Body, Head, To};

/// A request that passes.
pub(super) struct Judged {
    /// How long its head was.
    pub(super) length: usize,
    pub(super) body: Body,
    /// For the server.
    pub(super) head: Vec<u8>,
    /// The answer has no body, whatever it says.
    pub(super) bodiless: bool,
    /// The program waits for leave to send the body.
    pub(super) waits: bool,
    /// The connection ends after the answer.
    pub(super) last: bool,
    /// Whether the value stands in the head.
    pub(super) given: bool,
    /// It is of HTTP/1.0: the answer ends with the connection, and nothing comes before it.
    pub(super) old: bool,
    /// It asks for WebSocket; what a server that agrees must answer.
    pub(super) socket: Option<String>,
}

/// Names that are between two neighbours only, or that we answer ourselves.
const LEFT_OUT: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
];

/// Headers by which many servers let a request say another method, or another path, than its first line does.
const OTHER_METHOD: &[&str] =
    &["x-http-method-override", "x-http-method", "x-method-override", "x-original-method"];
const OTHER_PATH: &[&str] = &["x-original-url", "x-rewrite-url", "x-original-uri", "x-forwarded-uri"];

/// An answer in parts would show the value in parts, which nobody finds. A server may always send the whole.
const PARTS: &[&str] = &["range", "if-range"];

/// Of WebSocket nothing is agreed on that would change what a frame holds.
const EXTENSIONS: &str = "sec-websocket-extensions";

/// Reads and judges; nothing while the head is not all there.
pub(super) fn judge(
    bytes: &[u8],
    host: &Destination,
    port: u16,
    entry: &Terminated,
) -> Result<Option<Judged>, Reason> {
    let Some(Head { length, body, upgrade, target, .. }) = http::head(bytes, Some(host), To::Server)? else {
        return Ok(None);
    };
    let unclear = Reason::NotUnderstood;
    if target.is_some() {
        return Err(unclear("a whole URL as the target of a request"));
    }
    let mut headers = [httparse::EMPTY_HEADER; http::MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let complete = request.parse(bytes).is_ok_and(|status| status.is_complete());
    let (Some(method), Some(path), Some(version), true) =
        (request.method, request.path, request.version, complete)
    else {
        return Err(unclear("a request that cannot be read"));
    };
    let old = version == 0;
    let named = |name: &str| {
        let name = name.to_owned();
        request
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(&name))
            .map(|header| header.value)
    };
    for said in named("host") {
        let authority = http::Authority::parse(said.trim_ascii())?;
        if authority.port.is_some_and(|said| said != port) {
            return Err(Reason::NameMismatch(format!("{host}:{}", authority.port.unwrap_or_default())));
        }
    }
    allowed(method, path, entry)?;
    let judged = [(OTHER_METHOD, entry.methods.is_empty()), (OTHER_PATH, entry.paths.is_empty())];
    for header in request.headers.iter() {
        // Some servers read an underscore as a hyphen.
        let name = header.name.to_ascii_lowercase().replace('_', "-");
        if judged.iter().any(|(names, all)| !all && names.contains(&name.as_str())) {
            return Err(Reason::RequestNotAllowed(format!("{name}: ...")));
        }
    }
    let says = |name: &str, word: &[u8]| {
        named(name).any(|value| {
            value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
        })
    };
    let socket = match upgrade {
        false => None,
        true => {
            let only =
                |name: &str| named(name).next().filter(|_| named(name).count() == 1).map(<[u8]>::trim_ascii);
            let key =
                only("sec-websocket-key").filter(|key| unpacked(key).is_some_and(|key| key.len() == 16));
            let meant = (method, old, body) == ("GET", false, Body::Length(0))
                && only("upgrade").is_some_and(|word| word.eq_ignore_ascii_case(b"websocket"))
                && only("sec-websocket-version") == Some(b"13")
                && says("connection", b"upgrade");
            let key = key.filter(|_| meant);
            Some(proof(key.ok_or(unclear("another protocol than WebSocket inside TLS that is looked into"))?))
        }
    };
    let (mut head, mut given) = (format!("{method} {path} HTTP/1.1\r\n").into_bytes(), false);
    for header in request.headers.iter() {
        if LEFT_OUT.iter().chain([&EXTENSIONS]).any(|name| header.name.eq_ignore_ascii_case(name)) {
            continue;
        }
        if entry.credential.is_some() && PARTS.iter().any(|name| header.name.eq_ignore_ascii_case(name)) {
            continue;
        }
        let own = entry.credential.as_ref().filter(|own| header.name.eq_ignore_ascii_case(&own.header));
        let changed = own.and_then(|own| filled(header.value, own));
        given |= changed.is_some();
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(changed.as_deref().unwrap_or(header.value));
        head.extend_from_slice(b"\r\n");
    }
    if named("host").next().is_none() {
        let there = if port == 443 { host.to_string() } else { format!("{host}:{port}") };
        head.extend_from_slice(format!("Host: {there}\r\n").as_bytes());
    }
    if socket.is_some() {
        head.extend_from_slice(b"Connection: Upgrade\r\n");
    }
    // What comes back must be plain to be looked through.
    head.extend_from_slice(b"Accept-Encoding: identity\r\n\r\n");
    Ok(Some(Judged {
        length,
        body,
        bodiless: method == "HEAD",
        waits: !old && says("expect", b"100-continue"),
        last: old || says("connection", b"close"),
        given,
        old,
        socket,
        head,
    }))
}

pub(super) fn allowed(method: &str, path: &str, entry: &Terminated) -> Result<(), Reason> {
    let shown = || {
        let path: String = path.split('?').next().unwrap_or_default().chars().take(200).collect();
        Reason::RequestNotAllowed(format!("{method} {path}"))
    };
    if !path.starts_with('/') {
        return Err(shown());
    }
    if !entry.methods.is_empty() && !entry.methods.iter().any(|one| one == method) {
        return Err(shown());
    }
    if entry.paths.is_empty() {
        return Ok(());
    }
    match passes(path, &entry.paths) {
        Some(true) => Ok(()),
        Some(false) => Err(shown()),
        None => Err(Reason::NotUnderstood("a path that can be read in two ways")),
    }
}

/// The header with the value in place of the placeholder; none where it does not hold it.
fn filled(header: &[u8], own: &Credential) -> Option<Vec<u8>> {
    if let Some(plain) = replaced(header, own) {
        return Some(plain);
    }
    // Basic authentication packs name and password.
    let (scheme, packed) = header.trim_ascii().split_at_checked(6)?;
    let plain = scheme.eq_ignore_ascii_case(b"basic ").then(|| unpacked(packed)).flatten()?;
    let plain = replaced(&plain, own)?;
    Some([scheme, STANDARD.encode(plain).as_bytes()].concat())
}

pub(super) fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(packed.trim_ascii()).ok()
}

fn replaced(text: &[u8], own: &Credential) -> Option<Vec<u8>> {
    let placeholder = own.placeholder.as_bytes();
    let at = text.windows(placeholder.len()).position(|part| part == placeholder)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some([before, own.value.expose(), rest.get(placeholder.len()..)?].concat())
}
