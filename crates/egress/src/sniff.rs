//! The first bytes of a connection: is it TLS, and for which name; is it HTTP; or something that says no name.
//!
//! The reader is incremental and bounded: it says [`First::More`] until it is sure, never looks past its limits, and
//! what it cannot make sense of within them is refused by the caller.

/// The most bytes that are held before it must be clear what they are.
pub(crate) const MOST: usize = 32 << 10;

/// What the first bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum First {
    /// Not clear yet.
    More,
    /// TLS, with the name that it asks for, if any.
    Tls(Option<Vec<u8>>),
    /// HTTP/1; requests follow.
    Http,
    /// So many bytes say no name, but what follows them may.
    Before(usize),
    /// Neither.
    Other,
    /// It pretends to be something and is not.
    Bad(&'static str),
}

/// Looks at the bytes so far.
pub(crate) fn first(bytes: &[u8]) -> First {
    if let Some(before) = before(bytes) {
        return before;
    }
    match bytes.first() {
        None => First::More,
        Some(0x16) => hello(bytes),
        // Empty lines before a request are skipped by servers, so here too; some also skip spaces, and a method may
        // begin with other signs than letters.
        Some(byte) if is_of_a_token(*byte) || is_space(*byte) => line(bytes),
        Some(_) => behind_signs(bytes),
    }
}

/// What is said before TLS or HTTP begins: PostgreSQL's questions whether it may be encrypted, and the line or the head
/// by which a proxy says for whom it speaks (PROXY protocol 1 and 2).
fn before(bytes: &[u8]) -> Option<First> {
    const POSTGRES: [&[u8]; 2] = [b"\0\0\0\x08\x04\xd2\x16\x2f", b"\0\0\0\x08\x04\xd2\x16\x30"];
    const LINE: &[u8] = b"PROXY ";
    const LONGEST_LINE: usize = 107;
    const HEAD: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let begins = |known: &[u8]| {
        let common = bytes.len().min(known.len());
        bytes.get(..common) == known.get(..common)
    };
    if bytes.is_empty() {
        return None;
    }
    if POSTGRES.iter().any(|known| begins(known)) {
        return Some(if bytes.len() < 8 { First::More } else { First::Before(8) });
    }
    if begins(LINE) {
        return match bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
            Some(end) => Some(First::Before(end + 1)),
            None if bytes.len() < LONGEST_LINE => Some(First::More),
            None => None,
        };
    }
    if begins(HEAD) {
        let length = match bytes.get(14..16) {
            Some([high, low]) => 16 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => return Some(First::More),
        };
        return Some(if bytes.len() < length { First::More } else { First::Before(length) });
    }
    None
}

/// What a method may be made of (RFC 9110).
pub(crate) fn is_of_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What some server takes for space between the words of a request, whatever the standard says.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// A text protocol: HTTP when its first line says so anywhere, however its words are set apart. Whether it is a request
/// that can be judged is for the next one to say.
fn line(bytes: &[u8]) -> First {
    const LONGEST: usize = 16 << 10;
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    if start > 16 {
        return First::Bad("it begins with empty lines");
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
        known || method.iter().all(|byte| is_of_a_token(*byte)) && target.is_some_and(is_of_a_request);
    let text = |byte: u8| matches!(byte, b' '..=b'~' | 0x80..) || is_space(byte);
    let has_version = line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/"));
    if !is_request && !line.iter().all(|byte| text(*byte)) {
        return if has_version { First::Http } else { First::Other };
    }
    if end.is_none() {
        return if line.len() > LONGEST { First::Bad("its first line does not end") } else { First::More };
    }
    if line.starts_with(b"PRI * HTTP/2") {
        return First::Bad("HTTP/2 without TLS cannot be judged");
    }
    match (has_version, known) {
        (true, _) => First::Http,
        (false, true) => First::Bad("a request without a version names no host"),
        (false, false) => First::Other,
    }
}

/// Whether a word after a method may be the target of a request, as far as it is there.
fn is_of_a_request(word: &[u8]) -> bool {
    let scheme = word.iter().zip(b"http").all(|(one, other)| one.eq_ignore_ascii_case(other));
    matches!(word.first(), Some(b'/' | b'*')) || scheme
}

/// A line that begins with signs that no method has, and a server may skip: quotes, brackets and their like, or the mark of
/// an encoding. It is looked at only as long as it can become a request, since other protocols begin so and wait.
fn behind_signs(bytes: &[u8]) -> First {
    const MOST_SIGNS: usize = 8;
    const LONGEST_METHOD: usize = 32;
    let is_sign =
        |byte: &&u8| matches!(**byte, b'!'..=b'~' | 0x7f | 0xef | 0xbb | 0xbf) && !is_of_a_token(**byte);
    let signs = bytes.iter().take_while(is_sign).count();
    let rest = bytes.get(signs..).unwrap_or_default();
    let method = rest.iter().take_while(|byte| is_of_a_token(**byte)).count();
    if signs == 0 || signs > MOST_SIGNS || method > LONGEST_METHOD {
        return First::Other;
    }
    match rest.get(method..).unwrap_or_default() {
        [] => First::More,
        [after, ..] if method == 0 || !is_space(*after) => First::Other,
        [_, target @ ..] => match target.trim_ascii_start() {
            [] => First::More,
            target if is_of_a_request(target.split(|byte| is_space(*byte)).next().unwrap_or_default()) => {
                line(rest)
            }
            _ => First::Other,
        },
    }
}

const METHODS: &[&[u8]] =
    &[b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];

/// A TLS ClientHello, which may come in several records.
fn hello(bytes: &[u8]) -> First {
    const BAD: First = First::Bad("its TLS greeting cannot be read");
    let mut greeting = Vec::new();
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
        greeting.extend_from_slice(content.get(..length).unwrap_or(content));
        match content.get(length..) {
            Some(after) => rest = after,
            None => break,
        }
        if whole(&greeting) {
            break;
        }
    }
    match greeting.first() {
        None => return First::More,
        Some(1) => {}
        Some(_) => return BAD,
    }
    if !whole(&greeting) {
        return if bytes.len() >= MOST { BAD } else { First::More };
    }
    server_name(&greeting).map_or(BAD, First::Tls)
}

fn whole(greeting: &[u8]) -> bool {
    match greeting {
        [_, a, b, c, body @ ..] => {
            body.len() >= usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c)
        }
        _ => false,
    }
}

/// The name in a whole greeting; outer `None` when it is malformed or says two.
fn server_name(greeting: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut reader = Reader(greeting);
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

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// What follows a length of so many bytes.
    fn vector(&mut self, width: usize) -> Option<Reader<'a>> {
        let length = self.take(width)?.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
        self.take(length).map(Reader)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A greeting as programs send it, with these names in it.
    pub(crate) fn greeting(names: &[&[u8]]) -> Vec<u8> {
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

    pub(crate) fn records(greeting: &[u8], piece: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        greeting.chunks(piece).flat_map(record).collect()
    }

    #[test]
    fn the_name_in_a_greeting_is_found_however_it_is_cut() {
        let hello = greeting(&[b"example.com"]);
        for piece in [1, 2, 5, 100, 16000] {
            let bytes = records(&hello, piece);
            assert_eq!(first(&bytes), First::Tls(Some(b"example.com".to_vec())), "records of {piece}");
            for end in 0..bytes.len() {
                assert_eq!(first(&bytes[..end]), First::More, "{end} of {}", bytes.len());
            }
        }
        assert_eq!(first(&records(&greeting(&[]), 1000)), First::Tls(None));
    }

    #[test]
    fn greetings_that_say_two_things_are_refused() {
        assert!(matches!(first(&records(&greeting(&[b"a.com", b"b.com"]), 1000)), First::Bad(_)));
        assert!(matches!(first(&records(&greeting(&[b""]), 1000)), First::Bad(_)));
        let mut wrong = records(&greeting(&[b"a.com"]), 1000);
        wrong[5] = 2;
        assert!(matches!(first(&wrong), First::Bad(_)));
        assert!(matches!(first(&[0x16, 3, 1, 0, 0]), First::Bad(_)));
        assert!(matches!(first(&[0x16, 2, 0, 0, 5, 1]), First::Bad(_)));
        assert!(matches!(first(&[0x16, 3, 1, 0xff, 0xff, 1]), First::Bad(_)));
    }

    #[test]
    fn http_is_known_by_its_first_line() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], First::Http),
            (b"\r\nGET / HTTP/1.1\r\n", First::Http),
            (b"PROPFIND /x HTTP/1.0\n", First::Http),
            (b"get / http/1.1\r\n", First::Http),
            (b"GET /\x01 HTTP/1.1\r\n", First::Http),
            (b"G", First::More),
            (b"GET / HTTP/1.1", First::More),
            (b"SSH-2.0-OpenSSH_9.2\r\n", First::Other),
            (b"EHLO me\r\n", First::Other),
            (b"\0\0\0\x08\x04\xd2\x16\x2e", First::Other),
            (b"BitTorrent\x13protocol", First::Other),
            // A target of odd bytes, whatever the method; however it arrives.
            (b"PROPFIND /\x01 HTTP/1.1\r\n", First::Http),
            (b"PROPFIND /\x01", First::More),
            (b"BREW /\0 HTTP/1.1\r\n", First::Http),
            (b"BREW *\0", First::More),
            (b"BREW HTTP://\x01", First::More),
            (b"BREW ht\x01", First::Other),
            (b"\x01\x02 / HTTP/1.1\r\n", First::Other),
            (b"x\x01 / HTTP/1.1\r\n", First::Http),
            (b"CWD /pub\r\n", First::Other),
            // Signs before a method.
            (b"\"GET / HTTP/1.1\r\n", First::Http),
            (b"(GET / HTTP/1.1\r\n", First::Http),
            (b"\x7fGET / HTTP/1.1\r\n", First::Http),
            (b"\xef\xbb\xbfGET / HTTP/1.1\r\n", First::Http),
            (b"\xef\xbb", First::More),
            (b"\"", First::More),
            (b"(GE", First::More),
            (b"(GET ", First::More),
            (b"(BREW /x", First::More),
            (b"(GET /\r\n", First::Bad("a request without a version names no host")),
            (b"{\"id\":1}", First::Other),
            (b"[1]", First::Other),
            (b"\xff\xff\xff\xff", First::Other),
            // As lenient servers read them; judged, they are refused or compared like any other.
            (b" GET / HTTP/1.1\r\n", First::Http),
            (b"GET\t/\tHTTP/1.1\r\n", First::Http),
            (b"GET\x0b/\x0cHTTP/1.1\r\n", First::Http),
            (b"GET\xa0/ HTTP/1.1\r\n", First::Http),
            (b"get / HTTP/1.1 \r\n", First::Http),
            (b"PROPFIND / HTTP/1.1\t\r\n", First::Http),
            (b"PROPFIND / HTTP/1.1 x\r\n", First::Http),
            (b"-X / HTTP/1.1\r\n", First::Http),
            (b"_X\t", First::More),
            (b"GET\t/\r\n", First::Bad("a request without a version names no host")),
            (b"*1\r\n$4\r\nPING\r\n", First::Other),
            (b"<?xml version='1.0'?><stream:stream", First::Other),
            (b"GET /\r\n", First::Bad("a request without a version names no host")),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", First::Bad("HTTP/2 without TLS cannot be judged")),
        ] {
            assert_eq!(first(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
        assert!(matches!(first(&[b'A'; 20_000]), First::Bad(_)));
        assert!(matches!(first(&[b'\n'; 40]), First::Bad(_)));
    }

    // P3
    #[test]
    fn what_comes_before_a_greeting_is_told_apart_from_it() {
        let hello = records(&greeting(&[b"example.com"]), 1000);
        for before in [
            &b"\0\0\0\x08\x04\xd2\x16\x2f"[..],
            b"\0\0\0\x08\x04\xd2\x16\x30",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n",
            b"PROXY UNKNOWN\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\0\x01\x01\xbb",
        ] {
            let whole = [before, &hello].concat();
            for end in 0..before.len() {
                assert_eq!(first(&whole[..end]), First::More, "{end} of {}", before.escape_ascii());
            }
            for end in before.len()..whole.len() {
                assert_eq!(first(&whole[..end]), First::Before(before.len()), "{}", before.escape_ascii());
            }
        }
        let endless = [&b"PROXY "[..], &[b'x'; 200]].concat();
        assert_eq!(first(&endless), First::More);
        assert_eq!(first(b"PROXYING x\r\n"), First::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_without_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), tls in any::<bool>()) {
            if tls && bytes.len() > 6 {
                bytes[..6].copy_from_slice(&[0x16, 3, 1, 0, 200, 1]);
            }
            first(&bytes);
        }

        #[test]
        fn a_changed_greeting_never_says_another_name_silently(at in 0_usize..200, value in any::<u8>()) {
            let mut bytes = records(&greeting(&[b"example.com"]), 1000);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            if let First::Tls(Some(name)) = first(&bytes) {
                prop_assert!(name.len() <= 11);
            }
        }
    }
}
