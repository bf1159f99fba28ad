//! Writes the fields of a line: escapes them, and truncates each text at a cap, so that nothing an agent sends can make
//! its own call unrecordable. Caps count escaped bytes, as the line limit does.

use serde_json::Value;

use crate::digest::Digest;
use crate::payload::{ForgottenPayload, Payload};

/// Marks a truncated text.
const TRUNCATED: &str = "\u{2026}";

/// Writes `,"key":` before every value.
#[derive(Debug)]
pub(crate) struct FieldWriter {
    out: Vec<u8>,
}

impl FieldWriter {
    pub(crate) fn new() -> Self {
        Self { out: Vec::with_capacity(896) }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    fn key(&mut self, key: &'static str) {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// A word that needs no escaping.
    pub(crate) fn word(&mut self, key: &'static str, word: &[u8]) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(word);
        self.out.push(b'"');
    }

    pub(crate) fn text(&mut self, key: &'static str, text: &str, cap: usize) {
        self.key(key);
        string(&mut self.out, text, cap);
    }

    pub(crate) fn texts<'t>(
        &mut self,
        key: &'static str,
        texts: impl Iterator<Item = &'t str>,
        max_items: usize,
        cap: usize,
    ) {
        self.key(key);
        let mut before = b'[';
        for text in texts.take(max_items) {
            self.out.push(before);
            string(&mut self.out, text, cap);
            before = b',';
        }
        self.out.extend_from_slice(if before == b'[' { b"[]" } else { b"]" });
    }

    pub(crate) fn number(&mut self, key: &'static str, number: u64) {
        self.key(key);
        decimal(&mut self.out, number);
    }

    pub(crate) fn flag(&mut self, key: &'static str, flag: bool) {
        self.key(key);
        self.out.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    pub(crate) fn pair(&mut self, key: &'static str, first: u64, second: u64) {
        self.key(key);
        self.out.push(b'[');
        decimal(&mut self.out, first);
        self.out.push(b',');
        decimal(&mut self.out, second);
        self.out.push(b']');
    }

    pub(crate) fn digest(&mut self, key: &'static str, digest: &Digest) {
        self.key(key);
        self.out.push(b'"');
        digest.write(&mut self.out);
        self.out.push(b'"');
    }

    /// Writes a value; of a large one, only its size. Returns the bytes of a large value.
    pub(crate) fn value(&mut self, key: &'static str, value: &Value, cap: usize) -> Option<Vec<u8>> {
        self.key(key);
        let start = self.out.len();
        if serde_json::to_writer(&mut self.out, value).is_err() {
            // A `Value` always serialises into memory; if that changes, write nothing rather than half.
            self.out.truncate(start);
            self.out.extend_from_slice(b"null");
        }
        let written = self.out.get(start..).unwrap_or_default();
        if written.len() <= cap {
            return None;
        }
        let large = self.out.split_off(start);
        self.out.extend_from_slice(b"{\"truncated\":true,\"bytes\":");
        decimal(&mut self.out, large.len() as u64);
        self.out.push(b'}');
        Some(large)
    }

    /// The commitments to the payloads beside the chain.
    pub(crate) fn payloads(&mut self, payloads: &[Payload]) {
        self.key("payloads");
        let mut before = b'[';
        for payload in payloads {
            self.out.push(before);
            self.out.extend_from_slice(b"{\"field\":\"");
            self.out.extend_from_slice(payload.field.as_bytes());
            self.out.extend_from_slice(b"\",\"commitment\":\"");
            payload.commitment.write(&mut self.out);
            self.out.extend_from_slice(b"\",\"bytes\":");
            decimal(&mut self.out, payload.bytes);
            self.out.extend_from_slice(b",\"kept\":");
            decimal(&mut self.out, payload.content.len() as u64);
            self.out.push(b'}');
            before = b',';
        }
        self.out.push(b']');
    }

    /// The payload that was forgotten.
    pub(crate) fn forgotten(&mut self, forgotten: &ForgottenPayload) {
        self.key("forgotten");
        self.out.extend_from_slice(b"{\"seq\":");
        decimal(&mut self.out, forgotten.seq);
        self.out.extend_from_slice(b",\"commitment\":\"");
        forgotten.commitment.write(&mut self.out);
        self.out.extend_from_slice(b"\"}");
    }
}

/// A JSON string of at most `cap` bytes between its quotes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str, cap: usize) {
    out.push(b'"');
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\');
    // Without an early exit the loop is vectorised.
    if text.len() <= cap && text.bytes().fold(true, |all, byte| all & plain(byte)) {
        out.extend_from_slice(text.as_bytes());
    } else {
        escape(out, text, cap);
    }
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, text: &str, cap: usize) {
    let start = out.len();
    let room = cap.saturating_sub(TRUNCATED.len());
    let mut fits = start;
    for ch in text.chars() {
        match ch {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // Also characters that some readers treat as a line end or terminal command.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(ch)).as_bytes());
            }
            _ => out.extend_from_slice(ch.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        let length = out.len() - start;
        if length <= room {
            fits = out.len();
        }
        if length > cap {
            out.truncate(fits);
            out.extend_from_slice(TRUNCATED.as_bytes());
            return;
        }
    }
}

pub(crate) fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(20 - used..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str, cap: usize) -> String {
        let mut out = Vec::new();
        string(&mut out, text, cap);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn text_parses_back_and_contains_no_control_byte(text in "\\PC{0,40}|[\\x00-\\x7f\u{80}-\u{a0}\u{2028}\"\\\\]{0,40}") {
            let json = written(&text, 4096);
            prop_assert!(!json.bytes().any(|b| b < 0x20 || b == 0x7f));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn a_truncated_text_respects_its_cap_and_stays_valid_json(text in any::<String>(), cap in 3_usize..64) {
            let json = written(&text, cap);
            prop_assert!(json.len() <= cap + 2);
            let back: String = serde_json::from_str(&json).unwrap();
            prop_assert!(back == text || (back.ends_with(TRUNCATED) && text.starts_with(back.trim_end_matches(TRUNCATED))));
        }

        #[test]
        fn numbers_are_decimal(number in any::<u64>()) {
            let mut out = Vec::new();
            decimal(&mut out, number);
            prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
