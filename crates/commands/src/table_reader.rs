//! Reads a data file with programs:
//!
//! - `program NAME...` begins programs that have the same options.
//! - `alias NAME... = PROGRAM` gives a program further names.
//! - `sub PROGRAM... NAME[,NAME...]` begins a subcommand, at any depth.
//! - `set NAME` begins a list of options that `use NAME` adds to a program or subcommand.
//! - Indented lines say something about what began last: `base`, `risk`, `why`, `operands`, `style`, `special`, `trait`,
//!   `tool`, `suggest`, `numbers`, `complete`, or an effect with a list of options.
//! - An option ends with `:` if it takes a value, with `?` if it takes only an attached one, with `*` if the rest of the
//!   word belongs to it.

use std::collections::HashMap;

use vambrace_core::risk::RiskLevel;

use crate::built_in::{BuiltIn, TableError, content_lines};
use crate::classification::CommandClass;
use crate::profile::{Arity, CommandProfile, Operands, OptionEffect, OptionRule, OptionStyle};

pub(crate) struct TableReader<'t> {
    table: &'t mut BuiltIn,
    file: &'static str,
    sets: HashMap<&'static str, Vec<(&'static str, OptionRule)>>,
    /// Profiles that the next lines are about.
    current: Vec<usize>,
    /// How many programs of one line have the same profile.
    shared: HashMap<usize, usize>,
    /// Set that the next lines are about.
    set: Option<&'static str>,
}

impl<'t> TableReader<'t> {
    pub(crate) fn new(table: &'t mut BuiltIn, file: &'static str) -> Self {
        Self { table, file, sets: HashMap::new(), current: Vec::new(), shared: HashMap::new(), set: None }
    }

    pub(crate) fn read(&mut self, text: &'static str) -> Result<(), TableError> {
        for (at, line) in content_lines(text) {
            self.read_line(line).map_err(|why| TableError { file: self.file, line: at, why })?;
        }
        Ok(())
    }

    fn read_line(&mut self, line: &'static str) -> Result<(), String> {
        let indented = line.starts_with(' ');
        let (word, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim_start(), ""));
        if indented { self.fact(word, rest.trim()) } else { self.begin(word, rest.trim()) }
    }

    fn begin(&mut self, word: &str, rest: &'static str) -> Result<(), String> {
        self.set = None;
        self.current.clear();
        match word {
            "program" => {
                let index = self.new_profile();
                rest.split_whitespace().try_for_each(|name| self.name_program(name, index))?;
                self.shared.insert(index, rest.split_whitespace().count());
            }
            "alias" => {
                let (names, program) = rest.split_once(" = ").ok_or("no `=`")?;
                let index = self.find(&[program]).ok_or_else(|| format!("no program `{program}`"))?;
                names.split_whitespace().try_for_each(|name| self.name_program(name, index))?;
            }
            "sub" => {
                let mut path: Vec<&'static str> = rest.split_whitespace().collect();
                let names = path.pop().ok_or("no subcommand")?;
                self.separate(path.first().ok_or("no program")?);
                let parent = self.find(&path).ok_or_else(|| format!("no program `{}`", path.join(" ")))?;
                let index = self.new_profile();
                for name in names.split(',') {
                    let parent = self.table.profiles.get_mut(parent).ok_or("no parent")?;
                    if parent.subcommands.insert(name, index).is_some() {
                        return Err(format!("subcommand `{name}` is there twice"));
                    }
                }
            }
            "set" => {
                self.sets.insert(rest, Vec::new());
                self.set = Some(rest);
            }
            _ => return Err(format!("`{word}` begins nothing")),
        }
        Ok(())
    }

    fn name_program(&mut self, name: &'static str, index: usize) -> Result<(), String> {
        match self.table.programs.insert(name, index) {
            Some(_) => Err(format!("program `{name}` is there twice")),
            None => Ok(()),
        }
    }

    /// Gives a program a profile of its own, if it shares one with the other programs of its line.
    fn separate(&mut self, name: &'static str) {
        let Some(index) = self.table.programs.get(name).copied() else { return };
        let Some(users) = self.shared.get_mut(&index).filter(|users| **users > 1) else { return };
        *users -= 1;
        if let Some(copy) = self.table.profiles.get(index).cloned() {
            self.table.profiles.push(copy);
            self.table.programs.insert(name, self.table.profiles.len() - 1);
        }
    }

    fn new_profile(&mut self) -> usize {
        self.table.profiles.push(CommandProfile::new());
        self.current.push(self.table.profiles.len() - 1);
        self.table.profiles.len() - 1
    }

    fn find(&self, path: &[&str]) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let mut index = *self.table.programs.get(first)?;
        for name in rest {
            index = *self.table.profiles.get(index)?.subcommands.get(name)?;
        }
        Some(index)
    }

    fn fact(&mut self, word: &str, rest: &'static str) -> Result<(), String> {
        if let Some(effect) = effect(word) {
            return self.add_options(effect, rest);
        }
        if word == "use" {
            let rules = self.sets.get(rest).ok_or_else(|| format!("no set `{rest}`"))?.clone();
            for index in &self.current {
                let profile = self.table.profiles.get_mut(*index).ok_or("nothing begun")?;
                rules.iter().for_each(|(name, rule)| profile.add_shared_option(name, *rule));
            }
            return Ok(());
        }
        for index in &self.current {
            let profile = self.table.profiles.get_mut(*index).ok_or("nothing begun")?;
            set_fact(profile, word, rest).ok_or_else(|| format!("`{word} {rest}` is not understood"))?;
        }
        if self.current.is_empty() { Err("nothing begun".to_owned()) } else { Ok(()) }
    }

    fn add_options(&mut self, effect: OptionEffect, rest: &'static str) -> Result<(), String> {
        rest.split_whitespace().try_for_each(|written| {
            let (name, arity) = match written.strip_suffix([':', '?']) {
                Some(name) if written.ends_with(':') => (name, Arity::Required),
                Some(name) => (name, Arity::Attached),
                None if written.ends_with('*') => (written, Arity::Attached),
                None => (written, Arity::None),
            };
            self.add_option(name, OptionRule { effect, arity })
        })
    }

    fn add_option(&mut self, name: &'static str, rule: OptionRule) -> Result<(), String> {
        if !name.starts_with(['-', '+', '@']) {
            return Err(format!("`{name}` is no option"));
        }
        if let Some(set) = self.set {
            self.sets.entry(set).or_default().push((name, rule));
        }
        for index in &self.current {
            let profile = self.table.profiles.get_mut(*index).ok_or("nothing begun")?;
            if !profile.add_option(name, rule) {
                return Err(format!("option `{name}` is there twice"));
            }
        }
        Ok(())
    }
}

fn effect(word: &str) -> Option<OptionEffect> {
    Some(match word {
        "read" => OptionEffect::Read,
        "readmode" => OptionEffect::ReadMode,
        "probe" => OptionEffect::Probe,
        "connect" => OptionEffect::Connect,
        "modify" => OptionEffect::Modify,
        "write" => OptionEffect::Write,
        "shell" => OptionEffect::Shell,
        "embedded" => OptionEffect::Embedded,
        "run" => OptionEffect::Run,
        "deny" => OptionEffect::Deny,
        _ => return None,
    })
}

fn set_fact(profile: &mut CommandProfile, word: &str, rest: &'static str) -> Option<()> {
    match word {
        "base" => match rest {
            "read" => profile.base = CommandClass::ReadOnly,
            "modify" => profile.base = CommandClass::Modifying,
            "deny" => profile.base = CommandClass::Deny,
            "connect" => profile.connects = true,
            _ => return None,
        },
        "risk" => profile.risk = RiskLevel::parse(&rest.to_ascii_uppercase())?,
        "why" => profile.why = Some(rest),
        "operands" => profile.operands = operands(rest)?,
        "style" => profile.style = style(rest)?,
        "special" => profile.special = Some(rest),
        "tool" => profile.typed_tool = Some(rest),
        "suggest" => profile.suggestion = Some(rest),
        "numbers" => profile.numbers = true,
        "complete" => profile.complete = true,
        "trait" => {
            for name in rest.split_whitespace() {
                *match name {
                    "fetches" => &mut profile.traits.fetches,
                    "sends" => &mut profile.traits.sends,
                    "interpreter" => &mut profile.traits.interpreter,
                    "prints-environment" => &mut profile.traits.prints_environment,
                    "prints-arguments" => &mut profile.traits.prints_arguments,
                    "prints-files" => &mut profile.traits.prints_files,
                    "changes-as-wrapper" => &mut profile.traits.changes_as_wrapper,
                    _ => return None,
                } = true;
            }
        }
        _ => return None,
    }
    Some(())
}

fn operands(rest: &str) -> Option<Operands> {
    Some(match rest {
        "read" => Operands::Read,
        "modify" => Operands::Modify,
        "deny" => Operands::Deny,
        "write" => Operands::Write,
        "last-writes" => Operands::LastWrites,
        "second-writes" => Operands::SecondWrites,
        "move" => Operands::Move,
        "shell" => Operands::Shell,
        "script" => Operands::Script,
        "subcommand" => Operands::Subcommand,
        _ => Operands::Program(rest.strip_prefix("program ")?.parse().ok()?),
    })
}

fn style(rest: &str) -> Option<OptionStyle> {
    Some(match rest {
        "gnu" => OptionStyle::Gnu,
        "git" => OptionStyle::Git,
        "posix" => OptionStyle::Posix,
        "single-dash" => OptionStyle::SingleDash,
        "plain" => OptionStyle::Plain,
        _ => return None,
    })
}
