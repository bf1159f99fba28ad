//! A position in a text. Outside quotes, a backslash before a newline does not exist for the shell: `peek` and `next`
//! skip it, the raw methods do not.

/// A backslash and a newline.
const CONTINUATION: &str = "\\\n";

#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'s> {
    text: &'s str,
    at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'s str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The text since a position.
    pub(super) fn since(&self, start: usize) -> &'s str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    pub(super) fn peek_raw(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next_raw(&mut self) -> Option<char> {
        let c = self.peek_raw()?;
        self.at += c.len_utf8();
        Some(c)
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        while self.rest().starts_with(CONTINUATION) {
            self.at += CONTINUATION.len();
        }
        self.peek_raw()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        self.peek();
        self.next_raw()
    }

    /// The character after the next one.
    pub(super) fn peek_second(&mut self) -> Option<char> {
        let mut ahead = *self;
        ahead.next();
        ahead.peek()
    }

    /// Consumes a character if it is the next one.
    pub(super) fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next_raw();
        }
        found
    }

    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next_raw();
        }
    }

    /// Consumes the rest of the line, but not its newline.
    pub(super) fn skip_line(&mut self) {
        let length = self.rest().find('\n').unwrap_or(self.rest().len());
        self.at += length;
    }

    /// Consumes a line with its newline; `None` at the end of the text.
    pub(super) fn line(&mut self) -> Option<&'s str> {
        if self.rest().is_empty() {
            return None;
        }
        let start = self.at;
        self.skip_line();
        let line = self.since(start);
        self.next_raw();
        Some(line)
    }
}

/// Characters that end a word.
pub(super) fn is_meta(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
}

pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
