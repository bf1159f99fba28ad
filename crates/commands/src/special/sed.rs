//! `sed`: a script that can write files (`w`, `W`, `s///w`) and run commands (`e`, `s///e`). The script is parsed as GNU
//! sed does; what does not parse is not proven to only read.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::profile::CommandProfile;

pub(super) fn judge(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    judge.scanned(name, profile, arguments, &scanned);
    let mut scripts: Vec<&Argument> = Vec::new();
    let mut operands: Vec<&Argument> = Vec::new();
    let mut in_place = false;
    let mut script_file = false;
    for argument in &scanned {
        match argument {
            ScannedArgument::Option { name, value, .. } => {
                let is = |short: &str, long: &str| {
                    name == short || (name.len() > 2 && long.starts_with(name.as_str()))
                };
                if is("-e", "--expression") {
                    scripts.extend(value);
                }
                in_place |= is("-i", "--in-place") || name == "-I";
                script_file |= is("-f", "--file");
            }
            ScannedArgument::Operand { argument, .. } => operands.push(argument),
            _ => {}
        }
    }
    if scripts.is_empty() && !script_file {
        let first = operands.first().copied();
        operands = operands.into_iter().skip(1).collect();
        scripts.extend(first);
    }
    if in_place {
        operands.iter().for_each(|file| judge.write_to(file));
    }
    if scripts.iter().any(|script| !script.exact) {
        judge.found.unparsed(format!("the script of `{name}` is not known before it runs"));
    }
    let text: Vec<&str> = scripts.iter().map(|script| script.text.as_str()).collect();
    judge_script(judge, name, &text.join("\n"));
    StageFacts::default()
}

fn judge_script(judge: &mut CommandJudge<'_>, name: &str, text: &str) {
    // Versions differ on whether a delimiter counts inside brackets; a script that one of them rejects does nothing there.
    let mut complete = false;
    let mut effects = Vec::new();
    for brackets in [true, false] {
        let mut parser = SedParser { rest: text, brackets, effects: Vec::new() };
        complete |= parser.script().is_some();
        effects.append(&mut parser.effects);
    }
    for effect in effects {
        match effect {
            SedEffect::Runs => judge.found.deny(format!("the script of `{name}` runs a command")),
            SedEffect::Writes(path) => judge.write_to(&Argument::exact(path)),
        }
    }
    if !complete {
        judge.found.modify(RiskLevel::Medium, format!("the script `{}` is not understood", shown(text)));
        // A script that another version understands could still run a command.
        if text.trim_end().ends_with('e') && text.contains(['/', '|', '#', ',']) {
            judge.found.deny(format!("the script of `{name}` seems to run a command"));
        }
    }
}

enum SedEffect {
    Runs,
    Writes(String),
}

struct SedParser<'s> {
    rest: &'s str,
    /// Whether a delimiter inside brackets is an ordinary character.
    brackets: bool,
    effects: Vec<SedEffect>,
}

impl SedParser<'_> {
    /// Parses a whole script; `None` where it is not understood.
    fn script(&mut self) -> Option<()> {
        loop {
            self.skip(|c| c.is_whitespace() || c == ';');
            if self.rest.is_empty() {
                return Some(());
            }
            self.address()?;
            self.skip(char::is_whitespace);
            self.skip(|c| c == '!' || c == ' ');
            self.command()?;
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(skipped);
    }

    /// The rest of the line.
    fn line(&mut self) -> String {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        line.to_owned()
    }

    fn address(&mut self) -> Option<()> {
        if !self.one_address()? {
            return Some(());
        }
        self.skip(|c| c == ' ');
        if self.peek() == Some(',') {
            self.next();
            self.skip(|c| c == ' ');
            if matches!(self.peek(), Some('+' | '~')) {
                self.next();
            }
            return self.one_address()?.then_some(());
        }
        Some(())
    }

    /// Whether there is an address; `None` if it has no end.
    fn one_address(&mut self) -> Option<bool> {
        match self.peek() {
            Some(c) if c.is_ascii_digit() => self.skip(|c| c.is_ascii_digit() || c == '~'),
            Some('$') => {
                self.next();
            }
            Some('/') => {
                self.next();
                self.delimited('/')?;
                self.skip(|c| c == 'I' || c == 'M');
            }
            Some('\\') => {
                self.next();
                let delimiter = self.next()?;
                self.delimited(delimiter)?;
                self.skip(|c| c == 'I' || c == 'M');
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// A text up to its delimiter.
    fn delimited(&mut self, delimiter: char) -> Option<()> {
        let mut in_brackets = false;
        loop {
            match self.next()? {
                '\n' if delimiter != '\n' => return None,
                '\\' => {
                    self.next()?;
                }
                c if c == delimiter && !in_brackets => return Some(()),
                '[' if self.brackets && !in_brackets => {
                    in_brackets = true;
                    if self.peek() == Some('^') {
                        self.next();
                    }
                    if self.peek() == Some(']') {
                        self.next();
                    }
                }
                ']' => in_brackets = false,
                _ => {}
            }
        }
    }

    /// The replacement of `s` and the lists of `y`: brackets mean nothing there.
    fn replacement(&mut self, delimiter: char) -> Option<()> {
        loop {
            match self.next()? {
                '\\' => {
                    self.next()?;
                }
                c if c == delimiter => return Some(()),
                _ => {}
            }
        }
    }

    fn command(&mut self) -> Option<()> {
        match self.next()? {
            '{' => Some(()),
            '}' | '=' | 'd' | 'D' | 'F' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' => {
                self.command_end()
            }
            'q' | 'Q' | 'l' | 'L' => {
                self.skip(|c| c == ' ');
                self.skip(|c| c.is_ascii_digit());
                self.command_end()
            }
            '#' | 'r' | 'R' => {
                self.line();
                Some(())
            }
            ':' | 'v' | 'b' | 't' | 'T' => {
                self.skip(|c| c == ' ');
                self.skip(|c| !c.is_whitespace() && c != ';' && c != '}');
                self.command_end()
            }
            'a' | 'i' | 'c' => {
                self.text();
                Some(())
            }
            'w' | 'W' => {
                let path = self.line();
                self.effects.push(SedEffect::Writes(path.trim_start().to_owned()));
                Some(())
            }
            'e' => {
                self.effects.push(SedEffect::Runs);
                self.line();
                Some(())
            }
            's' => self.substitute(),
            'y' => {
                let delimiter = self.next().filter(|c| *c != '\n' && *c != '\\')?;
                self.replacement(delimiter)?;
                self.replacement(delimiter)?;
                self.command_end()
            }
            _ => None,
        }
    }

    fn command_end(&mut self) -> Option<()> {
        self.skip(|c| c == ' ' || c == '\t');
        match self.peek() {
            None | Some('\n' | ';' | '}' | '#') => Some(()),
            _ => None,
        }
    }

    /// Text of `a`, `i`, `c`: up to a line that does not end with a backslash.
    fn text(&mut self) {
        while self.line().ends_with('\\') && !self.rest.is_empty() {}
    }

    fn substitute(&mut self) -> Option<()> {
        let delimiter = self.next().filter(|c| *c != '\n' && *c != '\\')?;
        self.delimited(delimiter)?;
        self.replacement(delimiter)?;
        loop {
            match self.peek() {
                Some('e') => {
                    self.effects.push(SedEffect::Runs);
                    self.next();
                }
                Some('w') => {
                    self.next();
                    let path = self.line();
                    self.effects.push(SedEffect::Writes(path.trim_start().to_owned()));
                    return Some(());
                }
                Some('g' | 'p' | 'i' | 'I' | 'm' | 'M') => {
                    self.next();
                }
                Some(c) if c.is_ascii_digit() => {
                    self.next();
                }
                _ => return self.command_end(),
            }
        }
    }
}
