//! One request and its answer over a connection that was dialled already. The other end may be hostile: heads are
//! bounded, bodies are cut, packed ones also when they are unpacked.

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

use super::{Ask, Method, Reply};
use crate::event::Traffic;
use crate::trust::Trust;

const MAX_HEADERS: usize = 128;
const MAX_HEAD: usize = 64 << 10;

pub(super) async fn run(
    ask: &Ask,
    stream: TcpStream,
    trust: &Trust,
    most: usize,
    traffic: &Traffic,
) -> Result<Reply, String> {
    if !ask.target.is_secure() {
        return converse(ask, stream, most, traffic).await;
    }
    let name = match ask.target.host() {
        Destination::Name(name) => {
            ServerName::try_from(name.as_str().to_owned()).map_err(|error| error.to_string())?
        }
        Destination::Address(address) => ServerName::from(*address),
    };
    let stream = TlsConnector::from(trust.client()?).connect(name, stream).await;
    converse(ask, stream.map_err(|error| format!("no TLS: {error}"))?, most, traffic).await
}

async fn converse(
    ask: &Ask,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    most: usize,
    traffic: &Traffic,
) -> Result<Reply, String> {
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(plain)?;
    // Ends with this function, however it ends.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let request = request(ask)?;
    traffic.sent.fetch_add(request.1, Ordering::Relaxed);
    let response = sender.send_request(request.0).await.map_err(plain)?;
    answer(ask, response, most, traffic).await
}

/// The request and about how many bytes it has.
fn request(ask: &Ask) -> Result<(Request<Full<Bytes>>, u64), String> {
    let path = ask.target.path();
    let mut builder = Request::builder()
        .method(ask.method.as_str())
        .uri(&path)
        .header(HOST, ask.target.authority())
        .header(USER_AGENT, concat!("vambrace/", env!("CARGO_PKG_VERSION")));
    let usual =
        [(ACCEPT, "text/html, application/json, text/*;q=0.9, */*;q=0.5"), (ACCEPT_ENCODING, "identity")];
    for (name, value) in usual {
        // Whoever asks may know better what that server wants to hear.
        if !ask.headers.iter().any(|(given, _)| name == *given) {
            builder = builder.header(name, value);
        }
    }
    for (name, value) in &ask.headers {
        let mut value =
            HeaderValue::from_bytes(value).map_err(|_| format!("the value of `{name}` is none"))?;
        value.set_sensitive(true);
        builder = builder.header(HeaderName::from_static(name), value);
    }
    let mut length = path.len() as u64;
    let body = match &ask.body {
        Some((kind, body)) if ask.method == Method::Post => {
            builder = builder.header(CONTENT_TYPE, kind);
            length += body.len() as u64;
            Bytes::from(body.clone())
        }
        _ => Bytes::new(),
    };
    Ok((builder.body(Full::new(body)).map_err(|error| error.to_string())?, length))
}

async fn answer(
    ask: &Ask,
    response: Response<Incoming>,
    most: usize,
    traffic: &Traffic,
) -> Result<Reply, String> {
    let text = |name: HeaderName| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let mut reply = Reply {
        url: ask.target.url().clone(),
        status: response.status().as_u16(),
        content_type: text(CONTENT_TYPE),
        location: text(LOCATION).filter(|_| response.status().is_redirection()),
        body: Vec::new(),
        truncated: false,
        passed: Vec::new(),
    };
    if reply.location.is_some() || ask.method == Method::Head {
        return Ok(reply);
    }
    let coding = text(CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case("identity"));
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(plain)?.into_data() else { continue };
        traffic.received.fetch_add(data.len() as u64, Ordering::Relaxed);
        let room = most.saturating_sub(reply.body.len());
        reply.truncated = data.len() > room;
        reply.body.extend(data.iter().take(room));
        if reply.truncated {
            break;
        }
    }
    if let Some(coding) = coding.filter(|_| !reply.body.is_empty()) {
        (reply.body, reply.truncated) = unpacked(&coding, &reply.body, reply.truncated, most)?;
    }
    Ok(reply)
}

/// A body that came packed although nobody asked for that, cut at the same bound as any other: what a small one can grow
/// to is nobody's trouble. Of one that was cut already, what can be had.
fn unpacked(coding: &str, packed: &[u8], was_cut: bool, most: usize) -> Result<(Vec<u8>, bool), String> {
    const WINDOW: usize = 16 << 10;
    let mut reader: Box<dyn Read + '_> = match coding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        "deflate" => Box::new(flate2::read::ZlibDecoder::new(packed)),
        "br" => Box::new(brotli_decompressor::Decompressor::new(packed, WINDOW)),
        _ => return Err(format!("it answers in the encoding `{coding}`, which was not asked for")),
    };
    let mut plain = Vec::new();
    match reader.by_ref().take(most as u64 + 1).read_to_end(&mut plain) {
        Err(_) if !was_cut => return Err(format!("what it sends as `{coding}` cannot be unpacked")),
        _ => {}
    }
    let longer = plain.len() > most;
    plain.truncate(most);
    Ok((plain, was_cut || longer))
}

/// Every cause, in one line.
fn plain(error: hyper::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
