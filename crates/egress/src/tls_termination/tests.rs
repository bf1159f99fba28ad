//! Program, gate and server in one process, over real sockets and real TLS.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::event::{EgressLog, Traffic};
use crate::relay::{TrafficCaps, TrafficMeter};

const VALUE: &str = "ghp_realsecretvalue0123456789";
/// A secret of another scope, which no host is given.
const OTHER: &str = "another-known-secret-value";
/// At this marker the program reads something before it goes on.
const PAUSE: &str = "\0";
const HELD: &str = "vambrace-placeholder-GH_TOKEN-00ff";

fn credential() -> Credential {
    Credential::new("Authorization", HELD.to_owned(), &SecretBytes::from(VALUE)).unwrap()
}

fn entry(methods: &[&str], paths: &[&str], credential: Option<Credential>) -> TerminatedHosts {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    TerminatedHosts::new(&["good.example:*".to_owned()], owned(methods), owned(paths), credential).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(listener.accept(), far);
    (near.unwrap().0, far.unwrap())
}

/// The outcome of one connection.
#[derive(Debug)]
struct SessionOutcome {
    /// What the program received.
    heard: String,
    /// The same as bytes.
    bytes: Vec<u8>,
    /// Whether the TLS stream ended with close_notify.
    ended: bool,
    /// What the server received.
    saw: String,
    done: Result<(), NetworkReason>,
    events: Vec<String>,
}

/// One connection: the program sends these requests, the server answers the first head with these pieces.
async fn run(entry: TerminatedHosts, said: &str, pieces: Vec<Vec<u8>>) -> SessionOutcome {
    run_as(entry, said, pieces, &[b"http/1.1"], "good.example").await
}

fn known() -> Vec<KnownValue> {
    vec![KnownValue { kind: "other".to_owned(), value: SecretBytes::from(OTHER) }]
}

async fn run_as(
    entry: TerminatedHosts,
    said: &str,
    pieces: Vec<Vec<u8>>,
    alpn: &[&[u8]],
    server_name: &str,
) -> SessionOutcome {
    run_with(entry, said.as_bytes(), pieces, alpn, server_name, &known()).await
}

async fn run_with(
    entry: TerminatedHosts,
    said: &[u8],
    pieces: Vec<Vec<u8>>,
    alpn: &[&[u8]],
    server_name: &str,
    further: &[KnownValue],
) -> SessionOutcome {
    let made = vambrace_selfsigned::for_names(&[server_name]);
    let mut config = made.config;
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let trust = Arc::new(TrustedRoots::with_pem(made.pem.as_bytes()).unwrap());
    let termination = TlsTermination::new(vec![entry], trust, further, &[7; 32]).unwrap();
    let ((near, program), (out, server)) = (pair().await, pair().await);
    let saw: Arc<Mutex<Vec<u8>>> = Arc::default();
    let kept = Arc::clone(&saw);
    let serving = tokio::spawn(async move {
        let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(server).await else { return };
        let mut piece = [0; 4096];
        while let Ok(read) = stream.read(&mut piece).await {
            if read == 0 {
                return;
            }
            let first = kept.lock().is_empty();
            kept.lock().extend_from_slice(&piece[..read]);
            if first {
                for piece in &pieces {
                    let _ = stream.write_all(piece).await;
                    let _ = stream.flush().await;
                    tokio::task::yield_now().await;
                }
                if pieces.last().is_some_and(|last| last.is_empty()) {
                    // It goes on reading: closing with unread bytes would reset the connection and lose the response.
                    let _ = stream.shutdown().await;
                }
            }
        }
    });
    let mut client = (*TrustedRoots::with_pem(termination.certificate_bundle().as_bytes())
        .unwrap()
        .client_tls_config()
        .unwrap())
    .clone();
    client.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let said = said.to_owned();
    let speaking = tokio::spawn(async move {
        let name = ServerName::try_from("good.example").unwrap();
        let mut heard = Vec::new();
        if let Ok(mut stream) = TlsConnector::from(Arc::new(client)).connect(name, program).await {
            for (at, part) in said.split(|byte| *byte == PAUSE.as_bytes()[0]).enumerate() {
                if at > 0 {
                    let _ = stream.read_buf(&mut heard).await;
                }
                let _ = stream.write_all(part).await;
            }
            let ended = stream.read_to_end(&mut heard).await.is_ok();
            return (heard, ended);
        }
        (heard, false)
    });
    let (log, traffic, meter) =
        (Arc::new(EgressLog::new()), Traffic::default(), TrafficMeter::new(TrafficCaps::default()));
    let host = HostName::parse("good.example").unwrap();
    let session = TerminatedSession {
        entry: termination.entry_for_host(&host, 443).unwrap(),
        termination: &termination,
        client: &near,
        server: &out,
        host: &host,
        port: 443,
        meter: &meter,
        traffic: &traffic,
        log: &log,
    };
    let done = session.run(Vec::new()).await;
    drop((near, out));
    let (bytes, ended) = speaking.await.unwrap();
    let heard = String::from_utf8_lossy(&bytes).into_owned();
    serving.await.unwrap();
    assert!(done.is_err() || traffic.received.load(Ordering::Relaxed) > 0);
    let events =
        log.read().0.iter().map(|event| format!("{} {}", event.attempted(), event.verdict())).collect();
    let saw = String::from_utf8_lossy(&saw.lock()).into_owned();
    SessionOutcome { heard, bytes, ended, saw, done, events }
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n{more}\r\n")
}

fn answer(body: &str) -> Vec<Vec<u8>> {
    vec![format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()]
}

/// The decoded content of a chunked response.
fn content(heard: &str) -> String {
    let (_, body) = heard.split_once("\r\n\r\n").unwrap();
    let mut content = Vec::new();
    crate::http::ChunkedDecoder::default().read(body.as_bytes(), &mut content).unwrap();
    String::from_utf8(content).unwrap()
}

// P5
#[tokio::test]
async fn credential_is_sent_to_the_server_and_never_to_the_program() {
    let said = get(
        "/x",
        &format!("Authorization: Bearer {HELD}\r\nX-Other: {HELD}\r\nAccept-Encoding: gzip, br\r\n"),
    );
    let echo = format!(
        "you sent {VALUE} and {}!",
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, VALUE)
    );
    let mut pieces = answer(&echo);
    pieces[0] = String::from_utf8(pieces[0].clone())
        .unwrap()
        .replace("200 OK\r\n", &format!("200 OK\r\nX-Echo: token={VALUE}\r\n"))
        .into_bytes();
    let ran = run(entry(&[], &[], Some(credential())), &said, pieces).await;
    assert!(ran.done.is_ok(), "{ran:?}");
    assert!(ran.saw.contains(&format!("Authorization: Bearer {VALUE}\r\n")), "{}", ran.saw);
    // Only in the configured header.
    assert!(ran.saw.contains(&format!("X-Other: {HELD}\r\n")), "{}", ran.saw);
    assert!(ran.saw.contains("Accept-Encoding: identity\r\n") && !ran.saw.contains("gzip"), "{}", ran.saw);
    assert!(ran.heard.starts_with("HTTP/1.1 200 OK\r\n") && ran.heard.contains("you sent "), "{}", ran.heard);
    assert!(!ran.heard.contains(VALUE) && !ran.heard.contains("Z2hwX3JlYWxzZWNyZXR2"), "{}", ran.heard);
    assert_eq!(ran.events, ["credential good.example:443 allowed"]);
}

// P5: Basic authentication, as git uses it
#[tokio::test]
async fn credential_is_inserted_into_basic_authentication() {
    let pack = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let said = get("/x", &format!("authorization: Basic {}\r\n", pack(format!("user:{HELD}"))));
    let ran = run(entry(&[], &[], Some(credential())), &said, answer("ok")).await;
    assert!(ran.saw.contains(&format!("Basic {}\r\n", pack(format!("user:{VALUE}")))), "{ran:?}");
}

// P5: across chunk boundaries
#[tokio::test]
async fn credential_is_redacted_wherever_the_response_is_split() {
    for at in [1, 7, VALUE.len() / 2, VALUE.len() - 1] {
        let (one, two) = VALUE.split_at(at);
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n".to_vec();
        let pieces = vec![
            head,
            chunk(&format!("before {one}")),
            chunk(&format!("{two} after")),
            format!("0\r\nX-T: {VALUE}\r\n\r\n").into_bytes(),
        ];
        let ran = run(entry(&[], &[], Some(credential())), &get("/", ""), pieces).await;
        assert!(ran.done.is_ok() && !ran.heard.contains(VALUE), "{ran:?}");
        let content = content(&ran.heard);
        assert!(content.starts_with("before [REDACTED") && content.ends_with("] after"), "{content}");
    }
    // Without a length, up to the end of the connection.
    let pieces = vec![format!("HTTP/1.1 200 OK\r\n\r\nx{VALUE}").into_bytes(), Vec::new()];
    let ran = run(entry(&[], &[], Some(credential())), &get("/", ""), pieces).await;
    assert!(ran.done.is_ok() && !ran.heard.contains(VALUE) && ran.heard.contains("REDACTED"), "{ran:?}");
}

// P5: from every host, whatever credential it was given
#[tokio::test]
async fn secrets_of_other_scopes_are_redacted_too() {
    for own in [None, Some(credential())] {
        let mut pieces = answer(&format!("say {OTHER} and {VALUE}"));
        pieces[0].splice(17..17, format!("X-Echo: {OTHER}\r\n").into_bytes());
        let is_given = own.is_some();
        let ran = run(entry(&[], &[], own), &get("/", ""), pieces).await;
        assert!(ran.done.is_ok() && !ran.heard.contains(OTHER) && ran.heard.contains("X-Echo"), "{ran:?}");
        assert_eq!(ran.heard.contains(VALUE), !is_given, "{ran:?}");
    }
}

// P3: a response that arrives before the end of a long upload reaches the program
#[tokio::test]
async fn request_body_and_response_are_relayed_concurrently() {
    let head = "POST /x HTTP/1.1\r\nHost: good.example\r\nContent-Length: 10\r\n";
    let said = format!("{head}Connection: close\r\n\r\nabcde{PAUSE}fghij");
    let limit = std::time::Duration::from_secs(20);
    let ran = run(entry(&[], &[], Some(credential())), &said, answer("early"));
    let ran = tokio::time::timeout(limit, ran).await.unwrap();
    assert!(ran.done.is_ok() && ran.saw.ends_with("abcdefghij"), "{ran:?}");
    assert_eq!(content(&ran.heard), "early");
    // A server that closes after its response does not get the rest, and the next request is not parsed as part of the body.
    let pieces = vec![b"HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno".to_vec()];
    let said = format!("{head}\r\nabcde{PAUSE}");
    let ran = tokio::time::timeout(limit, run(entry(&[], &[], None), &said, pieces)).await.unwrap();
    assert!(ran.done.is_ok() && ran.heard.starts_with("HTTP/1.1 413 Large") && content(&ran.heard) == "no");
}

// P5: other content stays as it is
#[tokio::test]
async fn content_without_the_credential_is_unchanged() {
    let body = r#"{"password": "hunter2hunter2", "access_token": "abcdefghijklmnopqrstuvwxyz0123456789"}"#;
    let ran = run(entry(&[], &[], Some(credential())), &get("/", ""), answer(body)).await;
    assert_eq!(content(&ran.heard), body);
}

// P5
#[tokio::test]
async fn response_that_cannot_be_redacted_is_denied() {
    let packed = |coding: &str| {
        vec![
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\nxx")
                .into_bytes(),
        ]
    };
    for pieces in [
        packed("br"),
        packed("zstd"),
        packed("identity, br"),
        packed("gzip, gzip"),
        vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()],
        vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nxxx".to_vec()],
        vec![b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_vec()],
        vec![b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_vec()],
        vec![b"SSH-2.0-nonsense\r\n".to_vec()],
    ] {
        let ran = run(entry(&[], &[], Some(credential())), &get("/", ""), pieces).await;
        assert!(matches!(ran.done, Err(NetworkReason::NotUnderstood(_))), "{ran:?}");
        assert!(ran.heard.starts_with("HTTP/1.1 403 ") && ran.heard.contains("X-Vambrace-Denied"), "{ran:?}");
    }
    // Also where this server has no credential: others have one.
    let ran = run(entry(&[], &[], None), &get("/", ""), packed("br")).await;
    assert!(ran.done.is_err(), "{ran:?}");
    // Without known values, or without a body, there is nothing to redact.
    let said = get("/", "").into_bytes();
    let ran = run_with(entry(&[], &[], None), &said, packed("br"), &[b"http/1.1"], "good.example", &[]).await;
    assert!(ran.done.is_ok() && ran.heard.contains("Content-Encoding: br"), "{ran:?}");
    let head = vec![b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n".to_vec()];
    let ran = run(entry(&[], &[], Some(credential())), &get("/", "").replace("GET", "HEAD"), head).await;
    assert!(ran.done.is_ok() && ran.heard.contains("Content-Length: 2"), "{ran:?}");
}

// P5: a server that compresses although `identity` is requested
#[tokio::test]
async fn compressed_response_is_decompressed_and_redacted() {
    use std::io::Write as _;
    let plain = format!("before {OTHER} after").repeat(2000);
    let level = flate2::Compression::default();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
    gzip.write_all(plain.as_bytes()).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
    zlib.write_all(plain.as_bytes()).unwrap();
    for (coding, packed) in [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap())] {
        let answer = |end: usize| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
                packed[..end].len()
            );
            vec![head.into_bytes(), packed[..end / 2].to_vec(), packed[end / 2..end].to_vec()]
        };
        let ran = run(entry(&[], &[], None), &get("/", ""), answer(packed.len())).await;
        let words = content(&ran.heard);
        assert!(ran.done.is_ok() && !ran.heard.contains("Content-Encoding"), "{coding}: {:?}", ran.done);
        assert!(!words.contains(OTHER) && words.matches(" after").count() == 2000, "{coding}");
        // A truncated compressed body must not look complete.
        let ran = run(entry(&[], &[], None), &get("/", ""), answer(packed.len() - 9)).await;
        assert!(
            matches!(ran.done, Err(NetworkReason::NotUnderstood(_))) && !ran.ended,
            "{coding}: {:?}",
            ran.done
        );
        assert!(!ran.heard.contains("0\r\n\r\n"), "{coding}");
        let nothing = "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        let nothing =
            vec![format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n{nothing}").into_bytes()];
        let ran = run(entry(&[], &[], None), &get("/", ""), nothing).await;
        assert!(ran.done.is_ok() && content(&ran.heard).is_empty(), "{coding}: {ran:?}");
    }
}

// P3: HTTP/1.0 clients
#[tokio::test]
async fn http_1_0_request_is_checked_and_its_response_ends_with_the_connection() {
    let old = |path: &str, more: &str| format!("GET {path} HTTP/1.0\r\n{more}\r\n");
    let limits = || entry(&["GET"], &["/v1/*"], Some(credential()));
    let (one, two) = VALUE.split_at(2);
    let chunks = vec![
        b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec(),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\n {one}\r\n")
            .into_bytes(),
        format!("{:x}\r\n{two}!\r\n0\r\n\r\n", two.len() + 1).into_bytes(),
    ];
    let ran = run_as(limits(), &old("/v1/x", ""), chunks, &[b"http/1.0"], "good.example").await;
    assert!(ran.done.is_ok() && ran.ended, "{ran:?}");
    assert!(ran.saw.starts_with("GET /v1/x HTTP/1.1\r\nHost: good.example\r\n"), "{ran:?}");
    let (head, body) = ran.heard.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("Connection: close"), "{head}");
    assert!(!head.contains("Transfer-Encoding") && body.starts_with("hello [REDACTED"), "{ran:?}");
    assert!(body.ends_with("]!"), "{ran:?}");
    // A response that is delimited by the connection and was cut must not look complete.
    let cut = vec![b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec(), Vec::new()];
    let ran = run(limits(), &old("/v1/x", "Connection: keep-alive\r\n"), cut).await;
    assert!(ran.done.is_err() && !ran.ended && !ran.heard.contains("403"), "{ran:?}");
    for (said, denied) in [
        (old("/v2/x", ""), "request_not_allowed"),
        (old("/v1/x", "Host: evil.example\r\n"), "name_mismatch"),
        (old("/v1/x", "Transfer-Encoding: chunked\r\n"), "not_understood"),
        (old("/v1/x", "Upgrade: websocket\r\n"), "not_understood"),
    ] {
        let ran = run(limits(), &said, answer("never")).await;
        assert_eq!(ran.done.as_ref().map_err(NetworkReason::code), Err(denied), "{said:?}: {ran:?}");
        assert!(ran.saw.is_empty() && ran.heard.starts_with("HTTP/1.1 403 "), "{said:?}: {ran:?}");
    }
}

const ASKS: &str = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const AGREES: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

fn asks(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: good.example\r\n{ASKS}{more}\r\n")
}

/// A server's frame; with a mask, a program's frame. The mask keeps the pause marker out of the bytes.
fn frame(first: u8, content: &[u8], mask: Option<u8>) -> Vec<u8> {
    let masked = |byte: &u8| byte ^ mask.unwrap_or(0);
    let head = [first, content.len() as u8 | if mask.is_some() { 0x80 } else { 0 }];
    let keys = mask.map_or(Vec::new(), |mask| vec![mask; 4]);
    [&head[..], &keys, &content.iter().map(masked).collect::<Vec<_>>()].concat()
}

// P3, P5: WebSocket inside terminated TLS
#[tokio::test]
async fn websocket_frames_are_relayed_and_redacted_after_an_allowed_upgrade() {
    let more = format!("Authorization: {HELD}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n");
    let hello = frame(0x81, b"hello server", Some(0x11));
    let said = [asks("/v1/ws", &more).as_bytes(), PAUSE.as_bytes(), &hello].concat();
    let (one, two) = VALUE.split_at(9);
    let pieces = vec![
        format!("{AGREES}\r\n").into_bytes(),
        frame(0x01, format!("you are {one}").as_bytes(), None),
        frame(0x89, format!("ping {VALUE}").as_bytes(), None),
        frame(0x80, format!("{two}.").as_bytes(), None),
        frame(0x82, &[7; 100], None),
        frame(0x88, format!("\x03\x64{OTHER}").as_bytes(), None),
        Vec::new(),
    ];
    let limits = entry(&["GET"], &["/v1/*"], Some(credential()));
    let ran = run_with(limits, &said, pieces, &[b"http/1.1"], "good.example", &known()).await;
    assert!(ran.done.is_ok(), "{ran:?}");
    assert!(ran.saw.contains(&format!("Authorization: {VALUE}\r\n")), "{ran:?}");
    assert!(!ran.saw.contains("permessage") && ran.saw.contains("Connection: Upgrade\r\n"), "{ran:?}");
    assert!(
        ran.heard.starts_with("HTTP/1.1 101 ") && ran.heard.contains("Upgrade: websocket\r\n"),
        "{ran:?}"
    );
    assert!(!ran.heard.contains(VALUE) && !ran.heard.contains(OTHER) && !ran.heard.contains(two), "{ran:?}");
    // The output is valid frames: one text message, with the control frame between its parts.
    let at = ran.bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    let (mut rest, mut words, mut others) = (&ran.bytes[at..], Vec::new(), Vec::new());
    while let [first, length, after @ ..] = rest {
        let (content, next) = after.split_at(usize::from(*length));
        match first & 15 {
            0 | 1 => words.extend_from_slice(content),
            _ => others.push((*first, content.to_vec())),
        }
        rest = next;
    }
    let words = String::from_utf8(words).unwrap();
    assert!(words.starts_with("you are [REDACTED:credential:") && words.ends_with("]."), "{words}");
    assert_eq!(others, [(0x89, Vec::new()), (0x82, vec![7; 100]), (0x88, vec![3, 0x64])]);
}

// P3: only a valid WebSocket upgrade that the server accepts changes the protocol
#[tokio::test]
async fn upgrades_other_than_websocket_are_denied_inside_terminated_tls() {
    let limits = || entry(&["GET"], &["/v1/*"], None);
    let whole = asks("/v1/ws", "");
    for said in [
        whole.replace("Upgrade: websocket", "Upgrade: h2c"),
        whole.replace("Upgrade: websocket", "Upgrade: websocket, foo"),
        whole.replace("Upgrade: websocket", "Upgrade: foo\r\nUpgrade: websocket"),
        whole.replace("keep-alive, Upgrade", "keep-alive"),
        whole.replace("Version: 13", "Version: 8"),
        whole.replace("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        whole.replace("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        whole.replace("Version: 13", "Version: 13\r\nContent-Length: 4"),
        whole.replace("/v1/ws", "/v2/ws"),
    ] {
        let ran = run(limits(), &said, vec![format!("{AGREES}\r\n").into_bytes()]).await;
        assert!(ran.done.is_err() && ran.saw.is_empty() && ran.heard.starts_with("HTTP/1.1 403 "), "{ran:?}");
    }
    for answer in [
        AGREES.replace("s3pP", "S3PP"),
        AGREES.replace("Sec-WebSocket-Accept", "X"),
        AGREES.replace("Upgrade: WebSocket", "Upgrade: h2c"),
        format!("{AGREES}Sec-WebSocket-Extensions: permessage-deflate\r\n"),
        format!("{AGREES}Sec-WebSocket-Accept: x\r\n"),
    ] {
        let ran = run(limits(), &whole, vec![format!("{answer}\r\n").into_bytes()]).await;
        assert!(ran.done.is_err() && ran.heard.starts_with("HTTP/1.1 403 "), "{answer}: {ran:?}");
    }
    // Where the server does not accept the upgrade, the next bytes are checked as HTTP.
    let said = [&whole, PAUSE, &get("/v2/admin", "")].concat();
    let ran = run(limits(), &said, answer("no")).await;
    assert!(
        matches!(ran.done, Err(NetworkReason::RequestNotAllowed(_))) && !ran.saw.contains("admin"),
        "{ran:?}"
    );
    // Bytes that are not a frame do not reach a server that accepted the upgrade.
    let said = [&whole, PAUSE, &get("/v2/admin", "")].concat();
    let ran = run(limits(), &said, vec![format!("{AGREES}\r\n").into_bytes()]).await;
    assert!(
        matches!(ran.done, Err(NetworkReason::NotUnderstood(_))) && !ran.saw.contains("admin"),
        "{ran:?}"
    );
    assert!(ran.bytes.ends_with(&[0x88, 2, 0x03, 0xf0]), "{ran:?}");
}

// P3
#[tokio::test]
async fn methods_and_paths_are_checked() {
    let limits = || entry(&["GET", "HEAD"], &["/v1/*"], None);
    let ran = run(limits(), &get("/v1/users?x=1", ""), answer("ok")).await;
    assert!(
        ran.done.is_ok() && content(&ran.heard) == "ok" && ran.saw.starts_with("GET /v1/users?x=1 "),
        "{ran:?}"
    );
    for (said, denied) in [
        (get("/v2/users", ""), "request_not_allowed"),
        (get("/v1/../v2/users", ""), "not_understood"),
        (get("/v1/%2e%2e/v2", ""), "not_understood"),
        (get("//v1/x", ""), "not_understood"),
        (get("http://good.example/v1/x", ""), "not_understood"),
        (get("https://good.example/v1/x", ""), "not_understood"),
        (get("/v1/x", "").replace("GET", "DELETE"), "request_not_allowed"),
        (get("/v1/x", "").replace("GET", "get"), "request_not_allowed"),
        (get("/v1/x", "").replace("Host: good", "Host: evil"), "name_mismatch"),
        (get("/v1/x", "").replace("good.example\r", "good.example:8443\r"), "name_mismatch"),
        (get("/v1/x", "Host: good.example\r\n"), "not_understood"),
        (get("/v1/x", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "not_understood"),
        (get("/v1/x", "Content-Length: 1\r\nContent-Length: 1\r\n"), "not_understood"),
        (get("/v1/x", "Transfer-Encoding: xchunked\r\n"), "not_understood"),
        (get("/v1/x", "Upgrade: websocket\r\n"), "not_understood"),
        (get("/v1/x", "X-HTTP-Method-Override: DELETE\r\n"), "request_not_allowed"),
        (get("/v1/x", "x-http-method: DELETE\r\n"), "request_not_allowed"),
        (get("/v1/x", "X_HTTP_METHOD_OVERRIDE: DELETE\r\n"), "request_not_allowed"),
        (get("/v1/x", "X-Original-URL: /v2/admin\r\n"), "request_not_allowed"),
        (get("/v1/x", "X-Rewrite-Url: /v2/admin\r\n"), "request_not_allowed"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "not_understood"),
    ] {
        let ran = run(limits(), &said, answer("never")).await;
        assert_eq!(ran.done.as_ref().map_err(NetworkReason::code), Err(denied), "{said:?}: {ran:?}");
        assert!(ran.saw.is_empty() && ran.heard.starts_with("HTTP/1.1 403 "), "{said:?}: {ran:?}");
    }
}

// P3: without limits on methods and paths there is nothing to override
#[tokio::test]
async fn method_and_path_override_headers_pass_where_everything_is_allowed() {
    let said = get("/v1/x", "X-HTTP-Method-Override: PATCH\r\nX-Original-URL: /v1/y\r\n");
    let ran = run(entry(&[], &[], None), &said, answer("ok")).await;
    assert!(ran.done.is_ok() && ran.saw.contains("Override: PATCH") && ran.saw.contains("/v1/y"), "{ran:?}");
}

// P5: the redactor would not find a part of the credential
#[tokio::test]
async fn range_headers_are_removed_where_a_credential_is_sent() {
    let more = format!("Authorization: {HELD}\r\nRange: bytes=10-14\r\nIf-Range: \"x\"\r\n");
    let ran = run(entry(&[], &[], Some(credential())), &get("/", &more), answer("ok")).await;
    assert!(ran.saw.contains(VALUE) && !ran.saw.to_ascii_lowercase().contains("range:"), "{ran:?}");
    let ran = run(entry(&[], &[], None), &get("/", "Range: bytes=10-14\r\n"), answer("ok")).await;
    assert!(ran.saw.contains("Range: bytes=10-14\r\n"), "{ran:?}");
}

// P3: a request cannot hide behind a body
#[tokio::test]
async fn second_request_is_checked_like_the_first() {
    let first = "POST /v1/x HTTP/1.1\r\nHost: good.example\r\nContent-Length: 4\r\n\r\nabcd";
    let second = get("/v2/hidden", "");
    let ran = run(entry(&[], &["/v1/*"], None), &format!("{first}{second}"), answer("ok")).await;
    assert!(matches!(ran.done, Err(NetworkReason::RequestNotAllowed(_))), "{ran:?}");
    assert!(ran.saw.ends_with("\r\n\r\nabcd") && ran.heard.contains("ok"), "{ran:?}");
}

// P3
#[tokio::test]
async fn http_2_is_not_offered_and_a_wrong_certificate_is_rejected() {
    let ran = run_as(entry(&[], &[], None), &get("/", ""), answer("ok"), &[b"h2"], "good.example").await;
    assert!(ran.done.is_err() && ran.saw.is_empty() && ran.heard.is_empty(), "{ran:?}");
    let ran =
        run_as(entry(&[], &[], None), &get("/", ""), answer("ok"), &[b"http/1.1"], "other.example").await;
    assert!(matches!(ran.done, Err(NetworkReason::Unreachable(_))) && ran.saw.is_empty(), "{ran:?}");
}

// P5
#[test]
fn credentials_that_could_not_be_redacted_are_rejected() {
    let make =
        |header: &str, value: &str| Credential::new(header, HELD.to_owned(), &SecretBytes::from(value));
    assert!(matches!(make("Authorization", "abc"), Err(BadTermination::Value(_))));
    for (header, value) in
        [("Bad Header", VALUE), ("", VALUE), ("X", "line\r\nEvil: yes"), ("X", ""), ("X", "é-secret-value")]
    {
        assert!(matches!(make(header, value), Err(BadTermination::Header(_))), "{header} {value}");
    }
    assert!(make("X-Key", &format!("{VALUE}\n")).is_ok());
    assert!(!format!("{:?}", credential()).contains(VALUE));
}

// P3: another port does not bypass the checks
#[test]
fn host_without_a_port_is_terminated_on_every_port() {
    let made = |hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let entry = TerminatedHosts::new(&hosts, Vec::new(), Vec::new(), None).unwrap();
        TlsTermination::new(vec![entry], Arc::default(), &[], &[7; 32]).unwrap()
    };
    let host = HostName::parse("api.good.example").unwrap();
    for port in [80, 443, 8443, 22] {
        assert!(made(&["api.good.example"]).entry_for_host(&host, port).is_some(), "{port}");
        assert!(made(&["*.good.example"]).entry_for_host(&host, port).is_some(), "{port}");
        assert_eq!(made(&["api.good.example:443"]).entry_for_host(&host, port).is_some(), port == 443);
    }
}

// P3: a literal address does not bypass the checks
#[test]
fn literal_address_is_denied_on_terminated_ports_unless_a_rule_names_it() {
    let entry = |host: &str| TerminatedHosts::new(&[host.to_owned()], Vec::new(), Vec::new(), None).unwrap();
    let reach = |texts: &[&str]| NetworkFence::from(NetworkRules::parse(texts.iter().copied()).unwrap());
    let address = Destination::Address("93.184.216.34".parse().unwrap());
    let around =
        |host: &str, texts: &[&str]| bypasses_termination(&[entry(host)], &reach(texts), &address, 443);
    assert!(around("good.example", &["allow"]) && around("good.example:443", &["allow"]));
    assert!(around("good.example", &["allow", "93.184.216.34:80"]));
    assert!(!around("good.example:8443", &["allow"]));
    assert!(!around("good.example", &["allow", "93.184.216.34"]) && !around("good.example", &["0.0.0.0/0"]));
    assert!(!bypasses_termination(&[], &reach(&["allow"]), &address, 443));
    let name = Destination::Name(HostName::parse("good.example").unwrap());
    assert!(!bypasses_termination(&[entry("good.example")], &reach(&["allow"]), &name, 443));
    // One list that names it is enough if the others allow it.
    let mut both = reach(&["allow"]);
    both.meet(&reach(&["93.184.216.0/24"]));
    assert!(!bypasses_termination(&[entry("good.example")], &both, &address, 443));
    // The addresses of all hosts below a wildcard are unknown: a rule must name exactly this address.
    assert!(
        around("*.good.example", &["93.184.216.0/24"]) && around("*.good.example", &["93.184.216.34:80"])
    );
    assert!(
        !around("*.good.example", &["93.184.216.34"]) && !around("*.good.example:8443", &["93.184.216.0/24"])
    );
}

// P5
#[test]
fn placeholder_for_another_host_is_detected() {
    let termination =
        TlsTermination::new(vec![entry(&[], &[], Some(credential()))], Arc::default(), &[], &[7; 32])
            .unwrap();
    let host = |name: &str| HostName::parse(name).unwrap();
    let own = termination.entry_for_host(&host("good.example"), 443);
    assert!(own.is_some() && termination.entry_for_host(&host("evil.example"), 443).is_none());
    let packed = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("u:{HELD}"));
    for head in [
        format!("GET /?t={HELD} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nAuthorization: Basic {packed}\r\n\r\n"),
    ] {
        assert!(termination.has_foreign_placeholder(head.as_bytes(), None), "{head}");
        assert!(!termination.has_foreign_placeholder(head.as_bytes(), own), "{head}");
    }
    assert!(!termination.has_foreign_placeholder(b"GET / HTTP/1.1\r\n\r\n", None));
}
