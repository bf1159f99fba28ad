//! Sends one request over a dialled connection and reads the response. The server may be hostile: heads are bounded, bodies
//! are cut at the limit, compressed ones also while they are decompressed.

use std::io::Read;
use std::sync::atomic::Ordering;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION,
    USER_AGENT,
};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use vambrace_core::network::Destination;

use super::{FetchRequest, FetchResponse, Method};
use crate::event::Traffic;
use crate::trusted_roots::TrustedRoots;

const MAX_HEADERS: usize = 128;
const MAX_HEAD_BYTES: usize = 64 << 10;

pub(super) async fn run(
    request: &FetchRequest,
    stream: TcpStream,
    trust: &TrustedRoots,
    max_bytes: usize,
    traffic: &Traffic,
) -> Result<FetchResponse, String> {
    if !request.target.is_secure() {
        return send_request(request, stream, max_bytes, traffic).await;
    }
    let name = match request.target.host() {
        Destination::Name(name) => {
            ServerName::try_from(name.as_str().to_owned()).map_err(|error| error.to_string())?
        }
        Destination::Address(address) => ServerName::from(*address),
    };
    let stream = TlsConnector::from(trust.client_tls_config()?).connect(name, stream).await;
    send_request(
        request,
        stream.map_err(|error| format!("TLS handshake failed: {error}"))?,
        max_bytes,
        traffic,
    )
    .await
}

async fn send_request(
    request: &FetchRequest,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    max_bytes: usize,
    traffic: &Traffic,
) -> Result<FetchResponse, String> {
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(error_chain)?;
    // The connection task is aborted when this function returns.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let (built, length) = build_request(request)?;
    traffic.sent.fetch_add(length, Ordering::Relaxed);
    let response = sender.send_request(built).await.map_err(error_chain)?;
    read_response(request, response, max_bytes, traffic).await
}

/// The request and its approximate size in bytes.
fn build_request(request: &FetchRequest) -> Result<(Request<Full<Bytes>>, u64), String> {
    let path = request.target.path();
    let mut builder = Request::builder()
        .method(request.method.as_str())
        .uri(&path)
        .header(HOST, request.target.authority())
        .header(USER_AGENT, concat!("vambrace/", env!("CARGO_PKG_VERSION")));
    let usual =
        [(ACCEPT, "text/html, application/json, text/*;q=0.9, */*;q=0.5"), (ACCEPT_ENCODING, "identity")];
    for (name, value) in usual {
        // Headers given by the caller replace the defaults.
        if !request.headers.iter().any(|(given, _)| name == *given) {
            builder = builder.header(name, value);
        }
    }
    for (name, value) in &request.headers {
        let mut value =
            HeaderValue::from_bytes(value).map_err(|_| format!("invalid value of header `{name}`"))?;
        value.set_sensitive(true);
        builder = builder.header(HeaderName::from_static(name), value);
    }
    let mut length = path.len() as u64;
    let body = match &request.body {
        Some((kind, body)) if request.method == Method::Post => {
            builder = builder.header(CONTENT_TYPE, kind);
            length += body.len() as u64;
            Bytes::from(body.clone())
        }
        _ => Bytes::new(),
    };
    Ok((builder.body(Full::new(body)).map_err(|error| error.to_string())?, length))
}

async fn read_response(
    request: &FetchRequest,
    response: Response<Incoming>,
    max_bytes: usize,
    traffic: &Traffic,
) -> Result<FetchResponse, String> {
    let text = |name: HeaderName| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let mut reply = FetchResponse {
        url: request.target.url().clone(),
        status: response.status().as_u16(),
        content_type: text(CONTENT_TYPE),
        location: text(LOCATION).filter(|_| response.status().is_redirection()),
        body: Vec::new(),
        truncated: false,
        redirected_from: Vec::new(),
    };
    if reply.location.is_some() || request.method == Method::Head {
        return Ok(reply);
    }
    let coding = text(CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case("identity"));
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(error_chain)?.into_data() else { continue };
        traffic.received.fetch_add(data.len() as u64, Ordering::Relaxed);
        let room = max_bytes.saturating_sub(reply.body.len());
        reply.truncated = data.len() > room;
        reply.body.extend(data.iter().take(room));
        if reply.truncated {
            break;
        }
    }
    if let Some(coding) = coding.filter(|_| !reply.body.is_empty()) {
        (reply.body, reply.truncated) = decompressed(&coding, &reply.body, reply.truncated, max_bytes)?;
    }
    Ok(reply)
}

/// Decompresses a body that the server compressed although `identity` was requested. The result is cut at the same limit, so
/// a decompression bomb does no harm. Of a body that was cut already, decompresses as much as possible.
fn decompressed(
    coding: &str,
    packed: &[u8],
    was_cut: bool,
    max_bytes: usize,
) -> Result<(Vec<u8>, bool), String> {
    const WINDOW: usize = 16 << 10;
    let mut reader: Box<dyn Read + '_> = match coding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        "deflate" => Box::new(flate2::read::ZlibDecoder::new(packed)),
        "br" => Box::new(brotli_decompressor::Decompressor::new(packed, WINDOW)),
        _ => return Err(format!("it responds in the content encoding `{coding}`, which was not requested")),
    };
    let mut decoded = Vec::new();
    match reader.by_ref().take(max_bytes as u64 + 1).read_to_end(&mut decoded) {
        Err(_) if !was_cut => return Err(format!("its `{coding}` body cannot be decompressed")),
        _ => {}
    }
    let longer = decoded.len() > max_bytes;
    decoded.truncate(max_bytes);
    Ok((decoded, was_cut || longer))
}

/// The error and all its causes in one line.
fn error_chain(error: hyper::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
