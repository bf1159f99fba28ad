//! Lists, pipelines, simple commands and redirections.

use super::cursor::{is_meta, is_name, is_name_start};
use super::syntax::{
    CommandList, Pipeline, Redirect, RedirectKind, ShellCommand, SimpleCommand, VariableAssignment, Word,
    WordPart,
};
use super::{Parsed, ShellParser, ShellSyntaxError};

/// Reserved words that end a list.
const TERMINATORS: &[&str] = &["then", "else", "elif", "fi", "do", "done", "esac", "}"];

impl ShellParser<'_> {
    /// Commands up to the end of the text, a closing parenthesis, `;;` or a reserved word that ends a list.
    pub(super) fn list(&mut self) -> Parsed<CommandList> {
        let mut list = CommandList::new();
        loop {
            self.skip_separators()?;
            if self.at_list_end() {
                return Ok(list);
            }
            let mut pipeline = self.pipeline()?;
            let more = self.operator(&mut pipeline)?;
            list.push(pipeline);
            if !more {
                return Ok(list);
            }
        }
    }

    /// Consumes what separates two pipelines; `false` if the list ends here.
    fn operator(&mut self, pipeline: &mut Pipeline) -> Parsed<bool> {
        self.cursor.skip_blanks();
        let first = self.cursor.peek();
        let second = self.cursor.peek_second();
        match (first, second) {
            (Some('&'), Some('&')) | (Some('|'), Some('|')) => {
                self.cursor.next();
                self.cursor.next();
                self.skip_separators()?;
                if self.at_list_end() {
                    Err(ShellSyntaxError("an operator without a command"))
                } else {
                    Ok(true)
                }
            }
            (Some(';'), Some(';' | '&')) => Ok(false),
            (Some(';'), _) => {
                self.cursor.next();
                Ok(true)
            }
            (Some('&'), _) => {
                self.cursor.next();
                pipeline.background = true;
                Ok(true)
            }
            (Some('\n' | '#'), _) => Ok(true),
            (None | Some(')'), _) => Ok(false),
            _ if self.at_list_end() => Ok(false),
            _ => Err(ShellSyntaxError("a word where an operator must be")),
        }
    }

    /// Skips blanks, line ends and comments.
    pub(super) fn skip_separators(&mut self) -> Parsed<()> {
        loop {
            match self.cursor.peek() {
                Some(' ' | '\t') => {
                    self.cursor.next_raw();
                }
                Some('\n') => self.newline()?,
                Some('#') => self.cursor.skip_line(),
                _ => return Ok(()),
            }
        }
    }

    fn at_list_end(&mut self) -> bool {
        match self.cursor.peek() {
            None | Some(')') => true,
            Some(';') => matches!(self.cursor.peek_second(), Some(';' | '&')),
            _ => self.peek_keyword().is_some_and(|word| TERMINATORS.contains(&word.as_str())),
        }
    }

    /// The next word, if it is written without quotes and expansions.
    pub(super) fn peek_keyword(&mut self) -> Option<String> {
        let mut ahead = self.cursor;
        let mut word = String::new();
        while let Some(c) = ahead.peek().filter(|c| !is_meta(*c)) {
            if matches!(c, '\'' | '"' | '\\' | '$' | '`') || word.len() > 8 {
                return None;
            }
            ahead.next();
            word.push(c);
        }
        (!word.is_empty()).then_some(word)
    }

    /// Consumes a reserved word if it comes next.
    pub(super) fn accept_keyword(&mut self, wanted: &str) -> bool {
        let found = self.peek_keyword().is_some_and(|word| word == wanted);
        if found {
            for _ in wanted.chars() {
                self.cursor.next();
            }
        }
        found
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut prefixed = false;
        let mut timed = false;
        loop {
            self.cursor.skip_blanks();
            if self.accept_keyword("!") {
                prefixed = true;
            } else if self.accept_keyword("time") {
                prefixed = true;
                timed = true;
                self.cursor.skip_blanks();
                if !self.accept_keyword("-p") && self.cursor.peek() == Some('-') {
                    self.odd("`time` with an option");
                }
            } else {
                break;
            }
        }
        let mut commands = Vec::new();
        // `time` and `!` alone are commands.
        let nothing_follows =
            matches!(self.cursor.peek(), None | Some('\n' | ';' | '#')) || self.at_list_end();
        if prefixed && nothing_follows {
            self.odd("`time` or `!` without a command");
            return Ok(Pipeline { commands, background: false, timed });
        }
        commands.push(self.command()?);
        loop {
            self.cursor.skip_blanks();
            if self.cursor.peek() != Some('|') || self.cursor.peek_second() == Some('|') {
                return Ok(Pipeline { commands, background: false, timed });
            }
            self.cursor.next();
            self.cursor.accept('&');
            self.skip_separators()?;
            if self.peek_keyword().is_some_and(|word| word == "time" || word == "!") {
                self.odd("`time` or `!` inside a pipeline");
            }
            commands.push(self.command()?);
        }
    }

    pub(super) fn simple_command(&mut self) -> Parsed<ShellCommand> {
        let mut simple = SimpleCommand::default();
        loop {
            self.cursor.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                simple.redirects.push(redirect);
                continue;
            }
            match self.cursor.peek() {
                None | Some('\n' | ';' | '&' | '|' | ')' | '#') => break,
                Some('(') => return self.function_after(&simple),
                Some('<' | '>') if self.cursor.peek_second() != Some('(') => break,
                _ => {}
            }
            let word = self.word()?;
            if word.parts.is_empty() {
                return Err(ShellSyntaxError("an unexpected operator"));
            }
            if matches!(self.cursor.peek(), Some('<' | '>')) && is_descriptor_name(&word) {
                self.odd("a descriptor in a variable");
            }
            match assignment(&word).filter(|_| simple.words.is_empty()) {
                Some((name, value)) => {
                    let value = self.assigned_value(value)?;
                    simple.assignments.push(VariableAssignment { name, value });
                }
                None => {
                    if simple.words.is_empty() && is_subscripted(&word) {
                        self.odd("an assignment to an array element");
                    }
                    simple.words.push(word);
                }
            }
        }
        if simple.assignments.is_empty() && simple.words.is_empty() && simple.redirects.is_empty() {
            return Err(ShellSyntaxError("an operator without a command"));
        }
        Ok(ShellCommand::Simple(simple))
    }

    /// The value of an assignment: the rest of the word, or the elements in parentheses.
    fn assigned_value(&mut self, value: Word) -> Parsed<Vec<Word>> {
        if self.cursor.peek() != Some('(') {
            return Ok(vec![value]);
        }
        self.odd("an array");
        self.cursor.next();
        let mut elements = vec![value];
        loop {
            self.skip_separators()?;
            if self.cursor.accept(')') {
                return Ok(elements);
            }
            let element = self.word()?;
            if element.parts.is_empty() {
                return Err(ShellSyntaxError("an array that does not parse"));
            }
            elements.push(element);
        }
    }

    /// `name ()` and the body of a function.
    fn function_after(&mut self, simple: &SimpleCommand) -> Parsed<ShellCommand> {
        let error = ShellSyntaxError("an unexpected parenthesis");
        let [word] = simple.words.as_slice() else { return Err(error) };
        let (name, _) = word.literal().ok_or(error)?;
        if !simple.assignments.is_empty() || !simple.redirects.is_empty() {
            return Err(error);
        }
        self.cursor.next();
        self.cursor.skip_blanks();
        if !self.cursor.accept(')') {
            return Err(error);
        }
        self.function_body(name)
    }

    /// A redirection, if one comes next.
    pub(super) fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        self.cursor.skip_blanks();
        let mut ahead = self.cursor;
        while ahead.peek().is_some_and(|c| c.is_ascii_digit()) {
            ahead.next();
        }
        let numbered = ahead.position() != self.cursor.position();
        let both = !numbered && ahead.peek() == Some('&') && ahead.peek_second() == Some('>');
        if both {
            ahead.next();
        }
        let first = match ahead.peek() {
            Some(c @ ('<' | '>')) if ahead.peek_second() != Some('(') => c,
            _ => return Ok(None),
        };
        ahead.next();
        self.cursor = ahead;
        let kind = if first == '>' { self.output_kind(both) } else { self.input_kind() };
        self.cursor.skip_blanks();
        let target = self.word()?;
        if target.parts.is_empty() {
            return Err(ShellSyntaxError("a redirection without a target"));
        }
        let kind = match kind {
            RedirectKind::HereDocument(tabs) => {
                RedirectKind::HereDocument(self.begin_here_document(&target, tabs == 1)?)
            }
            kind => kind,
        };
        Ok(Some(Redirect { kind, target }))
    }

    fn output_kind(&mut self, both: bool) -> RedirectKind {
        if self.cursor.accept('>') || self.cursor.accept('|') {
            RedirectKind::Write
        } else if !both && self.cursor.accept('&') {
            RedirectKind::Duplicate { writes: true }
        } else {
            RedirectKind::Write
        }
    }

    /// For a here-document, whether tabs are stripped stands in the place of its number.
    fn input_kind(&mut self) -> RedirectKind {
        if self.cursor.accept('>') {
            RedirectKind::ReadWrite
        } else if self.cursor.accept('&') {
            RedirectKind::Duplicate { writes: false }
        } else if !self.cursor.accept('<') {
            RedirectKind::Read
        } else if self.cursor.accept('<') {
            RedirectKind::HereString
        } else {
            RedirectKind::HereDocument(usize::from(self.cursor.accept('-')))
        }
    }
}

/// The name and the value, if a word is an assignment.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let (first, rest) = word.parts.split_first()?;
    let WordPart::Text { text, quoted: false } = first else { return None };
    let (name, value) = text.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    if !name.starts_with(is_name_start) || !name.chars().all(is_name) {
        return None;
    }
    let mut parts = vec![WordPart::Text { text: value.to_owned(), quoted: false }];
    parts.extend(rest.iter().cloned());
    Some((name.to_owned(), Word { parts }))
}

/// `{name}` before a redirection is no word of the command.
fn is_descriptor_name(word: &Word) -> bool {
    word.literal().is_some_and(|(text, _)| text.starts_with('{') && text.ends_with('}'))
}

fn is_subscripted(word: &Word) -> bool {
    let Some(WordPart::Text { text, quoted: false }) = word.parts.first() else { return false };
    text.split_once('[').is_some_and(|(name, _)| name.starts_with(is_name_start) && name.chars().all(is_name))
}
