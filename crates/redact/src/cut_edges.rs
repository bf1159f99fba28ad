//! The edges of a text that was cut out of a longer one: the cut may have split a secret. This finds what is left there
//! of a known value, a token or a private key.

use crate::assignment::find_assignment;
use crate::bytes::{at, before, contains_ignoring_case, is_token, rest, run_start, slice};
use crate::finding::{DetectionLayer, Span};
use crate::pem;
use crate::rules::AnchorTarget;
use crate::scanner::Scanner;
use crate::secret_names::{NameHint, name_hint};

/// Minimum length of a partial secret, in bytes; less reveals too little.
const MIN_PIECE_BYTES: usize = 4;

/// Returns the partial secrets at the beginning and at the end.
pub(crate) fn edges(scanner: &Scanner, text: &[u8]) -> Result<Vec<Span>, String> {
    let known = |needle: &crate::known::Needle, start, end| Span {
        start,
        end,
        kind: needle.kind,
        layer: DetectionLayer::Known,
        fingerprint: Some(needle.fingerprint),
    };
    let mut spans = Vec::new();
    for needle in &scanner.needles {
        if let Some(length) = tail_of(needle.bytes(), text) {
            spans.push(known(needle, 0, length));
        }
        if let Some(length) = head_of(needle.bytes(), text) {
            spans.push(known(needle, text.len() - length, text.len()));
        }
    }
    let form = |start, end, kind| Span { start, end, kind, layer: DetectionLayer::Form, fingerprint: None };
    spans.extend(cut_token(scanner, text).map(|(start, kind)| form(start, text.len(), kind)));
    let kinds = scanner.rules.kinds;
    spans.extend(
        cut_value(text)
            .map(|start| Span { layer: DetectionLayer::Context, ..form(start, text.len(), kinds.password) }),
    );
    if let Some(end) = memchr::memmem::find(text, b"-----END")
        && !contains_ignoring_case(slice(text, 0, end), b"-----BEGIN")
        && let Some(start) = pem::before_end_line(text, end)
    {
        spans.push(form(start, end, kinds.private_key));
    }
    // A span may end inside a character if a known value is not UTF-8.
    spans.retain(|span| at(text, span.start) & 0xc0 != 0x80 && at(text, span.end) & 0xc0 != 0x80);
    Ok(spans)
}

/// Length of the end of `value` that the text begins with.
fn tail_of(value: &[u8], text: &[u8]) -> Option<usize> {
    let last = value.len().checked_sub(MIN_PIECE_BYTES)?;
    let most = (value.len() - 1).min(text.len());
    let end = slice(value, last, value.len());
    let found = memchr::memmem::rfind_iter(slice(text, 0, most), end);
    found.map(|place| place + MIN_PIECE_BYTES).find(|&length| value.ends_with(slice(text, 0, length)))
}

/// Length of the beginning of `value` that the text ends with.
fn head_of(value: &[u8], text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(value.len() - 1);
    let found = memchr::memmem::find_iter(rest(text, from), value.get(..MIN_PIECE_BYTES)?);
    found
        .map(|place| text.len() - from - place)
        .find(|&length| value.starts_with(rest(text, text.len() - length)))
}

/// A token's prefix at the end of the text, followed by less than a whole token.
fn cut_token(scanner: &Scanner, text: &[u8]) -> Option<(usize, u16)> {
    let start = run_start(text, text.len(), text.len().saturating_sub(512), |byte| {
        is_token(byte) || matches!(byte, b'.' | b'/' | b'+' | b'=' | b'$')
    });
    let token_start = |anchor: u32, place: usize| {
        let anchor = usize::try_from(anchor).ok().and_then(|n| scanner.rules.anchors.get(n))?;
        let AnchorTarget::Token(n) = anchor.target else { return None };
        let there = place >= start && rest(text, place).starts_with(&anchor.bytes);
        let edge = place == start || !before(text, place).is_ascii_alphanumeric();
        let rule = scanner.rules.tokens.get(usize::from(n))?;
        (there && edge && anchor.bytes.len() >= MIN_PIECE_BYTES).then_some((place, rule.kind))
    };
    (start..text.len())
        .flat_map(|place| scanner.prefilter.at(text, place))
        .find_map(|(anchor, place)| token_start(anchor, place))
}

/// A value at the end of the text whose name hints at a password or token.
fn cut_value(text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(200);
    let line = run_start(text, text.len(), from, |byte| byte != b'\n');
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
    // Append the missing quote so that the value parses.
    let mut closed = tail.to_vec();
    closed.extend_from_slice(b"\"\n");
    let found = find_assignment(&closed, from, to)?;
    let promised = matches!(
        name_hint(slice(tail, found.name.0, found.name.1)),
        Some(NameHint::Password | NameHint::Token)
    );
    let value = slice(tail, found.value.0, tail.len());
    let plain = !crate::classify::is_placeholder(value)
        && !value.is_empty()
        && !value.iter().any(u8::is_ascii_whitespace);
    (promised && found.quoted && found.value.1 >= tail.len() && plain && !tail.ends_with(b"\""))
        .then_some(found.value.0)
}
