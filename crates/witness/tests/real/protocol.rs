//! Every status of C2SP tlog-witness, over real connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use vambrace_ledger::{Digest, KeyKind, SignatureStatus, SignedNote, SigningKey};
use vambrace_witness::{AddCheckpointRequest, MAX_REQUEST_BYTES};

use crate::fixtures::{ORIGIN, Tree, WitnessServer};

/// A witness that has signed size 10.
fn at_ten() -> (WitnessServer, Tree) {
    let (server, tree) = (WitnessServer::new(), Tree::of("a", 30));
    assert_eq!(server.post(&tree.body(0, 10)).0, 200);
    (server, tree)
}

// B5: the status of C2SP tlog-witness for each kind of request
#[test]
fn each_request_gets_its_status() {
    let (server, tree) = at_ten();
    let other = tree.forked(5, "b");
    let with = |old: u64, proof: Vec<Digest>, note: SignedNote| {
        AddCheckpointRequest::new(old, proof, note).unwrap().to_string()
    };
    let foreign_key = SigningKey::new(ORIGIN, KeyKind::Log, &[9; 32]).unwrap();
    let elsewhere = SigningKey::new("vambrace/other", KeyKind::Log, &[1; 32]).unwrap();
    let mut foreign = tree.checkpoint(12);
    foreign.origin = "vambrace/other".into();
    let cases = [
        ("not a request body", 400, "hello".to_owned()),
        ("a proof line that is not base64", 400, tree.body(10, 12).replacen('\n', "\n!!\n", 1)),
        ("old is larger than new", 400, with(10, vec![], tree.note(9))),
        (
            "a key that is not configured",
            403,
            with(10, tree.proof(10, 12), tree.checkpoint(12).sign(&foreign_key).unwrap()),
        ),
        ("no signature of a log at all", 403, {
            let witness = SigningKey::new(ORIGIN, KeyKind::Witness, &[1; 32]).unwrap();
            let at = vambrace_ledger::Timestamp::from_millis(0);
            with(10, tree.proof(10, 12), SignedNote::new(tree.note(12).text()).unwrap().cosign(&witness, at))
        }),
        ("a log that is not configured", 404, with(0, vec![], foreign.sign(&elsewhere).unwrap())),
        ("older than what was signed", 409, tree.body(0, 9)),
        ("from an older size", 409, tree.body(9, 12)),
        ("from a size that was never signed", 409, tree.body(11, 12)),
        ("the same size with another root", 409, with(10, vec![], other.note(10))),
        ("the proof of another log", 422, other.body(10, 12)),
        ("no proof", 422, with(10, vec![], tree.note(12))),
        ("a proof for the same size", 422, with(10, tree.proof(10, 12), tree.note(10))),
        ("the same again", 200, tree.body(10, 10)),
        ("growth", 200, tree.body(10, 12)),
        ("what was just signed, from before", 409, tree.body(10, 12)),
    ];
    for (name, status, body) in cases {
        let answer = server.post(&body);
        assert_eq!(answer.0, status, "{name}: {answer:?}");
        let size = if name.starts_with("what") { "12\n" } else { "10\n" };
        if status == 409 {
            assert_eq!((answer.1.as_str(), answer.2.as_str()), ("text/x.tlog.size", size), "{name}");
        }
    }
}

#[test]
fn signature_covers_the_request_and_has_the_time_of_the_witness() {
    let (server, tree) = at_ten();
    server.clock.pass(7);
    let (_, _, line) = server.post(&tree.body(10, 20));
    let signed = tree.note(20).add_lines(&line).unwrap();
    let noon = u64::try_from(crate::fixtures::NOON).unwrap();
    assert_eq!(signed.signed_by(&server.key), SignatureStatus::Valid(Some(noon + 7)));
    assert!(line.starts_with("\u{2014} witness.example/w ") && line.ends_with('\n'), "{line}");
}

#[test]
fn empty_log_has_only_one_root() {
    let (server, tree) = (WitnessServer::new(), Tree::of("a", 3));
    let mut false_empty = tree.checkpoint(0);
    assert_eq!(server.post(&tree.body(0, 0)).0, 200);
    false_empty.root = Digest::ZERO;
    let note = false_empty.sign(&crate::fixtures::log_key()).unwrap();
    assert_eq!(server.post(&AddCheckpointRequest::new(0, vec![], note).unwrap().to_string()).0, 409);
    let proof = vec![Digest::ZERO];
    assert_eq!(server.post(&AddCheckpointRequest::new(0, proof, tree.note(3)).unwrap().to_string()).0, 422);
    assert_eq!(server.post(&tree.body(0, 3)).0, 200);
}

#[test]
fn other_paths_and_methods_are_rejected() {
    let server = WitnessServer::new();
    let ask = |line: &str| server.raw(&format!("{line} HTTP/1.1\r\nhost: w\r\nconnection: close\r\n\r\n"));
    assert_eq!(ask("GET /healthz").0, 200);
    assert_eq!(ask("GET /").2.trim(), server.key.to_string());
    assert_eq!(ask("GET /add-checkpoint").0, 405);
    assert_eq!(ask("POST /").0, 405);
    assert_eq!(ask("GET /../etc/passwd").0, 404);
    assert_eq!(ask("POST /add-checkpoint/").0, 404);
}

#[test]
fn body_that_is_too_long_is_not_read() {
    let server = WitnessServer::new();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The server responds and closes while the client still sends.
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        let mut sent = 0_usize;
        while sent < 64 << 20 && writer.write_all(chunk.as_bytes()).is_ok() {
            sent += chunk.len();
        }
        sent
    });
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    drop(stream);
    let sent = writing.join().unwrap();
    assert!(sent < 32 << 20, "{sent} bytes were accepted; the limit is {MAX_REQUEST_BYTES}");
}

// Anybody may connect: 600 idle connections do not lock out an honest log.
#[test]
fn idle_connections_do_not_block_the_witness() {
    let (server, tree) = at_ten();
    let mut silent = Vec::new();
    for n in 0..600 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        if n % 2 == 0 {
            let head = "POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: 900\r\n\r\nold";
            stream.write_all(head.as_bytes()).unwrap();
        }
        silent.push(stream);
    }
    assert_eq!(server.post(&tree.body(10, 20)).0, 200);
    // The oldest ones were closed for it; a timeout would have sent a 408.
    let mut rest = Vec::new();
    let closed = silent[0].read_to_end(&mut rest);
    assert!(closed.is_err() || rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    // One of the newest idle connections gets a 408 after the timeout.
    let mut rest = String::new();
    silent[598].read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 408"), "{rest}");
}
