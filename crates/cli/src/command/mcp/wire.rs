//! Messages over standard input and output, with bounds: every line that cannot be read is answered and put on record,
//! no more than so many requests are in hand, and nothing is read while answers are not taken away. Answers of the client and
//! cancellations overtake requests that wait for a seat, or calls that wait for them would never end.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, GetExtensions as _, JsonRpcMessage, JsonRpcRequest, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::line::{self, LONGEST, Line, Lines};
use crate::desk::Desk;

/// Requests in hand, where the machine has files enough for them.
const SEATS: u64 = 256;
/// Open files that one call may need, and those that the server itself needs.
const CALL_FILES: u64 = 8;
const OWN_FILES: u64 = 64;
/// Requests that wait for a seat before nothing more is read.
const WAITING: usize = 256;
/// Answers that wait to be written before nothing more is read.
const ANSWERS: usize = 64;
/// How long the next request is looked out for before going to sleep: an agent that works asks again at once, and
/// being woken takes longer than all of a small call.
const LINGER: Duration = Duration::from_micros(50);
/// How long the last answers may take when the client is gone.
const LAST: Duration = Duration::from_secs(5);

const UNREADABLE: &str = "the message is not JSON that can be read: one line, well-formed, without lone surrogates, nested \
    no deeper than 128";
const TOO_LONG: &str = "the message is too long: the arguments of a call have at most 16 MiB";
const NO_MESSAGE: &str = "the message is neither a request nor an answer nor a notification of JSON-RPC 2.0";

const ID_IN_HAND: &str =
    "the request has the id of another one that is not answered yet; it was not carried out";

const NO_PARAMS: &str =
    "`params` is not an object: `tools/call` takes {\"name\": \"read_file\", \"arguments\": {...}}";

/// The two pipes of a client.
pub(super) struct Wire<R> {
    lines: Lines<R>,
    ended: bool,
    seats: Arc<Semaphore>,
    in_hand: Arc<InHand>,
    waiting: VecDeque<(Message, usize)>,
    out: Option<Sender<Vec<u8>>>,
    refused: Option<Sender<Refusal>>,
    tasks: Vec<JoinHandle<()>>,
}

type Message = RxJsonRpcMessage<RoleServer>;

/// The ids of the requests that have a seat.
type InHand = Mutex<HashSet<RequestId>>;

/// Kept with a request until it is over.
#[derive(Clone)]
struct Seat {
    _taken: Arc<Taken>,
}

struct Taken {
    _permit: OwnedSemaphorePermit,
    id: RequestId,
    in_hand: Arc<InHand>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// The answer to a line that leads nowhere.
struct Refusal {
    code: i32,
    id: Value,
    words: &'static str,
}

impl Refusal {
    fn unreadable(id: Option<Value>) -> Self {
        Self::of(id, -32_700, UNREADABLE)
    }

    /// Who can be answered by name did send a request; otherwise nothing is known of it.
    fn of(id: Option<Value>, unknown: i32, words: &'static str) -> Self {
        let code = if id.is_some() { -32_600 } else { unknown };
        Self { code, id: id.unwrap_or_default(), words }
    }

    fn line(&self) -> Vec<u8> {
        let error = json!({"code": self.code, "message": self.words});
        json!({"jsonrpc": "2.0", "id": self.id, "error": error}).to_string().into_bytes()
    }
}

impl<R: AsyncRead + Send + Unpin> Wire<R> {
    /// Reads and writes here; what cannot be read goes on record at `desk`.
    pub(super) fn new<W>(input: R, output: W, desk: Arc<Desk>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (out, answers) = mpsc::channel(ANSWERS);
        let seats = Seats::new();
        let (refused, refusals) = mpsc::channel(1);
        let tasks = vec![
            tokio::spawn(refuse(refusals, out.clone(), desk)),
            tokio::spawn(write(answers, output, seats.clone())),
        ];
        Self {
            lines: Lines::new(input),
            ended: false,
            seats: seats.free,
            in_hand: Arc::default(),
            waiting: VecDeque::new(),
            out: Some(out),
            refused: Some(refused),
            tasks,
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING || self.waiting.iter().map(|(_, bytes)| bytes).sum::<usize>() >= LONGEST
    }

    /// Two requests under one id would get one answer, and nobody would know whose.
    fn is_in_hand(&self, id: &RequestId) -> bool {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
            || self.waiting.iter().any(|(message, _)| request_id(message) == Some(id))
    }

    /// A message for the server now; a request only with a seat.
    fn enter(&mut self, mut message: Message, bytes: usize) -> Result<Option<Message>, Refusal> {
        match &mut message {
            JsonRpcMessage::Request(asked) if self.is_in_hand(&asked.id) => {
                // Under its id the other one would seem to be refused.
                return Err(Refusal::of(None, -32_600, ID_IN_HAND));
            }
            JsonRpcMessage::Request(asked) if needs_seat(&asked.request) => {
                let seat = if self.waiting.is_empty() {
                    Arc::clone(&self.seats).try_acquire_owned().ok()
                } else {
                    None
                };
                let Some(seat) = seat else {
                    self.waiting.push_back((message, bytes));
                    return Ok(None);
                };
                sit(&mut message, seat, &self.in_hand);
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.waiting.retain(|(message, _)| request_id(message) != Some(id));
                }
            }
            _ => {}
        }
        Ok(Some(message))
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Wire<R> {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let out = self.out.clone();
        let line = serde_json::to_vec(&item).map_err(std::io::Error::from);
        async move { out.ok_or_else(gone)?.send(line?).await.map_err(|_| gone()) }
    }

    // Given up and begun again whenever something else happens: whatever was read lies in `self`.
    async fn receive(&mut self) -> Option<Message> {
        loop {
            let reads = !self.ended && !self.is_full();
            tokio::select! {
                biased;
                seat = Arc::clone(&self.seats).acquire_owned(), if !self.waiting.is_empty() => {
                    let (mut message, _) = self.waiting.pop_front()?;
                    sit(&mut message, seat.ok()?, &self.in_hand);
                    return Some(message);
                }
                read = next(&mut self.lines, self.out.as_ref()?, self.refused.clone()?), if reads => {
                    let Some((line, refusal)) = read else {
                        self.ended = true;
                        continue;
                    };
                    let (read, bytes) = match line {
                        Line::TooLong(id) => (Err(Refusal::of(id, -32_600, TOO_LONG)), 0),
                        Line::Whole(line) => (message(&line), line.len()),
                    };
                    match read.and_then(|read| read.map_or(Ok(None), |message| self.enter(message, bytes))) {
                        Err(why) => drop(refusal.send(why)),
                        Ok(None) => {}
                        Ok(message) => return message,
                    }
                }
                else => return None,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.refused.take();
        self.out.take();
        // Whoever closes his end and does not read ours is not waited for.
        let tasks = std::mem::take(&mut self.tasks);
        let _ = tokio::time::timeout(LAST, async {
            for task in tasks {
                let _ = task.await;
            }
        })
        .await;
        Ok(())
    }
}

/// The next line and room to refuse it; `None` at the end. Whoever does not take answers is not read from.
async fn next<R: AsyncRead + Unpin>(
    lines: &mut Lines<R>,
    out: &Sender<Vec<u8>>,
    refused: Sender<Refusal>,
) -> Option<(Line, OwnedPermit<Refusal>)> {
    drop(out.reserve().await.ok()?);
    let refusal = refused.reserve_owned().await.ok()?;
    let line = lines.next().await.ok().flatten()?;
    Some((line, refusal))
}

/// What a line says; `None` where nothing is to be done or answered.
fn message(line: &[u8]) -> Result<Option<Message>, Refusal> {
    // RFC 8259, 8.1: a mark at the beginning may be ignored.
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    // Nearly every message is a call; the library would try it against every other kind of message first.
    if let Ok(JsonRpcRequest { jsonrpc, id, request }) = serde_json::from_slice(line) {
        let request = ClientRequest::CallToolRequest(request);
        return Ok(Some(JsonRpcMessage::Request(JsonRpcRequest { jsonrpc, id, request })));
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Ok(Some(message));
    }
    let value: Value = serde_json::from_slice(line).map_err(|_| Refusal::unreadable(line::id(line)))?;
    let (id, asks) = (value.get("id"), value.get("method").is_some_and(Value::is_string));
    if asks && id.is_none() {
        // A notification that is not known here; nobody waits for an answer.
        return Ok(None);
    }
    let id = id.filter(|id| asks && (id.is_string() || id.is_i64())).cloned();
    if let (Some(id), Some(params)) = (&id, value.get("params"))
        && !params.is_object()
    {
        return Err(Refusal { code: -32_602, id: id.clone(), words: NO_PARAMS });
    }
    Err(Refusal::of(id, -32_600, NO_MESSAGE))
}

/// Whether a request takes time and files: a client that asks whether we live hears it always.
fn needs_seat(request: &ClientRequest) -> bool {
    !matches!(request, ClientRequest::PingRequest(_) | ClientRequest::InitializeRequest(_))
}

fn request_id(message: &Message) -> Option<&RequestId> {
    if let JsonRpcMessage::Request(asked) = message { Some(&asked.id) } else { None }
}

/// The seat is given back when the request is over and its context goes.
fn sit(message: &mut Message, permit: OwnedSemaphorePermit, in_hand: &Arc<InHand>) {
    if let JsonRpcMessage::Request(asked) = message {
        let (id, in_hand) = (asked.id.clone(), Arc::clone(in_hand));
        in_hand.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        asked
            .request
            .extensions_mut()
            .insert(Seat { _taken: Arc::new(Taken { _permit: permit, id, in_hand }) });
    }
}

/// The seats for requests.
#[derive(Clone)]
struct Seats {
    all: usize,
    free: Arc<Semaphore>,
}

impl Seats {
    /// As many as there can be files for.
    fn new() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let seats = (files.saturating_sub(OWN_FILES) / CALL_FILES).clamp(2, SEATS);
        let all = usize::try_from(seats).unwrap_or(2);
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// Stays awake for a moment while nothing is in hand, until something can be read.
    fn linger(&self) {
        let began = Instant::now();
        while self.free.available_permits() == self.all && began.elapsed() < LINGER {
            let input = std::io::stdin();
            let now =
                rustix::event::poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&Timespec::default()));
            if now != Ok(0) {
                return;
            }
            // Whoever else wants the processor has it.
            std::thread::yield_now();
        }
    }
}

/// Puts refused lines on record and answers them, one by one.
async fn refuse(mut refusals: Receiver<Refusal>, out: Sender<Vec<u8>>, desk: Arc<Desk>) {
    while let Some(refusal) = refusals.recv().await {
        // Nothing was done, so a ledger that takes no records does not keep the answer back.
        let _ = desk.note_unreadable(refusal.words, None).await;
        if out.send(refusal.line()).await.is_err() {
            return;
        }
    }
}

/// Writes lines until there are no more or nobody reads them.
async fn write<W: AsyncWrite + Unpin>(mut lines: Receiver<Vec<u8>>, mut output: W, seats: Seats) {
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if written.await.is_err() {
            return;
        }
        if lines.is_empty() {
            seats.linger();
        }
    }
}
