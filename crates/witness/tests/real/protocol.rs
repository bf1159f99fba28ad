//! Every status of C2SP tlog-witness, over real connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use vambrace_ledger::{Digest, KeyKind, Note, Signed, SigningKey};
use vambrace_witness::{MAX_BYTES, Submission};

use crate::given::{ORIGIN, Running, Tree};

/// A witness that has signed size 10.
fn at_ten() -> (Running, Tree) {
    let (running, tree) = (Running::new(), Tree::of("a", 30));
    assert_eq!(running.post(&tree.body(0, 10)).0, 200);
    (running, tree)
}

// B5: the answer of C2SP tlog-witness to each kind of submission
#[test]
fn every_submission_gets_its_status() {
    let (running, tree) = at_ten();
    let other = tree.forked(5, "b");
    let with =
        |old: u64, proof: Vec<Digest>, note: Note| Submission::new(old, proof, note).unwrap().to_string();
    let stranger = SigningKey::new(ORIGIN, KeyKind::Log, &[9; 32]).unwrap();
    let elsewhere = SigningKey::new("vambrace/other", KeyKind::Log, &[1; 32]).unwrap();
    let mut strange = tree.checkpoint(12);
    strange.origin = "vambrace/other".into();
    let cases = [
        ("not a submission", 400, "hello".to_owned()),
        ("no proof lines but garbage", 400, tree.body(10, 12).replacen('\n', "\n!!\n", 1)),
        ("old is larger than new", 400, with(10, vec![], tree.note(9))),
        (
            "a key that nobody named",
            403,
            with(10, tree.proof(10, 12), tree.checkpoint(12).sign(&stranger).unwrap()),
        ),
        ("no signature of a log at all", 403, {
            let eye = SigningKey::new(ORIGIN, KeyKind::Witness, &[1; 32]).unwrap();
            let at = vambrace_ledger::Timestamp::from_millis(0);
            with(10, tree.proof(10, 12), Note::new(tree.note(12).text()).unwrap().cosign(&eye, at))
        }),
        ("a log that nobody named", 404, with(0, vec![], strange.sign(&elsewhere).unwrap())),
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
        let answer = running.post(&body);
        assert_eq!(answer.0, status, "{name}: {answer:?}");
        let size = if name.starts_with("what") { "12\n" } else { "10\n" };
        if status == 409 {
            assert_eq!((answer.1.as_str(), answer.2.as_str()), ("text/x.tlog.size", size), "{name}");
        }
    }
}

#[test]
fn the_answer_is_a_signature_of_what_was_sent_at_the_time_of_the_witness() {
    let (running, tree) = at_ten();
    running.clock.pass(7);
    let (_, _, line) = running.post(&tree.body(10, 20));
    let signed = tree.note(20).add_lines(&line).unwrap();
    let noon = u64::try_from(crate::given::NOON).unwrap();
    assert_eq!(signed.signed_by(&running.key), Signed::Yes(Some(noon + 7)));
    assert!(line.starts_with("\u{2014} eye.example/w ") && line.ends_with('\n'), "{line}");
}

#[test]
fn an_empty_log_has_one_root_only() {
    let (running, tree) = (Running::new(), Tree::of("a", 3));
    let mut false_empty = tree.checkpoint(0);
    assert_eq!(running.post(&tree.body(0, 0)).0, 200);
    false_empty.root = Digest::ZERO;
    let note = false_empty.sign(&crate::given::log_key()).unwrap();
    assert_eq!(running.post(&Submission::new(0, vec![], note).unwrap().to_string()).0, 409);
    let proof = vec![Digest::ZERO];
    assert_eq!(running.post(&Submission::new(0, proof, tree.note(3)).unwrap().to_string()).0, 422);
    assert_eq!(running.post(&tree.body(0, 3)).0, 200);
}

#[test]
fn other_paths_and_methods_are_not_served() {
    let running = Running::new();
    let ask = |line: &str| running.raw(&format!("{line} HTTP/1.1\r\nhost: w\r\nconnection: close\r\n\r\n"));
    assert_eq!(ask("GET /healthz").0, 200);
    assert_eq!(ask("GET /").2.trim(), running.key.to_string());
    assert_eq!(ask("GET /add-checkpoint").0, 405);
    assert_eq!(ask("POST /").0, 405);
    assert_eq!(ask("GET /../etc/passwd").0, 404);
    assert_eq!(ask("POST /add-checkpoint/").0, 404);
}

#[test]
fn a_body_that_is_too_long_is_not_read() {
    let running = Running::new();
    let mut stream = TcpStream::connect(running.address).unwrap();
    let head = "POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The other end answers and closes while this one still sends.
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
    assert!(sent < 32 << 20, "{sent} bytes went through; {MAX_BYTES} are read");
}

// Anybody may connect: 600 connections that say nothing do not keep an honest log out.
#[test]
fn silent_connections_do_not_hold_the_witness() {
    let (running, tree) = at_ten();
    let mut silent = Vec::new();
    for n in 0..600 {
        let mut stream = TcpStream::connect(running.address).unwrap();
        if n % 2 == 0 {
            let head = "POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: 900\r\n\r\nold";
            stream.write_all(head.as_bytes()).unwrap();
        }
        silent.push(stream);
    }
    assert_eq!(running.post(&tree.body(10, 20)).0, 200);
    // The oldest ones were sent away for it, not waited for: that would have ended with a 408.
    let mut rest = Vec::new();
    let closed = silent[0].read_to_end(&mut rest);
    assert!(closed.is_err() || rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    // Of the newest, one that stays silent gets its answer when its time is over.
    let mut rest = String::new();
    silent[598].read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 408"), "{rest}");
}
