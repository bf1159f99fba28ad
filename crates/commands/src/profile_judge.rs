//! Judges the arguments of a program by its profile: what it does without options, and what each option adds.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::classification::CommandClass;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::profile::{CommandProfile, Operands, OptionEffect};
use crate::suspicious;

impl CommandJudge<'_> {
    /// Judges by the profile alone.
    pub(crate) fn ordinary(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        arguments: &[Argument],
    ) -> StageFacts {
        let scanned = options::scan(profile, arguments);
        self.scanned(name, profile, arguments, &scanned)
    }

    /// Judges scanned arguments by the profile.
    pub(crate) fn scanned(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        arguments: &[Argument],
        scanned: &[ScannedArgument],
    ) -> StageFacts {
        let mut facts = StageFacts::of(profile);
        if let ([ScannedArgument::Option { rule, .. }], 1) = (scanned, arguments.len())
            && rule.effect == OptionEffect::Probe
        {
            self.found.read(format!("`{name}` prints facts about itself"));
            return StageFacts::default();
        }
        let read_mode = scanned.iter().any(|argument| {
            matches!(argument, ScannedArgument::Option { rule, .. } if rule.effect == OptionEffect::ReadMode)
        });
        let read_mode = read_mode && (profile.base != CommandClass::Deny || scanned.iter().all(only_reads));
        let subcommand = profile.operands == Operands::Subcommand && has_operand(scanned);
        if !subcommand {
            self.base(name, profile, read_mode);
        }
        let changes_openly = profile.base == CommandClass::Modifying && !subcommand && !read_mode;
        for argument in scanned {
            self.option(name, profile, changes_openly, argument);
        }
        let operands: Vec<&Argument> = scanned.iter().filter_map(operand).collect();
        let from = scanned.iter().find_map(|argument| match argument {
            ScannedArgument::Operand { at, .. } => Some(*at),
            _ => None,
        });
        let rest = from.and_then(|from| arguments.get(from..)).unwrap_or_default();
        self.operands(name, profile, read_mode, &operands, rest, &mut facts);
        if facts.runs_input && scanned.iter().any(is_inline_code) {
            facts.runs_input = false;
        }
        facts
    }

    pub(crate) fn base(&mut self, name: &str, profile: &CommandProfile, read_mode: bool) {
        let why = |otherwise: String| profile.why.map_or(otherwise, |why| format!("`{name}` {why}"));
        if profile.connects && !read_mode {
            self.found.connect();
            self.found.modify(profile.risk, format!("`{name}` opens connections"));
        }
        match profile.base {
            _ if read_mode => self.found.read(format!("`{name}` only reads and prints with this option")),
            CommandClass::ReadOnly if matches!(profile.operands, Operands::Program(_)) => {}
            CommandClass::ReadOnly => self.found.read(why(format!("`{name}` only reads and prints"))),
            CommandClass::Modifying if profile.connects && profile.why.is_none() => {}
            CommandClass::Modifying => {
                self.found.modify(profile.risk, why(format!("`{name}` changes files or runs code")));
            }
            CommandClass::Deny => self.deny_program(name, &why(format!("`{name}` changes the system"))),
        }
    }

    /// Denies a program as such, unless the user or the organisation list it.
    pub(crate) fn deny_program(&mut self, name: &str, why: &str) {
        if self.table.is_lifted(name) {
            self.found.ask_singly();
            self.found.modify(RiskLevel::High, why);
        } else {
            self.found.deny(why);
        }
    }

    fn option(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        changes_openly: bool,
        argument: &ScannedArgument,
    ) {
        match argument {
            ScannedArgument::Option { name: option, rule, value } => {
                self.known_option(name, profile, option, rule.effect, value.as_ref());
            }
            ScannedArgument::UnknownOption { name: option, value } => {
                if !changes_openly {
                    self.found.modify(
                        RiskLevel::Medium,
                        format!("the option `{}` of `{name}` is not in the table", shown(option)),
                    );
                }
                suspicious::judge_option(&mut self.found, option, value.as_ref());
            }
            ScannedArgument::Uncertain(argument)
                if profile.operands == Operands::Script && argument.substituted =>
            {
                self.found.unparsed(format!("what `{name}` runs is not known before"));
                self.found.deny(format!("`{name}` runs what another command prints"));
            }
            ScannedArgument::Uncertain(argument) if !profile.is_inert() => {
                let why = format!("`{}` could become an option of `{name}`", shown(&argument.text));
                if profile.can_start_programs() {
                    self.found.unparsed(why);
                } else {
                    self.found.modify(RiskLevel::Medium, why);
                }
            }
            ScannedArgument::Uncertain(_) | ScannedArgument::Operand { .. } => {}
        }
    }

    fn known_option(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        option: &str,
        effect: OptionEffect,
        value: Option<&Argument>,
    ) {
        match (effect, value) {
            (OptionEffect::Read | OptionEffect::ReadMode | OptionEffect::Probe, _) => {}
            (OptionEffect::Connect, _) => {
                self.found.connect();
                self.found.modify(RiskLevel::Medium, format!("`{name} {option}` opens connections"));
            }
            (OptionEffect::Write, Some(target)) => {
                if profile.traits.fetches {
                    self.line.fetched_to(&target.text);
                }
                self.write_to(target);
            }
            (OptionEffect::Modify | OptionEffect::Write, _) => {
                self.found.modify(RiskLevel::Medium, format!("`{name} {option}` changes something"));
            }
            (OptionEffect::Shell, Some(text)) => {
                self.found.modify(RiskLevel::Medium, format!("`{name} {option}` runs a command"));
                self.found.start("sh", vec!["sh".to_owned(), "-c".to_owned(), text.text.clone()]);
                self.shell_argument(text);
            }
            (OptionEffect::Embedded, Some(text)) => {
                self.found.modify(profile.risk, format!("`{name} {option}` runs a script"));
                self.embedded_script(name, profile, text);
            }
            (OptionEffect::Run, value) => self.run_option(name, option, value),
            (OptionEffect::Shell | OptionEffect::Embedded, None) => {
                self.found.modify(RiskLevel::Medium, format!("`{name} {option}` runs a command"));
            }
            (OptionEffect::Deny, _) => {
                self.found
                    .deny(format!("`{name} {option}` starts a program, escalates or weakens protection"));
            }
        }
    }

    fn embedded_script(&mut self, name: &str, profile: &CommandProfile, text: &Argument) {
        if !profile.traits.interpreter {
            return suspicious::judge_embedded(&mut self.found, name, text);
        }
        if text.substituted || (!text.exact && text.prefix == 0) {
            self.found.deny(format!("`{name}` runs code that another command or a variable supplies"));
        }
        suspicious::judge_code(&mut self.found, name, &text.text);
    }

    /// An option that names a program for a reading tool.
    fn run_option(&mut self, name: &str, option: &str, value: Option<&Argument>) {
        let Some(value) = value else {
            return self.found.modify(RiskLevel::High, format!("`{name} {option}` starts a program"));
        };
        if !value.text.is_empty() {
            self.found.start(&value.text, vec![value.text.clone()]);
        }
        if value.exact && BUILT_IN.lists("harmless-programs", &value.text) {
            self.found.modify(RiskLevel::Medium, format!("`{name} {option}` starts `{}`", value.text));
        } else {
            self.found.deny(format!("`{name} {option}` starts the program `{}`", shown(&value.text)));
        }
    }
}

/// Whether an argument is an operand, or an option that only reads.
fn only_reads(argument: &ScannedArgument) -> bool {
    match argument {
        ScannedArgument::Option { rule, .. } => rule.effect <= OptionEffect::Probe,
        ScannedArgument::Operand { .. } => true,
        ScannedArgument::UnknownOption { .. } | ScannedArgument::Uncertain(_) => false,
    }
}

fn operand(argument: &ScannedArgument) -> Option<&Argument> {
    match argument {
        ScannedArgument::Operand { argument, .. } => Some(argument),
        _ => None,
    }
}

fn has_operand(scanned: &[ScannedArgument]) -> bool {
    scanned.iter().any(|argument| operand(argument).is_some())
}

fn is_inline_code(argument: &ScannedArgument) -> bool {
    matches!(argument, ScannedArgument::Option { rule, .. } if matches!(rule.effect, OptionEffect::Embedded | OptionEffect::Shell))
}
