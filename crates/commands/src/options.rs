//! Separates the words of a command into options and operands, in the style of the program. Where a word is not known
//! exactly and could be an option, that is an outcome of its own: the caller decides whether it matters.

use crate::argument::Argument;
use crate::profile::{Arity, CommandProfile, Operands, OptionEffect, OptionRule, OptionStyle};

/// A word, or an option with its value.
#[derive(Debug, Clone)]
pub(crate) enum ScannedArgument {
    Option {
        /// As the table writes it, abbreviations not expanded.
        name: String,
        rule: OptionRule,
        value: Option<Argument>,
    },
    UnknownOption {
        name: String,
        value: Option<Argument>,
    },
    /// An operand, and its place among the words.
    Operand {
        argument: Argument,
        at: usize,
    },
    /// Could be an option, or several words.
    Uncertain(Argument),
}

/// Scans the words after the program's name. Where another program, a script or a subcommand begins with the first
/// operand, everything after it is an operand.
pub(crate) fn scan(profile: &CommandProfile, words: &[Argument]) -> Vec<ScannedArgument> {
    let mut scanner = Scanner { profile, words, at: 0, found: Vec::new() };
    scanner.run();
    scanner.found
}

struct Scanner<'a> {
    profile: &'a CommandProfile,
    words: &'a [Argument],
    at: usize,
    found: Vec<ScannedArgument>,
}

impl<'a> Scanner<'a> {
    fn run(&mut self) {
        let mut only_operands = self.profile.style == OptionStyle::Plain;
        let ends_at_operand = self.profile.style == OptionStyle::Posix
            || matches!(
                self.profile.operands,
                Operands::Program(_) | Operands::Script | Operands::Subcommand | Operands::Shell
            );
        while let Some(word) = self.next() {
            let is_operand = only_operands || (!word.may_be_option() && !self.is_plus_option(word));
            if is_operand {
                only_operands |= ends_at_operand;
                self.found.push(ScannedArgument::Operand { argument: word.clone(), at: self.at - 1 });
            } else if word.exact && word.text == "--" {
                only_operands = true;
            } else {
                self.option(word);
            }
        }
    }

    fn next(&mut self) -> Option<&'a Argument> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    fn is_plus_option(&self, word: &Argument) -> bool {
        word.text.starts_with('+') && self.profile.option("+").is_some()
    }

    fn option(&mut self, word: &'a Argument) {
        if !word.exact && !word.literal_prefix().starts_with(['-', '+']) {
            self.found.push(ScannedArgument::Uncertain(word.clone()));
        } else if self.is_plus_option(word) {
            if let Some(rule) = self.profile.option("+") {
                self.push("+", rule, Some(word.tail(1)));
            }
        } else if word.text.starts_with("--") || self.profile.style == OptionStyle::SingleDash {
            self.long(word);
        } else {
            self.short(word);
        }
    }

    fn long(&mut self, word: &'a Argument) {
        let (name, value) = match word.text.split_once('=') {
            Some((name, _)) if name.len() < word.prefix => (name, Some(word.tail(name.len() + 1))),
            _ if word.exact => (word.text.as_str(), None),
            _ => return self.found.push(ScannedArgument::Uncertain(word.clone())),
        };
        if word.splits {
            self.found.push(ScannedArgument::Uncertain(word.clone()));
        }
        let single = self.profile.style == OptionStyle::SingleDash;
        let rule = if single { self.profile.option(name) } else { self.profile.long_option(name) };
        let rule = rule.or_else(|| if single { self.profile.option(&word.text) } else { None });
        match rule.or_else(|| self.negated(name)) {
            Some(rule) if value.is_none() && rule.arity == Arity::Required => self.push_with_next(name, rule),
            Some(rule) => {
                let attached = || prefixed_value(self.profile, word);
                self.push(name, rule, value.or_else(attached));
            }
            None if single && self.is_number(word) => self.number(word),
            None => self.found.push(ScannedArgument::UnknownOption { name: name.to_owned(), value }),
        }
    }

    /// `--no-X` of an option `--X` switches it off.
    fn negated(&self, name: &str) -> Option<OptionRule> {
        if self.profile.style != OptionStyle::Git {
            return None;
        }
        let positive = format!("--{}", name.strip_prefix("--no-").filter(|rest| !rest.is_empty())?);
        self.profile.long_option(&positive)?;
        Some(OptionRule { effect: OptionEffect::Read, arity: Arity::None })
    }

    fn short(&mut self, word: &'a Argument) {
        if self.is_number(word) {
            return self.number(word);
        }
        // Some programs have options of several letters beside bundles.
        if let Some(rule) = self.profile.option(&word.text).filter(|_| word.exact && word.text.len() > 2) {
            return match rule.arity {
                Arity::Required => self.push_with_next(&word.text, rule),
                Arity::None | Arity::Attached => self.push(&word.text, rule, None),
            };
        }
        let mut bundle = word.text.char_indices().skip(1).peekable();
        while let Some((start, letter)) = bundle.next() {
            if start >= word.prefix {
                return self.found.push(ScannedArgument::Uncertain(word.clone()));
            }
            let name = format!("-{letter}");
            let end = start + letter.len_utf8();
            let has_more = bundle.peek().is_some();
            match self.profile.option(&name) {
                Some(rule) if rule.arity == Arity::None => self.push(&name, rule, None),
                Some(rule) if has_more => {
                    if word.splits {
                        self.found.push(ScannedArgument::Uncertain(word.clone()));
                    }
                    return self.push(&name, rule, Some(word.tail(end)));
                }
                Some(rule) if rule.arity == Arity::Required => return self.push_with_next(&name, rule),
                Some(rule) => self.push(&name, rule, None),
                None => {
                    let value = has_more.then(|| word.tail(end));
                    return self.found.push(ScannedArgument::UnknownOption { name, value });
                }
            }
        }
    }

    fn is_number(&self, word: &Argument) -> bool {
        let digits = word.text.get(1..).unwrap_or_default();
        self.profile.numbers
            && word.exact
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn number(&mut self, word: &Argument) {
        let rule = OptionRule { effect: OptionEffect::Read, arity: Arity::None };
        self.push(&word.text.clone(), rule, None);
    }

    fn push_with_next(&mut self, name: &str, rule: OptionRule) {
        let value = self.next().cloned();
        if let Some(value) = value.as_ref().filter(|value| value.may_add_options()) {
            self.found.push(ScannedArgument::Uncertain(value.clone()));
        }
        self.push(name, rule, value);
    }

    fn push(&mut self, name: &str, rule: OptionRule, value: Option<Argument>) {
        self.found.push(ScannedArgument::Option { name: name.to_owned(), rule, value });
    }
}

/// The value of an option as `-I*`: the text after the part that the table names.
fn prefixed_value(profile: &CommandProfile, word: &Argument) -> Option<Argument> {
    profile.prefix_length(&word.text).map(|length| word.tail(length))
}
