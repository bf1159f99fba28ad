//! Byte access that cannot panic: out of range is zero or empty.

/// The byte at a position; zero out of range.
pub(crate) fn at(text: &[u8], place: usize) -> u8 {
    text.get(place).copied().unwrap_or(0)
}

/// The byte before a position; zero at the beginning.
pub(crate) fn before(text: &[u8], place: usize) -> u8 {
    place.checked_sub(1).map_or(0, |place| at(text, place))
}

/// The bytes of a range, clamped to the text.
pub(crate) fn slice(text: &[u8], from: usize, to: usize) -> &[u8] {
    text.get(from..to.min(text.len())).unwrap_or_default()
}

/// The bytes from a position on; empty out of range.
pub(crate) fn rest(text: &[u8], from: usize) -> &[u8] {
    text.get(from..).unwrap_or_default()
}

/// End of the run of matching bytes that begins at `from`, at most `limit`.
pub(crate) fn run_end(text: &[u8], from: usize, limit: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let there = slice(text, from, limit.min(text.len()));
    from + there.iter().position(|&byte| !belongs(byte)).unwrap_or(there.len())
}

/// Start of the run of matching bytes that ends at `to`, at least `limit`.
pub(crate) fn run_start(text: &[u8], to: usize, limit: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let there = slice(text, limit, to);
    to - there.iter().rev().position(|&byte| !belongs(byte)).unwrap_or(there.len())
}

/// Whether a text begins with another, ignoring ASCII case.
pub(crate) fn starts_with_ignoring_case(text: &[u8], with: &[u8]) -> bool {
    text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

/// Whether a text contains another, ignoring ASCII case.
pub(crate) fn contains_ignoring_case(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len().max(1)).any(|window| window.eq_ignore_ascii_case(word))
}

/// Letters, digits, `_` and `-`: the characters of tokens.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The characters of base64, both alphabets.
pub(crate) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-')
}

/// Space and tab.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Shannon entropy in bits per character.
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
