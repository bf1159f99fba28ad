//! One connection with terminated TLS: a TLS stream to the program, one to the server, and the requests between them, one
//! after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use vambrace_core::network::{Destination, HostName, NetworkReason};
use vambrace_redact::{RedactStream, Redactor};

use super::decompress::{self, Decompressor};
use super::prefixed_stream::PrefixedStream;
use super::request::{self, CheckedRequest};
use super::response::{self, ResponseFraming, ResponseHead};
use super::{TerminatedHosts, TlsTermination};
use crate::connection::read_more;
use crate::detect::{self, DetectedProtocol};
use crate::event::{EgressAction, EgressLog, Traffic};
use crate::gate::denial_response;
use crate::http::{ChunkedDecoder, MAX_HEAD_BYTES, RequestFraming};
use crate::relay::{RelayError, TrafficMeter, reset};

/// Time limit for a handshake, and for a head once it has started.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// After this pause of the server, the content that the redactor holds back is flushed up to the last line end.
const IDLE_FLUSH_DELAY: Duration = Duration::from_millis(100);
const CHUNK_BYTES: usize = 16 << 10;

/// A connection and the entry for its host.
pub(crate) struct TerminatedSession<'a> {
    pub(crate) termination: &'a TlsTermination,
    pub(crate) entry: &'a TerminatedHosts,
    pub(crate) client: &'a TcpStream,
    pub(crate) server: &'a TcpStream,
    pub(crate) host: &'a HostName,
    pub(crate) port: u16,
    pub(crate) meter: &'a TrafficMeter,
    pub(crate) traffic: &'a Traffic,
    pub(crate) log: &'a Arc<EgressLog>,
}

pub(super) type SessionResult = Result<(), NetworkReason>;

/// Why the gate ended a connection, by what the program has received so far.
enum SessionError {
    /// No response yet: the denial is sent as a response.
    BeforeResponse(NetworkReason),
    /// A part of the response was sent; it must not look complete.
    MidResponse(NetworkReason),
    /// The denial was already sent in the upgraded protocol.
    AlreadyReported(NetworkReason),
}

impl From<NetworkReason> for SessionError {
    fn from(reason: NetworkReason) -> Self {
        Self::BeforeResponse(reason)
    }
}

/// What follows a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterResponse {
    Request,
    /// The connection closes.
    Close,
    /// WebSocket frames.
    WebSocket,
}

pub(super) fn connection_broke(_: std::io::Error) -> NetworkReason {
    NetworkReason::Unreachable("the connection broke".to_owned())
}

impl TerminatedSession<'_> {
    /// Runs the session to its end; sends a denial to the program inside the TLS stream where that is possible.
    pub(crate) async fn run(&self, held: Vec<u8>) -> SessionResult {
        let held = self.read_client_hello(held).await?;
        let config =
            self.termination.authority.server_config(self.host).map_err(NetworkReason::Unreachable)?;
        let late = || NetworkReason::Unreachable("the TLS handshake timed out".to_owned());
        // The server first: the program's handshake succeeds only when the server is verified.
        let name = ServerName::try_from(self.host.as_str().to_owned()).map_err(|_| NetworkReason::BadName)?;
        let trust = self.termination.trust.client_tls_config().map_err(NetworkReason::Unreachable)?;
        let dialled = TlsConnector::from(trust).connect(name, PrefixedStream::new(Vec::new(), self.server));
        let server = timeout(HEAD_TIMEOUT, dialled).await.map_err(|_| late())?;
        let mut server = server.map_err(|error| {
            NetworkReason::Unreachable(format!("TLS handshake with the server failed: {error}"))
        })?;
        let accepted = TlsAcceptor::from(config).accept(PrefixedStream::new(held, self.client));
        let client = timeout(HEAD_TIMEOUT, accepted).await.map_err(|_| late())?;
        let mut client = client.map_err(|error| {
            NetworkReason::Unreachable(format!("TLS handshake with the program failed: {error}"))
        })?;
        let done = match self.relay_requests(&mut client, &mut server).await {
            Ok(()) => Ok(()),
            Err(SessionError::BeforeResponse(reason)) => {
                // Best effort: a program that does not read it sees the connection close.
                let _ = timeout(HEAD_TIMEOUT, client.write_all(&denial_response(&reason))).await;
                Err(reason)
            }
            Err(SessionError::AlreadyReported(reason)) => Err(reason),
            Err(SessionError::MidResponse(reason)) => {
                // Without TLS close_notify, so that the program does not take the partial response for complete.
                reset(self.client);
                return Err(reason);
            }
        };
        let _ = timeout(IDLE_FLUSH_DELAY, client.shutdown()).await;
        let _ = timeout(IDLE_FLUSH_DELAY, server.shutdown()).await;
        done
    }

    /// Reads the ClientHello, which must be for this host.
    async fn read_client_hello(&self, mut held: Vec<u8>) -> Result<Vec<u8>, NetworkReason> {
        let mut limit = None;
        loop {
            match detect::detect(&held) {
                DetectedProtocol::Incomplete => {}
                DetectedProtocol::Tls(None) => return Ok(held),
                DetectedProtocol::Tls(Some(said)) => {
                    crate::connection::check_name(self.host, &said)?;
                    return Ok(held);
                }
                _ => return Err(NetworkReason::NotUnderstood("this host accepts only TLS")),
            }
            match read_more(self.client, &mut held, &mut limit).await {
                Ok(0) => return Err(NetworkReason::NotUnderstood("this host accepts only TLS")),
                Ok(_) => {}
                Err(RelayError::Reason(reason)) => return Err(reason),
                Err(_) => {
                    return Err(NetworkReason::Unreachable("the program closed the connection".to_owned()));
                }
            }
        }
    }

    async fn relay_requests<C, S>(&self, client: &mut C, server: &mut S) -> Result<(), SessionError>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let host = Destination::Name(self.host.clone());
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        let (mut program, mut to_program) = tokio::io::split(client);
        let (mut from_server, mut server) = tokio::io::split(server);
        loop {
            let judged = loop {
                if let Some(judged) = request::check(&asked, &host, self.port, self.entry)? {
                    break judged;
                }
                if !self.read_more(&mut program, &mut asked, &self.traffic.sent).await? {
                    return Ok(());
                }
            };
            if self
                .termination
                .has_foreign_placeholder(asked.get(..judged.length).unwrap_or_default(), Some(self.entry))
            {
                self.log.begin(EgressAction::Placeholder, self.host.to_string(), self.port);
            }
            asked.drain(..judged.length);
            server.write_all(&judged.head).await.map_err(connection_broke)?;
            if judged.credential_added {
                let mut attempt = self.log.begin(EgressAction::Credential, self.host.to_string(), self.port);
                attempt
                    .allowed_by(self.entry.credential.as_ref().map_or("", |own| own.header.as_str()).into());
            }
            if judged.expects_continue && asked.is_empty() {
                to_program.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(connection_broke)?;
                to_program.flush().await.map_err(connection_broke)?;
            }
            // Concurrently: a server may respond, and stop reading, before it has the whole body.
            let sending = self.relay_body(&mut program, &mut server, judged.body, &mut asked);
            let begun = AtomicBool::new(false);
            let answering =
                self.relay_response((&mut to_program, &begun), &mut from_server, &judged, &mut answered);
            match send_and_receive(sending, answering, &begun).await? {
                AfterResponse::WebSocket => {
                    let (program, server) =
                        ((&mut program, &mut to_program), (&mut from_server, &mut server));
                    return self
                        .relay_frames(program, server, (asked, answered))
                        .await
                        .map_err(SessionError::AlreadyReported);
                }
                AfterResponse::Request if !judged.last => {}
                _ => return Ok(()),
            }
        }
    }

    /// Relays a request body; later bytes stay in `held`.
    async fn relay_body<C, S>(
        &self,
        client: &mut C,
        server: &mut S,
        body: RequestFraming,
        held: &mut Vec<u8>,
    ) -> SessionResult
    where
        C: AsyncRead + Unpin,
        S: AsyncWrite + Unpin,
    {
        let mut chunks = ChunkedDecoder::without_trailers();
        let mut left = match body {
            RequestFraming::Length(length) => length,
            RequestFraming::Chunked => u64::MAX,
        };
        loop {
            let taken = match body {
                RequestFraming::Length(_) => usize::try_from(left).unwrap_or(usize::MAX).min(held.len()),
                RequestFraming::Chunked => chunks.take(held)?,
            };
            let bytes: Vec<u8> = held.drain(..taken).collect();
            server.write_all(&bytes).await.map_err(connection_broke)?;
            server.flush().await.map_err(connection_broke)?;
            left = left.saturating_sub(taken as u64);
            if left == 0 || chunks.done() {
                return Ok(());
            }
            if !self.read_more(client, held, &self.traffic.sent).await? {
                return Err(NetworkReason::NotUnderstood("the request body is incomplete"));
            }
        }
    }

    /// Relays a response, sets `begun` with its first byte, and returns what follows it.
    async fn relay_response<C, S>(
        &self,
        (client, begun): (&mut C, &AtomicBool),
        server: &mut S,
        asked: &CheckedRequest,
        held: &mut Vec<u8>,
    ) -> Result<AfterResponse, SessionError>
    where
        C: AsyncWrite + Unpin,
        S: AsyncRead + Unpin,
    {
        let answered = loop {
            if let Some(answered) = response::parse(held, asked, self.termination.redactor.as_ref())? {
                held.drain(..answered.length);
                match answered.status {
                    // The gate sends its own `100 Continue`; HTTP/1.0 has no interim responses.
                    100 => continue,
                    102..200 if asked.is_http_1_0 => continue,
                    102..200 => client.write_all(&answered.head).await.map_err(connection_broke)?,
                    _ => break answered,
                }
                continue;
            }
            if !self.read_more(server, held, &self.traffic.received).await? {
                return Err(NetworkReason::Unreachable(INCOMPLETE_RESPONSE.to_owned()).into());
            }
        };
        begun.store(true, Ordering::Relaxed);
        client.write_all(&answered.head).await.map_err(connection_broke)?;
        client.flush().await.map_err(connection_broke)?;
        if answered.status == 101 {
            return Ok(AfterResponse::WebSocket);
        }
        if answered.body != ResponseFraming::Nothing {
            self.relay_content(client, server, asked, &answered, held)
                .await
                .map_err(SessionError::MidResponse)?;
        }
        Ok(if answered.last { AfterResponse::Close } else { AfterResponse::Request })
    }

    /// Relays the content of a response, decompressed and redacted.
    async fn relay_content<C, S>(
        &self,
        client: &mut C,
        server: &mut S,
        asked: &CheckedRequest,
        answered: &ResponseHead,
        held: &mut Vec<u8>,
    ) -> SessionResult
    where
        C: AsyncWrite + Unpin,
        S: AsyncRead + Unpin,
    {
        let chunked = !asked.is_http_1_0;
        let (mut decompressor, mut is_empty) = (Decompressor::new(answered.encoding), true);
        let mut redactor = self.termination.redactor.as_ref().map(Redactor::stream);
        let (mut chunks, mut left) = (ChunkedDecoder::default(), u64::MAX);
        if let ResponseFraming::Length(length) = answered.body {
            left = length;
        }
        loop {
            let mut content = Vec::new();
            let taken = match answered.body {
                ResponseFraming::Chunked => chunks.read(held, &mut content)?,
                _ => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(held.len());
                    content.extend(held.iter().take(here));
                    here
                }
            };
            held.drain(..taken);
            left = left.saturating_sub(content.len() as u64);
            let done = chunks.done() || (left == 0 && answered.body != ResponseFraming::Chunked);
            is_empty &= content.is_empty();
            let most = if answered.encoding.is_some() { decompress::STEP_BYTES } else { CHUNK_BYTES };
            for piece in content.chunks(most) {
                write_content(client, chunked, &redacted(&mut redactor, decompressor.take(piece)?)?).await?;
            }
            if done {
                break;
            }
            let waiting = self.read_more(server, held, &self.traffic.received);
            tokio::pin!(waiting);
            let more = match timeout(IDLE_FLUSH_DELAY, waiting.as_mut()).await {
                Ok(more) => more?,
                Err(_) => {
                    if let Some(redactor) = &mut redactor {
                        let mut out = Vec::new();
                        redactor.flush_idle(&mut out).map_err(|_| NOT_REDACTED)?;
                        write_content(client, chunked, &out).await?;
                    }
                    client.flush().await.map_err(connection_broke)?;
                    waiting.await?
                }
            };
            if !more {
                if answered.body == ResponseFraming::Close {
                    break;
                }
                return Err(NetworkReason::Unreachable(INCOMPLETE_RESPONSE.to_owned()));
            }
        }
        // An empty body is not compressed, whatever the head says.
        let plain = if is_empty { Vec::new() } else { decompressor.finish()? };
        let mut rest = redacted(&mut redactor, plain)?;
        if let Some(redactor) = &mut redactor {
            redactor.finish(&mut rest).map_err(|_| NOT_REDACTED)?;
        }
        write_content(client, chunked, &rest).await?;
        if chunked {
            client.write_all(b"0\r\n\r\n").await.map_err(connection_broke)?;
        }
        client.flush().await.map_err(connection_broke)
    }

    /// Reads and counts more bytes; false at EOF. Buffered heads are bounded.
    pub(super) async fn read_more<R: AsyncRead + Unpin>(
        &self,
        from: &mut R,
        held: &mut Vec<u8>,
        count: &AtomicU64,
    ) -> Result<bool, NetworkReason> {
        if held.len() > MAX_HEAD_BYTES {
            return Err(NetworkReason::NotUnderstood("the head is too long"));
        }
        let mut piece = vec![0; CHUNK_BYTES];
        let reading = from.read(&mut piece);
        let read = if held.is_empty() {
            reading.await
        } else {
            let late = NetworkReason::NotUnderstood("the head arrived too slowly");
            timeout(HEAD_TIMEOUT, reading).await.map_err(|_| late)?
        };
        let read = match read {
            Ok(read) => read,
            // Many peers close without close_notify.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(connection_broke(error)),
        };
        held.extend(piece.iter().take(read));
        count.fetch_add(read as u64, Ordering::Relaxed);
        self.meter.charge(read as u64).await?;
        Ok(read > 0)
    }
}

/// Runs the upload of a request body and its response concurrently. The response decides: when the server stops reading, the
/// rest of the body is dropped and the connection closes after the response.
async fn send_and_receive(
    sending: impl Future<Output = SessionResult>,
    answering: impl Future<Output = Result<AfterResponse, SessionError>>,
    begun: &AtomicBool,
) -> Result<AfterResponse, SessionError> {
    tokio::pin!(sending, answering);
    let mut sent = None;
    let next = loop {
        tokio::select! {
            done = &mut sending, if sent.is_none() => match done {
                Err(reason) if reason.is_denial() => {
                    let reported = if begun.load(Ordering::Relaxed) { SessionError::MidResponse } else { SessionError::BeforeResponse };
                    return Err(reported(reason));
                }
                done => sent = Some(done.is_ok()),
            },
            next = &mut answering => break next?,
        }
    };
    match sent {
        Some(true) => Ok(next),
        Some(false) => Ok(AfterResponse::Close),
        None if next == AfterResponse::Close => Ok(AfterResponse::Close),
        None => sending.await.map(|()| next).map_err(SessionError::BeforeResponse),
    }
}

const INCOMPLETE_RESPONSE: &str = "the server closed the connection in the middle of a response";
pub(super) const NOT_REDACTED: NetworkReason =
    NetworkReason::NotUnderstood("the response could not be redacted");

fn redacted(redactor: &mut Option<RedactStream>, content: Vec<u8>) -> Result<Vec<u8>, NetworkReason> {
    let Some(redactor) = redactor else { return Ok(content) };
    let mut out = Vec::new();
    redactor.push(&content, &mut out).map_err(|_| NOT_REDACTED)?;
    Ok(out)
}

/// Writes a piece of content: as a chunk, or as it is for an HTTP/1.0 client.
async fn write_content<W: AsyncWrite + Unpin>(to: &mut W, chunked: bool, bytes: &[u8]) -> SessionResult {
    if bytes.is_empty() {
        return Ok(());
    }
    if !chunked {
        return to.write_all(bytes).await.map_err(connection_broke);
    }
    let frame = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    to.write_all(&frame).await.map_err(connection_broke)
}
