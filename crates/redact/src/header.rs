//! Credentials that a word announces: `Bearer ...`, `Basic ...`, `curl -u user:password`, `.netrc`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::bytes::{at, contains, entropy, is_blank, part, run, run_back};
use crate::judge::{is_drawn_password, is_dummy_word, is_login_password, is_placeholder};
use crate::placeholder;

/// How far back the program's name of a command line is looked for.
const COMMAND: usize = 400;
/// The longest password of a command line or of `.netrc`.
const LONG_LINE: usize = 2400;
/// The longest line of cookies.
const COOKIES: usize = 4096;

/// The token after `Bearer`, which ends at `after`.
pub(crate) fn bearer(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let start = gap(view, after)?;
    let end = token_end(view, start);
    let token = part(view, start, end);
    let mixed = token.len() >= 12 && token.iter().any(u8::is_ascii_digit) && !is_name(token);
    ((mixed || is_drawn_token(token)) && entropy(token) >= 2.7 && !is_placeholder(token))
        .then_some((start, end))
}

/// Where a token ends. Signs that no token should have end it, unless it was drawn with them.
fn token_end(view: &[u8], start: usize) -> usize {
    let end = run(view, start, start + 4096, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    });
    let last = run(view, end, start + 4096, |byte| {
        byte > b' '
            && byte != 0x7f
            && !matches!(
                byte,
                b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b',' | b';' | b')' | b'}' | b'(' | b'{' | b'$'
            )
    });
    if is_drawn_token(part(view, start, last)) { last } else { end }
}

/// What a machine has drawn, also when it holds no digit.
fn is_drawn_token(token: &[u8]) -> bool {
    token.len() >= 10 && is_drawn_password(token)
}

/// The token after a scheme that no anchor knows: `Authorization: token ...`, `"Authorization": "ApiKey ..."`.
pub(crate) fn of_scheme(
    view: &[u8],
    name: &[u8],
    value: (usize, usize),
    quoted: bool,
) -> Option<(usize, usize)> {
    if !name.to_ascii_lowercase().ends_with(b"authorization") {
        return None;
    }
    let scheme = run(view, value.0, value.0 + 24, |byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let start = run(view, scheme, scheme + 4, is_blank);
    // These have anchors of their own.
    let known = [b"bearer".as_slice(), b"basic"]
        .iter()
        .any(|known| part(view, value.0, scheme).eq_ignore_ascii_case(known));
    if known || scheme == value.0 || start == scheme || (quoted && start >= value.1) {
        return None;
    }
    let end = token_end(view, start);
    let token = part(view, start, end);
    let mixed = token.len() >= 16
        && token.iter().filter(|byte| byte.is_ascii_digit()).count() >= 2
        && !is_name(token);
    ((mixed || is_drawn_token(token)) && entropy(token) >= 2.7 && !is_placeholder(token))
        .then_some((start, end))
}

/// The values of the cookies that begin at `from`, as far as they were drawn at random.
pub(crate) fn cookies(view: &[u8], from: usize) -> Vec<(usize, usize)> {
    let from = run(view, from, from + 8, |byte| {
        is_blank(byte) || matches!(byte, b'"' | b'\'' | b'=' | b':' | b',' | b'\\')
    });
    let to =
        run(view, from, from + COOKIES, |byte| byte >= b' ' && !matches!(byte, b'"' | b'\'' | b'<' | b'\\'));
    let mut found = Vec::new();
    let mut place = from;
    while place < to {
        let end = run(view, place, to, |byte| byte != b';');
        let pair = part(view, place, end);
        if let Some(split) = pair.iter().position(|byte| *byte == b'=') {
            let value = part(pair, split + 1, pair.len()).trim_ascii_end();
            let start = place + split + 1;
            let plain = value.iter().all(|byte| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'%' | b':')
            });
            if plain && is_drawn_token(value) && entropy(value) >= 2.7 && !is_placeholder(value) {
                found.push((start, start + value.len()));
            }
        }
        place = end + 1;
    }
    found
}

/// The value of a line of a jar of cookies: seven columns, of which a `TRUE` or `FALSE` stands at a place.
pub(crate) fn jar(view: &[u8], place: usize) -> Option<(usize, usize)> {
    let newline = |byte: u8| !matches!(byte, b'\n' | b'\r');
    let start = run_back(view, place, place.saturating_sub(COMMAND), newline);
    let end = run(view, place + 1, place + COOKIES, newline);
    let columns: Vec<&[u8]> = part(view, start, end).splitn(8, |byte| *byte == b'\t').collect();
    let &[_, all, _, only, _, _, value] = columns.as_slice() else { return None };
    let told = [all, only].iter().all(|word| matches!(*word, b"TRUE" | b"FALSE"));
    (told && is_drawn_token(value)).then_some((end - value.len(), end))
}

/// The pair after `Basic`, which ends at `after`.
pub(crate) fn basic(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let start = gap(view, after)?;
    let end = run(view, start, start + 4096, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
    });
    let text = part(view, start, end);
    let header = contains(part(view, after.saturating_sub(28), after), b"authorization")
        && text.len() >= 16
        && text.iter().any(u8::is_ascii_digit);
    let pair = pair(text);
    let dummy = pair.as_ref().is_some_and(|(_, password)| is_dummy_word(&password.to_ascii_lowercase()));
    ((pair.is_some() || header) && !dummy && !is_placeholder(text)).then_some((start, end))
}

/// Whether base64 of `user:password`.
pub(crate) fn is_pair(text: &[u8]) -> bool {
    pair(text).is_some()
}

/// User and password of such a text.
fn pair(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&alphabet::STANDARD, config).decode(text);
    let pair = decoded.ok()?;
    let split = pair.iter().position(|byte| *byte == b':')?;
    let text_of_letters = text.len() >= 8
        && split + 1 < pair.len()
        && pair.iter().all(|byte| (b' '..0x7f).contains(byte) || *byte >= 0x80)
        && std::str::from_utf8(&pair).is_ok();
    text_of_letters.then(|| (part(&pair, 0, split).to_vec(), part(&pair, split + 1, pair.len()).to_vec()))
}

/// The password after `-u` or `--user`, which ends at `after`.
pub(crate) fn command_login(view: &[u8], from: usize, after: usize) -> Option<(usize, usize)> {
    let line = part(view, from.saturating_sub(COMMAND), from);
    let told = [b"curl".as_slice(), b"wget", b"http ", b"mysql", b"docker"]
        .iter()
        .any(|program| contains(line, program))
        || contains(part(view, after, after + 120), b"curl");
    if !told {
        return None;
    }
    let start = run(view, after, after + 4, |byte| is_blank(byte) || matches!(byte, b'=' | b'"' | b'\''));
    let quote = at(view, start.saturating_sub(1));
    let end = run(view, start, start + LONG_LINE, |byte| {
        if matches!(quote, b'"' | b'\'') {
            byte != quote && byte >= b' '
        } else {
            byte > b' ' && !matches!(byte, b'"' | b'\'')
        }
    });
    let login = part(view, start, end);
    let split = login.iter().position(|byte| *byte == b':')?;
    let (user, password) = (part(login, 0, split), part(login, split + 1, login.len()));
    // `user:'password'`: the quote begins after the name.
    let opened = start + split + 1;
    if password.is_empty() && matches!(at(view, opened), b'"' | b'\'') && at(view, opened) != quote {
        let end = run(view, opened + 1, opened + LONG_LINE, |byte| byte != at(view, opened) && byte >= b' ');
        return is_login_password(user, part(view, opened + 1, end)).then_some((opened + 1, end));
    }
    if password.is_empty() {
        return is_login_password(b"", user).then_some((start, start + split));
    }
    is_login_password(user, password).then_some((opened, end))
}

/// The value of a line of `.netrc` whose word `password` stands from `from` to `to`.
pub(crate) fn netrc(view: &[u8], from: usize, to: usize) -> Option<(usize, usize)> {
    let head = part(view, from.saturating_sub(COMMAND), from);
    let told = contains(head, b"login ") && (contains(head, b"machine ") || contains(head, b"default"));
    let start = run(view, to, to + 20, is_blank);
    if !told || start == to {
        return None;
    }
    let end = run(view, start, start + LONG_LINE, |byte| byte > b' ');
    let (start, end) = placeholder::beside(view, start, end);
    let value = part(view, start, end);
    let told = value.len() > 2 && !is_placeholder(value) && !is_dummy_word(&value.to_ascii_lowercase());
    (told || is_drawn_password(value)).then_some((start, end))
}

/// Past what stands between the word and the token.
fn gap(view: &[u8], after: usize) -> Option<usize> {
    if view.get(after..after + 3) == Some(b"%20") {
        return Some(after + 3);
    }
    let start = run(view, after, after + 6, |byte| is_blank(byte) || matches!(byte, b':' | b'"' | b'\''));
    (start > after).then_some(start)
}

/// `request.headers.token`, `my-token-name`: no digit beside letters that could be random.
fn is_name(token: &[u8]) -> bool {
    token
        .split(|byte| !byte.is_ascii_alphanumeric())
        .all(|word| word.iter().all(u8::is_ascii_alphabetic) && word.len() < 18 || word.len() <= 3)
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests cut the texts they have made")]
mod tests {
    use super::*;

    fn found<'a>(
        text: &'a str,
        word: &str,
        look: impl Fn(&[u8], usize) -> Option<(usize, usize)>,
    ) -> Option<&'a str> {
        let after = text.find(word).unwrap() + word.len();
        look(text.as_bytes(), after).map(|(from, to)| &text[from..to])
    }

    // T21
    #[test]
    fn tokens_and_pairs_of_headers() {
        assert_eq!(found("Authorization: Bearer mF_9.B5f-4.1JqM", "Bearer", bearer), Some("mF_9.B5f-4.1JqM"));
        assert_eq!(
            found("Bearer eIdWHQqRfFmvP5LDDh-IGxPUzi7I27\"", "Bearer", bearer),
            Some("eIdWHQqRfFmvP5LDDh-IGxPUzi7I27")
        );
        for clean in [
            "Bearer token",
            "Bearer ${TOKEN}",
            "bearer authentication-scheme",
            "Bearer <access_token>",
            "Bearer req.headers.token",
        ] {
            assert_eq!(found(clean, "earer", bearer), None, "{clean}");
        }
        assert_eq!(
            found("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic", basic),
            Some("QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
        for clean in ["Basic authentication", "basic understanding of", "Basic Usage:", "Basic =========="] {
            assert_eq!(found(clean, "asic", basic), None, "{clean}");
        }
    }
}
