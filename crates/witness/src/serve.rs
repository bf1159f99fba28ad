//! The witness over HTTP: `POST /add-checkpoint`, and `GET /` for whoever looks whether it is there. Plain HTTP:
//! TLS is the work of a reverse proxy in front of it.
//!
//! Anybody may connect, so nobody can hold it: bodies and headers are bounded in size and time, and when there
//! are too many connections the oldest one goes. A connection that goes while its checkpoint is being stored
//! loses only the answer: the storing runs to its end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::submission::MAX_BYTES;
use crate::witness::{Answer, Witness};

/// Seconds for the headers of a request, also of the next one on the same connection.
const HEADERS: Duration = Duration::from_secs(5);
/// Seconds for a body.
const BODY: Duration = Duration::from_secs(5);
const MAX_HEADERS: usize = 32;
const MAX_BUFFER: usize = 16 << 10;
const MAX_CONNECTIONS: usize = 256;
/// After an accept that failed for want of something (file descriptors, mostly).
const BREATH: Duration = Duration::from_millis(50);

/// Hears every answer, for whoever watches.
pub type Told = Arc<dyn Fn(&Answer) + Send + Sync>;

/// Serves until `ended` does.
pub async fn serve(witness: Arc<Witness>, listener: TcpListener, told: Told, ended: impl Future) {
    let mut ended = std::pin::pin!(ended);
    let mut connections: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut ended => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(tokio::spawn(talk(stream, Arc::clone(&witness), Arc::clone(&told))));
    }
    connections.iter().for_each(JoinHandle::abort);
}

async fn talk(stream: TcpStream, witness: Arc<Witness>, told: Told) {
    let service = service_fn(|request| {
        let (witness, told) = (Arc::clone(&witness), Arc::clone(&told));
        async move { Ok::<_, Infallible>(answer(request, witness, &told).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that breaks concerns nobody but its other end.
    let _ = connection.await;
}

async fn answer(request: Request<Incoming>, witness: Arc<Witness>, told: &Told) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/add-checkpoint") => match body(request).await {
            Ok(body) => {
                let added = tokio::task::spawn_blocking(move || witness.add(&body)).await;
                let added = added.unwrap_or_else(|_| Answer::Failed("internal fault".to_owned()));
                told(&added);
                added.into()
            }
            Err((status, why)) => plain(status, why.to_owned()),
        },
        (&Method::GET, "/" | "/healthz") => plain(StatusCode::OK, witness.verify_key().to_string()),
        (_, "/" | "/healthz" | "/add-checkpoint") => {
            plain(StatusCode::METHOD_NOT_ALLOWED, "another method is needed".to_owned())
        }
        _ => plain(StatusCode::NOT_FOUND, "nothing is here".to_owned()),
    }
}

async fn body(request: Request<Incoming>) -> Result<Bytes, (StatusCode, &'static str)> {
    match timeout(BODY, Limited::new(request.into_body(), MAX_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body is cut")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

impl From<Answer> for Response<Full<Bytes>> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Cosigned(line) => text(StatusCode::OK, line, "text/plain; charset=utf-8"),
            Answer::Malformed(why) => plain(StatusCode::BAD_REQUEST, why),
            Answer::Unsigned => plain(StatusCode::FORBIDDEN, "no signature of a known key".to_owned()),
            Answer::Unknown => plain(StatusCode::NOT_FOUND, "unknown origin".to_owned()),
            Answer::Conflict(size) | Answer::Forked { size, .. } => {
                text(StatusCode::CONFLICT, format!("{size}\n"), "text/x.tlog.size")
            }
            Answer::Inconsistent { .. } => {
                plain(StatusCode::UNPROCESSABLE_ENTITY, "the proof does not show growth alone".to_owned())
            }
            // The reason may name paths: it is for whoever runs the witness.
            Answer::Failed(_) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "it could not be stored, so it is not signed".to_owned(),
            ),
        }
    }
}

fn plain(status: StatusCode, why: String) -> Response<Full<Bytes>> {
    text(status, why + "\n", "text/plain; charset=utf-8")
}

fn text(status: StatusCode, body: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
