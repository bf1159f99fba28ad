//! One connection whose TLS ends here: two streams, and one request after the other between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use vambrace_core::network::{Destination, HostName, Reason};
use vambrace_redact::{Redactor, Stream};

use super::borrowed::Borrowed;
use super::request::{self, Judged};
use super::response::{self, Answered, Framing};
use super::unpack::{self, Unpacker};
use super::{Terminated, Termination};
use crate::event::{Action, Log, Traffic};
use crate::gate::denial;
use crate::http::{Body, Chunks, MOST_HEAD};
use crate::pass::fill;
use crate::relay::{Broken, Meter, reset};
use crate::sniff::{self, First};

/// For a handshake, and for a head once it has begun.
const SLOWEST: Duration = Duration::from_secs(10);
/// When nothing comes for so long, what is held back up to the last line end goes on.
const IDLE: Duration = Duration::from_millis(100);
const PIECE: usize = 16 << 10;

/// A connection, and what holds for its host.
pub(crate) struct Session<'a> {
    pub(crate) termination: &'a Termination,
    pub(crate) entry: &'a Terminated,
    pub(crate) client: &'a TcpStream,
    pub(crate) server: &'a TcpStream,
    pub(crate) host: &'a HostName,
    pub(crate) port: u16,
    pub(crate) meter: &'a Meter,
    pub(crate) traffic: &'a Traffic,
    pub(crate) log: &'a Arc<Log>,
}

pub(super) type Done = Result<(), Reason>;

/// Why a connection ended before its time, by what the program knows of it.
enum Stop {
    /// Nothing yet: it can be told as an answer.
    Untold(Reason),
    /// An answer has begun, which must not look whole.
    Midway(Reason),
    /// It was told in the protocol that was spoken by then.
    Told(Reason),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Untold(reason)
    }
}

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    /// The end of the connection.
    End,
    /// Frames, of WebSocket.
    Frames,
}

pub(super) fn gone(_: std::io::Error) -> Reason {
    Reason::Unreachable("the connection ended in between".to_owned())
}

impl Session<'_> {
    /// To its end; a refusal is told to the program inside the TLS where that is possible.
    pub(crate) async fn run(&self, held: Vec<u8>) -> Done {
        let held = self.greeting(held).await?;
        let config = self.termination.authority.server(self.host).map_err(Reason::Unreachable)?;
        let late = || Reason::Unreachable("no TLS in time".to_owned());
        // The server first: a program that is told yes is connected to who it asked for.
        let name = ServerName::try_from(self.host.as_str().to_owned()).map_err(|_| Reason::BadName)?;
        let trust = self.termination.trust.client().map_err(Reason::Unreachable)?;
        let dialled = TlsConnector::from(trust).connect(name, Borrowed::new(Vec::new(), self.server));
        let server = timeout(SLOWEST, dialled).await.map_err(|_| late())?;
        let mut server =
            server.map_err(|error| Reason::Unreachable(format!("no TLS with the server: {error}")))?;
        let accepted = TlsAcceptor::from(config).accept(Borrowed::new(held, self.client));
        let client = timeout(SLOWEST, accepted).await.map_err(|_| late())?;
        let mut client =
            client.map_err(|error| Reason::Unreachable(format!("no TLS with the program: {error}")))?;
        let done = match self.requests(&mut client, &mut server).await {
            Ok(()) => Ok(()),
            Err(Stop::Untold(reason)) => {
                // Best effort: who does not read it sees the end.
                let _ = timeout(SLOWEST, client.write_all(&denial(&reason))).await;
                Err(reason)
            }
            Err(Stop::Told(reason)) => Err(reason),
            Err(Stop::Midway(reason)) => {
                // Without the farewell of TLS, so that nobody takes what came for all there is.
                reset(self.client);
                return Err(reason);
            }
        };
        let _ = timeout(IDLE, client.shutdown()).await;
        let _ = timeout(IDLE, server.shutdown()).await;
        done
    }

    /// The first bytes must be TLS, for this host.
    async fn greeting(&self, mut held: Vec<u8>) -> Result<Vec<u8>, Reason> {
        let mut limit = None;
        loop {
            match sniff::first(&held) {
                First::More => {}
                First::Tls(None) => return Ok(held),
                First::Tls(Some(said)) => {
                    crate::pass::compare(self.host, &said)?;
                    return Ok(held);
                }
                _ => return Err(Reason::NotUnderstood("only TLS is spoken with this host")),
            }
            match fill(self.client, &mut held, &mut limit).await {
                Ok(0) => return Err(Reason::NotUnderstood("only TLS is spoken with this host")),
                Ok(_) => {}
                Err(Broken::Reason(reason)) => return Err(reason),
                Err(_) => return Err(Reason::Unreachable("the program is gone".to_owned())),
            }
        }
    }

    async fn requests<C, S>(&self, client: &mut C, server: &mut S) -> Result<(), Stop>
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
                if let Some(judged) = request::judge(&asked, &host, self.port, self.entry)? {
                    break judged;
                }
                if !self.more(&mut program, &mut asked, &self.traffic.sent).await? {
                    return Ok(());
                }
            };
            if self.termination.strays(asked.get(..judged.length).unwrap_or_default(), Some(self.entry)) {
                self.log.begin(Action::Placeholder, self.host.to_string(), self.port);
            }
            asked.drain(..judged.length);
            server.write_all(&judged.head).await.map_err(gone)?;
            if judged.given {
                let mut ticket = self.log.begin(Action::Credential, self.host.to_string(), self.port);
                ticket
                    .allowed_by(self.entry.credential.as_ref().map_or("", |own| own.header.as_str()).into());
            }
            if judged.waits && asked.is_empty() {
                to_program.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(gone)?;
                to_program.flush().await.map_err(gone)?;
            }
            // Both at once: a server may answer, and stop listening, before it has heard everything.
            let sending = self.body(&mut program, &mut server, judged.body, &mut asked);
            let begun = AtomicBool::new(false);
            let answering = self.answer((&mut to_program, &begun), &mut from_server, &judged, &mut answered);
            match exchange(sending, answering, &begun).await? {
                Next::Frames => {
                    let (program, server) =
                        ((&mut program, &mut to_program), (&mut from_server, &mut server));
                    return self.frames(program, server, (asked, answered)).await.map_err(Stop::Told);
                }
                Next::Request if !judged.last => {}
                _ => return Ok(()),
            }
        }
    }

    /// Passes the body of a request on; what follows it stays.
    async fn body<C, S>(&self, client: &mut C, server: &mut S, body: Body, held: &mut Vec<u8>) -> Done
    where
        C: AsyncRead + Unpin,
        S: AsyncWrite + Unpin,
    {
        let mut chunks = Chunks::default();
        let mut left = match body {
            Body::Length(length) => length,
            Body::Chunked => u64::MAX,
        };
        loop {
            let taken = match body {
                Body::Length(_) => usize::try_from(left).unwrap_or(usize::MAX).min(held.len()),
                Body::Chunked => chunks.take(held)?,
            };
            let bytes: Vec<u8> = held.drain(..taken).collect();
            server.write_all(&bytes).await.map_err(gone)?;
            server.flush().await.map_err(gone)?;
            left = left.saturating_sub(taken as u64);
            if left == 0 || chunks.done() {
                return Ok(());
            }
            if !self.more(client, held, &self.traffic.sent).await? {
                return Err(Reason::NotUnderstood("a request that ends in the middle"));
            }
        }
    }

    /// Passes an answer on, and tells when it has begun; what follows it.
    async fn answer<C, S>(
        &self,
        (client, begun): (&mut C, &AtomicBool),
        server: &mut S,
        asked: &Judged,
        held: &mut Vec<u8>,
    ) -> Result<Next, Stop>
    where
        C: AsyncWrite + Unpin,
        S: AsyncRead + Unpin,
    {
        let answered = loop {
            if let Some(answered) = response::read(held, asked, self.termination.scrubber.as_ref())? {
                held.drain(..answered.length);
                match answered.status {
                    // We have said our own; and of old nothing came before an answer.
                    100 => continue,
                    102..200 if asked.old => continue,
                    102..200 => client.write_all(&answered.head).await.map_err(gone)?,
                    _ => break answered,
                }
                continue;
            }
            if !self.more(server, held, &self.traffic.received).await? {
                return Err(Reason::Unreachable(BROKEN_OFF.to_owned()).into());
            }
        };
        begun.store(true, Ordering::Relaxed);
        client.write_all(&answered.head).await.map_err(gone)?;
        client.flush().await.map_err(gone)?;
        if answered.status == 101 {
            return Ok(Next::Frames);
        }
        if answered.body != Framing::Nothing {
            self.content(client, server, asked, &answered, held).await.map_err(Stop::Midway)?;
        }
        Ok(if answered.last { Next::End } else { Next::Request })
    }

    /// Passes the content of an answer on, unpacked and without what nobody is to see.
    async fn content<C, S>(
        &self,
        client: &mut C,
        server: &mut S,
        asked: &Judged,
        answered: &Answered,
        held: &mut Vec<u8>,
    ) -> Done
    where
        C: AsyncWrite + Unpin,
        S: AsyncRead + Unpin,
    {
        let chunked = !asked.old;
        let (mut unpacker, mut is_empty) = (Unpacker::new(answered.packing), true);
        let mut scrubber = self.termination.scrubber.as_ref().map(Redactor::stream);
        let (mut chunks, mut left) = (Chunks::default(), u64::MAX);
        if let Framing::Length(length) = answered.body {
            left = length;
        }
        loop {
            let mut content = Vec::new();
            let taken = match answered.body {
                Framing::Chunked => chunks.read(held, &mut content)?,
                _ => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(held.len());
                    content.extend(held.iter().take(here));
                    here
                }
            };
            held.drain(..taken);
            left = left.saturating_sub(content.len() as u64);
            let done = chunks.done() || (left == 0 && answered.body != Framing::Chunked);
            is_empty &= content.is_empty();
            let most = if answered.packing.is_some() { unpack::PIECE } else { PIECE };
            for piece in content.chunks(most) {
                say(client, chunked, &scrubbed(&mut scrubber, unpacker.take(piece)?)?).await?;
            }
            if done {
                break;
            }
            let waiting = self.more(server, held, &self.traffic.received);
            tokio::pin!(waiting);
            let more = match timeout(IDLE, waiting.as_mut()).await {
                Ok(more) => more?,
                Err(_) => {
                    if let Some(scrubber) = &mut scrubber {
                        let mut out = Vec::new();
                        scrubber.flush_idle(&mut out).map_err(|_| UNSCRUBBED)?;
                        say(client, chunked, &out).await?;
                    }
                    client.flush().await.map_err(gone)?;
                    waiting.await?
                }
            };
            if !more {
                if answered.body == Framing::Close {
                    break;
                }
                return Err(Reason::Unreachable(BROKEN_OFF.to_owned()));
            }
        }
        // Nothing at all is not packed, whatever the head says.
        let plain = if is_empty { Vec::new() } else { unpacker.finish()? };
        let mut rest = scrubbed(&mut scrubber, plain)?;
        if let Some(scrubber) = &mut scrubber {
            scrubber.finish(&mut rest).map_err(|_| UNSCRUBBED)?;
        }
        say(client, chunked, &rest).await?;
        if chunked {
            client.write_all(b"0\r\n\r\n").await.map_err(gone)?;
        }
        client.flush().await.map_err(gone)
    }

    /// Reads more, and counts it; false at the end. A head does not grow without bound.
    pub(super) async fn more<R: AsyncRead + Unpin>(
        &self,
        from: &mut R,
        held: &mut Vec<u8>,
        count: &AtomicU64,
    ) -> Result<bool, Reason> {
        if held.len() > MOST_HEAD {
            return Err(Reason::NotUnderstood("a head that does not end"));
        }
        let mut piece = vec![0; PIECE];
        let reading = from.read(&mut piece);
        let read = if held.is_empty() {
            reading.await
        } else {
            let late = Reason::NotUnderstood("a head that comes too slowly");
            timeout(SLOWEST, reading).await.map_err(|_| late)?
        };
        let read = match read {
            Ok(read) => read,
            // Many close without saying so.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(gone(error)),
        };
        held.extend(piece.iter().take(read));
        count.fetch_add(read as u64, Ordering::Relaxed);
        self.meter.charge(read as u64).await?;
        Ok(read > 0)
    }
}

/// One request's body and its answer, side by side. The answer counts: what the server does not want to hear any more
/// need not be said, and then the connection ends with it.
async fn exchange(
    sending: impl Future<Output = Done>,
    answering: impl Future<Output = Result<Next, Stop>>,
    begun: &AtomicBool,
) -> Result<Next, Stop> {
    tokio::pin!(sending, answering);
    let mut sent = None;
    let next = loop {
        tokio::select! {
            done = &mut sending, if sent.is_none() => match done {
                Err(reason) if reason.is_refusal() => {
                    let told = if begun.load(Ordering::Relaxed) { Stop::Midway } else { Stop::Untold };
                    return Err(told(reason));
                }
                done => sent = Some(done.is_ok()),
            },
            next = &mut answering => break next?,
        }
    };
    match sent {
        Some(true) => Ok(next),
        Some(false) => Ok(Next::End),
        None if next == Next::End => Ok(Next::End),
        None => sending.await.map(|()| next).map_err(Stop::Untold),
    }
}

const BROKEN_OFF: &str = "the server ended in the middle of an answer";
pub(super) const UNSCRUBBED: Reason = Reason::NotUnderstood("an answer that could not be looked through");

fn scrubbed(scrubber: &mut Option<Stream>, content: Vec<u8>) -> Result<Vec<u8>, Reason> {
    let Some(scrubber) = scrubber else { return Ok(content) };
    let mut out = Vec::new();
    scrubber.push(&content, &mut out).map_err(|_| UNSCRUBBED)?;
    Ok(out)
}

/// A piece of content: as a chunk, or as it is where the end of the connection is its end.
async fn say<W: AsyncWrite + Unpin>(to: &mut W, chunked: bool, bytes: &[u8]) -> Done {
    if bytes.is_empty() {
        return Ok(());
    }
    if !chunked {
        return to.write_all(bytes).await.map_err(gone);
    }
    let frame = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    to.write_all(&frame).await.map_err(gone)
}
