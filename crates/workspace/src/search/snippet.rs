//! Lines as they are shown: without their end, as text whatever they hold, and cut around the match when they
//! are long. Columns count characters of the whole line.

const ELLIPSIS: char = '…';

/// A line without its end, as text.
pub(crate) fn plain(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The column, from 1, of a byte of a line.
pub(crate) fn column(line: &[u8], at: usize) -> u64 {
    let head = line.get(..at).unwrap_or(line);
    let chars = match simdutf8::basic::from_utf8(head) {
        Ok(head) => head.chars().count(),
        Err(_) => String::from_utf8_lossy(head).chars().count(),
    };
    chars as u64 + 1
}

/// A line of context, cut at its end.
pub(crate) fn context(line: &[u8], most: usize) -> String {
    let line = plain(line);
    // At most four bytes a character: more need not be looked at.
    let enough = line.get(..(most + 1) * 4).unwrap_or(line);
    cut(&String::from_utf8_lossy(enough), most)
}

/// A matching line, cut so that the match is seen.
pub(crate) fn around(line: &[u8], at: usize, most: usize) -> String {
    let line = plain(line);
    if line.len() <= most {
        return String::from_utf8_lossy(line).into_owned();
    }
    let (head, tail) = line.split_at(at.min(line.len()));
    // A third of the room before the match, the rest from the match on.
    let before = most / 3;
    let near = head.get(head.len().saturating_sub((before + 1) * 4)..).unwrap_or(head);
    let near = String::from_utf8_lossy(near);
    let skipped = near.chars().count().saturating_sub(before);
    let cut_off = skipped > 0 || near.len() < head.len();
    let mut shown = String::new();
    if cut_off {
        shown.push(ELLIPSIS);
    }
    shown.extend(near.chars().skip(skipped));
    let room = most.saturating_sub(near.chars().count() - skipped);
    shown.push_str(&context(tail, room));
    shown
}

/// Text cut at its end.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(most).collect();
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
        let shown = around(line.as_bytes(), 200, 30);
        assert_eq!(shown, format!("…{}MATCH{}…", "ä".repeat(10), "ö".repeat(15)));
        assert_eq!(around(b"MATCH and more\n", 0, 5), "MATCH…");
        assert_eq!(around(b"short MATCH\r\n", 6, 30), "short MATCH");
        assert_eq!(around(b"MATCH", 99, 3), "…H");
        assert_eq!(context(b"abcdef\n", 3), "abc…");
        assert_eq!(context(b"abc\n", 3), "abc");
        assert_eq!(context(b"", 3), "");
    }

    #[test]
    fn columns_count_characters_and_survive_bad_bytes() {
        assert_eq!(column("äb".as_bytes(), 2), 2);
        assert_eq!(column(b"\xff\xfex", 2), 3);
        assert_eq!(column(b"x", 0), 1);
        assert_eq!(around(b"\xff\xffMATCH", 2, 300), "\u{fffd}\u{fffd}MATCH");
    }
}
