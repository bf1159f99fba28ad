//! Looking at bytes without slicing that can panic: what lies outside is zero or empty.

/// The byte at a place; zero outside.
pub(crate) fn at(text: &[u8], place: usize) -> u8 {
    text.get(place).copied().unwrap_or(0)
}

/// The byte before a place; zero at the beginning.
pub(crate) fn before(text: &[u8], place: usize) -> u8 {
    place.checked_sub(1).map_or(0, |place| at(text, place))
}

/// A part, as far as it lies inside.
pub(crate) fn part(text: &[u8], from: usize, to: usize) -> &[u8] {
    text.get(from..to.min(text.len())).unwrap_or_default()
}

/// From a place on; empty outside.
pub(crate) fn rest(text: &[u8], from: usize) -> &[u8] {
    text.get(from..).unwrap_or_default()
}

/// Where the run of such bytes that begins at `from` ends, at most at `limit`.
pub(crate) fn run(text: &[u8], from: usize, limit: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let there = part(text, from, limit.min(text.len()));
    from + there.iter().position(|&byte| !belongs(byte)).unwrap_or(there.len())
}

/// Where the run of such bytes that ends at `to` begins, at least at `limit`.
pub(crate) fn run_back(text: &[u8], to: usize, limit: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let there = part(text, limit, to);
    to - there.iter().rev().position(|&byte| !belongs(byte)).unwrap_or(there.len())
}

/// Whether a text begins so, whatever the case of its letters.
pub(crate) fn begins(text: &[u8], with: &[u8]) -> bool {
    text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

/// Whether a text contains another, whatever the case of its letters.
pub(crate) fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len().max(1)).any(|window| window.eq_ignore_ascii_case(word))
}

/// Letters, digits, `_` and `-`: what tokens are made of.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// What base64 is made of, both alphabets.
pub(crate) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-')
}

/// Blanks within a line.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Bits a character by Shannon: how evenly the bytes are spread.
pub(crate) fn entropy(text: &[u8]) -> f32 {
    let mut counts = [0_u16; 256];
    for &byte in text {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count = count.saturating_add(1);
        }
    }
    let all = text.len() as f32;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| {
            let share = f32::from(count) / all;
            -share * share.log2()
        })
        .sum()
}
