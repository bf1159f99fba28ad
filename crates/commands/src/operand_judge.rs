//! Judges the operands of a program: files that are written, another program, a script, a subcommand.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::classification::CommandClass;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::paths::WriteTarget;
use crate::profile::{CommandProfile, Operands};
use crate::suspicious;

impl CommandJudge<'_> {
    pub(crate) fn operands(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        read_mode: bool,
        operands: &[&Argument],
        rest: &[Argument],
        facts: &mut StageFacts,
    ) {
        let many = operands.iter().any(|operand| operand.splits || operand.globs);
        match profile.operands {
            Operands::Read => {}
            Operands::Modify if read_mode || operands.is_empty() => {}
            Operands::Modify => {
                self.found.modify(profile.risk, format!("`{name}` with an argument changes something"));
            }
            Operands::Deny if operands.is_empty() => {}
            Operands::Deny => {
                self.deny_program(name, &format!("`{name}` with an argument changes the system"))
            }
            Operands::Write if read_mode => {}
            Operands::Write => operands.iter().for_each(|target| self.write_to(target)),
            Operands::LastWrites if read_mode => {}
            Operands::LastWrites => operands.iter().rev().take(1).for_each(|target| self.write_to(target)),
            Operands::SecondWrites if operands.len() > 1 || many => {
                self.found.modify(RiskLevel::Medium, format!("the second argument of `{name}` is written"));
                operands.iter().skip(1).for_each(|target| self.write_to(target));
            }
            Operands::SecondWrites => {}
            Operands::Move => {
                let last = operands.len().saturating_sub(1);
                operands.iter().skip(last).for_each(|target| self.write_to(target));
                operands.iter().take(last).for_each(|source| self.delete(source, true));
            }
            Operands::Program(own) => self.inner_program(name, profile, read_mode, own, rest, facts),
            Operands::Shell => {
                if !operands.is_empty() {
                    let text: Vec<&str> = operands.iter().map(|operand| operand.text.as_str()).collect();
                    self.found.start("sh", vec!["sh".to_owned(), "-c".to_owned(), text.join(" ")]);
                    let joined = Argument {
                        exact: operands.iter().all(|o| o.exact),
                        ..Argument::exact(text.join(" "))
                    };
                    self.shell_argument(&joined);
                }
            }
            Operands::Script => self.script(name, operands, facts),
            Operands::Subcommand => self.subcommand(name, profile, rest, facts),
        }
    }

    fn inner_program(
        &mut self,
        name: &str,
        profile: &CommandProfile,
        read_mode: bool,
        own: usize,
        rest: &[Argument],
        facts: &mut StageFacts,
    ) {
        if rest.iter().take(own + 1).any(|operand| operand.splits || operand.globs) {
            self.found.unparsed(format!("which program `{name}` starts is not known before it runs"));
        }
        let Some(inner) = rest.get(own..).filter(|inner| !inner.is_empty()) else { return };
        if read_mode {
            return;
        }
        if profile.traits.changes_as_wrapper {
            self.found.modify(RiskLevel::Medium, format!("`{name}` changes how a program runs"));
        }
        *facts = self.program(inner);
    }

    fn script(&mut self, name: &str, operands: &[&Argument], facts: &mut StageFacts) {
        let Some(script) = operands.first() else {
            facts.runs_input = true;
            return;
        };
        if script.exact
            && matches!(script.text.as_str(), "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
        {
            facts.runs_input = true;
        }
        if script.substituted {
            self.found.deny(format!("`{name}` runs what another command prints"));
        }
        if self.line.is_fetched(&script.text) {
            self.found.deny(format!("`{name}` runs `{}`, which was fetched before", shown(&script.text)));
        }
        suspicious::judge_remote_script(&mut self.found, name, script);
    }

    fn subcommand(
        &mut self,
        name: &str,
        profile: &'static CommandProfile,
        rest: &[Argument],
        facts: &mut StageFacts,
    ) {
        let Some((word, arguments)) = rest.split_first() else { return };
        let whole = format!("{name} {}", shown(&word.text));
        match BUILT_IN.subcommand(profile, &word.text).filter(|_| word.exact) {
            Some(inner) => *facts = self.profiled(&whole, inner, arguments),
            None => {
                self.found.modify(profile.risk, format!("`{whole}` is not in the table"));
                if profile.base == CommandClass::Deny || profile.connects {
                    self.base(name, profile, false);
                }
                suspicious::judge_unknown(&mut self.found, arguments);
            }
        }
    }

    /// A file or directory is written.
    pub(crate) fn write_to(&mut self, target: &Argument) {
        let path = shown(&target.text);
        if !target.exact && target.prefix == 0 && !target.text.starts_with(['~', '$', '/', '.']) {
            self.found.modify(RiskLevel::High, format!("`{path}` is written, and not known before it runs"));
        }
        if self.line.is_device_connection(&target.text) {
            self.found.connect();
            self.found.deny(format!("`{path}` is a network connection"));
        }
        match self.here.write_target(&target.text) {
            WriteTarget::Discard => {}
            WriteTarget::Ordinary => self.found.modify(RiskLevel::Medium, format!("it writes `{path}`")),
            WriteTarget::RunsCode => {
                self.found.modify(RiskLevel::High, format!("it writes `{path}`, which runs code"));
            }
            WriteTarget::Protected => {
                self.found.deny(format!(
                    "it writes `{path}`, which runs unasked, holds keys or configures an agent"
                ));
            }
            WriteTarget::System => self.found.deny(format!("it writes `{path}`, outside the workspace")),
        }
    }
}
