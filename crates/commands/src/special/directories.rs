//! `cd` and its like: paths after it mean something else.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::line_state::StageFacts;
use crate::profile::CommandProfile;

pub(super) fn change(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.read(format!("`{name}` changes the directory of this shell"));
    let is_option = |word: &&Argument| word.exact && word.text.len() > 1 && word.text.starts_with('-');
    let directory = arguments.iter().find(|word| !is_option(word));
    for option in arguments.iter().filter(is_option) {
        if !matches!(option.text.as_str(), "-L" | "-P" | "-e" | "-@" | "--") {
            judge.found.modify(RiskLevel::Medium, format!("an option of `{name}` is not in the table"));
        }
    }
    match directory {
        Some(word) => judge.here.change(&word.text),
        None => judge.here.change("~"),
    }
    StageFacts::default()
}
