//! Programs that start another one with arguments of their own kind.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::profile::{CommandProfile, OptionEffect};
use crate::program_name;

/// `env [OPTION]... [NAME=VALUE]... [PROGRAM ARGUMENT...]`
pub(super) fn env(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    let mut split: Vec<Argument> = Vec::new();
    let mut rest: &[Argument] = &[];
    for argument in &scanned {
        match argument {
            ScannedArgument::Option { name: option, value: Some(value), .. }
                if option == "-S" || (option.len() > 4 && "--split-string".starts_with(option.as_str())) =>
            {
                split = split_string(judge, value);
            }
            ScannedArgument::Option { value: Some(directory), name: option, .. }
                if option == "-C" || (option.len() > 3 && "--chdir".starts_with(option.as_str())) =>
            {
                judge.here.change(&directory.text);
            }
            ScannedArgument::Option { name: option, rule, .. } if rule.effect == OptionEffect::Deny => {
                judge.found.deny(format!("`{name} {option}` changes where programs are found"));
            }
            ScannedArgument::Operand { at, .. } if rest.is_empty() => {
                rest = arguments.get(*at..).unwrap_or_default();
            }
            ScannedArgument::UnknownOption { name: option, .. } => {
                judge
                    .found
                    .unparsed(format!("the option `{}` of `{name}` is not in the table", shown(option)));
            }
            ScannedArgument::Uncertain(_) => {
                judge.found.unparsed(format!("an option of `{name}` is not known"))
            }
            _ => {}
        }
    }
    let words: Vec<Argument> = split.into_iter().chain(rest.iter().cloned()).collect();
    let mut words = words.as_slice();
    while let Some((first, others)) = words.split_first() {
        let Some((variable, value)) =
            first.text.split_once('=').filter(|(name, _)| name.len() < first.prefix.max(1))
        else {
            break;
        };
        judge.assigned(variable, &first.tail(first.text.len() - value.len()), true);
        words = others;
    }
    match words.first() {
        Some(lone) if lone.text == "-" && lone.exact => judge.program(words.get(1..).unwrap_or_default()),
        Some(_) => judge.program(words),
        None => {
            judge.found.read(format!("`{name}` prints the environment"));
            StageFacts { prints_environment: true, ..StageFacts::default() }
        }
    }
}

/// The words of `env -S`; what needs its own quoting rules is not understood.
fn split_string(judge: &mut CommandJudge<'_>, value: &Argument) -> Vec<Argument> {
    judge.found.modify(RiskLevel::Medium, "`env -S` splits a text in its own way");
    if !value.exact || value.text.contains(['"', '\'', '\\', '$', '#']) {
        judge.found.unparsed("`env -S` splits a text in its own way");
    }
    let words = value.text.split_whitespace();
    words.map(|word| Argument::exact(word.trim_matches(['"', '\'']))).collect()
}

/// `xargs [OPTION]... [PROGRAM ARGUMENT...]`: words from the input are appended, or replace a text.
pub(super) fn xargs(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    let mut replaced = None;
    let mut inner: &[Argument] = &[];
    for argument in &scanned {
        match argument {
            ScannedArgument::Option { name: option, value, .. } => {
                let long = option.len() > 3 && "--replace".starts_with(option.as_str());
                if option == "-I" || option == "-i" || option == "-J" || long {
                    replaced = Some(value.as_ref().map_or("{}", |value| value.text.as_str()));
                }
            }
            ScannedArgument::Operand { at, .. } if inner.is_empty() => {
                inner = arguments.get(*at..).unwrap_or_default();
            }
            ScannedArgument::UnknownOption { name: option, .. } => {
                judge
                    .found
                    .unparsed(format!("the option `{}` of `{name}` is not in the table", shown(option)));
            }
            ScannedArgument::Uncertain(_) => {
                judge.found.unparsed(format!("an option of `{name}` is not known"))
            }
            ScannedArgument::Operand { .. } => {}
        }
    }
    let Some(program) = inner.first() else {
        judge.found.read(format!("`{name}` without a program prints"));
        judge.found.start("echo", vec!["echo".to_owned()]);
        return StageFacts::default();
    };
    let words = with_input(inner, replaced);
    if runs_its_arguments(program) {
        judge.found.deny(format!("`{name}` makes `{}` run what it reads", shown(&program.text)));
    }
    judge.program(&words)
}

fn with_input(inner: &[Argument], replaced: Option<&str>) -> Vec<Argument> {
    let Some(pattern) = replaced.filter(|pattern| !pattern.is_empty()) else {
        return inner.iter().cloned().chain([Argument::appended()]).collect();
    };
    let replace = |word: &Argument| match word.text.find(pattern) {
        Some(at) => Argument { exact: false, prefix: at.min(word.prefix), ..word.clone() },
        None => word.clone(),
    };
    inner.iter().map(replace).collect()
}

/// Whether a program would run the names that it gets.
fn runs_its_arguments(program: &Argument) -> bool {
    let name = program_name::known_name(&program.text).unwrap_or_default();
    BUILT_IN.lists("shells", name)
        || program_name::profile(name).is_some_and(|profile| profile.traits.interpreter)
}

/// `parallel [OPTION]... COMMAND ::: ARGUMENT...`: the command is a text for a shell.
pub(super) fn parallel(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.unparsed(format!("`{name}` builds command lines from what it reads"));
    let scanned = options::scan(profile, arguments);
    let first = scanned.iter().find_map(|argument| match argument {
        ScannedArgument::Operand { at, .. } => Some(*at),
        _ => None,
    });
    let words = first.and_then(|at| arguments.get(at..)).unwrap_or_default();
    let own: Vec<&Argument> = words.iter().take_while(|word| !word.text.starts_with(":::")).collect();
    if own.first().is_none_or(|program| runs_its_arguments(program)) {
        judge.found.deny(format!("`{name}` runs what it reads"));
    }
    let given = words.iter().filter(|word| !word.text.starts_with(":::"));
    let text: Vec<&str> = given.map(|word| word.text.as_str()).collect();
    judge.deeper(|judge| judge.shell_text(&text.join(" ")));
    StageFacts::default()
}

/// `ssh [OPTION]... HOST [COMMAND]`: the command runs elsewhere, in a shell.
pub(super) fn ssh(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    let facts = judge.scanned(name, profile, arguments, &scanned);
    for argument in &scanned {
        if let ScannedArgument::Option { name: option, value: Some(value), .. } = argument
            && option == "-o"
        {
            let setting = value.text.to_ascii_lowercase();
            if BUILT_IN.list("ssh-settings-deny").any(|denied| setting.starts_with(denied)) {
                judge.found.deny(format!(
                    "`{name} -o {}` starts a program or weakens protection",
                    shown(&value.text)
                ));
            }
        }
    }
    let operands: Vec<&Argument> = scanned
        .iter()
        .filter_map(|argument| match argument {
            ScannedArgument::Operand { argument, .. } => Some(argument),
            _ => None,
        })
        .collect();
    if operands.len() > 1 && name == "ssh" {
        let text: Vec<&str> = operands.iter().skip(1).map(|word| word.text.as_str()).collect();
        judge.found.modify(RiskLevel::High, format!("`{name}` runs a command on another host"));
        judge.deeper(|judge| judge.shell_text(&text.join(" ")));
    }
    facts
}

/// `flock FILE PROGRAM...` or `flock FILE -c TEXT`
pub(super) fn flock(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let text = arguments.windows(2).find_map(|pair| match pair {
        [option, text] if option.exact && matches!(option.text.as_str(), "-c" | "--command") => Some(text),
        _ => None,
    });
    match text {
        Some(text) => {
            judge.found.modify(RiskLevel::Medium, format!("`{name}` makes a lock file"));
            judge.found.start("sh", vec!["sh".to_owned(), "-c".to_owned(), text.text.clone()]);
            judge.shell_argument(text);
            StageFacts::default()
        }
        None => judge.ordinary(name, profile, arguments),
    }
}
