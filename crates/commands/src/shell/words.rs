//! Words: literal text, quotes, and where expansions begin.

use super::cursor::is_meta;
use super::syntax::{Word, WordPart};
use super::{Parsed, ShellParser, ShellSyntaxError};

impl ShellParser<'_> {
    /// Parses a word. It has no parts if none begins here.
    pub(super) fn word(&mut self) -> Parsed<Word> {
        let mut word = WordBuilder::default();
        while let Some(c) = self.cursor.peek() {
            match c {
                '<' | '>' if self.cursor.peek_second() == Some('(') => {
                    let part = self.process_substitution()?;
                    word.push(part);
                }
                c if is_meta(c) => break,
                '\'' => {
                    self.cursor.next_raw();
                    word.quoted(&self.single_quoted()?);
                }
                '"' => {
                    self.cursor.next_raw();
                    word.quoted("");
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    self.cursor.next_raw();
                    match self.cursor.next_raw() {
                        Some(escaped) => word.quoted(escaped.encode_utf8(&mut [0; 4])),
                        None => {
                            self.odd("a backslash at the end");
                            word.quoted("\\");
                        }
                    }
                }
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backquotes(&mut word, false)?,
                '~' if word.is_empty() => self.tilde(&mut word),
                c => {
                    self.cursor.next_raw();
                    self.note_history(c);
                    word.text(c);
                }
            }
        }
        let word = word.finish();
        if has_braces(&word) {
            self.odd("a brace expansion");
        }
        Ok(word)
    }

    fn single_quoted(&mut self) -> Parsed<String> {
        let start = self.cursor.position();
        loop {
            let before = self.cursor.position();
            match self.cursor.next_raw() {
                Some('\'') => {
                    let length = before - start;
                    let text = self.cursor.since(start).get(..length).unwrap_or_default().to_owned();
                    self.note_newline(text.contains('\n'));
                    return Ok(text);
                }
                Some(_) => {}
                None => return Err(ShellSyntaxError("a quote without an end")),
            }
        }
    }

    pub(super) fn double_quoted(&mut self, word: &mut WordBuilder) -> Parsed<()> {
        loop {
            match self.cursor.peek_raw() {
                None => return Err(ShellSyntaxError("a quote without an end")),
                Some('"') => {
                    self.cursor.next_raw();
                    return Ok(());
                }
                Some('\\') => self.escape_in_quotes(word, true),
                Some('$') => self.dollar(word, true)?,
                Some('`') => self.backquotes(word, true)?,
                Some(c) => {
                    self.cursor.next_raw();
                    self.note_history(c);
                    self.note_newline(c == '\n');
                    word.quoted(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
    }

    /// A backslash inside double quotes, or in a here-document, where a double quote is an ordinary character.
    pub(super) fn escape_in_quotes(&mut self, word: &mut WordBuilder, quotes: bool) {
        self.cursor.next_raw();
        match self.cursor.peek_raw() {
            Some('\n') => {
                self.cursor.next_raw();
            }
            Some(c @ ('$' | '`' | '\\')) => {
                self.cursor.next_raw();
                word.quoted(c.encode_utf8(&mut [0; 4]));
            }
            Some('"') if quotes => {
                self.cursor.next_raw();
                word.quoted("\"");
                let rest = self.cursor.rest().trim_start_matches([' ', '\t']);
                self.quote_confusion |= rest.starts_with([';', '&', '|']);
            }
            _ => word.quoted("\\"),
        }
    }

    fn tilde(&mut self, word: &mut WordBuilder) {
        self.cursor.next_raw();
        let rest = self.cursor.rest();
        let user_end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"._+-".contains(c)).unwrap_or(rest.len());
        let user = rest.get(..user_end).unwrap_or_default().to_owned();
        let next = rest.get(user_end..).and_then(|rest| rest.chars().next());
        if next.is_none_or(|c| c == '/' || is_meta(c)) {
            for _ in 0..user.len() {
                self.cursor.next_raw();
            }
            word.push(WordPart::Tilde(user));
        } else {
            if next == Some('\\') {
                self.odd("a home directory that is written with a backslash");
            }
            word.text('~');
        }
    }

    /// An interactive shell replaces `!` and what follows; a script does not.
    fn note_history(&mut self, c: char) {
        let next = self.cursor.peek_raw();
        let quiet =
            |next: char| matches!(next, ' ' | '\t' | '\n' | '=' | '(' | '"' | ';' | '|' | '&' | ')' | '\'');
        self.history |= c == '!' && next.is_some_and(|next| !quiet(next));
    }

    /// Bash reads here-documents at the end of a line; a line end inside quotes before that is not worth following.
    fn note_newline(&mut self, newline: bool) {
        if newline && self.pending.len() + self.pending_outside > 0 {
            self.odd("a line end inside quotes before a here-document");
        }
    }
}

/// Whether bash would see a brace expansion: an opening brace, a comma or `..`, a closing brace. A list of words that
/// is quoted inside counts too.
fn has_braces(word: &Word) -> bool {
    let mut open = false;
    let mut separator = false;
    let mut last = ' ';
    for part in &word.parts {
        let WordPart::Text { text, quoted: false } = part else {
            last = ' ';
            continue;
        };
        for c in text.chars() {
            match c {
                '{' => open = true,
                ',' if open => separator = true,
                '.' if open && last == '.' => separator = true,
                '}' if separator => return true,
                _ => {}
            }
            last = c;
        }
    }
    false
}

/// Collects the parts of a word and joins neighbours.
#[derive(Debug, Default)]
pub(super) struct WordBuilder {
    parts: Vec<WordPart>,
}

impl WordBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn text(&mut self, c: char) {
        self.add(c.encode_utf8(&mut [0; 4]), false);
    }

    pub(super) fn unquoted(&mut self, more: &str) {
        self.add(more, false);
    }

    pub(super) fn quoted(&mut self, more: &str) {
        self.add(more, true);
    }

    fn add(&mut self, more: &str, is_quoted: bool) {
        if let Some(WordPart::Text { text, quoted }) = self.parts.last_mut()
            && *quoted == is_quoted
        {
            text.push_str(more);
            return;
        }
        self.parts.push(WordPart::Text { text: more.to_owned(), quoted: is_quoted });
    }

    pub(super) fn push(&mut self, part: WordPart) {
        self.parts.push(part);
    }

    pub(super) fn finish(self) -> Word {
        Word { parts: self.parts }
    }
}
