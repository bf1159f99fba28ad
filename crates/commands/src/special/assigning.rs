//! Builtin commands that print text or set variables. A variable that is named by a subscript runs the commands in it.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::{Printed, StageFacts};
use crate::options::{self, ScannedArgument};
use crate::profile::CommandProfile;

/// `echo`: no argument of it does anything but appear.
pub(super) fn echo(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.read(format!("`{name}` prints its arguments"));
    let words: Vec<&str> = arguments
        .iter()
        .map(|argument| argument.text.as_str())
        .skip_while(|word| matches!(*word, "-n" | "-e" | "-E" | "-ne" | "-en"))
        .collect();
    let known = arguments.iter().all(|argument| argument.exact);
    let printed = if known { Printed::Text(words.join(" ")) } else { Printed::Computed };
    StageFacts { printed, ..StageFacts::default() }
}

/// `printf FORMAT ARGUMENT...`; `-v` sets a variable.
pub(super) fn printf(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.read(format!("`{name}` prints its arguments"));
    let sets = arguments.first().is_some_and(|first| {
        first.literal_prefix().starts_with("-v") || (!first.exact && first.may_be_option())
    });
    if sets {
        judge.found.unparsed(format!("`{name} -v` sets a variable"));
    }
    let plain = arguments.iter().all(|argument| argument.exact && !argument.text.contains(['%', '\\']));
    match arguments.first().filter(|_| plain) {
        Some(text) => StageFacts { printed: Printed::Text(text.text.clone()), ..StageFacts::default() },
        None => StageFacts::default(),
    }
}

/// `export`, `declare`, `readonly`, `local`, `typeset`: names and assignments.
pub(super) fn declare(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.modify(RiskLevel::Medium, format!("`{name}` sets variables of the shell"));
    for argument in arguments.iter().filter(|argument| !argument.text.starts_with('-')) {
        if let Some((variable, value)) = argument.text.split_once('=') {
            let variable = variable.trim_end_matches('+');
            judge.assigned(variable, &argument.tail(argument.text.len() - value.len()), false);
        }
    }
    names(judge, name, profile, arguments)
}

/// A builtin whose operands name variables.
pub(super) fn names(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let prints = arguments.is_empty() || arguments.iter().all(|argument| argument.text == "-p");
    judge.found.modify(profile.risk, format!("`{name}` sets or removes variables of the shell"));
    for argument in arguments {
        let variable = argument.text.split('=').next().unwrap_or_default();
        if !argument.exact || variable.contains('[') || variable == "IFS" {
            judge.found.unparsed(format!("`{name}` sets `{}`", shown(&argument.text)));
        }
        if BUILT_IN.lists("variables-deny", variable) || BUILT_IN.lists("variables-audit", variable) {
            judge.found.deny(format!("`{name}` changes the variable `{}`", shown(variable)));
        }
    }
    StageFacts { prints_environment: prints, ..StageFacts::default() }
}

/// `read NAME...`: a line of the input goes into variables. Names in small letters mean nothing to programs.
pub(super) fn read(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    judge.scanned(name, profile, arguments, &scanned);
    for argument in scanned {
        let variable = match argument {
            ScannedArgument::Operand { argument, .. } | ScannedArgument::Uncertain(argument) => argument,
            ScannedArgument::Option { name, value: Some(value), .. } if name == "-a" => value,
            ScannedArgument::UnknownOption { .. } | ScannedArgument::Option { .. } => continue,
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !variable.exact || !variable.text.chars().all(plain) || variable.text.ends_with("_proxy") {
            judge.found.unparsed(format!("`{name}` sets `{}`", shown(&variable.text)));
        }
        if BUILT_IN.lists("variables-deny", &variable.text) {
            judge.found.deny(format!("`{name}` changes the variable `{}`", shown(&variable.text)));
        }
    }
    StageFacts::default()
}
