//! Parses terminal input: bytes in, keys and pasted text out. Unknown sequences are discarded as a whole, so that no part of
//! one passes for a letter. The parser does not read ahead: unread input stays in the kernel, where `tcflush` can discard it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const ESCAPE: u8 = 0x1b;
const PASTE_END: &[u8] = b"\x1b[201~";
/// Longer pastes are truncated.
const MAX_PASTE_BYTES: usize = 64 * 1024;
/// A paste whose end marker was lost ends with the first single byte after a pause of this length; that key has no other
/// effect. Several bytes in one read may be the rest of a slow paste, and are not keys.
const PASTE_STALL: Duration = Duration::from_secs(2);
/// A longer escape sequence is discarded.
const MAX_SEQUENCE_BYTES: usize = 32;

/// A key or a paste.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyInput {
    Key(KeyEvent),
    /// Pasted text.
    Paste(String),
}

/// Parser state: bytes of an incomplete key or paste.
#[derive(Debug, Default)]
pub(crate) struct KeyParser {
    left: Vec<u8>,
    /// The text of an unfinished paste.
    paste: Option<Vec<u8>>,
}

impl KeyParser {
    /// Parses the bytes of one read. `more`: whether more input is available now; an escape byte is the Esc key only if
    /// nothing follows. `quiet`: time since the previous read.
    pub(crate) fn take(&mut self, bytes: &[u8], more: bool, quiet: Duration) -> Vec<KeyInput> {
        if bytes.len() == 1
            && !more
            && quiet >= PASTE_STALL
            && let Some(text) = self.paste.take()
        {
            self.left.clear();
            return vec![KeyInput::Paste(String::from_utf8_lossy(&text).into_owned())];
        }
        self.left.extend_from_slice(bytes);
        let mut typed = Vec::new();
        while !self.left.is_empty() {
            let Some((used, key)) = self.next(more) else { break };
            self.left.drain(..used.clamp(1, self.left.len()));
            typed.extend(key);
        }
        typed
    }

    /// Length of the next key in bytes, and the key if it is known; `None` if it is incomplete.
    fn next(&mut self, more: bool) -> Option<(usize, Option<KeyInput>)> {
        if self.paste.is_some() {
            return self.pasted();
        }
        let (first, rest) = self.left.split_first()?;
        if *first != ESCAPE {
            return character(&self.left, more);
        }
        match rest.first() {
            None if more => None,
            None => Some((1, key(KeyCode::Esc))),
            Some(b'[') => self.sequence(more),
            Some(b'O') => match rest.get(1) {
                None if more => None,
                None => Some((2, None)),
                Some(last) => Some((3, letter(*last).and_then(key))),
            },
            // A key with Alt, or typed right after Esc: neither has a meaning here.
            Some(_) => Some((2, None)),
        }
    }

    /// `ESC [ numbers letter`.
    fn sequence(&mut self, more: bool) -> Option<(usize, Option<KeyInput>)> {
        let body = self.left.get(2..).unwrap_or_default();
        let Some(length) = body.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
            return (!more || body.len() > MAX_SEQUENCE_BYTES).then_some((self.left.len(), None));
        };
        let (numbers, last) = (body.get(..length).unwrap_or_default(), body.get(length).copied());
        let code = match (numbers, last) {
            (b"200", Some(b'~')) => {
                self.paste = Some(Vec::new());
                None
            }
            (b"1" | b"7", Some(b'~')) => Some(KeyCode::Home),
            (b"4" | b"8", Some(b'~')) => Some(KeyCode::End),
            (b"5", Some(b'~')) => Some(KeyCode::PageUp),
            (b"6", Some(b'~')) => Some(KeyCode::PageDown),
            (b"", Some(last)) => letter(last),
            _ => None,
        };
        Some((2 + length + 1, code.and_then(key)))
    }

    /// Collects pasted text up to its end marker.
    fn pasted(&mut self) -> Option<(usize, Option<KeyInput>)> {
        let end = self.left.windows(PASTE_END.len()).position(|window| window == PASTE_END);
        // A possible beginning of the marker stays in the buffer until the rest arrives.
        let split = (1..PASTE_END.len())
            .rev()
            .find(|length| PASTE_END.get(..*length).is_some_and(|head| self.left.ends_with(head)));
        let until = end.unwrap_or(self.left.len() - split.unwrap_or(0));
        let mut text = self.paste.take().unwrap_or_default();
        let room = MAX_PASTE_BYTES.saturating_sub(text.len());
        text.extend(self.left.iter().take(until).take(room));
        match end {
            Some(end) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Some((end + PASTE_END.len(), Some(KeyInput::Paste(text))))
            }
            None => {
                self.paste = Some(text);
                (until > 0).then_some((until, None))
            }
        }
    }
}

fn key(code: KeyCode) -> Option<KeyInput> {
    Some(KeyInput::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn letter(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'Z' => KeyCode::BackTab,
        _ => return None,
    })
}

/// A character (UTF-8), or a key with Control.
fn character(left: &[u8], more: bool) -> Option<(usize, Option<KeyInput>)> {
    let first = left.first().copied()?;
    let code = match first {
        b'\r' | b'\n' => KeyCode::Enter,
        b'\t' => KeyCode::Tab,
        0x08 | 0x7f => KeyCode::Backspace,
        0x01..=0x1a => {
            let letter = char::from(first - 1 + b'a');
            let event = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
            return Some((1, Some(KeyInput::Key(event))));
        }
        0x20..=0x7e => KeyCode::Char(char::from(first)),
        0xc2..=0xf4 => {
            let length = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            let Some(bytes) = left.get(..length) else {
                return (!more).then_some((left.len(), None));
            };
            let text = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next());
            return Some((if text.is_some() { length } else { 1 }, text.and_then(|c| key(KeyCode::Char(c)))));
        }
        _ => return Some((1, None)),
    };
    Some((1, key(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses some reads; returns the name of each key.
    fn typed(reads: &[&[u8]]) -> Vec<String> {
        let mut keys = KeyParser::default();
        let mut names = Vec::new();
        for (number, bytes) in reads.iter().enumerate() {
            for typed in keys.take(bytes, number + 1 < reads.len(), Duration::ZERO) {
                names.push(match typed {
                    KeyInput::Paste(text) => format!("paste {text:?}"),
                    KeyInput::Key(key) if key.modifiers == KeyModifiers::CONTROL => {
                        format!("control {}", key.code)
                    }
                    KeyInput::Key(key) => key.code.to_string(),
                });
            }
        }
        names
    }

    #[test]
    fn keys_are_recognized() {
        assert_eq!(typed(&[b"yN \r\t\x7f"]), ["y", "N", "Space", "Enter", "Tab", "Backspace"]);
        assert_eq!(typed(&[b"\x03\x04\x1a\x0c"]), ["control c", "control d", "control z", "control l"]);
        assert_eq!(typed(&["\u{e4}\u{4e2d}\u{1f600}".as_bytes()]), ["\u{e4}", "\u{4e2d}", "\u{1f600}"]);
        assert_eq!(
            typed(&[b"\x1b[A\x1b[B\x1bOH\x1b[5~\x1b[6~\x1b[Z"]),
            ["Up", "Down", "Home", "Page Up", "Page Down", "Back Tab"]
        );
        assert_eq!(typed(&[b"\x1b"]), ["Esc"]);
    }

    #[test]
    fn key_split_over_several_reads_is_one_key() {
        assert_eq!(typed(&[b"\x1b", b"[", b"A"]), ["Up"]);
        assert_eq!(typed(&[b"\xe4", b"\xb8\xad"]), ["\u{4e2d}"]);
        assert_eq!(typed(&[b"\x1b[200", b"~y\r\x1b[20", b"1~n"]), ["paste \"y\\r\"", "n"]);
    }

    // T25: no part of an escape sequence, a mouse event, a terminal reply or invalid UTF-8 counts as a key
    #[test]
    fn unknown_sequences_are_discarded_whole() {
        for strange in
            ["\x1b[1;5A", "\x1b[<0;33;22M", "\x1b[24;80R", "\x1by", "\x1bOy", "\x1b[?1;2c", "\x1b[999"]
        {
            assert_eq!(typed(&[strange.as_bytes()]), Vec::<String>::new(), "{strange:?}");
        }
        assert_eq!(typed(&[&[0xff, 0xc0, 0x80, 0xe4]]), Vec::<String>::new());
        assert_eq!(typed(&[&[0xe4, b'y', b'y']]), ["y", "y"], "invalid UTF-8 does not swallow the next keys");
        let long: Vec<u8> =
            std::iter::once(0x1b).chain(*b"[").chain(std::iter::repeat_n(b'1', 100)).collect();
        assert_eq!(typed(&[&long, b"y"]), ["y"]);
    }

    #[test]
    fn long_paste_is_truncated_and_its_end_is_found() {
        let mut keys = KeyParser::default();
        assert_eq!(keys.take(b"\x1b[200~", true, Duration::ZERO), []);
        for _ in 0..100 {
            assert_eq!(keys.take(&[b'y'; 4096], true, Duration::ZERO), []);
        }
        let typed = keys.take(b"\x1b[201~\r", false, Duration::ZERO);
        assert!(matches!(&typed[0], KeyInput::Paste(text) if text.len() == MAX_PASTE_BYTES));
        assert_eq!(typed.len(), 2);
    }

    // T25: a lost end marker does not disable the keyboard, and the rest of a slow paste is not keys
    #[test]
    fn paste_without_end_marker_ends_with_a_key_after_a_pause() {
        let mut keys = KeyParser::default();
        let (soon, late) = (Duration::from_millis(1500), PASTE_STALL);
        for (bytes, more, quiet) in [
            (b"\x1b[200~no\x1b[20" as &[u8], false, late),
            (b"y", false, soon),
            (b"yy", false, late),
            (b"y", true, late),
        ] {
            assert_eq!(keys.take(bytes, more, quiet), [], "{bytes:?}");
        }
        assert_eq!(keys.take(b"y", false, late), [KeyInput::Paste("no\x1b[20yyyy".to_owned())]);
        assert_eq!(keys.take(b"q", false, Duration::ZERO).len(), 1);
    }
}
