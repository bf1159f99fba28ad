//! The edges of a text that was cut out of a longer one: a secret may have been cut with it. What is left of a known
//! value, of a token or of a private key there is replaced too.

use crate::bytes::{at, before, contains, is_token, part, rest, run_back};
use crate::context::assigned;
use crate::finding::{Layer, Span};
use crate::live::Live;
use crate::names::{Promise, promise};
use crate::pem;
use crate::rules::Target;

/// Shorter pieces of a value say too little.
const LEAST_PIECE: usize = 4;

/// Pieces of secrets at the beginning and at the end.
pub(crate) fn edges(live: &Live, text: &[u8]) -> Result<Vec<Span>, String> {
    let known = |needle: &crate::known::Needle, start, end| Span {
        start,
        end,
        kind: needle.kind,
        layer: Layer::Known,
        print: Some(needle.print),
    };
    let mut spans = Vec::new();
    for needle in &live.needles {
        if let Some(length) = tail_of(needle.bytes(), text) {
            spans.push(known(needle, 0, length));
        }
        if let Some(length) = head_of(needle.bytes(), text) {
            spans.push(known(needle, text.len() - length, text.len()));
        }
    }
    let form = |start, end, kind| Span { start, end, kind, layer: Layer::Form, print: None };
    spans.extend(cut_token(live, text).map(|(start, kind)| form(start, text.len(), kind)));
    let kinds = live.rules.kinds;
    spans.extend(
        cut_value(text)
            .map(|start| Span { layer: Layer::Context, ..form(start, text.len(), kinds.password) }),
    );
    if let Some(end) = memchr::memmem::find(text, b"-----END")
        && !contains(part(text, 0, end), b"-----BEGIN")
        && let Some(start) = pem::before_last_line(text, end)
    {
        spans.push(form(start, end, kinds.private_key));
    }
    // A span may end inside a letter where a known value is not text.
    spans.retain(|span| at(text, span.start) & 0xc0 != 0x80 && at(text, span.end) & 0xc0 != 0x80);
    Ok(spans)
}

/// How much of the end of a value the text begins with.
fn tail_of(value: &[u8], text: &[u8]) -> Option<usize> {
    let last = value.len().checked_sub(LEAST_PIECE)?;
    let most = (value.len() - 1).min(text.len());
    let end = part(value, last, value.len());
    let found = memchr::memmem::rfind_iter(part(text, 0, most), end);
    found.map(|place| place + LEAST_PIECE).find(|&length| value.ends_with(part(text, 0, length)))
}

/// How much of the beginning of a value the text ends with.
fn head_of(value: &[u8], text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(value.len() - 1);
    let found = memchr::memmem::find_iter(rest(text, from), value.get(..LEAST_PIECE)?);
    found
        .map(|place| text.len() - from - place)
        .find(|&length| value.starts_with(rest(text, text.len() - length)))
}

/// A token's mark at the end of the text with less after it than a token has.
fn cut_token(live: &Live, text: &[u8]) -> Option<(usize, u16)> {
    let start = run_back(text, text.len(), text.len().saturating_sub(512), |byte| {
        is_token(byte) || matches!(byte, b'.' | b'/' | b'+' | b'=' | b'$')
    });
    let mark = |anchor: u32, place: usize| {
        let anchor = usize::try_from(anchor).ok().and_then(|n| live.rules.anchors.get(n))?;
        let Target::Token(n) = anchor.target else { return None };
        let there = place >= start && rest(text, place).starts_with(&anchor.bytes);
        let edge = place == start || !before(text, place).is_ascii_alphanumeric();
        let rule = live.rules.tokens.get(usize::from(n))?;
        (there && edge && anchor.bytes.len() >= LEAST_PIECE).then_some((place, rule.kind))
    };
    (start..text.len())
        .flat_map(|place| live.grams.at(text, place))
        .find_map(|(anchor, place)| mark(anchor, place))
}

/// A value at the end of the text whose name promises a password.
fn cut_value(text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(200);
    let line = run_back(text, text.len(), from, |byte| byte != b'\n');
    let tail = rest(text, line);
    let words = ["passw", "secret", "token", "api_key", "apikey", "pwd"];
    words.iter().find_map(|word| {
        let place =
            tail.windows(word.len()).rposition(|window| window.eq_ignore_ascii_case(word.as_bytes()))?;
        let found = open_value(tail, place, place + word.len())?;
        Some(line + found)
    })
}

fn open_value(tail: &[u8], from: usize, to: usize) -> Option<usize> {
    // Closed here, so that the value counts although its end is missing.
    let mut closed = tail.to_vec();
    closed.extend_from_slice(b"\"\n");
    let found = assigned(&closed, from, to)?;
    let promised =
        matches!(promise(part(tail, found.name.0, found.name.1)), Some(Promise::Password | Promise::Token));
    let value = part(tail, found.value.0, tail.len());
    let plain = !crate::judge::is_placeholder(value)
        && !value.is_empty()
        && !value.iter().any(u8::is_ascii_whitespace);
    (promised && found.quoted && found.value.1 >= tail.len() && plain && !tail.ends_with(b"\""))
        .then_some(found.value.0)
}
