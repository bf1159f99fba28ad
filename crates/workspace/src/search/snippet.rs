//! Lines for display: without their line ending, invalid UTF-8 replaced, and cut around the match when they are long.
//! Columns count characters of the whole line.

const ELLIPSIS: char = '…';

/// A line without its line ending.
pub(crate) fn without_line_ending(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The column, from 1, of a byte offset in a line.
pub(crate) fn column(line: &[u8], at: usize) -> u64 {
    let head = line.get(..at).unwrap_or(line);
    let chars = match simdutf8::basic::from_utf8(head) {
        Ok(head) => head.chars().count(),
        Err(_) => String::from_utf8_lossy(head).chars().count(),
    };
    chars as u64 + 1
}

/// A line of context, cut at its end.
pub(crate) fn context(line: &[u8], max_chars: usize) -> String {
    let line = without_line_ending(line);
    // A character has at most four bytes; the rest need not be decoded.
    let enough = line.get(..(max_chars + 1) * 4).unwrap_or(line);
    cut(&String::from_utf8_lossy(enough), max_chars)
}

/// A matching line, cut so that the match is visible.
pub(crate) fn cut_around(line: &[u8], at: usize, max_chars: usize) -> String {
    let line = without_line_ending(line);
    if line.len() <= max_chars {
        return String::from_utf8_lossy(line).into_owned();
    }
    let (head, tail) = line.split_at(at.min(line.len()));
    // A third of the space before the match, the rest from the match on.
    let before = max_chars / 3;
    let near = head.get(head.len().saturating_sub((before + 1) * 4)..).unwrap_or(head);
    let near = String::from_utf8_lossy(near);
    let skipped = near.chars().count().saturating_sub(before);
    let cut_off = skipped > 0 || near.len() < head.len();
    let mut shown = String::new();
    if cut_off {
        shown.push(ELLIPSIS);
    }
    shown.extend(near.chars().skip(skipped));
    let room = max_chars.saturating_sub(near.chars().count() - skipped);
    shown.push_str(&context(tail, room));
    shown
}

/// Text cut at its end.
pub(crate) fn cut(text: &str, max_chars: usize) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(max_chars).collect();
    if chars.next().is_some() {
        shown.push(ELLIPSIS);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_around_their_match() {
        let line = format!("{}MATCH{}\r\n", "ä".repeat(100), "ö".repeat(100));
        let shown = cut_around(line.as_bytes(), 200, 30);
        assert_eq!(shown, format!("…{}MATCH{}…", "ä".repeat(10), "ö".repeat(15)));
        assert_eq!(cut_around(b"MATCH and more\n", 0, 5), "MATCH…");
        assert_eq!(cut_around(b"short MATCH\r\n", 6, 30), "short MATCH");
        assert_eq!(cut_around(b"MATCH", 99, 3), "…H");
        assert_eq!(context(b"abcdef\n", 3), "abc…");
        assert_eq!(context(b"abc\n", 3), "abc");
        assert_eq!(context(b"", 3), "");
    }

    #[test]
    fn columns_count_characters_and_survive_bad_bytes() {
        assert_eq!(column("äb".as_bytes(), 2), 2);
        assert_eq!(column(b"\xff\xfex", 2), 3);
        assert_eq!(column(b"x", 0), 1);
        assert_eq!(cut_around(b"\xff\xffMATCH", 2, 300), "\u{fffd}\u{fffd}MATCH");
    }
}
