//! git: settings that name programs, repositories from elsewhere, formats that check signatures.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::profile::CommandProfile;

/// The global options of git, then a subcommand.
pub(super) fn git(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    if judge.here.is_changed() {
        judge.found.modify(RiskLevel::Medium, "git runs in a repository of another directory");
    }
    for argument in options::scan(profile, arguments) {
        if let ScannedArgument::Option { name: option, value: Some(setting), .. } = argument
            && option == "-c"
        {
            judge_setting(judge, &setting);
        }
    }
    judge.ordinary(name, profile, arguments)
}

/// A setting `KEY=VALUE` for one command.
fn judge_setting(judge: &mut CommandJudge<'_>, setting: &Argument) {
    let key = setting.text.split('=').next().unwrap_or_default();
    judge.found.modify(RiskLevel::Medium, "a setting of git is given on the command line");
    if !setting.exact || !is_harmless_key(key) {
        judge
            .found
            .deny(format!("the setting `{}` of git can start a program or weaken protection", shown(key)));
    }
}

fn is_harmless_key(key: &str) -> bool {
    BUILT_IN.lists("git-settings-harmless", &key.to_ascii_lowercase())
}

/// `git config`: reading with one operand or a reading option; writing is judged by the key.
pub(super) fn config(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    let facts = judge.scanned(name, profile, arguments, &scanned);
    let reads = scanned.iter().any(|argument| {
        matches!(argument, ScannedArgument::Option { name, .. }
            if matches!(name.as_str(), "-l" | "--list") || name.starts_with("--get"))
    });
    let mut operands: Vec<&Argument> = scanned
        .iter()
        .filter_map(|argument| match argument {
            ScannedArgument::Operand { argument, .. } => Some(argument),
            _ => None,
        })
        .collect();
    let verb = operands.first().map(|word| word.text.as_str()).unwrap_or_default();
    if reads || matches!(verb, "list" | "get") {
        return facts;
    }
    if matches!(verb, "set" | "unset" | "rename-section" | "remove-section" | "edit") {
        judge.found.modify(RiskLevel::Medium, format!("`{name}` changes a setting"));
        operands = operands.into_iter().skip(1).collect();
    } else if operands.len() < 2 && operands.iter().all(|word| word.exact) && !operands.is_empty() {
        return facts;
    }
    judge.found.modify(RiskLevel::Medium, format!("`{name}` changes a setting"));
    if let Some(key) = operands.first().filter(|key| !key.exact || !is_harmless_key(&key.text)) {
        judge.found.deny(format!(
            "the setting `{}` of git can start a program or weaken protection",
            shown(&key.text)
        ));
    }
    facts
}

/// `git clone` and other commands that take the address of a repository.
pub(super) fn clone(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    let facts = judge.scanned(name, profile, arguments, &scanned);
    for argument in &scanned {
        match argument {
            ScannedArgument::Option { name: option, value: Some(value), .. }
                if option == "-c" || (option.len() > 4 && "--config".starts_with(option.as_str())) =>
            {
                judge_setting(judge, value);
            }
            ScannedArgument::Operand { argument, .. } if argument.text.starts_with("ext::") => {
                judge.found.deny(format!("`{name}` starts a program for its connection"));
            }
            _ => {}
        }
    }
    facts
}

/// Commands with a format for commits: `%G` checks a signature with another program.
pub(super) fn format(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    if arguments.iter().any(|argument| argument.text.contains("%G") || argument.text.contains("%(signature"))
    {
        judge.found.modify(
            RiskLevel::Medium,
            format!("a format of `{name}` checks signatures with another program"),
        );
    }
    judge.ordinary(name, profile, arguments)
}
