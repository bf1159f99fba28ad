//! A witness that is dead, slow, garbled or a liar does not hang the client, fill its memory, or reassure it.
//! Time limits are seen by that the client gives up at all: the other end never does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use tokio_rustls::TlsAcceptor;
use vambrace_ledger::{KeyKind, SigningKey, Timestamp, VerifyKey};
use vambrace_witness::{BadWitness, Client, Outcome};

use crate::asking::Book;
use crate::given::{NOON, Stopped, Tree};

fn eye() -> SigningKey {
    SigningKey::new("eye.example/w", KeyKind::Witness, &[2; 32]).unwrap()
}

/// A server that treats each connection so, until the test ends.
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

/// A server that reads a request and says this.
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

fn ask(address: SocketAddr) -> Outcome {
    let key: VerifyKey = eye().verify_key();
    let client = Client::new(&format!("http://{address}"), key, Stopped::at(NOON)).unwrap();
    client.recall(5);
    client.submit(&Book::of(Tree::of("a", 20), 10)).unwrap()
}

fn unreachable(address: SocketAddr) {
    let outcome = ask(address);
    assert!(matches!(outcome, Outcome::Unreachable(_)), "{outcome:?}");
}

fn refused(address: SocketAddr) {
    let outcome = ask(address);
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

#[test]
fn a_dead_or_silent_witness_is_unreachable() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    unreachable(gone);
    unreachable(serving(drop));
    // Accepts and never says a word.
    unreachable(serving(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    }));
}

#[test]
fn an_endless_answer_is_not_read_to_its_end() {
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

// One byte at a time, each of them in time.
#[test]
fn a_trickling_answer_is_given_up() {
    unreachable(serving(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        // The client's end closes when it gives up; until then it reads at the pace of the pauses.
        let _ = stream.set_read_timeout(Some(std::time::Duration::from_millis(100)));
        loop {
            if stream.write_all(b"x").is_err() || matches!(stream.read(&mut [0; 1]), Ok(0)) {
                break;
            }
        }
    }));
}

#[test]
fn garbage_is_unreachable_or_refused_and_nothing_else() {
    unreachable(saying("SSH-2.0-OpenSSH_9.9\r\n"));
    unreachable(saying([0xff; 64]));
    unreachable(saying("HTTP/1.1 999999 OK\r\n\r\n"));
    refused(answering("200 OK", ""));
    refused(answering("200 OK", "\u{2014} eye.example/w AAAA\n"));
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

#[test]
fn a_witness_can_stop_us_and_no_more() {
    let outcome = ask(answering("409 Conflict", "11\n"));
    assert_eq!(outcome, Outcome::Rollback { witness_size: 11, size: 10 });
    assert_eq!(ask(answering("422 No", "")), Outcome::Rollback { witness_size: 5, size: 10 });
    // It names one size after another, for ever.
    let turns = std::sync::atomic::AtomicU64::new(0);
    unreachable(serving(move |mut stream| {
        let size = turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 4;
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(format!("HTTP/1.1 409 C\r\ncontent-length: 2\r\n\r\n{size}\n").as_bytes());
    }));
}

#[test]
fn the_signature_of_another_checkpoint_or_of_no_witness_is_not_taken() {
    let noon = Timestamp::from_millis(NOON * 1000);
    let tree = Tree::of("a", 20);
    refused(answering("200 OK", &tree.note(9).cosign(&eye(), noon).last_line()));
    refused(answering("200 OK", &tree.forked(3, "b").note(10).cosign(&eye(), noon).last_line()));
    let other = SigningKey::new("eye.example/w", KeyKind::Witness, &[3; 32]).unwrap();
    refused(answering("200 OK", &tree.note(10).cosign(&other, noon).last_line()));
    let plain = SigningKey::new("eye.example/w", KeyKind::Log, &[2; 32]).unwrap();
    refused(answering("200 OK", &tree.note(10).sign(&plain).last_line()));
    // The right one counts, among lines of others.
    let lines = [
        tree.note(10).cosign(&other, noon).last_line(),
        tree.note(10).cosign(&eye(), noon).last_line(),
        "garbage\n".to_owned(),
    ];
    let outcome = ask(answering("200 OK", &lines.concat()));
    assert!(matches!(&outcome, Outcome::Cosigned { line, .. } if *line == lines[1]), "{outcome:?}");
}

/// A TLS server that answers every request so; its certificate, made for this name.
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

#[test]
fn https_is_spoken_with_whom_the_certificates_name_and_nobody_else() {
    let line = Tree::of("a", 20).note(10).cosign(&eye(), Timestamp::from_millis(NOON * 1000)).last_line();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}", line.len());
    let ask = |address: SocketAddr, roots: Vec<Vec<u8>>| {
        let url = format!("https://localhost:{}", address.port());
        let client = Client::trusting(&url, eye().verify_key(), Stopped::at(NOON), roots).unwrap();
        client.submit(&Book::of(Tree::of("a", 20), 10)).unwrap()
    };
    let (address, der) = tls("localhost", answer.clone());
    let outcome = ask(address, vec![der.clone()]);
    assert!(matches!(outcome, Outcome::Cosigned { .. }), "{outcome:?}");
    let (elsewhere, other) = tls("elsewhere.example", answer);
    for (address, roots) in [(address, other.clone()), (elsewhere, other), (elsewhere, der)] {
        let outcome = ask(address, vec![roots]);
        assert!(matches!(&outcome, Outcome::Unreachable(why) if why.contains("TLS")), "{outcome:?}");
    }
    let none = Client::trusting("https://localhost", eye().verify_key(), Stopped::at(NOON), vec![]);
    assert!(matches!(none, Err(BadWitness::Certificates(_))));
}
