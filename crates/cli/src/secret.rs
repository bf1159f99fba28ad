//! A passphrase that is typed, at a prompt or while the screen is up: taken byte by byte, shown nowhere, wiped when it is
//! dropped. It does not pass what reads the other keys, which would keep it in its buffers.

use zeroize::{Zeroize as _, Zeroizing};

/// Longer ones are not taken; the buffer never moves, so nothing is left behind.
const MOST: usize = 1024;

/// What is typed so far.
pub(crate) struct Line {
    bytes: Zeroizing<Vec<u8>>,
}

/// What came of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    Done,
    GivenUp,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { bytes: Zeroizing::new(Vec::with_capacity(MOST)) }
    }

    /// Takes what one read brought.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Progress {
        if bytes.first() == Some(&0x1b) {
            // Escape by itself gives up; with more behind it, it is a key that means nothing here.
            return if bytes.len() == 1 { Progress::GivenUp } else { Progress::More };
        }
        for byte in bytes {
            match byte {
                b'\r' | b'\n' => return Progress::Done,
                0x03 | 0x04 => return Progress::GivenUp,
                0x15 => self.bytes.zeroize(),
                0x08 | 0x7f => while self.bytes.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
                byte if *byte >= 0x20 && self.bytes.len() < MOST => self.bytes.push(*byte),
                _ => {}
            }
        }
        Progress::More
    }

    /// The line; `None` for what is not text.
    pub(crate) fn text(&self) -> Option<Zeroizing<String>> {
        std::str::from_utf8(&self.bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(reads: &[&[u8]]) -> (Progress, String) {
        let mut line = Line::new();
        let mut last = Progress::More;
        for bytes in reads {
            last = line.take(bytes);
        }
        (last, line.text().unwrap().to_string())
    }

    #[test]
    fn a_passphrase_is_read_as_it_is_typed() {
        assert_eq!(typed(&[b"cor", b"rect\r"]), (Progress::Done, "correct".to_owned()));
        assert_eq!(
            typed(&["p\u{e4}\u{20ac}".as_bytes(), &[0x7f], b"s\n"]),
            (Progress::Done, "p\u{e4}s".to_owned())
        );
        assert_eq!(typed(&[b"wrong", &[0x15], b"right\r"]), (Progress::Done, "right".to_owned()));
        assert_eq!(typed(&[b"a", b"\x1b[A", b"b\r"]), (Progress::Done, "ab".to_owned()));
        assert_eq!(typed(&[b"a", b"\x1b"]).0, Progress::GivenUp);
        assert_eq!(typed(&[b"a\x03"]).0, Progress::GivenUp);
        assert_eq!(typed(&[&[b'a'; 5000], b"\r"]).1.len(), MOST);
    }

    #[test]
    fn what_is_not_text_is_no_passphrase() {
        let mut line = Line::new();
        line.take(&[0xff, 0xfe]);
        assert!(line.text().is_none());
    }
}
