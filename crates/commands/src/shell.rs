//! A parser for the part of the language of bash that can be judged. What it accepts, it takes apart as bash does;
//! constructs whose meaning depends on values (brace expansion, arithmetic, `$'...'`) are parsed and marked as odd, and
//! the rest is an error. Linear in the length of the text; bounded in depth.
//!
//! Not here: what a command means. Nothing is expanded.

mod commands;
mod compound;
mod cursor;
mod expansions;
mod here_documents;
mod syntax;
mod words;

pub(crate) use syntax::{
    CommandList, ParsedText, Pipeline, Redirect, RedirectKind, ShellCommand, SimpleCommand, Word, WordPart,
};

use cursor::Cursor;
use here_documents::PendingBody;

/// Maximum depth of compound commands and substitutions.
const MAX_DEPTH: usize = 24;

/// Why a text is not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShellSyntaxError(pub(crate) &'static str);

type Parsed<T> = Result<T, ShellSyntaxError>;

/// Parses a whole text.
pub(crate) fn parse(text: &str) -> Parsed<ParsedText> {
    ShellParser::new(text, 0).whole()
}

struct ShellParser<'s> {
    cursor: Cursor<'s>,
    depth: usize,
    pending: Vec<PendingBody>,
    /// Here-documents that began outside the substitution that is being parsed.
    pending_outside: usize,
    bodies: Vec<Word>,
    odd: Vec<&'static str>,
    history: bool,
    quote_confusion: bool,
}

impl<'s> ShellParser<'s> {
    fn new(text: &'s str, depth: usize) -> Self {
        Self {
            cursor: Cursor::new(text),
            depth,
            pending: Vec::new(),
            pending_outside: 0,
            bodies: Vec::new(),
            odd: Vec::new(),
            history: false,
            quote_confusion: false,
        }
    }

    fn whole(mut self) -> Parsed<ParsedText> {
        let commands = self.list()?;
        if self.cursor.peek().is_some() {
            return Err(ShellSyntaxError("an unexpected word or operator"));
        }
        if !self.pending.is_empty() {
            self.odd("a here-document without an end");
            self.read_bodies()?;
        }
        Ok(ParsedText {
            commands,
            bodies: self.bodies,
            odd: self.odd,
            history: self.history,
            quote_confusion: self.quote_confusion,
        })
    }

    /// Marks a construct whose programs cannot all be known.
    fn odd(&mut self, what: &'static str) {
        if !self.odd.contains(&what) {
            self.odd.push(what);
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ShellSyntaxError("nested too deeply"));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }
}
