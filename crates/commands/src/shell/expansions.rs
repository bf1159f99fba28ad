//! Expansions: parameters, command and process substitution, arithmetic, `$'...'`.

use std::rc::Rc;

use super::cursor::{is_name, is_name_start};
use super::syntax::{SubstitutedCommands, Word, WordPart};
use super::words::WordBuilder;
use super::{CommandList, Parsed, ShellParser, ShellSyntaxError};

impl ShellParser<'_> {
    /// What follows a dollar sign.
    pub(super) fn dollar(&mut self, word: &mut WordBuilder, quoted: bool) -> Parsed<()> {
        let start = self.cursor.position();
        self.cursor.next_raw();
        match self.cursor.peek() {
            Some('(') if self.cursor.peek_second() == Some('(') => self.arithmetic(word, start, quoted)?,
            Some('(') => {
                self.cursor.next_raw();
                let commands = self.substitution()?;
                let raw = self.cursor.since(start).to_owned();
                word.push(WordPart::Substitution {
                    raw,
                    commands: shared(Some(commands)),
                    process: false,
                    quoted,
                });
            }
            Some('{') => self.braced_parameter(word, start, quoted)?,
            Some('[') => return Err(ShellSyntaxError("old arithmetic")),
            Some('\'') if !quoted => {
                self.cursor.next_raw();
                self.odd("quoting by `$'...'`");
                let text = self.ansi_quoted()?;
                word.quoted(&text);
            }
            Some('"') if !quoted => {
                self.cursor.next_raw();
                self.odd("a translated string");
                self.double_quoted(word)?;
            }
            Some(c) if is_name_start(c) => {
                let mut name = String::new();
                while let Some(c) = self.cursor.peek().filter(|c| is_name(*c)) {
                    self.cursor.next_raw();
                    name.push(c);
                }
                word.push(WordPart::Parameter { name, quoted });
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.cursor.next_raw();
                word.push(WordPart::Parameter { name: c.to_string(), quoted });
            }
            _ if quoted => word.quoted("$"),
            _ => word.unquoted("$"),
        }
        Ok(())
    }

    /// The commands of `$(...)`, `<(...)` or `>(...)`, up to and with the closing parenthesis.
    fn substitution(&mut self) -> Parsed<CommandList> {
        let outside = std::mem::take(&mut self.pending);
        self.pending_outside += outside.len();
        let commands = self.nested(Self::list);
        self.pending_outside -= outside.len();
        let unread = !std::mem::replace(&mut self.pending, outside).is_empty();
        let commands = commands?;
        if unread {
            return Err(ShellSyntaxError("a here-document that ends outside its substitution"));
        }
        if self.cursor.accept(')') {
            Ok(commands)
        } else {
            Err(ShellSyntaxError("a substitution without an end"))
        }
    }

    pub(super) fn process_substitution(&mut self) -> Parsed<WordPart> {
        let start = self.cursor.position();
        self.cursor.next();
        self.cursor.next();
        let commands = self.substitution()?;
        let raw = self.cursor.since(start).to_owned();
        Ok(WordPart::Substitution { raw, commands: shared(Some(commands)), process: true, quoted: true })
    }

    /// `...` in backquotes: a backslash before a backquote, a dollar sign or a backslash is removed first.
    pub(super) fn backquotes(&mut self, word: &mut WordBuilder, quoted: bool) -> Parsed<()> {
        let start = self.cursor.position();
        self.cursor.next_raw();
        let mut inner = String::new();
        loop {
            match self.cursor.next_raw() {
                None => return Err(ShellSyntaxError("a backquote without an end")),
                Some('`') => break,
                Some('\\') => match self.cursor.next_raw() {
                    Some(c @ ('`' | '$' | '\\')) => inner.push(c),
                    Some('"') if quoted => inner.push('"'),
                    Some('\n') if self.pending.is_empty() => inner.push_str("\\\n"),
                    Some(c) => inner.extend(['\\', c]),
                    None => return Err(ShellSyntaxError("a backquote without an end")),
                },
                Some(c) => inner.push(c),
            }
        }
        let commands = self.inner_text(&inner);
        if commands.is_none() {
            self.odd("a command in backquotes that does not parse");
        }
        let raw = self.cursor.since(start).to_owned();
        word.push(WordPart::Substitution { raw, commands: shared(commands), process: false, quoted });
        Ok(())
    }

    fn inner_text(&mut self, text: &str) -> Option<CommandList> {
        let parsed = self.nested(|outer| ShellParser::new(text, outer.depth).whole()).ok()?;
        parsed.odd.iter().for_each(|odd| self.odd(odd));
        self.history |= parsed.history;
        self.quote_confusion |= parsed.quote_confusion;
        if !parsed.bodies.is_empty() {
            self.odd("a here-document in backquotes");
        }
        Some(parsed.commands)
    }

    fn braced_parameter(&mut self, word: &mut WordBuilder, start: usize, quoted: bool) -> Parsed<()> {
        self.cursor.next();
        if let Some(name) = self.simple_name() {
            word.push(WordPart::Parameter { name, quoted });
            return Ok(());
        }
        self.odd("a parameter expansion with an operator");
        let mut inner = WordBuilder::default();
        self.nested(|parser| parser.until_brace(&mut inner, quoted))?;
        let raw = self.cursor.since(start).to_owned();
        word.push(WordPart::Expansion { raw, inner: inner.finish().parts, quoted });
        Ok(())
    }

    /// `name}` or `#name}`: consumed only if it is that.
    fn simple_name(&mut self) -> Option<String> {
        let mut ahead = self.cursor;
        let mut name = String::new();
        if ahead.peek() == Some('#') && ahead.peek_second() != Some('}') {
            ahead.next();
        }
        let special = ahead.peek().filter(|c| "@*#?-$!".contains(*c));
        if let Some(c) = special {
            ahead.next();
            name.push(c);
        } else {
            while let Some(c) = ahead.peek().filter(|c| is_name(*c)) {
                ahead.next();
                name.push(c);
            }
        }
        let complete = !name.is_empty() && ahead.accept('}');
        if complete {
            self.cursor = ahead;
        }
        complete.then_some(name)
    }

    fn until_brace(&mut self, inner: &mut WordBuilder, quoted: bool) -> Parsed<()> {
        loop {
            match self.cursor.peek() {
                None => return Err(ShellSyntaxError("an expansion without an end")),
                Some('}') => {
                    self.cursor.next_raw();
                    return Ok(());
                }
                Some('\\') => {
                    self.cursor.next_raw();
                    self.cursor.next_raw();
                }
                Some('\'') if !quoted => {
                    self.cursor.next_raw();
                    let length =
                        self.cursor.rest().find('\'').ok_or(ShellSyntaxError("a quote without an end"))?;
                    for _ in self.cursor.rest().get(..=length).unwrap_or_default().chars() {
                        self.cursor.next_raw();
                    }
                }
                Some('"') => {
                    self.cursor.next_raw();
                    self.double_quoted(inner)?;
                }
                Some('$') => self.dollar(inner, quoted)?,
                Some('`') => self.backquotes(inner, quoted)?,
                Some('<' | '>') if self.cursor.peek_second() == Some('(') && !quoted => {
                    let part = self.process_substitution()?;
                    inner.push(part);
                }
                Some(_) => {
                    self.cursor.next_raw();
                }
            }
        }
    }

    /// `$((...))`. A nested subshell at the beginning of a substitution looks the same; it is not accepted.
    fn arithmetic(&mut self, word: &mut WordBuilder, start: usize, quoted: bool) -> Parsed<()> {
        self.odd("arithmetic");
        self.cursor.next();
        self.cursor.next();
        let mut inner = WordBuilder::default();
        self.nested(|parser| parser.until_parentheses(&mut inner))?;
        let raw = self.cursor.since(start).to_owned();
        word.push(WordPart::Expansion { raw, inner: inner.finish().parts, quoted });
        Ok(())
    }

    pub(super) fn until_parentheses(&mut self, inner: &mut WordBuilder) -> Parsed<()> {
        let mut open = 0_usize;
        loop {
            match self.cursor.peek() {
                None | Some('#' | '\'' | ';') => {
                    return Err(ShellSyntaxError("arithmetic that is not understood"));
                }
                Some('$') => self.dollar(inner, true)?,
                Some('`') => self.backquotes(inner, true)?,
                Some('"') => {
                    self.cursor.next_raw();
                    self.double_quoted(inner)?;
                }
                Some(')') if open == 0 => {
                    self.cursor.next_raw();
                    let closed = self.cursor.accept(')');
                    return if closed { Ok(()) } else { Err(ShellSyntaxError("arithmetic without an end")) };
                }
                Some(c) => {
                    self.cursor.next_raw();
                    match c {
                        '(' => open += 1,
                        ')' => open -= 1,
                        _ => {}
                    }
                }
            }
        }
    }

    /// The text of `$'...'`, for finding danger only.
    fn ansi_quoted(&mut self) -> Parsed<String> {
        let mut text = String::new();
        loop {
            let c = self.cursor.next_raw().ok_or(ShellSyntaxError("a quote without an end"))?;
            match c {
                '\'' => return Ok(text),
                '\\' => {
                    let escaped = self.cursor.next_raw().ok_or(ShellSyntaxError("a quote without an end"))?;
                    text.push(self.ansi_escape(escaped));
                }
                c => text.push(c),
            }
        }
    }

    fn ansi_escape(&mut self, escaped: char) -> char {
        match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'x' => self.digits(16, 2, 0),
            'u' => self.digits(16, 4, 0),
            'U' => self.digits(16, 8, 0),
            '0'..='7' => self.digits(8, 2, escaped.to_digit(8).unwrap_or(0)),
            c => c,
        }
    }

    fn digits(&mut self, radix: u32, most: usize, first: u32) -> char {
        let mut value = first;
        for _ in 0..most {
            let Some(digit) = self.cursor.peek_raw().and_then(|c| c.to_digit(radix)) else { break };
            self.cursor.next_raw();
            value = value.saturating_mul(radix).saturating_add(digit);
        }
        char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    /// The parts of a here-document whose delimiter is not quoted.
    pub(super) fn here_document_parts(text: &str, depth: usize) -> Parsed<(Word, Vec<&'static str>)> {
        let mut parser = ShellParser::new(text, depth);
        let mut word = WordBuilder::default();
        while let Some(c) = parser.cursor.peek_raw() {
            match c {
                '\\' => parser.escape_in_quotes(&mut word, false),
                '$' => parser.dollar(&mut word, true)?,
                '`' => parser.backquotes(&mut word, true)?,
                c => {
                    parser.cursor.next_raw();
                    word.quoted(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        if !parser.bodies.is_empty() {
            parser.odd("a here-document inside a here-document");
        }
        Ok((word.finish(), parser.odd))
    }
}

fn shared(commands: Option<CommandList>) -> SubstitutedCommands {
    SubstitutedCommands(Rc::new(commands))
}
