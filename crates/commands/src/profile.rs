//! What is known about one program: its options, its operands, its subcommands. The facts come from the data files;
//! this module only holds them and finds options by name.

use std::collections::HashMap;

use vambrace_core::risk::RiskLevel;

use crate::classification::CommandClass;

/// Rules for programs that start no other program.
const STARTS_NOTHING: &[&str] = &["rm", "chmod", "date", "dd", "kill", "sysctl", "echo", "read"];

/// What an option makes a program do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OptionEffect {
    /// Nothing but reading and printing.
    Read,
    /// The program only reads, whatever it does without this option.
    ReadMode,
    /// The program only prints, if it is the only argument.
    Probe,
    /// Opens a connection.
    Connect,
    /// Changes something.
    Modify,
    /// Writes the file or directory that is its value.
    Write,
    /// Its value is a command line for a shell.
    Shell,
    /// Its value is a script in the language of the program; a shell escape in it denies.
    Embedded,
    /// Its value is a program that a reading tool starts.
    Run,
    /// Escalates, weakens protection, or starts something else.
    Deny,
}

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arity {
    None,
    /// The rest of the word, or the next word.
    Required,
    /// Only the rest of the word, or after `=`.
    Attached,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionRule {
    pub(crate) effect: OptionEffect,
    pub(crate) arity: Arity,
}

/// What the arguments that are no options mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// Files that are read, or plain text.
    Read,
    /// An operand makes the program change something.
    Modify,
    /// An operand denies.
    Deny,
    /// Files that are written.
    Write,
    /// The last one is written.
    LastWrites,
    /// The second one is written.
    SecondWrites,
    /// Sources that go away, and a last one that is written.
    Move,
    /// Another program with its arguments, after a number of own operands.
    Program(usize),
    /// A command line for a shell, from all operands together.
    Shell,
    /// A script that is run, and its arguments.
    Script,
    /// The name of a subcommand.
    Subcommand,
}

/// How options are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionStyle {
    /// Long options may be abbreviated, short ones bundled; options and operands mix.
    Gnu,
    /// As [`Self::Gnu`], and every long option has a form with `--no-`.
    Git,
    /// As [`Self::Gnu`], but options end at the first operand.
    Posix,
    /// Options of several letters after one dash.
    SingleDash,
    /// No options.
    Plain,
}

/// Roles that a program plays in the data flow of a pipeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Prints or stores what it gets from the network.
    pub(crate) fetches: bool,
    /// Can send its input or arguments to another host.
    pub(crate) sends: bool,
    /// Runs code that it reads.
    pub(crate) interpreter: bool,
    /// Prints the environment.
    pub(crate) prints_environment: bool,
    /// Prints its arguments.
    pub(crate) prints_arguments: bool,
    /// Prints the files that are its operands, unchanged.
    pub(crate) prints_files: bool,
    /// Wraps another program openly, and changes something itself.
    pub(crate) changes_as_wrapper: bool,
}

/// A program or subcommand.
#[derive(Debug, Clone)]
pub(crate) struct CommandProfile {
    pub(crate) base: CommandClass,
    pub(crate) risk: RiskLevel,
    pub(crate) connects: bool,
    /// Reason for the base class, if the table gives one.
    pub(crate) why: Option<&'static str>,
    pub(crate) operands: Operands,
    pub(crate) style: OptionStyle,
    /// `-NUM` is an option.
    pub(crate) numbers: bool,
    /// The table lists every option of the program, in all of its usual versions.
    pub(crate) complete: bool,
    pub(crate) special: Option<&'static str>,
    pub(crate) typed_tool: Option<&'static str>,
    pub(crate) suggestion: Option<&'static str>,
    pub(crate) traits: Traits,
    pub(crate) subcommands: HashMap<&'static str, usize>,
    options: HashMap<&'static str, OptionRule>,
    /// Long options, sorted, for abbreviations.
    long_names: Vec<&'static str>,
    /// Options that are followed by their value without a separator, as `-I*`.
    prefixes: Vec<(&'static str, OptionRule)>,
}

impl CommandProfile {
    pub(crate) fn new() -> Self {
        Self {
            base: CommandClass::Modifying,
            risk: RiskLevel::Medium,
            connects: false,
            why: None,
            operands: Operands::Read,
            style: OptionStyle::Gnu,
            numbers: false,
            complete: false,
            special: None,
            typed_tool: None,
            suggestion: None,
            traits: Traits::default(),
            subcommands: HashMap::new(),
            options: HashMap::new(),
            long_names: Vec::new(),
            prefixes: Vec::new(),
        }
    }

    /// Adds an option of the table; `false` if it is there already.
    pub(crate) fn add_option(&mut self, name: &'static str, rule: OptionRule) -> bool {
        if let Some(prefix) = name.strip_suffix('*') {
            self.prefixes.push((prefix, rule));
            return true;
        }
        if name.starts_with("--") {
            let at = self.long_names.partition_point(|known| *known < name);
            self.long_names.insert(at, name);
        }
        self.options.insert(name, rule).is_none()
    }

    /// Adds an option of a set; of two rules for the same option, the worse one stays.
    pub(crate) fn add_shared_option(&mut self, name: &'static str, rule: OptionRule) {
        let known = self.options.get(name).copied();
        if let Some(worse) = known.filter(|known| known.effect >= rule.effect) {
            self.options.insert(name, worse);
        } else {
            self.add_option(name, rule);
        }
    }

    pub(crate) fn option(&self, name: &str) -> Option<OptionRule> {
        let exact = self.options.get(name).copied();
        exact.or_else(|| {
            let found = self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix));
            found.map(|(_, rule)| *rule)
        })
    }

    /// Length of the part of a word that the table names, for an option that is followed by its value.
    pub(crate) fn prefix_length(&self, word: &str) -> Option<usize> {
        let found = self.prefixes.iter().find(|(prefix, _)| word.starts_with(prefix));
        found.map(|(prefix, _)| prefix.len())
    }

    /// The option that a long name stands for, abbreviated or not. An ambiguous abbreviation gets the worst effect of
    /// its candidates and no value.
    pub(crate) fn long_option(&self, name: &str) -> Option<OptionRule> {
        if let Some(rule) = self.option(name) {
            return Some(rule);
        }
        let start = self.long_names.partition_point(|known| *known < name);
        let candidates = self.long_names.get(start..)?.iter().take_while(|known| known.starts_with(name));
        let mut rules = candidates.filter_map(|known| self.options.get(known));
        let first = *rules.next()?;
        Some(rules.fold(first, |worst, rule| OptionRule {
            effect: worst.effect.max(rule.effect),
            arity: if worst.arity == rule.arity { worst.arity } else { Arity::None },
        }))
    }

    /// Whether an argument could name another program.
    pub(crate) fn can_start_programs(&self) -> bool {
        !matches!(self.operands, Operands::Read | Operands::Modify | Operands::Write | Operands::SecondWrites)
            || self.special.is_some_and(|rule| !STARTS_NOTHING.contains(&rule))
            || self.options.values().any(|rule| rule.effect >= OptionEffect::Shell)
    }

    /// Whether no option and no number of operands can make the program write or start anything, so that the text of
    /// an argument does not matter. File names that look like options are harmless to it: an unknown option is an
    /// error.
    pub(crate) fn is_inert(&self) -> bool {
        let harmless = |rule: &OptionRule| {
            matches!(rule.effect, OptionEffect::Read | OptionEffect::ReadMode | OptionEffect::Probe)
        };
        self.complete
            && self.base == CommandClass::ReadOnly
            && self.operands == Operands::Read
            && self.special.is_none()
            && self.subcommands.is_empty()
            && self.options.values().all(harmless)
            && self.prefixes.iter().all(|(_, rule)| harmless(rule))
    }
}
