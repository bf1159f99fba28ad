//! What flows between commands: into an interpreter that runs it, or to another host.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::{Printed, StageFacts};
use crate::suspicious;

/// What a command reads instead of its input.
pub(crate) enum RedirectedInput {
    File(Argument),
    Text(Argument),
}

impl CommandJudge<'_> {
    /// What flows from the commands before into a command.
    pub(crate) fn flow(&mut self, upstream: &[StageFacts], facts: &StageFacts) {
        if upstream.is_empty() {
            return;
        }
        if facts.sends && upstream.iter().any(|stage| stage.prints_environment) {
            self.found.deny("the environment would be sent to another host");
        }
        if !facts.runs_input {
            return;
        }
        if upstream.iter().any(|stage| stage.fetches) {
            return self.found.deny("fetched content is run");
        }
        match upstream {
            [StageFacts { printed: Printed::Text(text), .. }] if facts.is_shell => {
                self.found.unparsed("a shell runs a text from a pipe");
                self.deeper(|judge| judge.shell_text(text));
            }
            [StageFacts { printed: Printed::Text(text), .. }] => {
                suspicious::judge_code(&mut self.found, "the interpreter", text);
            }
            [StageFacts { printed: Printed::Files, .. }] => {
                self.found.modify(RiskLevel::High, "an interpreter runs a file from a pipe");
            }
            _ => self.found.deny("an interpreter runs what other commands compute"),
        }
    }

    /// An interpreter reads its program from a redirection.
    pub(crate) fn run_input(&mut self, input: &RedirectedInput, facts: &StageFacts) {
        match input {
            RedirectedInput::File(path) => {
                if self.line.is_fetched(&path.text) {
                    self.found.deny(format!("`{}` was fetched and is run", shown(&path.text)));
                }
                if path.substituted {
                    self.found.deny("an interpreter runs what another command prints");
                }
            }
            RedirectedInput::Text(text) if facts.is_shell => self.shell_argument(text),
            RedirectedInput::Text(text) => {
                suspicious::judge_code(&mut self.found, "the interpreter", &text.text)
            }
        }
    }
}
