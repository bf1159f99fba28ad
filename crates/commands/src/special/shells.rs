//! Shells, and the builtin commands of a shell that run a text or a file.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::profile::CommandProfile;

/// `sh`, `bash` and their like: `-c TEXT`, a script, or the standard input.
pub(super) fn judge(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let mut facts = StageFacts { is_shell: true, ..StageFacts::default() };
    if let [only] = arguments
        && matches!(only.text.as_str(), "--version" | "--help")
    {
        judge.found.read(format!("`{name}` prints facts about itself"));
        return facts;
    }
    let mut words = arguments.iter();
    let mut has_text = false;
    let operand = loop {
        let Some(word) = words.next() else { break None };
        match word.text.as_str() {
            _ if !word.exact && word.may_be_option() => break Some(word),
            "--" | "-" => break words.next(),
            "--rcfile" | "--init-file" => {
                judge.found.deny(format!("`{name}` runs a start file"));
                words.next();
            }
            long if long.starts_with("--") => {
                if !matches!(
                    long,
                    "--login" | "--norc" | "--noprofile" | "--posix" | "--restricted" | "--verbose"
                ) {
                    judge
                        .found
                        .unparsed(format!("the option `{}` of `{name}` is not in the table", shown(long)));
                }
            }
            short if short.len() > 1 && short.starts_with(['-', '+']) => {
                has_text |= short.starts_with('-') && short.contains('c');
                let takes_value = short.chars().filter(|c| matches!(c, 'o' | 'O')).count();
                words.by_ref().take(takes_value).for_each(drop);
                short_options(judge, name, short);
            }
            _ => break Some(word),
        }
    };
    match operand {
        Some(text) if has_text => shell_command(judge, name, text),
        Some(script) => script_file(judge, name, profile, script, &mut facts),
        None => {
            judge.found.modify(RiskLevel::High, format!("`{name}` runs what it reads"));
            facts.runs_input = true;
        }
    }
    facts
}

fn short_options(judge: &mut CommandJudge<'_>, name: &str, short: &str) {
    if short.starts_with('-') && short.contains('p') {
        judge.found.deny(format!("`{name} -p` keeps privileges"));
    }
    if !short.chars().skip(1).all(|c| "ceEfhiklmnoOprstuvxl".contains(c)) {
        judge.found.unparsed(format!("the option `{}` of `{name}` is not in the table", shown(short)));
    }
    if short.contains('i') {
        judge.found.unparsed(format!("`{name} -i` runs start files, which can change what names mean"));
    }
    if short.contains('k') {
        judge.found.unparsed(format!("`{name} -k` changes what an assignment is"));
    }
}

fn shell_command(judge: &mut CommandJudge<'_>, name: &str, text: &Argument) {
    if text.exact && text.text.is_empty() {
        return judge.found.read(format!("`{name}` runs nothing"));
    }
    if !BUILT_IN.lists("posix-shells", name) && !text.text.chars().all(is_portable) {
        judge.found.unparsed(format!("the language of `{name}` is not that of bash"));
    }
    judge.shell_argument(text);
}

/// Characters that mean the same in every shell.
fn is_portable(c: char) -> bool {
    c.is_ascii_alphanumeric() || " _./:,@%+-|&;'".contains(c)
}

fn script_file(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &CommandProfile,
    script: &Argument,
    facts: &mut StageFacts,
) {
    judge.found.modify(profile.risk, format!("`{name}` runs a script"));
    if !script.exact {
        judge.found.unparsed(format!("what `{name}` runs is not known before"));
    }
    if script.substituted || script.prefix == 0 && !script.exact && !script.globs {
        judge.found.deny(format!("`{name}` runs what another command or a variable supplies"));
    }
    if judge.line.is_fetched(&script.text) {
        judge.found.deny(format!("`{name}` runs `{}`, which was fetched before", shown(&script.text)));
    }
    facts.runs_input = matches!(script.text.as_str(), "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0");
}

/// `eval`: the words are joined and run.
pub(super) fn eval(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.modify(RiskLevel::High, format!("`{name}` runs a text"));
    let text: Vec<&str> = arguments.iter().map(|argument| argument.text.as_str()).collect();
    let mut joined = Argument::exact(text.join(" "));
    if arguments.iter().any(|argument| !argument.exact) {
        joined.exact = false;
        joined.prefix = 0;
    }
    judge.shell_argument(&joined);
    StageFacts::default()
}

/// `.` and `source`: the commands of a file run in this shell.
pub(super) fn source(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.unparsed(format!("`{name}` runs the commands of a file"));
    let mut facts = StageFacts { is_shell: true, ..StageFacts::default() };
    if let Some(script) = arguments.first() {
        script_file(judge, name, profile, script, &mut facts);
    }
    facts
}

/// `trap TEXT SIGNAL...`
pub(super) fn trap(
    judge: &mut CommandJudge<'_>,
    name: &str,
    _: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let is_option =
        |argument: &&Argument| argument.exact && argument.text.starts_with('-') && argument.text.len() > 1;
    let mut words = arguments.iter().skip_while(|argument| argument.text == "--");
    if arguments.first().is_some_and(|first| is_option(&first) && first.text != "--") {
        judge.found.modify(RiskLevel::Medium, format!("`{name}` lists what signals do"));
        return StageFacts::default();
    }
    judge.found.modify(RiskLevel::Medium, format!("`{name}` runs a text later"));
    if let Some(text) = words.next().filter(|_| arguments.len() > 1) {
        judge.shell_argument(text);
    }
    StageFacts::default()
}

/// A builtin after which words and names may mean something else.
pub(super) fn unparsed(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.unparsed(format!("`{name}` changes what the commands after it mean"));
    judge.ordinary(name, profile, arguments)
}

/// A program whose last argument may be a text for a shell.
pub(super) fn last(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    if let Some(text) = arguments.last().filter(|_| arguments.len() > 1) {
        judge.found.unparsed(format!("`{name}` may run a text"));
        judge.shell_argument(text);
    }
    judge.ordinary(name, profile, arguments)
}
