//! Compound commands: groups, conditions, loops, `case`, functions.

use super::syntax::{CommandList, Redirect, ShellCommand, Word};
use super::words::WordBuilder;
use super::{Parsed, ShellParser, ShellSyntaxError};

impl ShellParser<'_> {
    pub(super) fn command(&mut self) -> Parsed<ShellCommand> {
        self.nested(|parser| {
            parser.cursor.skip_blanks();
            if parser.cursor.peek() == Some('(') {
                return parser.parenthesis();
            }
            let keyword = parser.peek_keyword().unwrap_or_default();
            match keyword.as_str() {
                "if" => parser.conditional(),
                "while" | "until" => parser.while_loop(&keyword),
                "for" | "select" => parser.for_loop(&keyword),
                "case" => parser.case(),
                "{" => parser.group(),
                "[[" => parser.condition(),
                "function" => parser.function(),
                "coproc" => {
                    parser.accept_keyword("coproc");
                    parser.odd("a coprocess");
                    parser.command()
                }
                "then" | "else" | "elif" | "fi" | "do" | "done" | "esac" | "}" | "in" => {
                    Err(ShellSyntaxError("an unexpected reserved word"))
                }
                _ => parser.simple_command(),
            }
        })
    }

    fn parenthesis(&mut self) -> Parsed<ShellCommand> {
        self.cursor.next();
        if self.cursor.peek() == Some('(') {
            self.odd("arithmetic");
            self.cursor.next();
            let mut inner = WordBuilder::default();
            self.until_parentheses(&mut inner)?;
            return self.compound(None, vec![inner.finish()], Vec::new());
        }
        let body = self.filled_list()?;
        self.expect_char(')')?;
        self.compound(None, Vec::new(), vec![body])
    }

    fn group(&mut self) -> Parsed<ShellCommand> {
        self.expect("{")?;
        let body = self.filled_list()?;
        self.expect("}")?;
        self.compound(None, Vec::new(), vec![body])
    }

    fn conditional(&mut self) -> Parsed<ShellCommand> {
        self.expect("if")?;
        let mut bodies = vec![self.filled_list()?];
        self.expect("then")?;
        bodies.push(self.filled_list()?);
        while self.accept_keyword("elif") {
            bodies.push(self.filled_list()?);
            self.expect("then")?;
            bodies.push(self.filled_list()?);
        }
        if self.accept_keyword("else") {
            bodies.push(self.filled_list()?);
        }
        self.expect("fi")?;
        self.compound(None, Vec::new(), bodies)
    }

    fn while_loop(&mut self, keyword: &str) -> Parsed<ShellCommand> {
        self.expect(keyword)?;
        let test = self.filled_list()?;
        self.expect("do")?;
        let body = self.filled_list()?;
        self.expect("done")?;
        self.compound(None, Vec::new(), vec![test, body])
    }

    fn for_loop(&mut self, keyword: &str) -> Parsed<ShellCommand> {
        self.expect(keyword)?;
        if keyword == "select" {
            self.odd("`select`");
        }
        self.cursor.skip_blanks();
        let error = ShellSyntaxError("a loop without a plain variable");
        let (name, quoted) = self.word()?.literal().ok_or(error)?;
        if quoted || name.is_empty() || !name.chars().all(super::cursor::is_name) {
            return Err(error);
        }
        self.skip_separators()?;
        let mut words = Vec::new();
        if self.accept_keyword("in") {
            words = self.words_of_line()?;
        }
        self.cursor.skip_blanks();
        self.cursor.accept(';');
        self.skip_separators()?;
        self.expect("do")?;
        let body = self.filled_list()?;
        self.expect("done")?;
        self.compound(Some(name), words, vec![body])
    }

    fn words_of_line(&mut self) -> Parsed<Vec<Word>> {
        let mut words = Vec::new();
        loop {
            self.cursor.skip_blanks();
            if matches!(self.cursor.peek(), Some(';' | '\n' | '#') | None) {
                return Ok(words);
            }
            let word = self.word()?;
            if word.parts.is_empty() {
                return Err(ShellSyntaxError("a loop that does not parse"));
            }
            words.push(word);
        }
    }

    fn case(&mut self) -> Parsed<ShellCommand> {
        self.expect("case")?;
        self.cursor.skip_blanks();
        let mut words = vec![self.word()?];
        self.skip_separators()?;
        self.expect("in")?;
        let mut bodies = Vec::new();
        loop {
            self.skip_separators()?;
            if self.accept_keyword("esac") {
                return self.compound(None, words, bodies);
            }
            self.cursor.accept('(');
            loop {
                self.cursor.skip_blanks();
                let pattern = self.word()?;
                if pattern.parts.is_empty() {
                    return Err(ShellSyntaxError("a pattern is missing"));
                }
                words.push(pattern);
                self.cursor.skip_blanks();
                if !self.cursor.accept('|') {
                    break;
                }
            }
            self.expect_char(')')?;
            bodies.push(self.list()?);
            self.skip_separators()?;
            if self.cursor.accept(';') {
                if !self.cursor.accept(';') && !self.cursor.accept('&') {
                    return Err(ShellSyntaxError("a case that does not end"));
                }
                self.cursor.accept('&');
            }
        }
    }

    /// `[[ ... ]]`. Operators are skipped; comparing numbers evaluates arithmetic, and `-v` a subscript.
    fn condition(&mut self) -> Parsed<ShellCommand> {
        self.expect("[[")?;
        let mut words = Vec::new();
        loop {
            self.skip_condition_blanks()?;
            if self.accept_keyword("]]") {
                break;
            }
            match self.cursor.peek() {
                None | Some(';' | '#') => return Err(ShellSyntaxError("a condition without an end")),
                Some('<' | '>') if self.cursor.peek_second() == Some('(') => words.push(self.word()?),
                Some('(' | ')' | '&' | '|' | '<' | '>') => {
                    self.cursor.next();
                }
                Some(_) => words.push(self.word()?),
            }
        }
        for word in &words {
            let operator = word.literal().unwrap_or_default().0;
            if matches!(operator.as_str(), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" | "=~" | "-v" | "-R")
            {
                self.odd("a condition that evaluates its operands");
            }
        }
        let redirects = self.redirects()?;
        Ok(ShellCommand::Condition { words, redirects })
    }

    fn skip_condition_blanks(&mut self) -> Parsed<()> {
        loop {
            self.cursor.skip_blanks();
            if self.cursor.peek() != Some('\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    fn function(&mut self) -> Parsed<ShellCommand> {
        self.expect("function")?;
        self.cursor.skip_blanks();
        let (name, _) = self.word()?.literal().ok_or(ShellSyntaxError("a function without a plain name"))?;
        self.cursor.skip_blanks();
        if self.cursor.accept('(') {
            self.cursor.skip_blanks();
            self.expect_char(')')?;
        }
        self.function_body(name)
    }

    pub(super) fn function_body(&mut self, name: String) -> Parsed<ShellCommand> {
        self.odd("a function");
        self.skip_separators()?;
        let body = Box::new(self.command()?);
        Ok(ShellCommand::Function { name, body })
    }

    fn compound(
        &mut self,
        variable: Option<String>,
        words: Vec<Word>,
        bodies: Vec<CommandList>,
    ) -> Parsed<ShellCommand> {
        let redirects = self.redirects()?;
        Ok(ShellCommand::Compound { variable, words, bodies, redirects })
    }

    fn redirects(&mut self) -> Parsed<Vec<Redirect>> {
        let mut redirects = Vec::new();
        while let Some(redirect) = self.redirect()? {
            redirects.push(redirect);
        }
        Ok(redirects)
    }

    fn filled_list(&mut self) -> Parsed<CommandList> {
        let list = self.list()?;
        if list.is_empty() { Err(ShellSyntaxError("a command is missing")) } else { Ok(list) }
    }

    fn expect(&mut self, keyword: &str) -> Parsed<()> {
        self.cursor.skip_blanks();
        if self.accept_keyword(keyword) {
            Ok(())
        } else {
            Err(ShellSyntaxError("a reserved word is missing"))
        }
    }

    fn expect_char(&mut self, wanted: char) -> Parsed<()> {
        self.skip_separators()?;
        if self.cursor.accept(wanted) { Ok(()) } else { Err(ShellSyntaxError("a parenthesis is missing")) }
    }
}
