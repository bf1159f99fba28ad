//! Protocol detection by the first bytes of a connection: TLS with its SNI, HTTP, or a protocol that carries no host name.
//!
//! Incremental and bounded: the result is [`DetectedProtocol::Incomplete`] until it is certain, and every wait for more bytes
//! has a limit. The caller denies what is malformed.

/// Bytes that are buffered at most until the protocol must be known.
pub(crate) const MAX_BYTES: usize = 32 << 10;

/// The protocol that the first bytes belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DetectedProtocol {
    /// Not certain yet; more bytes are needed.
    Incomplete,
    /// TLS, with the SNI, if any.
    Tls(Option<Vec<u8>>),
    /// HTTP/1; requests follow.
    Http,
    /// A preamble of this many bytes without a name; the protocol behind it must be detected next.
    Preamble(usize),
    /// Another protocol, which carries no host name.
    Unknown,
    /// Looks like TLS or HTTP and is malformed; the reason.
    Malformed(&'static str),
}

/// Detects the protocol of the bytes so far.
pub(crate) fn detect(bytes: &[u8]) -> DetectedProtocol {
    if let Some(before) = preamble(bytes) {
        return before;
    }
    match bytes.first() {
        None => DetectedProtocol::Incomplete,
        Some(0x16) => client_hello(bytes),
        // Another TLS record, such as a warning: some servers skip it and read the ClientHello behind it.
        Some(0x14 | 0x15 | 0x17 | 0x18) => match bytes.get(1) {
            None => DetectedProtocol::Incomplete,
            Some(3) => DetectedProtocol::Malformed("a TLS connection must begin with a ClientHello"),
            Some(_) => after_skipped_bytes(bytes),
        },
        // Servers skip empty lines before a request, some also spaces, and a method may start with other characters than
        // letters.
        Some(byte) if is_token_byte(*byte) || is_space(*byte) => detect_text(bytes),
        Some(_) => after_skipped_bytes(bytes),
    }
}

/// Detects preambles before TLS or HTTP: PostgreSQL's requests for encryption, and the PROXY protocol, versions 1 and 2.
fn preamble(bytes: &[u8]) -> Option<DetectedProtocol> {
    const POSTGRES: [&[u8]; 2] = [b"\0\0\0\x08\x04\xd2\x16\x2f", b"\0\0\0\x08\x04\xd2\x16\x30"];
    const LINE: &[u8] = b"PROXY ";
    const MAX_PROXY_LINE_BYTES: usize = 107;
    const HEAD: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let begins = |known: &[u8]| {
        let common = bytes.len().min(known.len());
        bytes.get(..common) == known.get(..common)
    };
    if bytes.is_empty() {
        return None;
    }
    if POSTGRES.iter().any(|known| begins(known)) {
        return Some(if bytes.len() < 8 {
            DetectedProtocol::Incomplete
        } else {
            DetectedProtocol::Preamble(8)
        });
    }
    if begins(LINE) {
        return match bytes.iter().take(MAX_PROXY_LINE_BYTES).position(|byte| *byte == b'\n') {
            Some(end) => Some(DetectedProtocol::Preamble(end + 1)),
            None if bytes.len() < MAX_PROXY_LINE_BYTES => Some(DetectedProtocol::Incomplete),
            None => None,
        };
    }
    if begins(HEAD) {
        let length = match bytes.get(14..16) {
            Some([high, low]) => 16 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => return Some(DetectedProtocol::Incomplete),
        };
        return Some(if bytes.len() < length {
            DetectedProtocol::Incomplete
        } else {
            DetectedProtocol::Preamble(length)
        });
    }
    None
}

/// Whether a byte may appear in a token, such as a method (RFC 9110).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether some server accepts this byte as whitespace within a request line, whatever the standard says.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// A text protocol: HTTP when `HTTP/` stands anywhere in its first line, whatever separates the words. Whether the request
/// can be parsed is checked later (`http`).
fn detect_text(bytes: &[u8]) -> DetectedProtocol {
    const MAX_LINE_BYTES: usize = 16 << 10;
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    if start > 16 {
        return DetectedProtocol::Malformed("the connection starts with too many empty lines");
    }
    let rest = bytes.get(start..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let known = METHODS.iter().any(|known| known.eq_ignore_ascii_case(method))
        && (target.is_some() || line.last().is_some_and(|byte| is_space(*byte)));
    let is_request =
        known || method.iter().all(|byte| is_token_byte(*byte)) && target.is_some_and(is_request_target);
    let text = |byte: u8| matches!(byte, b' '..=b'~' | 0x80..) || is_space(byte);
    let has_version = line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/"));
    if !is_request && !line.iter().all(|byte| text(*byte)) {
        return if has_version { DetectedProtocol::Http } else { DetectedProtocol::Unknown };
    }
    if end.is_none() {
        return if line.len() > MAX_LINE_BYTES {
            DetectedProtocol::Malformed("the first line is too long")
        } else {
            DetectedProtocol::Incomplete
        };
    }
    if line.starts_with(b"PRI * HTTP/2") {
        return DetectedProtocol::Malformed("HTTP/2 without TLS is not supported");
    }
    match (has_version, known) {
        (true, _) => DetectedProtocol::Http,
        (false, true) => DetectedProtocol::Malformed("a request without an HTTP version carries no host"),
        (false, false) => DetectedProtocol::Unknown,
    }
}

/// Whether a word after a method may be a request target, as far as it has arrived.
fn is_request_target(word: &[u8]) -> bool {
    let scheme = word.iter().zip(b"http").all(|(one, other)| one.eq_ignore_ascii_case(other));
    matches!(word.first(), Some(b'/' | b'*')) || scheme
}

/// A line that starts with characters that no method contains and that some servers skip: quotes, brackets and the like, or a
/// byte order mark. It is `Incomplete` only as long as it can still become a request, since clients of other protocols may
/// start like this and wait for the server.
fn after_skipped_bytes(bytes: &[u8]) -> DetectedProtocol {
    const MAX_SKIPPED: usize = 8;
    const MAX_METHOD_BYTES: usize = 32;
    let is_skipped =
        |byte: &&u8| matches!(**byte, b'!'..=b'~' | 0x7f | 0xef | 0xbb | 0xbf) && !is_token_byte(**byte);
    let skipped = bytes.iter().take_while(is_skipped).count();
    let rest = bytes.get(skipped..).unwrap_or_default();
    let method = rest.iter().take_while(|byte| is_token_byte(**byte)).count();
    if skipped == 0 || skipped > MAX_SKIPPED || method > MAX_METHOD_BYTES {
        return DetectedProtocol::Unknown;
    }
    match rest.get(method..).unwrap_or_default() {
        [] => DetectedProtocol::Incomplete,
        [after, ..] if method == 0 || !is_space(*after) => DetectedProtocol::Unknown,
        [_, target @ ..] => match target.trim_ascii_start() {
            [] => DetectedProtocol::Incomplete,
            target if is_request_target(target.split(|byte| is_space(*byte)).next().unwrap_or_default()) => {
                detect_text(rest)
            }
            _ => DetectedProtocol::Unknown,
        },
    }
}

const METHODS: &[&[u8]] =
    &[b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];

/// A TLS ClientHello, which may come in several records.
fn client_hello(bytes: &[u8]) -> DetectedProtocol {
    const BAD: DetectedProtocol = DetectedProtocol::Malformed("the TLS ClientHello cannot be parsed");
    let mut client_hello = Vec::new();
    let mut rest = bytes;
    loop {
        let (kind, major, length) = match rest {
            [] => break,
            [kind, major, _, high, low, ..] => {
                (*kind, *major, usize::from(u16::from_be_bytes([*high, *low])))
            }
            [0x16, 3, ..] | [0x16] => break,
            _ => return BAD,
        };
        if kind != 0x16 || major != 3 || length == 0 || length > 16 << 10 {
            return BAD;
        }
        let content = rest.get(5..).unwrap_or_default();
        client_hello.extend_from_slice(content.get(..length).unwrap_or(content));
        match content.get(length..) {
            Some(after) => rest = after,
            None => break,
        }
        if is_complete(&client_hello) {
            break;
        }
    }
    match client_hello.first() {
        None => return DetectedProtocol::Incomplete,
        Some(1) => {}
        Some(_) => return BAD,
    }
    if !is_complete(&client_hello) {
        return if bytes.len() >= MAX_BYTES { BAD } else { DetectedProtocol::Incomplete };
    }
    server_name(&client_hello).map_or(BAD, DetectedProtocol::Tls)
}

fn is_complete(client_hello: &[u8]) -> bool {
    match client_hello {
        [_, a, b, c, body @ ..] => {
            body.len() >= usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c)
        }
        _ => false,
    }
}

/// The SNI of a complete ClientHello; outer `None` when it is malformed or has two names.
fn server_name(client_hello: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut reader = TlsReader(client_hello);
    reader.take(1)?;
    let mut body = reader.vector(3)?;
    // Version and random.
    body.take(34)?;
    let _session = body.vector(1)?;
    let _ciphers = body.vector(2)?;
    let _compression = body.vector(1)?;
    if body.0.is_empty() {
        return Some(None);
    }
    let mut extensions = body.vector(2)?;
    if !body.0.is_empty() {
        return None;
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.take(2)?;
        let mut content = extensions.vector(2)?;
        if kind != [0, 0] {
            continue;
        }
        let mut list = content.vector(2)?;
        while !list.0.is_empty() {
            let host = list.take(1)? == [0];
            let value = list.vector(2)?;
            if !host || name.is_some() || value.0.is_empty() {
                return None;
            }
            name = Some(value.0.to_vec());
        }
        if name.is_none() || !content.0.is_empty() {
            return None;
        }
    }
    Some(name)
}

struct TlsReader<'a>(&'a [u8]);

impl<'a> TlsReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a vector that is preceded by its length in `width` bytes.
    fn vector(&mut self, width: usize) -> Option<TlsReader<'a>> {
        let length = self.take(width)?.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
        self.take(length).map(TlsReader)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A ClientHello with these names as SNI.
    pub(crate) fn client_hello(names: &[&[u8]]) -> Vec<u8> {
        let vector = |width: usize, content: &[u8]| {
            let length = (content.len() as u32).to_be_bytes();
            [&length[4 - width..], content].concat()
        };
        let list: Vec<u8> = names.iter().flat_map(|name| [vec![0], vector(2, name)].concat()).collect();
        let sni = [vec![0, 0], vector(2, &vector(2, &list))].concat();
        let other = [vec![0, 43], vector(2, &[2, 3, 4])].concat();
        let extensions = if names.is_empty() { other } else { [other, sni].concat() };
        let body =
            [vec![3, 3], vec![7; 32], vec![0], vector(2, &[0x13, 1]), vec![1, 0], vector(2, &extensions)]
                .concat();
        [vec![1], vector(3, &body)].concat()
    }

    pub(crate) fn records(client_hello: &[u8], piece: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        client_hello.chunks(piece).flat_map(record).collect()
    }

    #[test]
    fn sni_is_found_however_the_client_hello_is_split() {
        let hello = client_hello(&[b"example.com"]);
        for piece in [1, 2, 5, 100, 16000] {
            let bytes = records(&hello, piece);
            assert_eq!(
                detect(&bytes),
                DetectedProtocol::Tls(Some(b"example.com".to_vec())),
                "records of {piece}"
            );
            for end in 0..bytes.len() {
                assert_eq!(detect(&bytes[..end]), DetectedProtocol::Incomplete, "{end} of {}", bytes.len());
            }
        }
        assert_eq!(detect(&records(&client_hello(&[]), 1000)), DetectedProtocol::Tls(None));
    }

    #[test]
    fn malformed_or_ambiguous_client_hellos_are_rejected() {
        assert!(matches!(
            detect(&records(&client_hello(&[b"a.com", b"b.com"]), 1000)),
            DetectedProtocol::Malformed(_)
        ));
        assert!(matches!(detect(&records(&client_hello(&[b""]), 1000)), DetectedProtocol::Malformed(_)));
        let mut wrong = records(&client_hello(&[b"a.com"]), 1000);
        wrong[5] = 2;
        assert!(matches!(detect(&wrong), DetectedProtocol::Malformed(_)));
        assert!(matches!(detect(&[0x16, 3, 1, 0, 0]), DetectedProtocol::Malformed(_)));
        assert!(matches!(detect(&[0x16, 2, 0, 0, 5, 1]), DetectedProtocol::Malformed(_)));
        assert!(matches!(detect(&[0x16, 3, 1, 0xff, 0xff, 1]), DetectedProtocol::Malformed(_)));
    }

    #[test]
    fn http_is_detected_by_its_first_line() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], DetectedProtocol::Http),
            (b"\r\nGET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"PROPFIND /x HTTP/1.0\n", DetectedProtocol::Http),
            (b"get / http/1.1\r\n", DetectedProtocol::Http),
            (b"GET /\x01 HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"G", DetectedProtocol::Incomplete),
            (b"GET / HTTP/1.1", DetectedProtocol::Incomplete),
            (b"SSH-2.0-OpenSSH_9.2\r\n", DetectedProtocol::Unknown),
            (b"EHLO me\r\n", DetectedProtocol::Unknown),
            (b"\0\0\0\x08\x04\xd2\x16\x2e", DetectedProtocol::Unknown),
            (b"BitTorrent\x13protocol", DetectedProtocol::Unknown),
            // A target with control characters, for any method, also in pieces.
            (b"PROPFIND /\x01 HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"PROPFIND /\x01", DetectedProtocol::Incomplete),
            (b"BREW /\0 HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"BREW *\0", DetectedProtocol::Incomplete),
            (b"BREW HTTP://\x01", DetectedProtocol::Incomplete),
            (b"BREW ht\x01", DetectedProtocol::Unknown),
            (b"\x01\x02 / HTTP/1.1\r\n", DetectedProtocol::Unknown),
            (b"\x15", DetectedProtocol::Incomplete),
            (b"\x15\x02", DetectedProtocol::Unknown),
            (
                b"\x15\x03\x01\x00\x02\x01\x5a\x16\x03\x01",
                DetectedProtocol::Malformed("a TLS connection must begin with a ClientHello"),
            ),
            (
                b"\x14\x03\x03\x00\x01\x01",
                DetectedProtocol::Malformed("a TLS connection must begin with a ClientHello"),
            ),
            (b"x\x01 / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"CWD /pub\r\n", DetectedProtocol::Unknown),
            // Characters before a method.
            (b"\"GET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"(GET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"\x7fGET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"\xef\xbb\xbfGET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"\xef\xbb", DetectedProtocol::Incomplete),
            (b"\"", DetectedProtocol::Incomplete),
            (b"(GE", DetectedProtocol::Incomplete),
            (b"(GET ", DetectedProtocol::Incomplete),
            (b"(BREW /x", DetectedProtocol::Incomplete),
            (b"(GET /\r\n", DetectedProtocol::Malformed("a request without an HTTP version carries no host")),
            (b"{\"id\":1}", DetectedProtocol::Unknown),
            (b"[1]", DetectedProtocol::Unknown),
            (b"\xff\xff\xff\xff", DetectedProtocol::Unknown),
            // As lenient servers parse them; later checks deny them or compare their host.
            (b" GET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"GET\t/\tHTTP/1.1\r\n", DetectedProtocol::Http),
            (b"GET\x0b/\x0cHTTP/1.1\r\n", DetectedProtocol::Http),
            (b"GET\xa0/ HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"get / HTTP/1.1 \r\n", DetectedProtocol::Http),
            (b"PROPFIND / HTTP/1.1\t\r\n", DetectedProtocol::Http),
            (b"PROPFIND / HTTP/1.1 x\r\n", DetectedProtocol::Http),
            (b"-X / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"_X\t", DetectedProtocol::Incomplete),
            (b"GET\t/\r\n", DetectedProtocol::Malformed("a request without an HTTP version carries no host")),
            (b"*1\r\n$4\r\nPING\r\n", DetectedProtocol::Unknown),
            (b"<?xml version='1.0'?><stream:stream", DetectedProtocol::Unknown),
            (b"GET /\r\n", DetectedProtocol::Malformed("a request without an HTTP version carries no host")),
            (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                DetectedProtocol::Malformed("HTTP/2 without TLS is not supported"),
            ),
        ] {
            assert_eq!(detect(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
        assert!(matches!(detect(&[b'A'; 20_000]), DetectedProtocol::Malformed(_)));
        assert!(matches!(detect(&[b'\n'; 40]), DetectedProtocol::Malformed(_)));
    }

    // P3
    #[test]
    fn preamble_is_separated_from_the_client_hello() {
        let hello = records(&client_hello(&[b"example.com"]), 1000);
        for before in [
            &b"\0\0\0\x08\x04\xd2\x16\x2f"[..],
            b"\0\0\0\x08\x04\xd2\x16\x30",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n",
            b"PROXY UNKNOWN\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\0\x01\x01\xbb",
        ] {
            let whole = [before, &hello].concat();
            for end in 0..before.len() {
                assert_eq!(
                    detect(&whole[..end]),
                    DetectedProtocol::Incomplete,
                    "{end} of {}",
                    before.escape_ascii()
                );
            }
            for end in before.len()..whole.len() {
                assert_eq!(
                    detect(&whole[..end]),
                    DetectedProtocol::Preamble(before.len()),
                    "{}",
                    before.escape_ascii()
                );
            }
        }
        let endless = [&b"PROXY "[..], &[b'x'; 200]].concat();
        assert_eq!(detect(&endless), DetectedProtocol::Incomplete);
        assert_eq!(detect(b"PROXYING x\r\n"), DetectedProtocol::Unknown);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), tls in any::<bool>()) {
            if tls && bytes.len() > 6 {
                bytes[..6].copy_from_slice(&[0x16, 3, 1, 0, 200, 1]);
            }
            detect(&bytes);
        }

        #[test]
        fn changed_byte_never_yields_a_longer_name(at in 0_usize..200, value in any::<u8>()) {
            let mut bytes = records(&client_hello(&[b"example.com"]), 1000);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            if let DetectedProtocol::Tls(Some(name)) = detect(&bytes) {
                prop_assert!(name.len() <= 11);
            }
        }
    }
}
