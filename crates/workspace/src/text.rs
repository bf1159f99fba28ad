//! Properties of a text: line endings, byte order mark, indentation; and whether bytes are text at all. Pure functions over
//! bytes.

use memchr::memchr_iter;

/// Line ending style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eol {
    /// `\n`
    Lf,
    /// `\r\n`
    Crlf,
    /// `\r` alone.
    Cr,
    /// More than one of them.
    Mixed,
    /// No line ending at all.
    None,
}

impl Eol {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "lf",
            Self::Crlf => "crlf",
            Self::Cr => "cr",
            Self::Mixed => "mixed",
            Self::None => "none",
        }
    }
}

/// A byte order mark at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bom {
    /// `EF BB BF`
    Utf8,
    /// `FF FE`
    Utf16Le,
    /// `FE FF`
    Utf16Be,
}

impl Bom {
    /// The mark that these bytes start with.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xef, 0xbb, 0xbf, ..] => Some(Self::Utf8),
            [0xff, 0xfe, ..] => Some(Self::Utf16Le),
            [0xfe, 0xff, ..] => Some(Self::Utf16Be),
            _ => None,
        }
    }

    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
        }
    }
}

/// How lines are indented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indent {
    /// Tabs.
    Tabs,
    /// Number of spaces per level.
    Spaces(u8),
    /// Some lines use tabs, some spaces.
    Mixed,
    /// No line is indented.
    None,
}

impl std::fmt::Display for Indent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tabs => f.write_str("tabs"),
            Self::Spaces(width) => write!(f, "spaces:{width}"),
            Self::Mixed => f.write_str("mixed"),
            Self::None => f.write_str("none"),
        }
    }
}

/// Counts line endings over the chunks of a text.
#[derive(Debug, Default)]
pub(crate) struct EolCount {
    pub(crate) newlines: u64,
    crlf: u64,
    lone_cr: u64,
    pending_cr: bool,
}

impl EolCount {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        if std::mem::take(&mut self.pending_cr) {
            self.close_cr(piece.first());
        }
        self.newlines += memchr_iter(b'\n', piece).count() as u64;
        for at in memchr_iter(b'\r', piece) {
            match piece.get(at + 1) {
                None => self.pending_cr = true,
                next => self.close_cr(next),
            }
        }
    }

    pub(crate) fn finish(mut self) -> (u64, Eol) {
        if std::mem::take(&mut self.pending_cr) {
            self.close_cr(None);
        }
        let lf = self.newlines.saturating_sub(self.crlf);
        let eol = match (lf > 0, self.crlf > 0, self.lone_cr > 0) {
            (false, false, false) => Eol::None,
            (true, false, false) => Eol::Lf,
            (false, true, false) => Eol::Crlf,
            (false, false, true) => Eol::Cr,
            _ => Eol::Mixed,
        };
        (self.newlines, eol)
    }

    fn close_cr(&mut self, next: Option<&u8>) {
        if next == Some(&b'\n') { self.crlf += 1 } else { self.lone_cr += 1 }
    }
}

/// Guesses the indentation: the most frequent increase between two lines.
pub(crate) fn indent_of(text: &[u8]) -> Indent {
    let (mut tabs, mut spaces) = (0_u64, 0_u64);
    let mut steps = [0_u64; 9];
    let mut before = 0;
    let mut smallest = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let width = line.iter().take_while(|byte| **byte == b' ').count();
        match line.get(width) {
            // Blank lines carry no information, and ` *` continues a comment.
            None | Some(b'\r' | b'*') => continue,
            Some(b'\t') => {
                tabs += 1;
                before = 0;
                continue;
            }
            Some(_) => {}
        }
        if width > 0 {
            spaces += 1;
            smallest = if smallest == 0 { width } else { smallest.min(width) };
        }
        if width > before
            && let Some(count) = steps.get_mut(width - before)
        {
            *count += 1;
        }
        before = width;
    }
    match (tabs, spaces) {
        (0, 0) => Indent::None,
        // Tabs with a few lines aligned by spaces are still tabs, and the other way round.
        (tabs, spaces) if tabs > spaces * 9 => Indent::Tabs,
        (tabs, spaces) if tabs > 0 && spaces <= tabs * 9 => Indent::Mixed,
        _ => {
            let commonest = (1..=8_u8)
                .rev()
                .max_by_key(|width| (steps.get(usize::from(*width)).copied().unwrap_or(0), *width != 1));
            let known = commonest.filter(|width| steps.get(usize::from(*width)) != Some(&0));
            Indent::Spaces(known.unwrap_or_else(|| u8::try_from(smallest).unwrap_or(u8::MAX)))
        }
    }
}

/// Whether the head of a file is not text: it contains a NUL byte, or more than 10 % control characters.
pub(crate) fn looks_binary(head: &[u8]) -> bool {
    // Branch-free, so that the compiler vectorizes it.
    let control = |byte: &u8| {
        let harmless = (byte.wrapping_sub(0x08) < 3) | (byte.wrapping_sub(0x0c) < 2) | (*byte == 0x1b);
        u8::from(((*byte < 0x20) & !harmless) | (*byte == 0x7f))
    };
    let controls = |piece: &[u8]| usize::from(piece.iter().map(control).sum::<u8>());
    memchr::memchr(0, head).is_some() || head.chunks(255).map(controls).sum::<usize>() * 10 > head.len()
}

/// Whether the bytes start with the magic number of this extension; true for unknown extensions.
pub(crate) fn has_magic(extension: &str, head: &[u8]) -> bool {
    let starts = |magic: &[u8]| head.starts_with(magic);
    match extension {
        "pdf" => starts(b"%PDF-"),
        "png" => starts(b"\x89PNG\r\n\x1a\n"),
        "jpg" | "jpeg" => starts(b"\xff\xd8\xff"),
        "gif" => starts(b"GIF87a") || starts(b"GIF89a"),
        "webp" => starts(b"RIFF") && head.get(8..12) == Some(b"WEBP"),
        "bmp" => starts(b"BM"),
        "ico" => starts(b"\x00\x00\x01\x00"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_eol(text: &str, expected: Eol) {
        for split in 0..=text.len() {
            let mut count = EolCount::default();
            count.feed(&text.as_bytes()[..split]);
            count.feed(&text.as_bytes()[split..]);
            let (newlines, eol) = count.finish();
            assert_eq!(eol, expected, "{text:?} split at {split}");
            assert_eq!(newlines, text.matches('\n').count() as u64);
        }
    }

    // A1, B1
    #[test]
    fn line_endings_are_recognised_wherever_the_chunks_end() {
        check_eol("", Eol::None);
        check_eol("abc", Eol::None);
        check_eol("a\nb\n", Eol::Lf);
        check_eol("a\r\nb\r\n", Eol::Crlf);
        check_eol("a\rb\r", Eol::Cr);
        check_eol("a\nb\r\n", Eol::Mixed);
        check_eol("a\r\nb\r", Eol::Mixed);
        check_eol("a\r\r\n", Eol::Mixed);
    }

    #[test]
    fn indentation_is_the_most_frequent_increase() {
        for (text, expected) in [
            ("", "none"),
            ("a\nb\n", "none"),
            ("a\n\tb\n\t\tc\n", "tabs"),
            ("a\n  b\n    c\n  d\n", "spaces:2"),
            ("a\n    b\n        c\n    d\n", "spaces:4"),
            ("fn a() {\n    /*\n     * x\n     */\n    b\n}\n", "spaces:4"),
            ("a\n\tb\n  c\n", "mixed"),
            ("   a\n   b\n", "spaces:3"),
            ("a\n    b\n\n        c\n", "spaces:4"),
        ] {
            assert_eq!(indent_of(text.as_bytes()).to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn binary_heads_are_recognised() {
        assert!(looks_binary(b"a\0b"));
        assert!(looks_binary(&[1, 2, 3, 4, b'a']));
        assert!(!looks_binary(b"\x1b[31mred\x1b[0m text\n\ttab\x0c"));
        assert!(!looks_binary("käse 漢字".as_bytes()));
        assert!(!looks_binary(b""));
        assert!(has_magic("png", b"\x89PNG\r\n\x1a\nrest") && !has_magic("png", b"text"));
        assert!(has_magic("webp", b"RIFF\0\0\0\0WEBPVP8") && !has_magic("webp", b"RIFF"));
    }
}
