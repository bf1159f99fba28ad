//! The HTTP server of a witness: `POST /add-checkpoint`, and `GET /` as a health check. Plain HTTP: TLS is left to a reverse
//! proxy.
//!
//! Anybody may connect, so no client can block it: bodies and headers are bounded in size and time, and when there are too
//! many connections the oldest one is closed. A connection that is closed while its checkpoint is being stored loses only the
//! response: the store completes.

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

use crate::add_checkpoint::MAX_REQUEST_BYTES;
use crate::witness::{Witness, WitnessAnswer};

/// Timeout for the headers of a request, also of the next one on the same connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEADERS: usize = 32;
const MAX_BUFFER_BYTES: usize = 16 << 10;
const MAX_CONNECTIONS: usize = 256;
/// Delay after an accept that failed, mostly for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Called with every answer, for logging.
pub type OnAnswer = Arc<dyn Fn(&WitnessAnswer) + Send + Sync>;

/// Serves until `ended` completes.
pub async fn serve(witness: Arc<Witness>, listener: TcpListener, on_answer: OnAnswer, ended: impl Future) {
    let mut ended = std::pin::pin!(ended);
    let mut connections: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut ended => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(tokio::spawn(serve_connection(
            stream,
            Arc::clone(&witness),
            Arc::clone(&on_answer),
        )));
    }
    connections.iter().for_each(JoinHandle::abort);
}

async fn serve_connection(stream: TcpStream, witness: Arc<Witness>, on_answer: OnAnswer) {
    let service = service_fn(|request| {
        let (witness, on_answer) = (Arc::clone(&witness), Arc::clone(&on_answer));
        async move { Ok::<_, Infallible>(handle(request, witness, &on_answer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A broken connection concerns only its client.
    let _ = connection.await;
}

async fn handle(
    request: Request<Incoming>,
    witness: Arc<Witness>,
    on_answer: &OnAnswer,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/add-checkpoint") => match read_body(request).await {
            Ok(body) => {
                let added = tokio::task::spawn_blocking(move || witness.add_checkpoint(&body)).await;
                let added = added.unwrap_or_else(|_| {
                    WitnessAnswer::Failed("internal error: the request panicked".to_owned())
                });
                on_answer(&added);
                added.into()
            }
            Err((status, why)) => plain(status, why.to_owned()),
        },
        (&Method::GET, "/" | "/healthz") => plain(StatusCode::OK, witness.verify_key().to_string()),
        (_, "/" | "/healthz" | "/add-checkpoint") => {
            plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed".to_owned())
        }
        _ => plain(StatusCode::NOT_FOUND, "not found".to_owned()),
    }
}

async fn read_body(request: Request<Incoming>) -> Result<Bytes, (StatusCode, &'static str)> {
    match timeout(BODY_TIMEOUT, Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body is incomplete")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

impl From<WitnessAnswer> for Response<Full<Bytes>> {
    fn from(answer: WitnessAnswer) -> Self {
        match answer {
            WitnessAnswer::Cosigned(line) => text(StatusCode::OK, line, "text/plain; charset=utf-8"),
            WitnessAnswer::Malformed(why) => plain(StatusCode::BAD_REQUEST, why),
            WitnessAnswer::Unsigned => {
                plain(StatusCode::FORBIDDEN, "no valid signature of a known key".to_owned())
            }
            WitnessAnswer::UnknownOrigin => plain(StatusCode::NOT_FOUND, "unknown origin".to_owned()),
            WitnessAnswer::Conflict(size) | WitnessAnswer::Forked { size, .. } => {
                text(StatusCode::CONFLICT, format!("{size}\n"), "text/x.tlog.size")
            }
            WitnessAnswer::Inconsistent { .. } => plain(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the proof does not show that the log only grew".to_owned(),
            ),
            // The reason may contain paths: only the operator of the witness sees it.
            WitnessAnswer::Failed(_) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the checkpoint could not be stored, so it is not signed".to_owned(),
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
