//! Variables that a command line sets. Many make an ordinary program start another one.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;

impl CommandJudge<'_> {
    /// A variable gets a value; `for_command` if only for one command.
    pub(crate) fn assigned(&mut self, name: &str, value: &Argument, for_command: bool) {
        let text = value.text.as_str();
        if BUILT_IN.lists("variables-deny", name) {
            self.found
                .deny(format!("the variable `{}` makes programs load or start something else", shown(name)));
        } else if BUILT_IN.lists("variables-program", name) {
            self.program_variable(name, value);
        } else if BUILT_IN.lists("variables-code-options", name) {
            let loads = BUILT_IN.list("code-loading-options").any(|option| text.contains(option));
            if loads || !value.exact {
                self.found.deny(format!("the variable `{name}` makes an interpreter load code"));
            }
            self.found.modify(RiskLevel::Medium, format!("the variable `{name}` changes an interpreter"));
        } else if BUILT_IN.lists("variables-unprotect", name) {
            self.found.deny(format!("the variable `{name}` weakens protection"));
        } else if name == "IFS" {
            self.found.unparsed("the variable `IFS` changes how words are split");
        } else if for_command && !(BUILT_IN.lists("variables-harmless", name) && is_plain(value)) {
            self.found
                .modify(RiskLevel::Medium, format!("the variable `{}` is not in the table", shown(name)));
        }
    }

    fn program_variable(&mut self, name: &str, value: &Argument) {
        if value.exact && BUILT_IN.lists("harmless-programs", value.text.trim()) {
            self.found.modify(RiskLevel::Medium, format!("the variable `{name}` names a program"));
        } else if value.exact && value.text.is_empty() {
            self.found.modify(RiskLevel::Medium, format!("the variable `{name}` is emptied"));
        } else {
            self.found.deny(format!("the variable `{name}` makes a program start `{}`", shown(&value.text)));
        }
    }
}

fn is_plain(value: &Argument) -> bool {
    value.exact && value.text.chars().all(|c| c.is_ascii_alphanumeric() || "_.@:+-,=".contains(c))
}
