//! Reading one 4 KiB file over stdio MCP, compared with the reference file server under Node.
//!
//! Vambrace decides by policy and keeps a durable record of each call, on the same disk as the project; the peer does
//! neither. One request is in flight; the client is this program, with bare pipes and no SDK, the same for both. The two
//! alternate in rounds, so that other load on the machine affects both equally.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::report::{Report, Requirement};

const ROUNDS: usize = 10;
const CALLS: usize = 300;
const SYNCS: usize = 30;
const BYTES: usize = 4096;

pub(crate) fn run() -> Report {
    let place = BenchProject::new();
    let mut ours = Server::ours(&place);
    let mut peer = Server::peer(&place);
    ours.round();
    peer.round();

    let (mut our_times, mut peer_times, mut sync_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        our_times.extend(ours.round());
        peer_times.extend(peer.round());
        sync_times.extend(place.syncs());
    }

    let mut report = Report::new("read");
    for (name, times) in [("vambrace", &mut our_times), ("server-filesystem", &mut peer_times)] {
        for percent in [50, 90, 99] {
            report.add(format!("{name} p{percent}"), percentile(times, percent), "us");
        }
    }
    report.add("bare 4 KiB append and fdatasync p50", percentile(&mut sync_times, 50), "us");
    let ratio = percentile(&mut peer_times, 50) / percentile(&mut our_times, 50);
    report.require("p50 of server-filesystem / p50 of vambrace", ratio, "times", Requirement::AtLeast(2.0));
    report
}

/// A project and its state on one real disk.
pub(crate) struct BenchProject {
    dir: TempDir,
}

impl BenchProject {
    pub(crate) const FILE: &'static str = "a.txt";

    pub(crate) fn new() -> Self {
        let parent = std::env::var_os("VAMBRACE_BENCH_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
        let parent = parent.canonicalize().expect("VAMBRACE_BENCH_DIR exists");
        assert!(
            !in_memory(&parent),
            "`{}` is in memory, where a sync costs nothing; set VAMBRACE_BENCH_DIR to a directory on a disk",
            parent.display()
        );
        let dir =
            tempfile::Builder::new().prefix(".bench-").tempdir_in(parent).expect("a temporary directory");
        let place = Self { dir };
        std::fs::create_dir_all(place.project()).expect("a project");
        std::fs::write(place.project().join(Self::FILE), text()).expect("a file");
        let init = place.vambrace().args(["init", "--workspace"]).arg(place.project()).output();
        let init = init.expect("VAMBRACE_BIN names the binary");
        assert!(init.status.success(), "vambrace init: {}", String::from_utf8_lossy(&init.stderr));
        place
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The binary with its state here and without the user's own configuration.
    pub(crate) fn vambrace(&self) -> Command {
        let mut command = Command::new(std::env::var_os("VAMBRACE_BIN").unwrap_or_else(|| "vambrace".into()));
        command
            .env("VAMBRACE_HOME", self.state())
            .env("HOME", self.dir.path().join("home"))
            .env("XDG_CONFIG_HOME", self.dir.path().join("home/config"))
            .env("XDG_STATE_HOME", self.dir.path().join("home/state"));
        command
    }

    /// Times of the smallest durable writes on this disk, in us.
    pub(crate) fn syncs(&self) -> Vec<f64> {
        let path = self.dir.path().join("sync");
        let mut file = std::fs::File::options().create(true).append(true).open(path).expect("a file to sync");
        let record = [b'x'; BYTES];
        (0..SYNCS)
            .map(|_| {
                let start = Instant::now();
                file.write_all(&record).and_then(|()| file.sync_data()).expect("a disk that syncs");
                micros(start)
            })
            .collect()
    }
}

/// The Node that the peers run under.
pub(crate) fn node() -> Command {
    Command::new(std::env::var_os("VAMBRACE_NODE").unwrap_or_else(|| "node".into()))
}

/// The value that this percentage of the times does not exceed.
pub(crate) fn percentile(times: &mut [f64], percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * percent / 100]
}

pub(crate) fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// An MCP server on two pipes.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    question: Value,
    line: Vec<u8>,
}

impl Server {
    fn ours(place: &BenchProject) -> Self {
        let mut command = place.vambrace();
        command.args(["mcp", "--workspace"]).arg(place.project());
        Self::start(command, json!({"name": "read_file", "arguments": {"path": BenchProject::FILE}}))
    }

    fn peer(place: &BenchProject) -> Self {
        let server = std::env::var_os("VAMBRACE_PEER_FILESYSTEM");
        let server = server.expect("VAMBRACE_PEER_FILESYSTEM names the peer: `cargo xtask bench` sets it");
        let mut command = node();
        command.arg(server).arg(place.project());
        let path = place.project().join(BenchProject::FILE);
        Self::start(command, json!({"name": "read_text_file", "arguments": {"path": path}}))
    }

    fn start(mut command: Command, question: Value) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a server that starts");
        let input = child.stdin.take().expect("a piped stdin");
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().expect("a piped stdout"));
        let mut server = Self { child, input, output, question, line: Vec::new() };
        server.greet();
        server
    }

    fn greet(&mut self) {
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                           "clientInfo": {"name": "vambrace-benches", "version": "0"}});
        self.ask(&request("initialize", &hello));
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string() + "\n";
        self.input.write_all(ready.as_bytes()).expect("a server that listens");
        let answer = self.ask(&request("tools/call", &self.question));
        let answer: Value = serde_json::from_slice(answer).expect("an answer in JSON");
        let read = answer["result"]["content"].to_string().contains(text_line(0).trim_end());
        assert!(read && answer["result"]["isError"] != true, "the file was not read: {answer:#}");
    }

    /// The times of one round of calls.
    fn round(&mut self) -> Vec<f64> {
        let request = request("tools/call", &self.question);
        (0..CALLS)
            .map(|_| {
                let start = Instant::now();
                let answer = self.ask(&request);
                let time = micros(start);
                assert!(answer.len() > BYTES, "{}", String::from_utf8_lossy(answer));
                time
            })
            .collect()
    }

    /// Sends one line and waits for the response; the same id is reused for every request.
    fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.input.write_all(request).expect("a server that listens");
        loop {
            self.line.clear();
            let read = self.output.read_until(b'\n', &mut self.line).expect("a server that answers");
            assert!(read > 0, "the server ended");
            // Notifications have no id.
            if self
                .line
                .windows(4)
                .take(64)
                .chain(self.line.windows(4).rev().take(64))
                .any(|part| part == b"\"id\"")
            {
                return &self.line;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(method: &str, params: &Value) -> Vec<u8> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    (request.to_string() + "\n").into_bytes()
}

/// 4 KiB of ordinary text.
fn text() -> String {
    let mut text: String = (0..).map(text_line).take(BYTES / 32).collect();
    text.truncate(BYTES);
    text
}

/// 32 bytes.
fn text_line(number: usize) -> String {
    format!("line {number:>5} of an ordinary text.\n")
}

/// Whether a directory is on a file system without a disk.
fn in_memory(dir: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(dir).expect("statfs").f_type;
    kind == TMPFS || kind == RAMFS
}
