//! Interpreters and builds: what they run is visible, but not judged; code on the command line is.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::profile::CommandProfile;
use crate::{program_name, suspicious};

/// Calls without parentheses that start a program, with the blank and the quote that follow them.
const STARTING_STATEMENTS: &[&str] =
    &["exec \"", "exec '", "system \"", "system '", "exec q", "system q", "%x"];

/// The same, with anything after them.
const STARTING_WORDS: &[&str] = &["exec ", "system ", "fork;"];

pub(super) fn judge(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    if let Some((module, rest)) = module_of(&scanned, arguments)
        && let Some(inner) = program_name::profile(&module.text).filter(|_| module.exact)
    {
        let whole = format!("{name} -m {}", module.text);
        judge.found.modify(profile.risk, format!("`{whole}` runs a module"));
        return judge.profiled(&whole, inner, rest);
    }
    let mut facts = judge.scanned(name, profile, arguments, &scanned);
    facts.runs_input &= module_of(&scanned, arguments).is_none();
    for argument in &scanned {
        if let ScannedArgument::Option { value: Some(code), .. } = argument {
            let statement = STARTING_STATEMENTS.iter().any(|start| code.text.contains(start));
            let words = matches!(name, "perl" | "ruby" | "php" | "tclsh")
                && STARTING_WORDS.iter().any(|word| code.text.contains(word));
            let backquotes =
                !matches!(name, "node" | "deno" | "bun" | "python" | "python3") && code.text.contains('`');
            if statement || words || backquotes {
                judge
                    .found
                    .deny(format!("the code of `{name}` starts another program; call that program directly"));
            }
        }
    }
    facts
}

/// `-m MODULE` and the arguments of the module.
fn module_of<'a>(
    scanned: &'a [ScannedArgument],
    arguments: &'a [Argument],
) -> Option<(&'a Argument, &'a [Argument])> {
    let module = scanned.iter().find_map(|argument| match argument {
        ScannedArgument::Option { name, value: Some(value), .. } if name == "-m" => Some(value),
        _ => None,
    })?;
    let at = arguments
        .iter()
        .position(|argument| argument.text == module.text || argument.text.starts_with("-m"))?;
    let at = if arguments.get(at).is_some_and(|argument| argument.text == "-m") { at + 1 } else { at };
    Some((module, arguments.get(at + 1..)?))
}

/// A program whose operands are scripts in its own language, such as a database client or an editor.
pub(super) fn operand_script(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let facts = judge.ordinary(name, profile, arguments);
    suspicious::judge_unknown(&mut judge.found, arguments);
    let calls = |argument: &&Argument| {
        let lower = argument.text.to_ascii_lowercase();
        lower.contains("system(") || lower.contains("\\!") || lower.contains("shell-command")
    };
    if arguments.iter().any(|argument| calls(&argument)) {
        judge.found.deny(format!("the script of `{name}` starts another program"));
    }
    facts
}

/// `make`: variables on its command line that name a program, and text that it evaluates.
pub(super) fn make(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let facts = judge.ordinary(name, profile, arguments);
    for argument in arguments {
        let Some((variable, value)) = argument.text.split_once('=') else { continue };
        let variable = variable.trim_end_matches([':', '?', '+', '!']);
        if matches!(variable, "SHELL" | ".SHELLFLAGS" | "MAKE" | "MAKEFLAGS" | "MAKEFILES") {
            judge.found.deny(format!("the variable `{variable}` decides what `{name}` runs"));
        }
        if value.contains("$(shell") {
            judge.found.deny(format!("a variable of `{name}` runs a command"));
        }
        if value.contains('$') {
            judge.found.modify(RiskLevel::High, format!("a variable of `{name}` is evaluated"));
        }
    }
    facts
}
