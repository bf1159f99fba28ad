//! Text that a program printed, made harmless: without terminal sequences, of limited length. Programs of the repository
//! print what they like, so every text that goes into a report passes here.

use std::borrow::Cow;

/// Maximum length of a test name, a rule or a path, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 300;
/// Maximum length of a message, in characters.
pub(crate) const MAX_MESSAGE_CHARS: usize = 2000;
/// Maximum number of lines of a message.
const MAX_MESSAGE_LINES: usize = 30;

/// The first characters of a text, with a note of how many were left out.
pub(crate) fn clip(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some((end, _)) => {
            let (kept, rest) = text.split_at(end);
            format!("{kept} [{} characters left out]", rest.chars().count())
        }
    }
}

/// A name on one line, of limited length.
pub(crate) fn clip_name(text: &str) -> String {
    clip(text.trim(), MAX_NAME_CHARS)
}

/// Removes terminal sequences; carriage returns become line breaks.
pub(crate) fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\u{1b}' => skip_sequence(&mut chars),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Skips the rest of a terminal sequence. A sequence never goes past the end of its line.
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let ends: fn(char) -> bool = match chars.next_if(|c| *c != '\n') {
        Some('[') => |c| ('\u{40}'..='\u{7e}').contains(&c),
        Some(']' | 'P' | '^' | '_' | 'X') => |c| matches!(c, '\u{7}' | '\u{9c}' | '\\'),
        Some('(' | ')' | '#' | ' ') => |_| true,
        _ => return,
    };
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        if ends(c) {
            return;
        }
    }
}

/// A message that grows line by line up to a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BoundedMessage {
    text: String,
    chars: usize,
    lines: usize,
}

impl BoundedMessage {
    /// Adds a line, unless the limit is reached. Blank lines at the beginning are dropped.
    pub(crate) fn push(&mut self, line: &str) {
        let line = line.trim_end();
        if (self.text.is_empty() && line.trim().is_empty()) || self.is_full() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let room = MAX_MESSAGE_CHARS.saturating_sub(self.chars);
        let kept: String = line.chars().take(room).collect();
        self.chars += kept.chars().count() + 1;
        self.lines += 1;
        self.text.push_str(&kept);
    }

    /// Whether nothing more is kept.
    pub(crate) fn is_full(&self) -> bool {
        self.lines >= MAX_MESSAGE_LINES || self.chars >= MAX_MESSAGE_CHARS
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The message, without blank lines at the end.
    pub(crate) fn finish(self) -> String {
        self.text.trim_end().to_owned()
    }
}

/// A message of several lines, of limited length.
pub(crate) fn clip_message(text: &str) -> String {
    let mut message = BoundedMessage::default();
    for line in text.lines() {
        message.push(line);
    }
    message.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_sequences_are_removed() {
        let check = |text: &str, expected: &str| assert_eq!(without_escapes(text), expected, "{text:?}");
        check("plain", "plain");
        check("\u{1b}[31mred\u{1b}[0m", "red");
        check("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{7}", "link");
        check("10%\r20%\r\nend", "10%\n20%\nend");
        check("\u{1b}[31", "");
        check("\u{1b}]never ends\nnext", "\nnext");
        check("\u{1b}(Bx", "x");
    }

    #[test]
    fn long_texts_are_clipped_with_a_note() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("aeiou", 3), "aei [2 characters left out]");
        assert_eq!(clip("\u{e9}\u{e9}\u{e9}", 1), "\u{e9} [2 characters left out]");
    }

    #[test]
    fn a_message_has_limits() {
        let long = "x\n".repeat(1000);
        assert_eq!(clip_message(&long).lines().count(), MAX_MESSAGE_LINES);
        assert!(clip_message(&"y".repeat(9000)).chars().count() <= MAX_MESSAGE_CHARS);
        assert_eq!(clip_message("\n\n a\n\nb \n\n"), " a\n\nb");
    }

    proptest! {
        #[test]
        fn no_escape_character_remains(text in "(\u{1b}|\\[|\\]|[a-z]|\r|\n|\u{7}){0,60}") {
            let clean = !without_escapes(&text).contains(['\u{1b}', '\r']);
            prop_assert!(clean);
        }
    }
}
