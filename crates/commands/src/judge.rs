//! Judges one command: finds out which program it is and what is known about it. Every finding goes to the judgement,
//! which only becomes more severe.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::classification::{Classification, CommandClass};
use crate::judgement::{Judgement, shown};
use crate::line_state::{LineState, StageFacts};
use crate::paths::CurrentDirectory;
use crate::profile::{CommandProfile, Operands};
use crate::table::CommandTable;
use crate::{hidden_text, program_name, special, suspicious};

/// Maximum depth of wrappers and shell texts inside each other.
const MAX_DEPTH: usize = 12;

pub(crate) struct CommandJudge<'t> {
    pub(crate) table: &'t CommandTable,
    pub(crate) found: Judgement,
    pub(crate) here: CurrentDirectory,
    pub(crate) line: LineState,
    depth: usize,
}

impl<'t> CommandJudge<'t> {
    pub(crate) fn new(table: &'t CommandTable) -> Self {
        Self {
            table,
            found: Judgement::new(),
            here: CurrentDirectory::new(table.workspace()),
            line: LineState::default(),
            depth: 0,
        }
    }

    pub(crate) fn finish(mut self) -> Classification {
        if self.line.sends && self.line.mentions_secret() {
            self.found.deny("a file that usually holds secrets would be sent to another host");
        }
        self.found.finish()
    }

    /// Runs `judge` one level deeper, or denies.
    pub(crate) fn deeper<T: Default>(&mut self, judge: impl FnOnce(&mut Self) -> T) -> T {
        if self.depth >= MAX_DEPTH {
            self.found.unparsed("commands are nested too deeply");
            self.found.deny("commands are nested too deeply to be judged");
            return T::default();
        }
        self.depth += 1;
        let result = judge(self);
        self.depth -= 1;
        result
    }

    /// Judges a program with its arguments; the first word is its name.
    pub(crate) fn program(&mut self, words: &[Argument]) -> StageFacts {
        let Some((name, arguments)) = words.split_first() else { return StageFacts::default() };
        self.found.start(&name.text, words.iter().map(|word| word.text.clone()).collect());
        self.line.mention(words);
        let facts = self.deeper(|judge| judge.named_program(name, arguments));
        if words.iter().any(|word| !word.likely.is_empty()) {
            self.likely_program(words);
        }
        facts
    }

    /// Judges what the words probably become, to find danger.
    fn likely_program(&mut self, words: &[Argument]) {
        let mut likely = Vec::new();
        for word in words {
            match word.likely.as_slice() {
                [] => likely.push(word.clone()),
                texts => likely.extend(texts.iter().map(Argument::exact)),
            }
        }
        if let Some((name, arguments)) = likely.split_first().filter(|(name, _)| name.exact) {
            self.found.start(&name.text, likely.iter().map(|word| word.text.clone()).collect());
            self.deeper(|judge| judge.named_program(name, arguments));
        }
    }

    fn named_program(&mut self, name: &Argument, arguments: &[Argument]) -> StageFacts {
        if !name.exact {
            self.unknown_name(name);
            return StageFacts::default();
        }
        if !name.text.is_ascii() {
            hidden_text::judge_name(&mut self.found, &name.text);
        }
        if self.line.is_fetched(&name.text) {
            self.found.deny(format!("`{}` was fetched by the same command line", shown(&name.text)));
        }
        let known = program_name::known_name(&name.text);
        let profile = known.and_then(program_name::profile);
        let listed = known.unwrap_or(&name.text);
        if self.table.is_outside_task(listed) {
            self.found.forbid(listed);
            self.found.deny(format!("`{}` is not one of the commands allowed for this task", shown(listed)));
        }
        if BUILT_IN.lists("forbidden", program_name::family(listed)) {
            self.forbidden(listed);
        }
        match profile {
            Some(profile) => self.profiled(listed, profile, arguments),
            None => self.unknown_program(&name.text, arguments),
        }
    }

    fn forbidden(&mut self, name: &str) {
        if self.table.is_lifted(name) {
            self.found.ask_singly();
            self.found.modify(
                RiskLevel::High,
                format!("`{}` is forbidden unless listed; it is listed", shown(name)),
            );
        } else {
            self.found.forbid(name);
        }
    }

    fn unknown_name(&mut self, name: &Argument) {
        if name.globs && !name.splits {
            return self.found.unparsed("a pattern stands where the name of a program must be");
        }
        self.found.unparsed("the name of a program is not known before it runs");
        if name.likely.is_empty() {
            self.found.deny("an expansion hides which program runs");
        }
    }

    fn unknown_program(&mut self, name: &str, arguments: &[Argument]) -> StageFacts {
        let risk = if self.table.is_listed(name) { RiskLevel::Medium } else { RiskLevel::High };
        self.found.modify(risk, format!("`{}` is not a known program", shown(name)));
        if name.starts_with('=') {
            self.found.deny("a name that begins with `=` hides which program runs");
        }
        suspicious::judge_unknown(&mut self.found, arguments);
        self.possible_wrapper(name, arguments);
        StageFacts::default()
    }

    /// An unknown program may start the program that its arguments name: what is denied there is denied here.
    fn possible_wrapper(&mut self, name: &str, arguments: &[Argument]) {
        let first = arguments.iter().position(|argument| !argument.may_be_option());
        let inner = first.and_then(|at| arguments.get(at..)).unwrap_or_default();
        if !inner.first().is_some_and(|program| BUILT_IN.lists("often-wrapped", &program.text)) {
            return;
        }
        let mut judge = CommandJudge::new(self.table);
        judge.depth = self.depth;
        judge.program(inner);
        let found = judge.finish();
        if found.class == CommandClass::Deny {
            let why = found.why.first().map(String::as_str).unwrap_or_default();
            self.found
                .deny(format!("if `{}` starts the program that its arguments name: {why}", shown(name)));
        }
        if let Some(tool) = found.typed_tool {
            self.found.use_tool(tool, found.suggestion.as_deref());
        }
    }

    /// Judges a program or subcommand that has a profile.
    pub(crate) fn profiled(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        arguments: &[Argument],
    ) -> StageFacts {
        if let Some(tool) = profile.typed_tool {
            self.found.use_tool(tool, profile.suggestion);
        }
        self.found.suggest(profile.suggestion);
        let connects = profile.traits.sends || profile.traits.fetches || profile.connects;
        if connects && profile.operands != Operands::Subcommand {
            self.judge_sent(name, profile, arguments);
        }
        match profile.special.and_then(special::rule) {
            Some(rule) => rule(self, name, profile, arguments),
            None => self.ordinary(name, profile, arguments),
        }
    }

    fn judge_sent(&mut self, name: &str, profile: &CommandProfile, arguments: &[Argument]) {
        self.found.connect();
        self.line.sends |= profile.traits.sends;
        if profile.traits.fetches {
            let addresses = arguments.iter().filter(|argument| argument.text.contains("://"));
            addresses.for_each(|address| self.line.fetched_to(&address.text));
        }
        if arguments.iter().any(|argument| argument.substituted) {
            self.found.deny(format!("`{name}` would send the output of another command"));
        }
        if arguments.iter().any(|argument| argument.secret_variable) {
            self.found.deny(format!("`{name}` would send a variable that usually holds a secret"));
        }
    }
}
