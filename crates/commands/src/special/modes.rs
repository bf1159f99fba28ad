//! Programs where a number, a letter or a count of operands decides: `chmod`, `date`, `tar`, `xxd`.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::paths::{DeleteTarget, WriteTarget};
use crate::profile::CommandProfile;

/// `chmod`, `chown`, `install -m`: the mode, then files.
pub(super) fn chmod(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    judge.scanned(name, profile, arguments, &scanned);
    let mut operands = scanned.iter().filter_map(|argument| match argument {
        ScannedArgument::Operand { argument, .. } => Some(argument),
        ScannedArgument::UnknownOption { .. }
        | ScannedArgument::Uncertain(_)
        | ScannedArgument::Option { .. } => None,
    });
    if name == "chmod"
        && let Some(mode) = operands.next()
    {
        if sets_user_id(&mode.text) {
            judge.found.deny(format!("the mode `{}` lets others run it as its owner", shown(&mode.text)));
        }
        if mode.text.contains('x') {
            let runs_fetched = operands.clone().any(|file| judge.line.is_fetched(&file.text));
            if runs_fetched {
                judge.found.deny("fetched content is made executable");
            }
        }
    } else {
        operands.next();
    }
    for file in operands.filter(|_| name != "install") {
        judge_attributes(judge, name, file);
    }
    let modes = scanned.iter().filter_map(|argument| match argument {
        ScannedArgument::Option { name: option, value, .. }
            if option == "-m" || option.starts_with("--m") =>
        {
            value.as_ref()
        }
        _ => None,
    });
    for mode in modes.filter(|mode| sets_user_id(&mode.text)) {
        judge.found.deny(format!("the mode `{}` lets others run it as its owner", shown(&mode.text)));
    }
    StageFacts::default()
}

fn judge_attributes(judge: &mut CommandJudge<'_>, name: &str, file: &Argument) {
    let outside = matches!(judge.here.write_target(&file.text), WriteTarget::System | WriteTarget::Protected)
        || judge.here.delete_target(&file.text, true) != DeleteTarget::Ordinary;
    if outside {
        judge
            .found
            .deny(format!("`{name}` changes `{}`, outside the workspace or protected", shown(&file.text)));
    }
}

/// Whether a mode sets the user or group id on execution.
fn sets_user_id(mode: &str) -> bool {
    let octal = mode.bytes().all(|byte| byte.is_ascii_digit());
    if octal {
        let special = mode.len().checked_sub(4).and_then(|at| mode.as_bytes().get(at));
        return special.is_some_and(|digit| matches!(digit, b'2'..=b'7'));
    }
    mode.split(',')
        .any(|clause| clause.split_once(['+', '=']).is_some_and(|(_, permissions)| permissions.contains('s')))
}

/// `date [+FORMAT]` prints; another operand sets the clock.
pub(super) fn date(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    let facts = judge.scanned(name, profile, arguments, &scanned);
    for argument in &scanned {
        if let ScannedArgument::Operand { argument, .. } = argument
            && !argument.literal_prefix().starts_with('+')
        {
            judge.found.modify(RiskLevel::High, format!("`{name}` with a time sets the clock"));
        }
    }
    facts
}

/// `tar`: the first word may be letters without a dash.
pub(super) fn tar(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let mut words: Vec<Argument> = arguments.to_vec();
    if let Some(first) = words.first_mut()
        && first.exact
        && !first.text.starts_with('-')
        && first.text.chars().all(|c| c.is_ascii_alphanumeric())
    {
        // Values of the letters follow in their order: each becomes an option of its own.
        let letters: Vec<char> = first.text.chars().collect();
        let mut values = arguments.iter().skip(1);
        let mut separate = Vec::new();
        for letter in letters {
            separate.push(Argument::exact(format!("-{letter}")));
            if "fbCIFTXNgKLV".contains(letter) {
                separate.extend(values.next().cloned());
            }
        }
        separate.extend(values.cloned());
        words = separate;
    }
    let scanned = options::scan(profile, &words);
    let facts = judge.scanned(name, profile, &words, &scanned);
    for argument in &scanned {
        if let ScannedArgument::Option { name: option, value: Some(value), .. } = argument
            && option.starts_with("--checkpoint-a")
            && !matches!(value.text.as_str(), "dot" | "." | "echo" | "bell" | "ttyout" | "totals")
        {
            judge.found.deny(format!("`{name} {option}` starts `{}`", shown(&value.text)));
        }
    }
    facts
}

/// `xxd [FILE [OUTPUT]]`; `-r` writes what it decodes.
pub(super) fn xxd(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let single: Vec<Argument> = arguments
        .iter()
        .map(|argument| match argument.text.strip_prefix("--") {
            Some(rest) if argument.exact => Argument::exact(format!("-{rest}")),
            _ => argument.clone(),
        })
        .collect();
    judge.ordinary(name, profile, &single)
}

/// `sysctl NAME=VALUE` changes the kernel.
pub(super) fn sysctl(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    if arguments.iter().any(|argument| argument.text.contains('=') || !argument.exact) {
        judge.found.deny(format!("`{name}` changes a setting of the kernel"));
    }
    judge.ordinary(name, profile, arguments)
}
