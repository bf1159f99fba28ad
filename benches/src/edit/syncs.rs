//! How often one edit waits for the disk, end to end: the program serves a client over MCP, every edit is proposed, approved
//! in a form, applied and recorded, and `strace` logs each sync of any of its threads. Counts all of them, including the
//! checkpoint of each second of activity, as the mean over the run; and those between a call and its result.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::project::{code, median};
use crate::read::BenchProject;

const EDITS: usize = 60;
const CALLS: &str = "trace=fsync,fdatasync,syncfs,sync,sync_file_range,msync";

/// Threads of the store that no call waits for: they sync the last record when nothing else does, and sign checkpoints.
const BACKGROUND: [&str; 2] = ["<vambrace-writer>", "<vambrace-worker>"];

/// Median number of syncs that one edit waits for, and all syncs of the run per edit; `None` without `strace`.
pub(crate) fn of_one_edit(lines: usize) -> Option<(f64, f64)> {
    Command::new("strace").arg("--version").output().ok()?;
    let place = BenchProject::new();
    std::fs::write(place.project().join("f.rs"), code(lines)).unwrap();
    let config = place.state().with_file_name("home").join("config/vambrace");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.yaml"), "approvals: {trusted_clients: [bench]}\n").unwrap();
    let trace = place.state().with_file_name("trace");
    let ours = place.vambrace();
    let mut traced = Command::new("strace");
    traced.args(["-f", "-Y", "-qq", "-e", "signal=none", "-e", CALLS, "-o"]).arg(&trace);
    traced.arg(ours.get_program()).args(["mcp", "--workspace"]).arg(place.project());
    traced.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = traced.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("strace starts");
    let mut client =
        Client { input: child.stdin.take().unwrap(), output: BufReader::new(child.stdout.take().unwrap()) };
    client.send(
        &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}}, "clientInfo": {"name": "bench", "version": "1"}}}),
    );
    client.receive();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    // A resumed call in the trace was counted when it began. `-Y` adds the thread names.
    let count = |all: bool| {
        let reported = std::fs::read_to_string(&trace).unwrap();
        let counts = |line: &&str| {
            line.contains("sync(") && (all || !BACKGROUND.iter().any(|name| line.contains(name)))
        };
        reported.lines().filter(counts).count()
    };
    client.edit(0);
    let begun = count(true);
    let mut each: Vec<f64> = Vec::new();
    for number in 1..=EDITS {
        let before = count(false);
        client.edit(number);
        each.push((count(false) - before) as f64);
    }
    let all = (count(true) - begun) as f64 / EDITS as f64;
    drop(client);
    child.wait().unwrap();
    Some((median(&mut each), all))
}

struct Client {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Proposes an edit, approves it, and checks that it was applied.
    fn edit(&mut self, number: usize) {
        let edit = json!({"operation": "replace", "match_mode": "exact", "spec": format!("const TARGET: u64 = {number};"),
            "content": format!("const TARGET: u64 = {};", number + 1)});
        let call = json!({"name": "edit_file", "arguments": {"path": "f.rs", "edits": [edit]}});
        self.send(&json!({"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": call}));
        let form = self.receive();
        assert_eq!(form["method"], "elicitation/create", "{form}");
        let said = json!({"action": "accept", "content": {"decision": "approve"}});
        self.send(&json!({"jsonrpc": "2.0", "id": form["id"], "result": said}));
        let answer = self.receive();
        assert_eq!(answer["result"]["structuredContent"]["data"]["applied"], true, "{answer}");
    }
}
