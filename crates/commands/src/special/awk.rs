//! `awk`: a program that can start commands (`system`, pipes, coprocesses) and write files (`print > file`).

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::profile::{CommandProfile, OptionEffect};

pub(super) fn judge(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    judge.scanned(name, profile, arguments, &scanned);
    let mut programs: Vec<&Argument> = Vec::new();
    let mut from_file = false;
    for argument in &scanned {
        if let ScannedArgument::Option { name, rule, value } = argument {
            let is_source = name == "-e" || (name.len() > 3 && "--source".starts_with(name.as_str()));
            if is_source {
                programs.extend(value);
            }
            from_file |= rule.effect >= OptionEffect::Run;
        }
    }
    if programs.is_empty() && !from_file {
        programs.extend(scanned.iter().find_map(|argument| match argument {
            ScannedArgument::Operand { argument, .. } => Some(argument),
            _ => None,
        }));
    }
    for program in programs {
        if !program.exact {
            judge.found.unparsed(format!("the program of `{name}` is not known before it runs"));
        }
        judge_program(judge, name, &program.text);
    }
    StageFacts::default()
}

fn judge_program(judge: &mut CommandJudge<'_>, name: &str, text: &str) {
    if text.contains("/inet") {
        judge.found.deny(format!("the program of `{name}` can open a connection"));
    }
    let mut scanner =
        AwkScanner { rest: text, before: Before::Operator, print: false, parentheses: 0, print_level: 0 };
    while let Some(token) = scanner.token() {
        match token {
            AwkToken::Starts => {
                return judge.found.deny(format!("the program of `{name}` starts a command"));
            }
            AwkToken::Writes(Some(path)) => judge.write_to(&Argument::exact(path)),
            AwkToken::Writes(None) => {
                judge.found.modify(RiskLevel::High, format!("the program of `{name}` writes a file"));
            }
            AwkToken::Unknown => {
                judge.found.modify(
                    RiskLevel::Medium,
                    format!("the program `{}` of `{name}` is not understood", shown(text)),
                );
            }
            AwkToken::Other => {}
        }
    }
}

enum AwkToken {
    /// A pipe, `system`, an indirect call or a directive.
    Starts,
    /// A redirection of `print`, with the file if it is a string.
    Writes(Option<String>),
    Unknown,
    Other,
}

/// What stood before a slash decides whether it divides or begins a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Operand,
    Operator,
}

struct AwkScanner<'s> {
    rest: &'s str,
    before: Before,
    /// Inside a `print` statement, where `>` writes.
    print: bool,
    parentheses: usize,
    print_level: usize,
}

impl AwkScanner<'_> {
    fn token(&mut self) -> Option<AwkToken> {
        let c = self.rest.chars().next()?;
        let rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        let second = rest.chars().next();
        if c.is_ascii_alphabetic() || c == '_' {
            return Some(self.word());
        }
        self.rest = rest;
        Some(match c {
            '"' => {
                self.before = Before::Operand;
                if self.quoted('"').is_some() { AwkToken::Other } else { AwkToken::Unknown }
            }
            '/' if self.before == Before::Operator => {
                self.before = Before::Operand;
                if self.quoted('/').is_some() { AwkToken::Other } else { AwkToken::Unknown }
            }
            '#' => {
                self.rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
                AwkToken::Other
            }
            '|' if second == Some('|') => self.operator(1),
            '|' | '@' | '`' => AwkToken::Starts,
            '>' if self.print && self.parentheses == self.print_level => {
                self.rest = rest.strip_prefix('>').unwrap_or(rest).trim_start();
                self.written()
            }
            '\n' | ';' | '{' | '}' => {
                self.print = false;
                self.operator(0)
            }
            '(' => {
                self.parentheses += 1;
                self.operator(0)
            }
            ')' => {
                self.parentheses = self.parentheses.saturating_sub(1);
                self.before = Before::Operand;
                AwkToken::Other
            }
            ']' | '$' => {
                self.before = if c == ']' { Before::Operand } else { Before::Operator };
                AwkToken::Other
            }
            '+' | '-' if second == Some(c) => {
                // `x++ / y` divides; `++/y/` is not written by anybody.
                self.rest = rest.get(1..).unwrap_or_default();
                self.before = Before::Operand;
                AwkToken::Other
            }
            c if c.is_ascii_digit() || c == '.' => {
                self.before = Before::Operand;
                AwkToken::Other
            }
            c if c.is_whitespace() => AwkToken::Other,
            '\\' if second == Some('\n') => AwkToken::Other,
            c if c.is_ascii() => self.operator(0),
            _ => AwkToken::Unknown,
        })
    }

    fn operator(&mut self, more: usize) -> AwkToken {
        self.rest = self.rest.get(more..).unwrap_or_default();
        self.before = Before::Operator;
        AwkToken::Other
    }

    fn word(&mut self) -> AwkToken {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = self.rest.get(..end).unwrap_or_default();
        self.rest = self.rest.get(end..).unwrap_or_default();
        self.before = Before::Operand;
        match word {
            "system" => return AwkToken::Starts,
            "print" | "printf" => {
                self.print = true;
                self.print_level = self.parentheses;
                self.before = Before::Operator;
            }
            "return" | "case" | "else" | "do" => self.before = Before::Operator,
            _ => {}
        }
        AwkToken::Other
    }

    /// The text up to a delimiter that is not escaped; consumes it.
    fn quoted(&mut self, delimiter: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest.chars();
        let mut in_brackets = false;
        loop {
            match chars.next()? {
                '\\' => text.push(chars.next()?),
                '\n' => return None,
                '[' if delimiter == '/' => in_brackets = true,
                ']' if delimiter == '/' => in_brackets = false,
                // Versions differ on a slash inside brackets.
                c if c == delimiter && in_brackets => return None,
                c if c == delimiter => {
                    self.rest = chars.as_str();
                    return Some(text);
                }
                c => text.push(c),
            }
        }
    }

    fn written(&mut self) -> AwkToken {
        self.before = Before::Operand;
        let Some(rest) = self.rest.strip_prefix('"') else { return AwkToken::Writes(None) };
        self.rest = rest;
        let path = self.quoted('"');
        // More text after the string would be joined to it.
        let alone =
            self.rest.trim_start_matches([' ', '\t']).starts_with([';', '}', '\n']) || self.rest.is_empty();
        AwkToken::Writes(path.filter(|_| alone))
    }
}
