//! `test` and `[`. Bash evaluates the subscript of a variable that `-v` names, and so runs the commands in it.

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::line_state::StageFacts;
use crate::profile::CommandProfile;

pub(super) fn judge(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.read(format!("`{name}` only tests"));
    let operands = match arguments.split_last() {
        Some((last, operands)) if name == "[" && last.text == "]" => operands,
        _ => arguments,
    };
    let names_variable = operands.iter().any(|word| matches!(word.text.as_str(), "-v" | "-R"));
    if names_variable || (operands.iter().any(|word| !word.exact) && !has_known_operator(operands)) {
        judge.found.unparsed(format!("`{name}` could evaluate the name of a variable"));
    }
    StageFacts::default()
}

/// Whether the operator is known although an operand is not: `-f WORD` or `WORD = WORD`, without word splitting.
fn has_known_operator(operands: &[Argument]) -> bool {
    let operands = match operands.split_first() {
        Some((first, rest)) if first.exact && first.text == "!" => rest,
        _ => operands,
    };
    let is_operator = |word: &Argument| word.exact && !matches!(word.text.as_str(), "-a" | "-o" | "(" | ")");
    let one_word = |word: &Argument| word.exact || (!word.splits && !word.globs);
    match operands {
        [operator, operand] => is_operator(operator) && one_word(operand),
        [left, operator, right] => one_word(left) && is_operator(operator) && one_word(right),
        _ => false,
    }
}
