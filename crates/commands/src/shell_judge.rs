//! Judges a shell text: every command in it, what its words expand to as far as known, redirections, and what flows
//! through its pipelines.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::pipeline_flow::RedirectedInput;
use crate::shell::{
    self, CommandList, ParsedText, Pipeline, Redirect, RedirectKind, ShellCommand, SimpleCommand, Word,
    WordPart,
};
use crate::shell_words;
use crate::suspicious;
use crate::table::MAX_TEXT_BYTES;

/// Maximum number of pieces of a text that does not parse.
const MAX_PIECES: usize = 256;

impl CommandJudge<'_> {
    /// Judges a text for a shell.
    pub(crate) fn shell_text(&mut self, text: &str) {
        if text.len() > MAX_TEXT_BYTES {
            self.found.unparsed("the text is too long to be judged");
            return self.found.deny("the text is too long to be judged");
        }
        let expanded_home = std::mem::replace(&mut self.here.expands_home, true);
        match shell::parse(text) {
            Ok(parsed) => self.parsed_text(text, &parsed),
            Err(error) => {
                self.found.unparsed(format!("the shell text does not parse: {}", error.0));
                self.unparsed_pieces(text);
            }
        }
        self.here.expands_home = expanded_home;
    }

    /// Judges an argument that a shell runs.
    pub(crate) fn shell_argument(&mut self, text: &Argument) {
        if !text.exact {
            self.found.unparsed("a shell runs a text that is not known before");
            if text.substituted || text.prefix == 0 {
                self.found.deny("a shell runs a text that another command or a variable supplies");
            }
        }
        self.deeper(|judge| judge.shell_text(&text.text));
    }

    fn parsed_text(&mut self, text: &str, parsed: &ParsedText) {
        if parsed.commands.is_empty() {
            self.found.modify(RiskLevel::Medium, "the text contains no command");
        }
        for odd in &parsed.odd {
            self.found.unparsed(format!("{odd} hides what runs"));
        }
        if parsed.history {
            self.found.modify(RiskLevel::Medium, "an interactive shell would expand a history reference");
        }
        if parsed.quote_confusion {
            suspicious::judge_quote_confusion(&mut self.found, text);
        }
        self.list(&parsed.commands, &parsed.bodies);
    }

    /// Finds danger in a text that does not parse: judges every piece of it that does.
    fn unparsed_pieces(&mut self, text: &str) {
        suspicious::judge_fork_bomb(&mut self.found, text);
        let separators = |c: char| matches!(c, '\n' | ';' | '|' | '&');
        let pieces = text.split(separators).filter(|piece| !piece.trim().is_empty());
        for piece in pieces.take(MAX_PIECES) {
            if let Ok(parsed) = shell::parse(piece.trim_matches(['(', ')', '{', '}', ' ', '`'])) {
                self.list(&parsed.commands, &parsed.bodies);
            }
        }
    }

    fn list(&mut self, list: &CommandList, bodies: &[Word]) -> StageFacts {
        let mut facts = StageFacts::default();
        for (at, pipeline) in list.iter().enumerate() {
            let last = self.pipeline(pipeline, bodies);
            if at == 0 {
                facts = last;
            } else {
                facts.merge(last);
            }
        }
        facts
    }

    fn pipeline(&mut self, pipeline: &Pipeline, bodies: &[Word]) -> StageFacts {
        if pipeline.timed {
            self.found.start("time", vec!["time".to_owned()]);
        }
        let mut upstream: Vec<StageFacts> = Vec::new();
        for command in &pipeline.commands {
            let facts = self.deeper(|judge| judge.command(command, bodies));
            self.flow(&upstream, &facts);
            upstream.push(facts);
        }
        match upstream.len() {
            1 => upstream.pop().unwrap_or_default(),
            _ => upstream.into_iter().fold(StageFacts::default(), |mut all, facts| {
                all.merge(facts);
                all
            }),
        }
    }

    fn command(&mut self, command: &ShellCommand, bodies: &[Word]) -> StageFacts {
        match command {
            ShellCommand::Simple(simple) => self.simple(simple, bodies),
            ShellCommand::Compound { variable, words, bodies: lists, redirects } => {
                let values = self.words(words, bodies);
                if let Some(variable) = variable {
                    self.loop_variable(variable, &values);
                }
                let mut facts = StageFacts::default();
                for list in lists {
                    let body = self.list(list, bodies);
                    facts.merge(body);
                }
                self.redirects(redirects, bodies);
                facts
            }
            ShellCommand::Function { name, body } => {
                let facts = self.deeper(|judge| judge.command(body, bodies));
                if calls_itself(body, name) {
                    self.found.deny(format!("the function `{}` starts itself again", shown(name)));
                }
                facts
            }
            ShellCommand::Condition { words, redirects } => {
                self.words(words, bodies);
                self.found.read("a condition only tests");
                self.redirects(redirects, bodies);
                StageFacts::default()
            }
        }
    }

    fn loop_variable(&mut self, variable: &str, values: &[Argument]) {
        let mut joined = Argument::appended();
        joined.text = values.iter().map(|value| value.text.as_str()).collect::<Vec<_>>().join(" ");
        self.assigned(variable, &joined, false);
        for value in values.iter().filter(|value| value.exact) {
            self.line.assign(variable, &value.text);
        }
    }

    fn simple(&mut self, simple: &SimpleCommand, bodies: &[Word]) -> StageFacts {
        let words = self.words(&simple.words, bodies);
        let alone = simple.words.is_empty();
        for assignment in &simple.assignments {
            let values = self.words(&assignment.value, bodies);
            let value = match values.as_slice() {
                [value] => value.clone(),
                _ => Argument::appended(),
            };
            // It decides only how that one command splits its line.
            let for_read = assignment.name == "IFS" && words.first().is_some_and(|name| name.text == "read");
            if !for_read {
                self.assigned(&assignment.name, &value, !alone);
            }
            if alone && value.exact {
                self.line.assign(&assignment.name, &value.text);
            }
        }
        if alone && !simple.assignments.is_empty() {
            self.found.modify(RiskLevel::Medium, "it sets a variable of the shell");
        }
        if let Some(name) = simple.words.first()
            && name.parts.len() > 1
        {
            self.found.modify(RiskLevel::High, "the name of a program is written in pieces");
        }
        let mut facts = if alone { StageFacts::default() } else { self.program(&words) };
        let input = self.redirects(&simple.redirects, bodies);
        if facts.fetches {
            let is_written = |redirect: &&Redirect| redirect.kind == RedirectKind::Write;
            for redirect in simple.redirects.iter().filter(is_written) {
                let target = shell_words::argument(&redirect.target, &self.line);
                self.line.fetched_to(&target.text);
            }
        }
        if facts.runs_input
            && let Some(input) = input
        {
            self.run_input(&input, &facts);
            facts.runs_input = false;
        }
        facts
    }

    fn redirects(&mut self, redirects: &[Redirect], bodies: &[Word]) -> Option<RedirectedInput> {
        let mut input = None;
        for redirect in redirects {
            if let RedirectKind::HereDocument(number) = redirect.kind {
                let body = bodies.get(number).cloned().unwrap_or_default();
                input = Some(RedirectedInput::Text(self.word(&body, bodies)));
                continue;
            }
            let target = self.word(&redirect.target, bodies);
            match redirect.kind {
                RedirectKind::Read => {
                    self.line.mention_file(&target.text);
                    if self.line.is_device_connection(&target.text) {
                        self.found.connect();
                        self.found.deny(format!("`{}` is a network connection", shown(&target.text)));
                    }
                    input = Some(RedirectedInput::File(target));
                }
                RedirectKind::HereString => input = Some(RedirectedInput::Text(target)),
                RedirectKind::Duplicate { .. } if is_descriptor(&target) => {}
                RedirectKind::Duplicate { writes: false } => {
                    self.found.modify(RiskLevel::Medium, "a descriptor is not known before it runs");
                }
                RedirectKind::Write | RedirectKind::ReadWrite | RedirectKind::Duplicate { writes: true } => {
                    if !target.exact {
                        self.found.modify(RiskLevel::High, "where it writes is not known before it runs");
                    }
                    if target.text == "-" {
                        self.found.modify(RiskLevel::Medium, "it writes `-`");
                    }
                    self.write_to(&target);
                }
                RedirectKind::HereDocument(_) => {}
            }
        }
        input
    }

    fn words(&mut self, words: &[Word], bodies: &[Word]) -> Vec<Argument> {
        words.iter().map(|word| self.word(word, bodies)).collect()
    }

    /// Judges the commands inside a word, and tells what is known of its text.
    fn word(&mut self, word: &Word, bodies: &[Word]) -> Argument {
        self.parts(&word.parts, bodies);
        shell_words::argument(word, &self.line)
    }

    fn parts(&mut self, parts: &[WordPart], bodies: &[Word]) {
        for part in parts {
            match part {
                WordPart::Substitution { commands, process, .. } => {
                    let what = if *process { "a process substitution" } else { "a command substitution" };
                    self.found.modify(RiskLevel::Medium, format!("{what} decides what it does"));
                    if let Some(list) = commands.0.as_ref() {
                        self.deeper(|judge| judge.list(list, bodies));
                    }
                }
                WordPart::Expansion { raw, inner, .. } => {
                    if shell_words::runs_as_prompt(raw) {
                        self.found.deny("an expansion runs the commands in the value of a variable");
                    }
                    self.deeper(|judge| judge.parts(inner, bodies));
                }
                WordPart::Parameter { .. } | WordPart::Text { .. } | WordPart::Tilde(_) => {}
            }
        }
    }
}

fn is_descriptor(target: &Argument) -> bool {
    let digits = target.text.trim_end_matches('-');
    target.exact && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a function starts itself in the background or in a pipeline.
fn calls_itself(body: &ShellCommand, name: &str) -> bool {
    let ShellCommand::Compound { bodies, .. } = body else { return false };
    let is_call = |command: &ShellCommand| match command {
        ShellCommand::Simple(simple) => {
            simple.words.first().and_then(Word::literal).is_some_and(|(word, _)| word == name)
        }
        _ => false,
    };
    let forks = |pipeline: &Pipeline| {
        (pipeline.background || pipeline.commands.len() > 1) && pipeline.commands.iter().any(is_call)
    };
    bodies.iter().flatten().any(forks)
}
