//! Input of a passphrase, at a prompt or in `approvals watch`: read byte by byte, never shown, wiped on drop. It does not go
//! through the key parser, which would keep it in its buffers.

use zeroize::{Zeroize as _, Zeroizing};

/// Maximum length. The buffer is allocated once and never moves, so no copy is left behind.
const MAX_PASSPHRASE_BYTES: usize = 1024;

/// The bytes typed so far.
pub(crate) struct PassphraseBuffer {
    bytes: Zeroizing<Vec<u8>>,
}

/// Whether the input is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypingState {
    More,
    Done,
    Cancelled,
}

impl PassphraseBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE_BYTES)) }
    }

    /// Processes the bytes of one read.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> TypingState {
        if bytes.first() == Some(&0x1b) {
            // Escape alone cancels; with more bytes it is a key without a meaning here.
            return if bytes.len() == 1 { TypingState::Cancelled } else { TypingState::More };
        }
        for byte in bytes {
            match byte {
                b'\r' | b'\n' => return TypingState::Done,
                0x03 | 0x04 => return TypingState::Cancelled,
                0x15 => self.bytes.zeroize(),
                0x08 | 0x7f => while self.bytes.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
                byte if *byte >= 0x20 && self.bytes.len() < MAX_PASSPHRASE_BYTES => self.bytes.push(*byte),
                _ => {}
            }
        }
        TypingState::More
    }

    /// The text; `None` if it is not valid UTF-8.
    pub(crate) fn text(&self) -> Option<Zeroizing<String>> {
        std::str::from_utf8(&self.bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(reads: &[&[u8]]) -> (TypingState, String) {
        let mut line = PassphraseBuffer::new();
        let mut last = TypingState::More;
        for bytes in reads {
            last = line.take(bytes);
        }
        (last, line.text().unwrap().to_string())
    }

    #[test]
    fn editing_keys_change_the_passphrase() {
        assert_eq!(typed(&[b"cor", b"rect\r"]), (TypingState::Done, "correct".to_owned()));
        assert_eq!(
            typed(&["p\u{e4}\u{20ac}".as_bytes(), &[0x7f], b"s\n"]),
            (TypingState::Done, "p\u{e4}s".to_owned())
        );
        assert_eq!(typed(&[b"wrong", &[0x15], b"right\r"]), (TypingState::Done, "right".to_owned()));
        assert_eq!(typed(&[b"a", b"\x1b[A", b"b\r"]), (TypingState::Done, "ab".to_owned()));
        assert_eq!(typed(&[b"a", b"\x1b"]).0, TypingState::Cancelled);
        assert_eq!(typed(&[b"a\x03"]).0, TypingState::Cancelled);
        assert_eq!(typed(&[&[b'a'; 5000], b"\r"]).1.len(), MAX_PASSPHRASE_BYTES);
    }

    #[test]
    fn invalid_utf8_is_no_passphrase() {
        let mut line = PassphraseBuffer::new();
        line.take(&[0xff, 0xfe]);
        assert!(line.text().is_none());
    }
}
