//! Credentials that a keyword announces: `Bearer ...`, `Basic ...`, `curl -u user:password`, cookies, `.netrc`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::bytes::{at, contains_ignoring_case, entropy, is_blank, run_end, run_start, slice};
use crate::classify::{is_dummy_word, is_login_password, is_placeholder, is_random_password};
use crate::placeholder;

/// How far back a command line is searched for the program's name, in bytes.
const MAX_COMMAND_LOOKBEHIND_BYTES: usize = 400;
/// Maximum length of a password on a command line or in `.netrc`, in bytes.
const MAX_PASSWORD_BYTES: usize = 2400;
/// Maximum length of a line of cookies, in bytes.
const MAX_COOKIE_BYTES: usize = 4096;

/// The token after `Bearer`, which ends at `after`.
pub(crate) fn bearer(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let start = skip_gap(view, after)?;
    let end = token_end(view, start);
    let token = slice(view, start, end);
    let mixed = token.len() >= 12 && token.iter().any(u8::is_ascii_digit) && !is_name(token);
    ((mixed || is_random_token(token)) && entropy(token) >= 2.7 && !is_placeholder(token))
        .then_some((start, end))
}

/// End of a token. Characters that no token should have end it, unless the whole looks random.
fn token_end(view: &[u8], start: usize) -> usize {
    let end = run_end(view, start, start + 4096, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    });
    let last = run_end(view, end, start + 4096, |byte| {
        byte > b' '
            && byte != 0x7f
            && !matches!(
                byte,
                b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b',' | b';' | b')' | b'}' | b'(' | b'{' | b'$'
            )
    });
    if is_random_token(slice(view, start, last)) { last } else { end }
}

/// Whether a token looks random, even if it has no digit.
fn is_random_token(token: &[u8]) -> bool {
    token.len() >= 10 && is_random_password(token)
}

/// The token after a scheme without an anchor: `Authorization: token ...`, `"Authorization": "ApiKey ..."`.
pub(crate) fn scheme_token(
    view: &[u8],
    name: &[u8],
    value: (usize, usize),
    quoted: bool,
) -> Option<(usize, usize)> {
    if !name.to_ascii_lowercase().ends_with(b"authorization") {
        return None;
    }
    let scheme = run_end(view, value.0, value.0 + 24, |byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let start = run_end(view, scheme, scheme + 4, is_blank);
    // These have anchors of their own.
    let known = [b"bearer".as_slice(), b"basic"]
        .iter()
        .any(|known| slice(view, value.0, scheme).eq_ignore_ascii_case(known));
    if known || scheme == value.0 || start == scheme || (quoted && start >= value.1) {
        return None;
    }
    let end = token_end(view, start);
    let token = slice(view, start, end);
    let mixed = token.len() >= 16
        && token.iter().filter(|byte| byte.is_ascii_digit()).count() >= 2
        && !is_name(token);
    ((mixed || is_random_token(token)) && entropy(token) >= 2.7 && !is_placeholder(token))
        .then_some((start, end))
}

/// The random-looking values of the cookies that begin at `from`.
pub(crate) fn cookies(view: &[u8], from: usize) -> Vec<(usize, usize)> {
    let from = run_end(view, from, from + 8, |byte| {
        is_blank(byte) || matches!(byte, b'"' | b'\'' | b'=' | b':' | b',' | b'\\')
    });
    let to = run_end(view, from, from + MAX_COOKIE_BYTES, |byte| {
        byte >= b' ' && !matches!(byte, b'"' | b'\'' | b'<' | b'\\')
    });
    let mut found = Vec::new();
    let mut place = from;
    while place < to {
        let end = run_end(view, place, to, |byte| byte != b';');
        let pair = slice(view, place, end);
        if let Some(split) = pair.iter().position(|byte| *byte == b'=') {
            let value = slice(pair, split + 1, pair.len()).trim_ascii_end();
            let start = place + split + 1;
            let plain = value.iter().all(|byte| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'%' | b':')
            });
            if plain && is_random_token(value) && entropy(value) >= 2.7 && !is_placeholder(value) {
                found.push((start, start + value.len()));
            }
        }
        place = end + 1;
    }
    found
}

/// The value in a line of a Netscape cookie file: seven columns, with a `TRUE` or `FALSE` at `place`.
pub(crate) fn cookie_file_value(view: &[u8], place: usize) -> Option<(usize, usize)> {
    let newline = |byte: u8| !matches!(byte, b'\n' | b'\r');
    let start = run_start(view, place, place.saturating_sub(MAX_COMMAND_LOOKBEHIND_BYTES), newline);
    let end = run_end(view, place + 1, place + MAX_COOKIE_BYTES, newline);
    let columns: Vec<&[u8]> = slice(view, start, end).splitn(8, |byte| *byte == b'\t').collect();
    let &[_, all, _, only, _, _, value] = columns.as_slice() else { return None };
    let flagged = [all, only].iter().all(|word| matches!(*word, b"TRUE" | b"FALSE"));
    (flagged && is_random_token(value)).then_some((end - value.len(), end))
}

/// The base64 credentials after `Basic`, which ends at `after`.
pub(crate) fn basic(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let start = skip_gap(view, after)?;
    let end = run_end(view, start, start + 4096, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
    });
    let text = slice(view, start, end);
    let header = contains_ignoring_case(slice(view, after.saturating_sub(28), after), b"authorization")
        && text.len() >= 16
        && text.iter().any(u8::is_ascii_digit);
    let pair = decode_credentials(text);
    let dummy = pair.as_ref().is_some_and(|(_, password)| is_dummy_word(&password.to_ascii_lowercase()));
    ((pair.is_some() || header) && !dummy && !is_placeholder(text)).then_some((start, end))
}

/// Whether a text is base64 of `user:password`.
pub(crate) fn is_basic_credentials(text: &[u8]) -> bool {
    decode_credentials(text).is_some()
}

/// Decodes base64 of `user:password`.
fn decode_credentials(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&alphabet::STANDARD, config).decode(text);
    let pair = decoded.ok()?;
    let split = pair.iter().position(|byte| *byte == b':')?;
    let text_of_letters = text.len() >= 8
        && split + 1 < pair.len()
        && pair.iter().all(|byte| (b' '..0x7f).contains(byte) || *byte >= 0x80)
        && std::str::from_utf8(&pair).is_ok();
    text_of_letters.then(|| (slice(&pair, 0, split).to_vec(), slice(&pair, split + 1, pair.len()).to_vec()))
}

/// The password after `-u` or `--user`, which ends at `after`.
pub(crate) fn user_flag_password(view: &[u8], from: usize, after: usize) -> Option<(usize, usize)> {
    let line = slice(view, from.saturating_sub(MAX_COMMAND_LOOKBEHIND_BYTES), from);
    let known_program = [b"curl".as_slice(), b"wget", b"http ", b"mysql", b"docker"]
        .iter()
        .any(|program| contains_ignoring_case(line, program))
        || contains_ignoring_case(slice(view, after, after + 120), b"curl");
    if !known_program {
        return None;
    }
    let start = run_end(view, after, after + 4, |byte| is_blank(byte) || matches!(byte, b'=' | b'"' | b'\''));
    let quote = at(view, start.saturating_sub(1));
    let end = run_end(view, start, start + MAX_PASSWORD_BYTES, |byte| {
        if matches!(quote, b'"' | b'\'') {
            byte != quote && byte >= b' '
        } else {
            byte > b' ' && !matches!(byte, b'"' | b'\'')
        }
    });
    let login = slice(view, start, end);
    let split = login.iter().position(|byte| *byte == b':')?;
    let (user, password) = (slice(login, 0, split), slice(login, split + 1, login.len()));
    // `user:'password'`: the quote begins after the name.
    let opened = start + split + 1;
    if password.is_empty() && matches!(at(view, opened), b'"' | b'\'') && at(view, opened) != quote {
        let end = run_end(view, opened + 1, opened + MAX_PASSWORD_BYTES, |byte| {
            byte != at(view, opened) && byte >= b' '
        });
        return is_login_password(user, slice(view, opened + 1, end)).then_some((opened + 1, end));
    }
    if password.is_empty() {
        return is_login_password(b"", user).then_some((start, start + split));
    }
    is_login_password(user, password).then_some((opened, end))
}

/// The password in a line of `.netrc` whose keyword `password` spans `from..to`.
pub(crate) fn netrc(view: &[u8], from: usize, to: usize) -> Option<(usize, usize)> {
    let head = slice(view, from.saturating_sub(MAX_COMMAND_LOOKBEHIND_BYTES), from);
    let in_netrc = contains_ignoring_case(head, b"login ")
        && (contains_ignoring_case(head, b"machine ") || contains_ignoring_case(head, b"default"));
    let start = run_end(view, to, to + 20, is_blank);
    if !in_netrc || start == to {
        return None;
    }
    let end = run_end(view, start, start + MAX_PASSWORD_BYTES, |byte| byte > b' ');
    let (start, end) = placeholder::trim_placeholders(view, start, end);
    let value = slice(view, start, end);
    let plausible = value.len() > 2 && !is_placeholder(value) && !is_dummy_word(&value.to_ascii_lowercase());
    (plausible || is_random_password(value)).then_some((start, end))
}

/// Position after the separator between keyword and token.
fn skip_gap(view: &[u8], after: usize) -> Option<usize> {
    if view.get(after..after + 3) == Some(b"%20") {
        return Some(after + 3);
    }
    let start = run_end(view, after, after + 6, |byte| is_blank(byte) || matches!(byte, b':' | b'"' | b'\''));
    (start > after).then_some(start)
}

/// `request.headers.token`, `my-token-name`: no digits beside letters that could be random.
fn is_name(token: &[u8]) -> bool {
    token
        .split(|byte| !byte.is_ascii_alphanumeric())
        .all(|word| word.iter().all(u8::is_ascii_alphabetic) && word.len() < 18 || word.len() <= 3)
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests slice strings that they created")]
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
    fn tokens_and_credentials_in_headers_are_found() {
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
