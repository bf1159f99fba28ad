//! `find`: options, starting points, and an expression that can delete, write and start programs.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::classification::CommandClass;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::paths::DeleteTarget;
use crate::profile::CommandProfile;
use crate::program_name;

pub(super) fn judge(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.read(format!("`{name}` without actions that change something only reads"));
    let is_expression =
        |word: &Argument| word.may_be_option() || matches!(word.text.as_str(), "(" | ")" | "!" | ",");
    let start = arguments.iter().position(|word| is_expression(word) && !is_early_option(&word.text));
    let (starts, expression) = arguments.split_at(start.unwrap_or(arguments.len()));
    let mut words = expression.iter();
    while let Some(word) = words.next() {
        if !word.exact {
            judge.found.unparsed(format!("`{}` could become an action of `{name}`", shown(&word.text)));
            continue;
        }
        match word.text.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let inner: Vec<Argument> =
                    words.by_ref().take_while(|word| !ends_action(word)).cloned().collect();
                inner_program(judge, &inner);
            }
            "-delete" => delete(judge, starts),
            "-fprint" | "-fprint0" | "-fls" => words.next().into_iter().for_each(|file| judge.write_to(file)),
            "-fprintf" => {
                words.next().into_iter().for_each(|file| judge.write_to(file));
                words.next();
            }
            primary if BUILT_IN.lists("find-plain", primary) => {}
            primary if BUILT_IN.lists("find-with-value", primary) || primary.starts_with("-newer") => {
                if words.next().is_some_and(Argument::may_add_options) {
                    judge.found.unparsed(format!("a value in the expression of `{name}` is not known"));
                }
            }
            operator @ ("(" | ")" | "!" | ",") => {
                let _ = operator;
            }
            other => judge.found.modify(
                RiskLevel::Medium,
                format!("`{}` in the expression of `{name}` is not in the table", shown(other)),
            ),
        }
    }
    StageFacts::default()
}

fn is_early_option(word: &str) -> bool {
    matches!(word, "-H" | "-L" | "-P") || word.starts_with("-O")
}

fn ends_action(word: &Argument) -> bool {
    word.exact && matches!(word.text.as_str(), ";" | "+")
}

fn delete(judge: &mut CommandJudge<'_>, starts: &[Argument]) {
    judge.found.modify(RiskLevel::High, "`find` deletes what it finds");
    for start in starts.iter().filter(|start| !is_early_option(&start.text)) {
        if judge.here.delete_target(&start.text, true) != DeleteTarget::Ordinary {
            judge.found.deny(format!("`find` deletes below `{}`", shown(&start.text)));
        }
    }
}

/// The program gets the names of files that nobody has chosen: an interpreter would run them, and an unknown program
/// does what nobody can tell.
fn inner_program(judge: &mut CommandJudge<'_>, inner: &[Argument]) {
    let Some(name) = inner.first() else {
        return judge.found.modify(RiskLevel::Medium, "`find` starts a program");
    };
    judge.found.modify(RiskLevel::Medium, format!("`find` starts `{}`", shown(&name.text)));
    let profile = program_name::known_name(&name.text).and_then(program_name::profile);
    let openly = profile.is_some_and(|profile| {
        !profile.traits.interpreter
            && (profile.base != CommandClass::Modifying || profile.special != Some("shell"))
    });
    if !openly {
        judge.found.deny(format!("`find` runs `{}` on what it finds", shown(&name.text)));
    }
    let found_name = |word: &Argument| {
        if word.text.contains("{}") {
            Argument { text: "./{}".to_owned(), exact: false, prefix: 2, ..word.clone() }
        } else {
            word.clone()
        }
    };
    let words: Vec<Argument> = inner.iter().map(found_name).collect();
    judge.program(&words);
}
