//! A witness that is dead, slow, malformed or lying does not hang the client, exhaust its memory, or hide a rollback. The
//! servers never give up, so a client that returns at all proves its time limit.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use tokio_rustls::TlsAcceptor;
use vambrace_ledger::{KeyKind, SigningKey, Timestamp, VerifyKey};
use vambrace_witness::{BadWitness, SubmitOutcome, WitnessClient};

use crate::client::TestLog;
use crate::fixtures::{ManualClock, NOON, Tree};

fn witness_key() -> SigningKey {
    SigningKey::new("witness.example/w", KeyKind::Witness, &[2; 32]).unwrap()
}

/// A server that runs `treat` for each connection, until the test ends.
fn serving(treat: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let treat = Arc::new(treat);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let treat = Arc::clone(&treat);
            thread::spawn(move || treat(stream));
        }
    });
    address
}

/// A server that reads a request and sends these bytes.
fn saying(words: impl Into<Vec<u8>>) -> SocketAddr {
    let words = words.into();
    serving(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&words);
    })
}

fn answering(status: &str, body: &str) -> SocketAddr {
    saying(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()))
}

fn ask(address: SocketAddr) -> SubmitOutcome {
    let key: VerifyKey = witness_key().verify_key();
    let client = WitnessClient::new(&format!("http://{address}"), key, ManualClock::at(NOON)).unwrap();
    client.set_acknowledged(5);
    client.submit(&TestLog::of(Tree::of("a", 20), 10)).unwrap()
}

fn unreachable(address: SocketAddr) {
    let outcome = ask(address);
    assert!(matches!(outcome, SubmitOutcome::Unreachable(_)), "{outcome:?}");
}

fn refused(address: SocketAddr) {
    let outcome = ask(address);
    assert!(matches!(outcome, SubmitOutcome::Rejected(_)), "{outcome:?}");
}

// B5
#[test]
fn dead_or_silent_witness_is_unreachable() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    unreachable(gone);
    unreachable(serving(drop));
    // Accepts and never sends anything.
    unreachable(serving(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    }));
}

// B5
#[test]
fn endless_response_is_cut() {
    let endless = |head: &'static str, piece: &'static [u8]| {
        serving(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(head.as_bytes());
            while stream.write_all(piece).is_ok() {}
        })
    };
    unreachable(endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096]));
    unreachable(endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"));
    unreachable(endless("HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n"));
    unreachable(endless("", b"HTTP"));
    unreachable(endless("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", b"x"));
}

// B5: one byte at a time, without long pauses.
#[test]
fn trickling_response_times_out() {
    unreachable(serving(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        // The client closes its end when it gives up; until then the read timeout is the pause between bytes.
        let _ = stream.set_read_timeout(Some(std::time::Duration::from_millis(100)));
        loop {
            if stream.write_all(b"x").is_err() || matches!(stream.read(&mut [0; 1]), Ok(0)) {
                break;
            }
        }
    }));
}

// B5
#[test]
fn malformed_responses_are_unreachable_or_rejected() {
    unreachable(saying("SSH-2.0-OpenSSH_9.9\r\n"));
    unreachable(saying([0xff; 64]));
    unreachable(saying("HTTP/1.1 999999 OK\r\n\r\n"));
    refused(answering("200 OK", ""));
    refused(answering("200 OK", "\u{2014} witness.example/w AAAA\n"));
    refused(answering("301 Moved", ""));
    refused(answering("500 Internal Server Error", "\u{1b}[2J"));
    refused(answering("409 Conflict", "many\n"));
    refused(answering("409 Conflict", "007\n"));
    refused(answering("409 Conflict", "7"));
    refused(answering("409 Conflict", "5\n"));
    refused(answering("409 Conflict", "99999999999999999999999\n"));
    refused(answering("400 Bad Request", "no"));
    refused(answering("403 Forbidden", "no"));
    refused(answering("404 Not Found", "no"));
}

// B5
#[test]
fn lying_witness_can_only_report_a_rollback() {
    let outcome = ask(answering("409 Conflict", "11\n"));
    assert_eq!(outcome, SubmitOutcome::Rollback { witness_size: 11, size: 10 });
    assert_eq!(ask(answering("422 No", "")), SubmitOutcome::Rollback { witness_size: 5, size: 10 });
    // It returns one size after another, without end.
    let turns = std::sync::atomic::AtomicU64::new(0);
    unreachable(serving(move |mut stream| {
        let size = turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 4;
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(format!("HTTP/1.1 409 C\r\ncontent-length: 2\r\n\r\n{size}\n").as_bytes());
    }));
}

// B5
#[test]
fn signature_of_another_checkpoint_or_key_is_rejected() {
    let noon = Timestamp::from_millis(NOON * 1000);
    let tree = Tree::of("a", 20);
    refused(answering("200 OK", &tree.note(9).cosign(&witness_key(), noon).last_line()));
    refused(answering("200 OK", &tree.forked(3, "b").note(10).cosign(&witness_key(), noon).last_line()));
    let other = SigningKey::new("witness.example/w", KeyKind::Witness, &[3; 32]).unwrap();
    refused(answering("200 OK", &tree.note(10).cosign(&other, noon).last_line()));
    let plain = SigningKey::new("witness.example/w", KeyKind::Log, &[2; 32]).unwrap();
    refused(answering("200 OK", &tree.note(10).sign(&plain).last_line()));
    // The valid signature is found among other lines.
    let lines = [
        tree.note(10).cosign(&other, noon).last_line(),
        tree.note(10).cosign(&witness_key(), noon).last_line(),
        "garbage\n".to_owned(),
    ];
    let outcome = ask(answering("200 OK", &lines.concat()));
    assert!(matches!(&outcome, SubmitOutcome::Cosigned { line, .. } if *line == lines[1]), "{outcome:?}");
}

/// A TLS server with a certificate for this name, which sends `answer` to every request; returns the certificate.
fn tls(name: &str, answer: String) -> (SocketAddr, Vec<u8>) {
    let made = vambrace_selfsigned::for_names(&[name]);
    let (der, acceptor) = (made.der, TlsAcceptor::from(Arc::new(made.config)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
    });
    (address, der)
}

// B5
#[test]
fn https_verifies_the_server_certificate() {
    let line =
        Tree::of("a", 20).note(10).cosign(&witness_key(), Timestamp::from_millis(NOON * 1000)).last_line();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}", line.len());
    let ask = |address: SocketAddr, roots: Vec<Vec<u8>>| {
        let url = format!("https://localhost:{}", address.port());
        let client =
            WitnessClient::trusting(&url, witness_key().verify_key(), ManualClock::at(NOON), roots).unwrap();
        client.submit(&TestLog::of(Tree::of("a", 20), 10)).unwrap()
    };
    let (address, der) = tls("localhost", answer.clone());
    let outcome = ask(address, vec![der.clone()]);
    assert!(matches!(outcome, SubmitOutcome::Cosigned { .. }), "{outcome:?}");
    let (elsewhere, other) = tls("elsewhere.example", answer);
    for (address, roots) in [(address, other.clone()), (elsewhere, other), (elsewhere, der)] {
        let outcome = ask(address, vec![roots]);
        assert!(matches!(&outcome, SubmitOutcome::Unreachable(why) if why.contains("TLS")), "{outcome:?}");
    }
    let none = WitnessClient::trusting(
        "https://localhost",
        witness_key().verify_key(),
        ManualClock::at(NOON),
        vec![],
    );
    assert!(matches!(none, Err(BadWitness::Certificates(_))));
}
