//! Signs that a program is made to start another one, for programs, options and scripts that the tables do not know.

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judgement::{Judgement, shown};
use crate::paths::{CurrentDirectory, DeleteTarget, WriteTarget};

/// Options of an unknown program.
pub(crate) fn judge_unknown(found: &mut Judgement, arguments: &[Argument]) {
    for (at, argument) in arguments.iter().enumerate() {
        if let Some(option) = argument.text.strip_prefix("--").filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let next = arguments.get(at + 1).map(|next| next.text.as_str()).unwrap_or_default();
            let value = if value.is_empty() { next } else { value };
            judge_named(found, name, value);
        }
        judge_escape(found, "an argument", &argument.text);
    }
}

/// An option that the table of its program does not contain.
pub(crate) fn judge_option(found: &mut Judgement, option: &str, value: Option<&Argument>) {
    let value = value.map(|value| value.text.as_str()).unwrap_or_default();
    judge_named(found, option.trim_start_matches('-'), value);
    judge_escape(found, "an option", value);
}

fn judge_named(found: &mut Judgement, option: &str, value: &str) {
    if BUILT_IN.lists("unprotecting-options", option) {
        return found.deny(format!("the option `--{}` weakens protection", shown(option)));
    }
    let names_program =
        option.split(['-', '.', '_']).any(|part| BUILT_IN.lists("program-option-parts", part));
    if names_program && looks_like_program(value) {
        found.deny(format!("the option `--{}` starts `{}`", shown(option), shown(value)));
    }
}

fn looks_like_program(value: &str) -> bool {
    let first = value.split_whitespace().next().unwrap_or_default().trim_start_matches(['|', '!']);
    first.starts_with("./")
        || first.starts_with("/")
        || first.starts_with("../")
        || BUILT_IN.lists("shells", first)
        || value.starts_with(['|', '!'])
}

/// A text that begins like a shell escape of an editor, a pager or a database client.
fn judge_escape(found: &mut Judgement, what: &str, text: &str) {
    let text = text.trim_start_matches(['+', ':', ' ']);
    let escapes = ["!", "\\!", "|", ".shell ", ".system ", "EXEC:", "SYSTEM:", "exec:", "system:", "ext::"];
    let begins =
        |start: &str| text.strip_prefix(start).is_some_and(|rest| rest.starts_with(is_command_start));
    if escapes.iter().any(|start| begins(start)) {
        found.deny(format!("{what} `{}` is a shell escape", shown(text)));
    }
}

fn is_command_start(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | ' ' | '~' | '\'' | '"' | ':')
}

/// A script in the own language of a program that is no interpreter.
pub(crate) fn judge_embedded(found: &mut Judgement, program: &str, script: &Argument) {
    let text = script.text.as_str();
    let lower = text.to_ascii_lowercase();
    let calls = BUILT_IN.list("starting-calls").any(|call| lower.contains(call));
    if calls || text.contains('!') || lower.contains('|') || text.contains('`') || !script.exact {
        found.deny(format!("the script of `{program}` can start another program"));
    }
}

/// Code for an interpreter: it is denied if it starts programs, decodes what it runs, or writes outside.
pub(crate) fn judge_code(found: &mut Judgement, program: &str, code: &str) {
    let lower = code.to_ascii_lowercase();
    let has = |list: &str| BUILT_IN.list(list).any(|sign| lower.contains(sign));
    if has("starting-calls") {
        found.deny(format!("the code of `{program}` starts another program; call that program directly"));
    }
    let evaluates = has("evaluating-calls");
    if evaluates && (has("decoding-calls") || has("fetching-calls")) {
        found.deny(format!("the code of `{program}` runs what it decodes or fetches"));
    }
    if has("fetching-calls") && has("environment-reads") {
        found.deny(format!("the code of `{program}` could send the environment to another host"));
    }
    if has("writing-calls") {
        judge_written_literals(found, program, code);
    }
}

fn judge_written_literals(found: &mut Judgement, program: &str, code: &str) {
    let mut here = CurrentDirectory::default();
    here.expands_home = true;
    for literal in
        code.split(['"', '\'', '`', '(', ')', ',', ' ']).filter(|part| part.starts_with(['/', '~', '.']))
    {
        let target = here.write_target(literal);
        let outside = matches!(target, WriteTarget::System | WriteTarget::Protected)
            || here.delete_target(literal, true) == DeleteTarget::Outside;
        if outside {
            found.deny(format!("the code of `{program}` writes `{}`", shown(literal)));
        }
    }
}

/// A script that is an address.
pub(crate) fn judge_remote_script(found: &mut Judgement, program: &str, script: &Argument) {
    let remote = ["http://", "https://", "ftp://", "git+", "github:", "gist:"];
    if remote.iter().any(|start| script.text.starts_with(start)) {
        found.deny(format!("`{program}` runs fetched content"));
    }
}

/// A quote inside quotes, followed by a separator and a command: a reader takes it for the end of the string.
pub(crate) fn judge_quote_confusion(found: &mut Judgement, text: &str) {
    found.modify(vambrace_core::risk::RiskLevel::Medium, "an escaped quote is followed by a separator");
    for after in text.split("\\\"").skip(1) {
        let rest = after.trim_start_matches([' ', '\t', ';', '&', '|']);
        let word = rest.split([' ', '\t', ';', '&', '|', '"']).next().unwrap_or_default();
        let is_program = word.contains('/') || crate::program_name::profile(word).is_some();
        if rest.len() < after.len() && is_program {
            found.deny(
                "an escaped quote and a separator make text look like a command, or a command like text",
            );
        }
    }
}

/// A function that starts itself twice, in a text that does not parse: `x(){x|x&};x` without the blanks that bash needs.
pub(crate) fn judge_fork_bomb(found: &mut Judgement, text: &str) {
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let Some((before, body)) = dense.split_once("(){") else { return };
    let name = before.rsplit([';', '&', '|']).next().unwrap_or_default();
    if !name.is_empty() && body.starts_with(&format!("{name}|{name}&")) {
        found.deny("a function starts itself again");
    }
}
