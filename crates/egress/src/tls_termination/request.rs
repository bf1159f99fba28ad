//! Request heads inside terminated TLS: checked, and rewritten for the server. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vambrace_core::network::{Destination, NetworkReason};

use super::path_rules::is_allowed;
use super::websocket::accept_for_key;
use super::{Credential, TerminatedHosts};
use crate::http::{self, Recipient, RequestFraming, RequestHead};

/// A request that is allowed.
pub(super) struct CheckedRequest {
    /// Length of the program's head in bytes.
    pub(super) length: usize,
    pub(super) body: RequestFraming,
    /// The rewritten head for the server.
    pub(super) head: Vec<u8>,
    /// A HEAD request: the response has no body, whatever its headers say.
    pub(super) bodiless: bool,
    /// The program waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// The connection closes after the response.
    pub(super) last: bool,
    /// Whether the credential was inserted.
    pub(super) credential_added: bool,
    /// HTTP/1.0: the response ends with the connection, and interim responses are not allowed.
    pub(super) is_http_1_0: bool,
    /// For a WebSocket upgrade, the `Sec-WebSocket-Accept` that the server must return.
    pub(super) websocket_accept: Option<String>,
}

/// Hop-by-hop headers, and headers that the gate handles itself.
const REMOVED_HEADERS: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
];

/// Headers by which many servers let a request override the method or path of its first line.
const METHOD_OVERRIDE_HEADERS: &[&str] =
    &["x-http-method-override", "x-http-method", "x-method-override", "x-original-method"];
const PATH_OVERRIDE_HEADERS: &[&str] =
    &["x-original-url", "x-rewrite-url", "x-original-uri", "x-forwarded-uri"];

/// A partial response could contain a part of the credential, which the redactor would not find. A server may ignore these
/// headers and send the whole.
const RANGE_HEADERS: &[&str] = &["range", "if-range"];

/// Removed, because an extension could change the content of frames.
const EXTENSIONS_HEADER: &str = "sec-websocket-extensions";

/// Parses and checks a head; `None` while it is incomplete.
pub(super) fn check(
    bytes: &[u8],
    host: &Destination,
    port: u16,
    entry: &TerminatedHosts,
) -> Result<Option<CheckedRequest>, NetworkReason> {
    let Some(RequestHead { length, framing: body, has_upgrade: upgrade, target, .. }) =
        http::parse_head(bytes, Some(host), Recipient::Server)?
    else {
        return Ok(None);
    };
    let unclear = NetworkReason::NotUnderstood;
    if target.is_some() {
        return Err(unclear("the request target is an absolute URL"));
    }
    let mut headers = [httparse::EMPTY_HEADER; http::MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let complete = request.parse(bytes).is_ok_and(|status| status.is_complete());
    let (Some(method), Some(path), Some(version), true) =
        (request.method, request.path, request.version, complete)
    else {
        return Err(unclear("the request cannot be parsed"));
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
            return Err(NetworkReason::NameMismatch(format!(
                "{host}:{}",
                authority.port.unwrap_or_default()
            )));
        }
    }
    check_allowed(method, path, entry)?;
    let judged = [
        (METHOD_OVERRIDE_HEADERS, entry.methods.is_empty()),
        (PATH_OVERRIDE_HEADERS, entry.paths.is_empty()),
    ];
    for header in request.headers.iter() {
        // Some servers treat an underscore as a hyphen.
        let name = header.name.to_ascii_lowercase().replace('_', "-");
        if judged.iter().any(|(names, all)| !all && names.contains(&name.as_str())) {
            return Err(NetworkReason::RequestNotAllowed(format!("{name}: ...")));
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
                only("sec-websocket-key").filter(|key| decode_base64(key).is_some_and(|key| key.len() == 16));
            let meant = (method, old, body) == ("GET", false, RequestFraming::Length(0))
                && only("upgrade").is_some_and(|word| word.eq_ignore_ascii_case(b"websocket"))
                && only("sec-websocket-version") == Some(b"13")
                && says("connection", b"upgrade");
            let key = key.filter(|_| meant);
            Some(accept_for_key(
                key.ok_or(unclear("only upgrades to WebSocket are supported inside terminated TLS"))?,
            ))
        }
    };
    let (mut head, mut given) = (format!("{method} {path} HTTP/1.1\r\n").into_bytes(), false);
    for header in request.headers.iter() {
        if REMOVED_HEADERS
            .iter()
            .chain([&EXTENSIONS_HEADER])
            .any(|name| header.name.eq_ignore_ascii_case(name))
        {
            continue;
        }
        if entry.credential.is_some()
            && RANGE_HEADERS.iter().any(|name| header.name.eq_ignore_ascii_case(name))
        {
            continue;
        }
        let own = entry.credential.as_ref().filter(|own| header.name.eq_ignore_ascii_case(&own.header));
        let changed = own.and_then(|own| insert_credential(header.value, own));
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
    // The response must be uncompressed to be redacted.
    head.extend_from_slice(b"Accept-Encoding: identity\r\n\r\n");
    Ok(Some(CheckedRequest {
        length,
        body,
        bodiless: method == "HEAD",
        expects_continue: !old && says("expect", b"100-continue"),
        last: old || says("connection", b"close"),
        credential_added: given,
        is_http_1_0: old,
        websocket_accept: socket,
        head,
    }))
}

pub(super) fn check_allowed(method: &str, path: &str, entry: &TerminatedHosts) -> Result<(), NetworkReason> {
    let shown = || {
        let path: String = path.split('?').next().unwrap_or_default().chars().take(200).collect();
        NetworkReason::RequestNotAllowed(format!("{method} {path}"))
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
    match is_allowed(path, &entry.paths) {
        Some(true) => Ok(()),
        Some(false) => Err(shown()),
        None => Err(NetworkReason::NotUnderstood("the path is ambiguous")),
    }
}

/// The header with the placeholder replaced by the value; `None` where it has no placeholder.
fn insert_credential(header: &[u8], own: &Credential) -> Option<Vec<u8>> {
    if let Some(plain) = replace_placeholder(header, own) {
        return Some(plain);
    }
    // Basic authentication encodes user and password in base64.
    let (scheme, packed) = header.trim_ascii().split_at_checked(6)?;
    let plain = scheme.eq_ignore_ascii_case(b"basic ").then(|| decode_base64(packed)).flatten()?;
    let plain = replace_placeholder(&plain, own)?;
    Some([scheme, STANDARD.encode(plain).as_bytes()].concat())
}

pub(super) fn decode_base64(packed: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(packed.trim_ascii()).ok()
}

fn replace_placeholder(text: &[u8], own: &Credential) -> Option<Vec<u8>> {
    let placeholder = own.placeholder.as_bytes();
    let at = text.windows(placeholder.len()).position(|part| part == placeholder)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some([before, own.value.expose(), rest.get(placeholder.len()..)?].concat())
}
