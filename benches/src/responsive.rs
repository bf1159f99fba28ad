//! How a server answers while it works: pings and reads of 4 KiB on a connection that is idle, and on the same connection
//! while edits of a 66 MB file are planned.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    read::{BenchProject, micros, percentile},
    report::{Report, Requirement},
};

const IDLE_ROUNDS: usize = 300;
const FILE_BYTES: usize = 66 << 20;
/// Fewer than the limit of open approval requests per minute.
const EDITS: usize = 12;
const BIG: &str = "big.txt";

pub(crate) fn run() -> Report {
    let place = BenchProject::new();
    let line = "an ordinary line of a large file that an agent edits\n";
    let text = line.repeat(FILE_BYTES / line.len());
    std::fs::write(place.project().join(BIG), format!("the first line\n{text}")).unwrap();
    let connection = Connection::open(&place);
    let read = json!({"name": "read_file", "arguments": {"path": BenchProject::FILE}});
    let (mut idle_pings, mut idle_reads) = (Vec::new(), Vec::new());
    for _ in 0..IDLE_ROUNDS {
        idle_pings.push(connection.timed("ping", &json!({})));
        idle_reads.push(connection.timed("tools/call", &read));
    }
    let (mut pings, mut reads) = (Vec::new(), Vec::new());
    let done = AtomicBool::new(false);
    let edits: Vec<f64> = std::thread::scope(|scope| {
        let edits = scope.spawn(|| {
            let times = (0..EDITS).map(|number| connection.timed("tools/call", &edit(number))).collect();
            done.store(true, Ordering::Relaxed);
            times
        });
        while !done.load(Ordering::Relaxed) {
            pings.push(connection.timed("ping", &json!({})));
            reads.push(connection.timed("tools/call", &read));
            std::thread::sleep(Duration::from_millis(1));
        }
        edits.join().unwrap()
    });
    let mut report = Report::new("responsive");
    let ms = |times: &mut Vec<f64>, share| percentile(times, share) / 1e3;
    report.add("one edit of 66 MB, mean", edits.iter().sum::<f64>() / edits.len() as f64 / 1e3, "ms");
    for (name, idle, busy) in
        [("ping", &mut idle_pings, &mut pings), ("read of 4 KiB", &mut idle_reads, &mut reads)]
    {
        report.add(format!("{name}, idle, p99"), ms(idle, 99), "ms");
        report.add(format!("{name}, while editing, p50"), ms(busy, 50), "ms");
        let more = ms(busy, 99) - ms(idle, 99);
        report.require(
            format!("{name}, p99 while editing above idle"),
            more,
            "ms",
            Requirement::AtMost(20.0),
        );
    }
    report
}

/// A different change each time: an equal call would attach to the open approval request.
fn edit(number: usize) -> Value {
    let edit = json!({"match_mode": "exact", "operation": "replace", "spec": "the first line", "content": format!("line {number}")});
    json!({"name": "edit_file", "arguments": {"path": BIG, "edits": [edit]}})
}

/// Requests that wait for their responses, by id.
type Waiting = Arc<Mutex<HashMap<u64, mpsc::Sender<Value>>>>;

/// A connection that several threads use at the same time.
struct Connection {
    child: Child,
    input: Mutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Connection {
    fn open(place: &BenchProject) -> Self {
        let mut command = place.vambrace();
        command.args(["mcp", "--workspace"]).arg(place.project());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = Mutex::new(child.stdin.take().unwrap());
        let output = BufReader::new(child.stdout.take().unwrap());
        let waiting = Waiting::default();
        let receivers = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&line).unwrap();
                let Some(id) = answer["id"].as_u64() else { continue };
                if let Some(receiver) = receivers.lock().unwrap().remove(&id) {
                    receiver.send(answer).unwrap_or_default();
                }
            }
        });
        let connection = Self { child, input, waiting, next: AtomicU64::new(1) };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                           "clientInfo": {"name": "vambrace-benches", "version": "0"}});
        connection.timed("initialize", &hello);
        connection.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        connection
    }

    fn send(&self, message: &Value) {
        let mut input = self.input.lock().unwrap();
        input.write_all((message.to_string() + "\n").as_bytes()).unwrap();
    }

    /// Sends a request and waits for its response; the time in us.
    fn timed(&self, method: &str, params: &Value) -> f64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        let start = std::time::Instant::now();
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = receiver.recv_timeout(Duration::from_secs(120)).unwrap();
        let time = micros(start);
        assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{method}: {answer}");
        time
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
