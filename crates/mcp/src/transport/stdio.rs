//! The MCP transport over standard input and output, with limits: every unusable line is answered with an error and recorded,
//! the number of running requests is bounded, and no input is read while the client does not read its answers. Responses of the
//! client and cancellations overtake requests that wait for a slot; otherwise calls that wait for them would never end.

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

use super::framing::{self, MAX_MESSAGE_BYTES, MessageLine, MessageReader};
use crate::server::McpServer;

/// Maximum number of requests that run at the same time; fewer if the limit of open files is low.
const MAX_ACTIVE_REQUESTS: u64 = 256;
/// Open files that one call may need, and that the server itself needs.
const FILES_PER_CALL: u64 = 8;
const FILES_OF_SERVER: u64 = 64;
/// Maximum number of requests that wait for a slot; no further input is read then.
const MAX_WAITING_REQUESTS: usize = 256;
/// Maximum number of unwritten answers; no further input is read then.
const MAX_QUEUED_ANSWERS: usize = 64;
/// How long to poll for the next request before sleeping: a busy agent sends it at once, and a wake-up takes longer than a
/// whole small call.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Time limit for writing the last answers after the client closed its input.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

const UNREADABLE: &str = "the message is not valid JSON: one line, well-formed, without lone surrogates, at most 128 levels \
    of nesting";
const TOO_LONG: &str = "the message is too long: the arguments of a call are limited to 16 MiB";
const NOT_JSON_RPC: &str = "the message is not a request, response or notification of JSON-RPC 2.0";

const ID_IN_USE: &str = "another request with this id is still running; the request was not processed";

const PARAMS_NOT_OBJECT: &str =
    "`params` is not an object: `tools/call` takes {\"name\": \"read_file\", \"arguments\": {...}}";

/// The transport to one client.
pub(super) struct StdioTransport<R> {
    lines: MessageReader<R>,
    server: Arc<McpServer>,
    ended: bool,
    slots: Arc<Semaphore>,
    active: Arc<ActiveRequests>,
    waiting: VecDeque<(ClientMessage, usize)>,
    out: Option<Sender<Vec<u8>>>,
    errors: Option<Sender<ProtocolError>>,
    tasks: Vec<JoinHandle<()>>,
}

type ClientMessage = RxJsonRpcMessage<RoleServer>;

/// The ids of the running requests.
type ActiveRequests = Mutex<HashSet<RequestId>>;

/// Attached to a request until it is finished.
#[derive(Clone)]
struct RequestSlot {
    _guard: Arc<SlotGuard>,
}

struct SlotGuard {
    _permit: OwnedSemaphorePermit,
    id: RequestId,
    active: Arc<ActiveRequests>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// The error response to an unusable line.
struct ProtocolError {
    code: i32,
    id: Value,
    words: &'static str,
}

impl ProtocolError {
    fn unreadable(id: Option<Value>) -> Self {
        Self::of(id, -32_700, UNREADABLE)
    }

    /// A line with an id was a request; without an id the given code is used.
    fn of(id: Option<Value>, unknown: i32, words: &'static str) -> Self {
        let code = if id.is_some() { -32_600 } else { unknown };
        Self { code, id: id.unwrap_or_default(), words }
    }

    fn line(&self) -> Vec<u8> {
        let error = json!({"code": self.code, "message": self.words});
        json!({"jsonrpc": "2.0", "id": self.id, "error": error}).to_string().into_bytes()
    }
}

impl<R: AsyncRead + Send + Unpin> StdioTransport<R> {
    /// Reads from `input`, writes to `output`, and records unusable lines through `server`.
    pub(super) fn new<W>(input: R, output: W, server: Arc<McpServer>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (out, answers) = mpsc::channel(MAX_QUEUED_ANSWERS);
        let slots = RequestSlots::new();
        let (errors, received) = mpsc::channel(1);
        let tasks = vec![
            tokio::spawn(answer_errors(received, out.clone(), Arc::clone(&server))),
            tokio::spawn(write(answers, output, slots.clone())),
        ];
        Self {
            lines: MessageReader::new(input),
            server,
            ended: false,
            slots: slots.free,
            active: Arc::default(),
            waiting: VecDeque::new(),
            out: Some(out),
            errors: Some(errors),
            tasks,
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING_REQUESTS
            || self.waiting.iter().map(|(_, bytes)| bytes).sum::<usize>() >= MAX_MESSAGE_BYTES
    }

    /// Whether a request with this id is running or waiting: two requests with one id could not be distinguished.
    fn is_active(&self, id: &RequestId) -> bool {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
            || self.waiting.iter().any(|(message, _)| request_id(message) == Some(id))
    }

    /// Returns the message if the server can process it now; a request without a free slot waits.
    fn enter(
        &mut self,
        mut message: ClientMessage,
        bytes: usize,
    ) -> Result<Option<ClientMessage>, ProtocolError> {
        match &mut message {
            JsonRpcMessage::Request(asked) if self.is_active(&asked.id) => {
                // Without the id: the client would take the error for the response to the other request.
                return Err(ProtocolError::of(None, -32_600, ID_IN_USE));
            }
            JsonRpcMessage::Request(asked) if needs_slot(&asked.request) => {
                let slot = if self.waiting.is_empty() {
                    Arc::clone(&self.slots).try_acquire_owned().ok()
                } else {
                    None
                };
                let Some(slot) = slot else {
                    self.waiting.push_back((message, bytes));
                    return Ok(None);
                };
                assign_slot(&mut message, slot, &self.active);
            }
            JsonRpcMessage::Notification(reported) => {
                if let ClientNotification::CancelledNotification(cancelled) = &reported.notification
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

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for StdioTransport<R> {
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

    // Cancel safe: everything that was read is in `self`.
    async fn receive(&mut self) -> Option<ClientMessage> {
        loop {
            let reads = !self.ended && !self.is_full();
            tokio::select! {
                biased;
                slot = Arc::clone(&self.slots).acquire_owned(), if !self.waiting.is_empty() => {
                    let (mut message, _) = self.waiting.pop_front()?;
                    assign_slot(&mut message, slot.ok()?, &self.active);
                    return Some(message);
                }
                read = next(&mut self.lines, self.out.as_ref()?, self.errors.clone()?), if reads => {
                    let Some((line, error_slot)) = read else {
                        self.ended = true;
                        self.server.end_of_input();
                        continue;
                    };
                    let (read, bytes) = match line {
                        MessageLine::TooLong(id) => (Err(ProtocolError::of(id, -32_600, TOO_LONG)), 0),
                        MessageLine::Whole(line) => (message(&line), line.len()),
                    };
                    match read.and_then(|read| read.map_or(Ok(None), |message| self.enter(message, bytes))) {
                        Err(why) => drop(error_slot.send(why)),
                        Ok(None) => {}
                        Ok(message) => return message,
                    }
                }
                else => return None,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.errors.take();
        self.out.take();
        // A client that closed its input and does not read must not block the exit.
        let tasks = std::mem::take(&mut self.tasks);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, async {
            for task in tasks {
                let _ = task.await;
            }
        })
        .await;
        Ok(())
    }
}

/// The next line, and a permit to send an error for it; `None` at the end. Waits until answers can be written, so that a client
/// that does not read its answers cannot send more.
async fn next<R: AsyncRead + Unpin>(
    lines: &mut MessageReader<R>,
    out: &Sender<Vec<u8>>,
    errors: Sender<ProtocolError>,
) -> Option<(MessageLine, OwnedPermit<ProtocolError>)> {
    drop(out.reserve().await.ok()?);
    let error_slot = errors.reserve_owned().await.ok()?;
    let line = lines.next().await.ok().flatten()?;
    Some((line, error_slot))
}

/// Parses a line; `None` if it needs no action and no answer.
fn message(line: &[u8]) -> Result<Option<ClientMessage>, ProtocolError> {
    // RFC 8259, 8.1: a byte order mark may be ignored.
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    // Nearly every message is a tool call; the library would try all other message types first.
    if let Ok(JsonRpcRequest { jsonrpc, id, request }) = serde_json::from_slice(line) {
        let request = ClientRequest::CallToolRequest(request);
        return Ok(Some(JsonRpcMessage::Request(JsonRpcRequest { jsonrpc, id, request })));
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Ok(Some(message));
    }
    let value: Value =
        serde_json::from_slice(line).map_err(|_| ProtocolError::unreadable(framing::id(line)))?;
    let (id, asks) = (value.get("id"), value.get("method").is_some_and(Value::is_string));
    if asks && id.is_none() {
        // An unknown notification; it needs no answer.
        return Ok(None);
    }
    let id = id.filter(|id| asks && (id.is_string() || id.is_i64())).cloned();
    if let (Some(id), Some(params)) = (&id, value.get("params"))
        && !params.is_object()
    {
        return Err(ProtocolError { code: -32_602, id: id.clone(), words: PARAMS_NOT_OBJECT });
    }
    Err(ProtocolError::of(id, -32_600, NOT_JSON_RPC))
}

/// Whether a request needs a slot. A ping is always answered, and a subscription lasts as long as the connection.
fn needs_slot(request: &ClientRequest) -> bool {
    !matches!(
        request,
        ClientRequest::PingRequest(_)
            | ClientRequest::InitializeRequest(_)
            | ClientRequest::SubscriptionsListenRequest(_)
    )
}

fn request_id(message: &ClientMessage) -> Option<&RequestId> {
    if let JsonRpcMessage::Request(asked) = message { Some(&asked.id) } else { None }
}

/// Attaches the slot to the request; it is released when the request's context is dropped.
fn assign_slot(message: &mut ClientMessage, permit: OwnedSemaphorePermit, active: &Arc<ActiveRequests>) {
    if let JsonRpcMessage::Request(asked) = message {
        let (id, active) = (asked.id.clone(), Arc::clone(active));
        active.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        asked
            .request
            .extensions_mut()
            .insert(RequestSlot { _guard: Arc::new(SlotGuard { _permit: permit, id, active }) });
    }
}

/// Slots for concurrent requests.
#[derive(Clone)]
struct RequestSlots {
    all: usize,
    free: Arc<Semaphore>,
}

impl RequestSlots {
    /// The number depends on the limit of open files.
    fn new() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let slots = (files.saturating_sub(FILES_OF_SERVER) / FILES_PER_CALL).clamp(2, MAX_ACTIVE_REQUESTS);
        let all = usize::try_from(slots).unwrap_or(2);
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// Polls the input for a moment while no request is running.
    fn poll_input(&self) {
        let began = Instant::now();
        while self.free.available_permits() == self.all && began.elapsed() < POLL_BEFORE_SLEEP {
            let input = std::io::stdin();
            let now =
                rustix::event::poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&Timespec::default()));
            if now != Ok(0) {
                return;
            }
            // Other threads may use the processor.
            std::thread::yield_now();
        }
    }
}

/// Records and answers unusable lines one by one.
async fn answer_errors(mut received: Receiver<ProtocolError>, out: Sender<Vec<u8>>, server: Arc<McpServer>) {
    while let Some(error_slot) = received.recv().await {
        server.record_unreadable(error_slot.words, None).await;
        if out.send(error_slot.line()).await.is_err() {
            return;
        }
    }
}

/// Writes lines until there are no more or the client is gone.
async fn write<W: AsyncWrite + Unpin>(mut lines: Receiver<Vec<u8>>, mut output: W, slots: RequestSlots) {
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
            slots.poll_input();
        }
    }
}
