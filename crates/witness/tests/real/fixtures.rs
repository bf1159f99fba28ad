//! Fixtures: logs that can be forked, a witness in a temporary directory, a server on loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tempfile::TempDir;
use tokio::sync::oneshot;
use vambrace_core::clock::Clock;
use vambrace_ledger::{
    Checkpoint, Digest, Frontier, KeyKind, SignedNote, SigningKey, Timestamp, VerifyKey, consistency, leaf,
};
use vambrace_witness::{AddCheckpointRequest, KnownLogs, Witness, WitnessDir, serve};

pub(crate) const ORIGIN: &str = "vambrace/w-test";

/// A clock that is moved by hand.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn at(seconds: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(seconds * 1000)))
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) const NOON: i64 = 1_785_000_000;

pub(crate) fn log_key() -> SigningKey {
    SigningKey::new(ORIGIN, KeyKind::Log, &[1; 32]).unwrap()
}

/// The leaves of a log; each is the hash of the branch's name and a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) Vec<Digest>);

impl Tree {
    /// A log with `size` leaves.
    pub(crate) fn of(branch: &str, size: usize) -> Self {
        Self((0..size).map(|n| leaf(format!("{branch} {n}").as_bytes())).collect())
    }

    /// The same up to a size, and other leaves from there.
    pub(crate) fn forked(&self, at: usize, branch: &str) -> Self {
        let other = Self::of(branch, self.0.len());
        Self([&self.0[..at], &other.0[at..]].concat())
    }

    fn root_of(&self, stretch: Range<u64>) -> Digest {
        let mut tree = Frontier::new();
        let stretch = usize::try_from(stretch.start).unwrap()..usize::try_from(stretch.end).unwrap();
        self.0[stretch].iter().for_each(|leaf| tree.push(*leaf));
        tree.root()
    }

    pub(crate) fn root(&self, size: u64) -> Digest {
        self.root_of(0..size)
    }

    pub(crate) fn proof(&self, old: u64, new: u64) -> Vec<Digest> {
        consistency(old, new).unwrap_or_default().into_iter().map(|part| self.root_of(part)).collect()
    }

    pub(crate) fn checkpoint(&self, size: u64) -> Checkpoint {
        Checkpoint { origin: ORIGIN.into(), size, root: self.root(size) }
    }

    pub(crate) fn note(&self, size: u64) -> SignedNote {
        self.checkpoint(size).sign(&log_key()).unwrap()
    }

    /// The honest request body from one size to another.
    pub(crate) fn body(&self, old: u64, new: u64) -> String {
        AddCheckpointRequest::new(old, self.proof(old, new), self.note(new)).unwrap().to_string()
    }
}

pub(crate) fn witness_key(dir: &Path) -> SigningKey {
    let made = WitnessDir::open(dir).unwrap();
    made.key(|| "witness.example/w".to_owned(), || Ok::<_, std::io::Error>([2; 32])).unwrap()
}

/// A witness for the test log.
pub(crate) fn open_witness(dir: &Path, clock: Arc<dyn Clock>) -> Witness {
    let mut logs = KnownLogs::default();
    logs.add(&log_key().verify_key().to_string()).unwrap();
    Witness::open(WitnessDir::open(dir).unwrap(), witness_key(dir), logs, clock).unwrap()
}

/// A witness that serves on loopback until it is dropped.
pub(crate) struct WitnessServer {
    _dir: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) address: SocketAddr,
    pub(crate) key: VerifyKey,
    end: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl WitnessServer {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(NOON);
        let witness = Arc::new(open_witness(&dir.path().join("w"), Arc::clone(&clock) as Arc<dyn Clock>));
        let key = witness.verify_key();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        runtime.spawn(serve(witness, listener, Arc::new(|_| {}), ended));
        Self { _dir: dir, clock, address, key, end: Some(end), runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a body; returns status, content type and response body.
    pub(crate) fn post(&self, body: &str) -> (u16, String, String) {
        let length = body.len();
        self.raw(&format!("POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"))
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) fn raw(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        (status, kind.to_owned(), body.to_owned())
    }
}

impl Drop for WitnessServer {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
