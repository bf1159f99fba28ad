//! Requests as attackers write them: fronting, smuggling, malformed heads and bodies.

use super::*;
use proptest::prelude::*;

fn name(text: &str) -> Destination {
    Destination::Name(HostName::parse(text).unwrap())
}

fn judge(text: &str) -> Result<Option<RequestHead>, NetworkReason> {
    parse_head(text.as_bytes(), Some(&name("good.com")), Recipient::Server)
}

#[track_caller]
fn passes(text: &str, body: RequestFraming) {
    let head = judge(text).unwrap().unwrap();
    assert_eq!((head.length, head.framing), (text.len(), body), "{text}");
}

#[track_caller]
fn refused(text: &str, code: &str) {
    assert_eq!(judge(text).unwrap_err().code(), code, "{text}");
}

// P3
#[test]
fn requests_for_the_allowed_host_pass() {
    passes("GET / HTTP/1.1\r\nHost: good.com\r\n\r\n", RequestFraming::Length(0));
    passes("GET / HTTP/1.1\r\nHOST: GOOD.com.:80\r\n\r\n", RequestFraming::Length(0));
    passes("GET http://good.com/x HTTP/1.1\r\nHost: good.com\r\n\r\n", RequestFraming::Length(0));
    passes("GET / HTTP/1.0\r\n\r\n", RequestFraming::Length(0));
    passes("OPTIONS * HTTP/1.1\r\nHost: good.com\r\n\r\n", RequestFraming::Length(0));
    passes("GET /?next=http://evil.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n", RequestFraming::Length(0));
    passes("POST / HTTP/1.1\r\nHost: good.com\r\nContent-Length: 12\r\n\r\n", RequestFraming::Length(12));
    passes(
        "POST / HTTP/1.1\r\nHost: good.com\r\nTransfer-Encoding: Chunked\r\n\r\n",
        RequestFraming::Chunked,
    );
    assert_eq!(judge("GET / HTTP/1.1\r\nHost: good.com\r\n"), Ok(None));
}

// P3: fronting
#[test]
fn requests_for_another_host_are_denied() {
    refused("GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", "name_mismatch");
    refused("GET / HTTP/1.1\r\nHost: sub.good.com\r\n\r\n", "name_mismatch");
    refused("GET http://evil.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n", "name_mismatch");
    refused("GET http://good.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n", "name_mismatch");
    refused("GET / HTTP/1.0\r\nHost: evil.com\r\n\r\n", "name_mismatch");
    refused("GET / HTTP/1.1\r\nHost: good.com\r\nHost: evil.com\r\n\r\n", "not_understood");
    refused("GET / HTTP/1.1\r\nHost: good.com\r\nhost: good.com\r\n\r\n", "not_understood");
    refused("GET / HTTP/1.1\r\n\r\n", "not_understood");
    refused("GET http://evil.com@good.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n", "bad_name");
    refused("GET / HTTP/1.1\r\nHost: good.com@evil.com\r\n\r\n", "bad_name");
    refused("GET / HTTP/1.1\r\nHost: good.com,evil.com\r\n\r\n", "bad_name");
    refused("GET / HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n", "bad_name");
    refused("GET / HTTP/1.1\r\nHost:\r\n\r\n", "bad_name");
    refused("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "name_mismatch");
    refused("GET https://good.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n", "not_understood");
    refused("CONNECT evil.com:443 HTTP/1.1\r\nHost: good.com\r\n\r\n", "not_understood");
    refused("GET evil.com HTTP/1.1\r\nHost: good.com\r\n\r\n", "not_understood");
}

#[test]
fn requests_that_servers_parse_differently_are_denied() {
    let with = |headers: &str| format!("POST / HTTP/1.1\r\nHost: good.com\r\n{headers}\r\n");
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X: 1\r\n Transfer-Encoding: chunked\r\n",
        "Upgrade: h2c\r\nConnection: upgrade\r\n",
        "X\0: 1\r\n",
        "Transfer_Encoding: chunked\r\n",
        "content_length: 5\r\n",
        "X: 1\rHost: evil.com\r\n",
        "Host : evil.com\r\n",
        "X: 1\nContent-Length: 5\r\n",
        "X: 1\nY: 2\r\n",
    ] {
        assert_eq!(judge(&with(headers)).unwrap_err().code(), "not_understood", "{headers}");
    }
    refused("GET / HTTP/1.1\nHost: good.com\r\n\r\n", "not_understood");
    refused("GET / HTTP/1.1\r\nHost: good.com\r\n\n", "not_understood");
    refused("POST / HTTP/1.0\r\nHost: good.com\r\nTransfer-Encoding: chunked\r\n\r\n", "not_understood");
    refused(&format!("GET / HTTP/1.1\r\nX: {}\r\n", "a".repeat(MAX_HEAD_BYTES)), "not_understood");
    assert!(judge(&with("Upgrade: websocket\r\n")).unwrap().unwrap().has_upgrade);
}

#[test]
fn proxy_request_is_parsed_and_rewritten_for_the_server() {
    let read = |text: &str| parse_head(text.as_bytes(), None, Recipient::Proxy);
    let target = |text: &str| read(text).unwrap().unwrap().target.unwrap();
    let there = target("GET http://good.com:8080/x HTTP/1.1\r\nHost: good.com:8080\r\n\r\n");
    assert_eq!(there, Authority { host: name("good.com"), port: Some(8080) });
    let there = target("CONNECT [2606:4700::1]:443 HTTP/1.1\r\nHost: [2606:4700::1]:443\r\n\r\n");
    assert_eq!(
        there,
        Authority { host: Destination::Address("2606:4700::1".parse().unwrap()), port: Some(443) }
    );
    for (text, code) in [
        ("GET http://good.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n", "name_mismatch"),
        ("CONNECT good.com:443 HTTP/1.1\r\nHost: evil.com\r\n\r\n", "name_mismatch"),
        ("CONNECT evil.com%00.good.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", "bad_name"),
        ("CONNECT good.com:0 HTTP/1.1\r\nHost: good.com\r\n\r\n", "bad_name"),
        ("CONNECT good.com:80:443 HTTP/1.1\r\nHost: good.com\r\n\r\n", "bad_name"),
        ("CONNECT [::1%25lo]:443 HTTP/1.1\r\nHost: good.com\r\n\r\n", "bad_name"),
        ("GET / HTTP/1.1\r\nHost: good.com\r\n\r\n", "not_understood"),
        ("GET ftp://good.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n", "not_understood"),
    ] {
        assert_eq!(read(text).unwrap_err().code(), code, "{text}");
    }
    let written = |more: &str| {
        let text = format!("GET http://good.com/a?b HTTP/1.1\r\nHost: good.com\r\nA: b\r\n{more}\r\n");
        String::from_utf8(rewrite_for_server(text.as_bytes()).unwrap()).unwrap()
    };
    let expected = "GET /a?b HTTP/1.1\r\nHost: good.com\r\nA: b\r\nConnection: close\r\n\r\n";
    assert_eq!(written("Proxy-Authorization: x\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\n"), expected);
    let more = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    assert!(written(more).ends_with(&format!("A: b\r\n{more}\r\n")));
    let text = b"GET http://good.com?b HTTP/1.1\r\nHost: good.com\r\n\r\n";
    assert!(rewrite_for_server(text).unwrap().starts_with(b"GET /?b HTTP/1.1\r\n"));
}

#[test]
fn chunked_body_is_decoded_however_it_is_split() {
    let body = b"4;ext=1\r\nWiki\r\n5\r\npedia\r\n0\r\nTrailer: x\r\n\r\nGET / HTTP/1.1\r\n";
    let end = body.len() - b"GET / HTTP/1.1\r\n".len();
    for piece in 1..body.len() {
        let mut chunks = ChunkedDecoder::default();
        let mut at = 0;
        for part in body.chunks(piece) {
            if chunks.done() {
                break;
            }
            at += chunks.take(part).unwrap();
        }
        assert_eq!((at, chunks.done()), (end, true), "pieces of {piece}");
    }
    let trailers = b"4\r\nWiki\r\n0\r\nX-HTTP-Method-Override: DELETE\r\n\r\n";
    assert!(ChunkedDecoder::without_trailers().take(trailers).is_err());
    let plain = b"4\r\nWiki\r\n0\r\n\r\n";
    assert_eq!(ChunkedDecoder::without_trailers().take(plain), Ok(plain.len()));
    for bad in [
        &b"4\nWiki"[..],
        b"4\r\nWikiX\r\n",
        b"4\r\nWiki\n",
        b"-1\r\n",
        b"0x4\r\n",
        b"\r\n",
        b"4 4\r\n",
        b"4\r;\r\n",
        b"ffffffffffffffff\r\n",
        b"zz\r\n",
    ] {
        assert!(ChunkedDecoder::default().take(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
    assert!(ChunkedDecoder::default().take(&[b'1'; 5000]).is_err());
    // Another request in the place of trailers.
    for trailer in ["GET /admin HTTP/1.1", "GET http://evil.com/ HTTP/1.1", " folded: x", ": x", "x", "a : b"]
    {
        let body = format!("0\r\n{trailer}\r\nHost: evil.com\r\n\r\n");
        assert!(ChunkedDecoder::default().take(body.as_bytes()).is_err(), "{trailer}");
    }
}

proptest! {
    #[test]
    fn arbitrary_heads_never_panic(text in "(GET|POST|CONNECT) [ -~]{0,30} HTTP/1.[01]\r\n([A-Za-z-]{1,10}:[ -~]{0,20}\r\n){0,5}\r\n") {
        let _ = parse_head(text.as_bytes(), Some(&name("good.com")), Recipient::Server);
        let _ = parse_head(text.as_bytes(), None, Recipient::Proxy);
    }

    #[test]
    fn host_that_passes_is_the_expected_one(host in "[a-zA-Z.:@%/0-9\\[\\] -]{0,20}") {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        if let Ok(Some(_)) = parse_head(text.as_bytes(), Some(&name("a.b")), Recipient::Server) {
            let bare = host.trim().to_ascii_lowercase();
            let bare = bare.split(':').next().unwrap().trim_end_matches('.');
            prop_assert_eq!(bare, "a.b");
        }
    }

    #[test]
    fn chunked_decoder_consumes_no_more_than_it_is_given(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(taken) = ChunkedDecoder::default().take(&bytes) {
            prop_assert!(taken <= bytes.len());
        }
    }
}
