//! Here-documents: their bodies follow the line in which they begin.

use super::syntax::{Word, WordPart};
use super::{Parsed, ShellParser, ShellSyntaxError};

/// A here-document whose body has not been read.
#[derive(Debug)]
pub(super) struct PendingBody {
    delimiter: String,
    /// Nothing is expanded in the body.
    quoted: bool,
    strips_tabs: bool,
    number: usize,
}

impl ShellParser<'_> {
    /// Notes a here-document; returns its number.
    pub(super) fn begin_here_document(&mut self, delimiter: &Word, strips_tabs: bool) -> Parsed<usize> {
        let error = ShellSyntaxError("the end of a here-document is not a plain word");
        let (delimiter, quoted) = delimiter.literal().ok_or(error)?;
        if delimiter.is_empty() || delimiter.contains(['\n', '\\', '"', '\'']) {
            return Err(error);
        }
        let number = self.bodies.len();
        self.bodies.push(Word::default());
        self.pending.push(PendingBody { delimiter, quoted, strips_tabs, number });
        Ok(number)
    }

    /// Consumes a line end, and the bodies that follow it.
    pub(super) fn newline(&mut self) -> Parsed<()> {
        self.cursor.next();
        if self.pending_outside > 0 {
            self.odd("a line end inside a substitution before a here-document");
        }
        self.read_bodies()
    }

    pub(super) fn read_bodies(&mut self) -> Parsed<()> {
        for pending in std::mem::take(&mut self.pending) {
            let body = self.body(&pending)?;
            if let Some(slot) = self.bodies.get_mut(pending.number) {
                *slot = body;
            }
        }
        Ok(())
    }

    fn body(&mut self, pending: &PendingBody) -> Parsed<Word> {
        let mut body = String::new();
        loop {
            let Some(line) = self.cursor.line() else {
                self.odd("a here-document without an end");
                break;
            };
            let line = if pending.strips_tabs { line.trim_start_matches('\t') } else { line };
            if line == pending.delimiter {
                break;
            }
            let backslashes = line.len() - line.trim_end_matches('\\').len();
            if !pending.quoted && backslashes % 2 == 1 {
                self.odd("a continued line in a here-document");
            }
            body.push_str(line);
            body.push('\n');
        }
        if pending.quoted {
            return Ok(Word { parts: vec![WordPart::Text { text: body, quoted: true }] });
        }
        let (word, odd) = self.nested(|parser| Self::here_document_parts(&body, parser.depth))?;
        odd.into_iter().for_each(|odd| self.odd(odd));
        Ok(word)
    }
}
