//! Fetches from servers on loopback, which the rules of these tests list explicitly.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use vambrace_core::network::{HostName, NetworkRules};
use vambrace_core::tool::NamePolicy;

use super::*;
use crate::connect::ResolveFuture;
use crate::event::EgressEvent;

/// A resolver with fixed names; records the lookups.
#[derive(Debug, Default)]
struct TestZone(HashMap<&'static str, Vec<&'static str>>, Mutex<Vec<String>>);

impl Resolve for TestZone {
    fn resolve(&self, name: &HostName) -> ResolveFuture {
        self.1.lock().push(name.to_string());
        let found: Option<Vec<IpAddr>> =
            self.0.get(name.as_str()).map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
        Box::pin(async move { found.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// A server that answers each connection with what the function returns for its request.
async fn server<A: Into<Vec<u8>> + Send>(answer: impl Fn(String) -> A + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut held = Vec::new();
            let mut piece = [0; 4096];
            while !held.windows(4).any(|part| part == b"\r\n\r\n") {
                match stream.read(&mut piece).await {
                    Ok(read) if read > 0 => held.extend_from_slice(&piece[..read]),
                    _ => break,
                }
            }
            let answer: Vec<u8> = answer(String::from_utf8(held).unwrap()).into();
            let _ = stream.write_all(&answer).await;
        }
    });
    port
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn to(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

const BOUNDS: FetchLimits = FetchLimits { bytes: 1 << 20, time: Duration::from_secs(20), redirects: 3 };

fn fetcher(rules: &[&str]) -> Fetcher {
    let zone = TestZone(
        HashMap::from([
            ("good.example", vec!["127.0.0.1"]),
            ("other.example", vec!["127.0.0.1"]),
            ("metadata.example", vec!["169.254.169.254"]),
            ("six.example", vec!["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"]),
            ("private.example", vec!["10.0.0.1"]),
        ]),
        Mutex::default(),
    );
    Fetcher {
        reach: NetworkRules::parse(rules.iter().copied()).unwrap().into(),
        hosts: NameFence::default(),
        limits: Arc::default(),
        trust: Arc::default(),
        resolver: Arc::new(zone),
        log: Arc::new(EgressLog::new()),
    }
}

fn get(url: &str) -> FetchRequest {
    FetchRequest {
        method: Method::Get,
        target: FetchUrl::parse(url).unwrap(),
        headers: Vec::new(),
        body: None,
    }
}

fn logged(fetcher: &Fetcher) -> Vec<String> {
    let line = |event: &EgressEvent| {
        let reason = event.reason.as_ref().map(|reason| format!(" {}", reason.code())).unwrap_or_default();
        format!("{} {}{reason}", event.attempted(), event.verdict())
    };
    fetcher.log.read().0.iter().map(line).collect()
}

// S13, P3: a tool cannot send a host what a program cannot
#[tokio::test]
async fn method_and_path_limits_of_a_host_apply_to_fetches() {
    let entry = |host: &str, methods: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        TerminatedHosts::new(&owned(&[host]), owned(methods), owned(&["/v1/*"]), None).unwrap()
    };
    let mut fetcher = fetcher(&["good.example:*", "other.example:*", "127.0.0.1"]);
    fetcher.limits = Arc::new([entry("good.example", &["GET"])]);
    let post = |url| FetchRequest {
        method: Method::Post,
        body: Some(("text/plain".into(), Vec::new())),
        ..get(url)
    };
    for (ask, code) in [
        (get("https://good.example/v2/x"), "request_not_allowed"),
        (get("https://good.example:8443/admin"), "request_not_allowed"),
        (get("https://good.example/v1/..%2fadmin"), "not_understood"),
        (post("https://good.example/v1/x"), "request_not_allowed"),
        (get("http://good.example/v1/x"), "not_understood"),
        // Its address is listed so that the name can resolve to it.
        (get("https://127.0.0.1/v2/x"), "address_not_allowed"),
    ] {
        let error = fetcher.fetch(ask.clone(), BOUNDS).await.unwrap_err();
        let FetchError::Denied { reason, .. } = error else { panic!("{}: {error}", ask.target) };
        assert_eq!(reason.code(), code, "{}", ask.target);
    }
    // Also after a redirect from an unrestricted host.
    let port = server(|_| to("https://good.example/v2/x")).await;
    let error = fetcher.fetch(get(&format!("http://other.example:{port}/")), BOUNDS).await.unwrap_err();
    assert!(
        matches!(error, FetchError::Denied { reason: NetworkReason::RequestNotAllowed(_), .. }),
        "{error}"
    );
    // Where the host does not resolve, whether the address is its own cannot be determined.
    fetcher.limits = Arc::new([entry("gone.example", &["GET"])]);
    let error = fetcher.fetch(get(&format!("http://127.0.0.1:{port}/")), BOUNDS).await.unwrap_err();
    assert!(matches!(error, FetchError::Failed { .. }), "{error}");
}

// S13, P9
#[tokio::test]
async fn response_is_returned_and_the_attempt_is_logged() {
    let port = server(|_| ok("hello")).await;
    let fetcher = fetcher(&["good.example:*", "127.0.0.1"]);
    let reply = fetcher.fetch(get(&format!("http://good.example:{port}/x")), BOUNDS).await.unwrap();
    assert_eq!((reply.status, reply.body.as_slice(), reply.truncated), (200, &b"hello"[..], false));
    assert_eq!(logged(&fetcher), [format!("GET good.example:{port} allowed")]);
    let (events, _) = fetcher.log.read();
    assert_eq!(events[0].received, 5);
    assert_eq!(events[0].address, Some("127.0.0.1".parse().unwrap()));
}

// S13, P3: SSRF
#[tokio::test]
async fn destinations_outside_the_rules_are_denied_before_anything_is_sent() {
    for (rules, url, expected) in [
        (&["good.example"][..], "http://evil.example/", "GET evil.example:80 denied host_not_allowed"),
        (&["good.example"], "http://good.example:8080/", "GET good.example:8080 denied port_not_allowed"),
        (&["good.example"], "http://good.example/", "GET good.example:80 denied special_address"),
        (&["allow"], "http://127.0.0.1/", "GET 127.0.0.1:80 denied special_address"),
        (&["allow"], "http://2130706433/", "GET 127.0.0.1:80 denied special_address"),
        (&["allow"], "http://0x7f.1/", "GET 127.0.0.1:80 denied special_address"),
        (&["allow"], "http://[::1]/", "GET [::1]:80 denied special_address"),
        (&["allow"], "http://[::ffff:169.254.169.254]/", "GET 169.254.169.254:80 denied special_address"),
        (&["allow"], "http://[64:ff9b::a9fe:a9fe]/", "GET [64:ff9b::a9fe:a9fe]:80 denied special_address"),
        (&["allow"], "http://metadata.example/", "GET metadata.example:80 denied special_address"),
        (&["allow"], "http://six.example/", "GET six.example:80 denied special_address"),
        (&["private.example"], "https://private.example/", "GET private.example:443 denied special_address"),
        (&[], "http://good.example/", "GET good.example:80 denied host_not_allowed"),
    ] {
        let fetcher = fetcher(rules);
        let error = fetcher.fetch(get(url), BOUNDS).await.unwrap_err();
        assert!(matches!(error, FetchError::Denied { .. }), "{url}: {error:?}");
        assert_eq!(logged(&fetcher), [expected], "{url}");
    }
}

// S13, P3: every redirect is checked again
#[tokio::test]
async fn redirects_are_checked_against_the_rules() {
    for (location, expected) in [
        ("http://169.254.169.254/latest/meta-data/", "denied special_address"),
        ("http://metadata.example/", "denied"),
        ("http://evil.example/", "denied host_not_allowed"),
        ("//evil.example/", "denied host_not_allowed"),
        ("http://0xa9.254.169.254/", "denied special_address"),
    ] {
        let port = server(move |_| to(location)).await;
        let fetcher = fetcher(&["good.example:*", "127.0.0.1"]);
        let error = fetcher.fetch(get(&format!("http://good.example:{port}/")), BOUNDS).await.unwrap_err();
        assert!(matches!(error, FetchError::Denied { .. }), "{location}: {error:?}");
        let logged = logged(&fetcher);
        assert!(logged.len() == 2 && logged[1].contains(expected), "{location}: {logged:?}");
    }
    for location in ["file:///etc/passwd", "http://user:pass@good.example/", "gopher://good.example/"] {
        let port = server(move |_| to(location)).await;
        let fetcher = fetcher(&["good.example:*", "127.0.0.1"]);
        let error = fetcher.fetch(get(&format!("http://good.example:{port}/")), BOUNDS).await.unwrap_err();
        assert!(matches!(error, FetchError::Failed { .. }), "{location}: {error:?}");
    }
}

// S13
#[tokio::test]
async fn redirects_are_bounded_and_carry_no_body_or_header_to_another_host() {
    let port = server(|request| {
        assert!(!request.contains("x-key") || request.starts_with("GET /first"), "{request}");
        match request.split(' ').nth(1).unwrap() {
            "/loop" => to("/loop"),
            "/post" | "/first" => to("http://127.0.0.1:1/").replace("127.0.0.1:1/", &{
                let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
                format!("{}/end", host.replace("good.example", "127.0.0.1"))
            }),
            "/kept" => to("/end").replace("302 Found", "307 Temporary Redirect"),
            _ => ok(&request),
        }
    })
    .await;
    let fetcher = fetcher(&["good.example:*", "127.0.0.1"]);
    let at = |path: &str| format!("http://good.example:{port}{path}");
    let error = fetcher.fetch(get(&at("/loop")), BOUNDS).await.unwrap_err();
    assert!(error.to_string().contains("more than 3 redirects"), "{error}");
    assert_eq!(logged(&fetcher).len(), 4);
    let ask = FetchRequest { headers: vec![("x-key", b"secret".to_vec())], ..get(&at("/first")) };
    let reply = fetcher.fetch(ask, BOUNDS).await.unwrap();
    assert_eq!((reply.redirected_from.len(), reply.url.path()), (1, "/end"));
    let body = Some(("text/plain".to_owned(), b"data".to_vec()));
    let post = FetchRequest { method: Method::Post, body: body.clone(), ..get(&at("/post")) };
    let reply = fetcher.fetch(post, BOUNDS).await.unwrap();
    assert!(reply.body.starts_with(b"GET /end"), "{reply:?}");
    let kept = FetchRequest { method: Method::Post, body, ..get(&at("/kept")) };
    assert_eq!(fetcher.fetch(kept, BOUNDS).await.unwrap().status, 307);
}

// S13
#[tokio::test]
async fn responses_are_bounded_in_bytes_and_time() {
    let port = server(|request| match request.split(' ').nth(1).unwrap() {
        "/large" => ok(&"x".repeat(100_000)),
        "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: a/b\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n".to_owned(),
    })
    .await;
    let fetcher = fetcher(&["127.0.0.1"]);
    let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let bounds = FetchLimits { bytes: 1000, ..BOUNDS };
    let reply = fetcher.fetch(get(&at("/large")), bounds).await.unwrap();
    assert_eq!((reply.body.len(), reply.truncated), (1000, true));
    let head = FetchRequest { method: Method::Head, ..get(&at("/head")) };
    assert_eq!(fetcher.fetch(head, BOUNDS).await.unwrap().content_type.as_deref(), Some("a/b"));
    // Announces more than it sends, then closes.
    assert!(fetcher.fetch(get(&at("/short")), BOUNDS).await.is_err());
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let bounds = FetchLimits { time: Duration::from_millis(50), ..BOUNDS };
    assert_eq!(fetcher.fetch(get(&url), bounds).await, Err(FetchError::TimedOut(bounds.time)));
    assert!(logged(&fetcher).last().unwrap().ends_with("failed unreachable"), "{:?}", logged(&fetcher));
}

// S13: some servers compress although `identity` is requested
#[tokio::test]
async fn compressed_responses_are_decompressed_within_the_same_limit() {
    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        io::Write::write_all(&mut packed, plain).unwrap();
        packed.finish().unwrap()
    }
    // 1 MiB of `x`.
    const BROTLI: &[u8] = &[91, 255, 255, 143, 95, 2, 47, 30, 11, 4, 114, 239, 31, 0];
    let port = server(|request| {
        let (coding, body) = match request.split(' ').nth(1).unwrap() {
            "/gzip" => ("gzip", gzip(b"hello")),
            "/twice" => ("x-gzip", [gzip(b"hello "), gzip(b"again")].concat()),
            "/bomb" => ("GZIP", gzip(&vec![b'x'; 4 << 20])),
            "/br" => ("br", BROTLI.to_vec()),
            "/broken" => ("gzip", gzip(b"hello")[..12].to_vec()),
            "/nested" => ("gzip, gzip", gzip(&gzip(b"hello"))),
            other => panic!("{other}"),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        );
        [head.into_bytes(), body].concat()
    })
    .await;
    let fetcher = fetcher(&["127.0.0.1"]);
    let at = |path: &str| get(&format!("http://127.0.0.1:{port}{path}"));
    let bounds = |bytes| FetchLimits { bytes, ..BOUNDS };
    for (path, bytes, expected, truncated) in [
        ("/gzip", 100, &b"hello"[..], false),
        ("/twice", 100, b"hello again", false),
        ("/bomb", 100_000, &[b'x'; 100_000], true),
        // Cut before it is decompressed: the part that can be decoded.
        ("/bomb", 1000, &[], true),
        ("/br", 1 << 20, &[b'x'; 1 << 20], false),
        ("/br", 50, &[b'x'; 50], true),
    ] {
        let reply = fetcher.fetch(at(path), bounds(bytes)).await.unwrap();
        assert!(
            reply.body.len() <= bytes && reply.body.starts_with(expected),
            "{path}: {}",
            reply.body.len()
        );
        assert_eq!(reply.truncated, truncated, "{path}");
    }
    for path in ["/broken", "/nested"] {
        let error = fetcher.fetch(at(path), BOUNDS).await.unwrap_err();
        assert!(error.to_string().contains("gzip"), "{path}: {error}");
    }
}

// S3: the name fence of a call narrows the rules
#[tokio::test]
async fn name_outside_the_fence_is_denied() {
    let port = server(|_| ok("hello")).await;
    let mut fetcher = fetcher(&["good.example:*", "127.0.0.1"]);
    fetcher.hosts = NameFence::of(&NamePolicy::Only(vec!["other.example".to_owned()]));
    assert!(fetcher.fetch(get(&format!("http://good.example:{port}/")), BOUNDS).await.is_err());
}

// S13: certificates are verified, including the name
#[tokio::test]
async fn tls_server_is_verified_against_the_trusted_certificates() {
    let made = vambrace_selfsigned::for_names(&["good.example"]);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(made.config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut asked = [0; 1000];
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(ok("private").as_bytes()).await;
            }
        }
    });
    let mut fetcher = fetcher(&["good.example:*", "127.0.0.1"]);
    let url = format!("https://good.example:{port}/");
    let error = fetcher.fetch(get(&url), BOUNDS).await.unwrap_err();
    assert!(matches!(error, FetchError::Failed { .. }), "{error:?}");
    fetcher.trust = Arc::new(TrustedRoots::with_pem(made.pem.as_bytes()).unwrap());
    assert_eq!(fetcher.fetch(get(&url), BOUNDS).await.unwrap().body, b"private");
    let error = fetcher.fetch(get(&format!("https://127.0.0.1:{port}/")), BOUNDS).await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    assert!(TrustedRoots::with_pem(b"nonsense").is_err());
}
